"""The folder of a run: its configuration, its texts, and whether the same call goes on with it."""

from __future__ import annotations

import glob
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.training.util import make_vocab_from_params
from filelock import FileLock, Timeout
from torch.multiprocessing.spawn import ProcessExitedException

from declutr._version import __version__
from declutr.archives import ARCHIVE, RUN
from declutr.bridge.additions import shown
from declutr.bridge.component_names import short
from declutr.bridge.own_names import strings_in
from declutr.runs.begun_runs import CONFIG, DATA, PATHS, TEXTS, begun_otherwise, data_digests
from declutr.runs.first_tables import use_first_table
from declutr.runs.training_texts import NAMES, TextFiles
from declutr.system import local_path
from declutr.system.cache_folder import default_cache_dir
from declutr.system.files import json_object, write_whole
from declutr.training.stopping import stops_after_a_step

logger = logging.getLogger(__name__)

FINISHED = "finished.json"

_PATIENCE = 300  # seconds to wait for other processes that open a finished run
_NEW_TEXTS = "texts.new"
_BEFORE_TRAINING = {
    *(CONFIG, "meta.json", "vocabulary", "transformer", RUN, TEXTS, _NEW_TEXTS, DATA, "out.log"),
    *(f"out_worker{rank}.log" for rank in range(64)),
}
_OF_RUNS = (  # what AllenNLP and this package write into the folder of a run
    *(*_BEFORE_TRAINING, FINISHED, ARCHIVE, "*.th", "metrics*.json", "out*.log", "log"),
    *("evaluations", "whitening*", "model_state_*", "training_state_*", "*.tmp"),
)


class TrainingError(ConfigurationError):
    """Error of a run that cannot be begun, or not be gone on with."""


class RunFolder:
    """The folder of a run that `declutr.train` begins, or goes on with.

    # Parameters

    folder : an absolute path. Nothing need be there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from training in the folder within this context.

        The lock is a file in the cache folder, where it stays.

        # Raises

        `TrainingError` : another process trains in it.
        """
        place = hashlib.sha256(str(self._folder.resolve()).encode()).hexdigest()[:32]
        lock = FileLock(default_cache_dir() / f"run-{place}.lock")
        try:
            Path(lock.lock_file).parent.mkdir(parents=True, exist_ok=True)
            # Several processes may open a finished run, each of which holds the lock for a moment.
            lock.acquire(timeout=_PATIENCE if self._is_finished else 0)
        except Timeout as error:
            raise TrainingError(
                f"Another process trains in '{self._folder}'. Wait for it, or choose another "
                "output."
            ) from error
        except (OSError, NotImplementedError) as error:
            logger.warning("Nothing keeps others from training in %s: %s", self._folder, error)
        try:
            yield
        finally:
            lock.release()

    @property
    def _names(self) -> set[str]:
        return set(os.listdir(self._folder)) if self._folder.exists() else set()

    @property
    def _is_run(self) -> bool:
        """Whether the folder is of a run. A transformer has a `config.json`, too."""
        return {"trainer", "dataset_reader"} <= json_object(self._folder / CONFIG).keys()

    @property
    def _is_finished(self) -> bool:
        return all((self._folder / name).is_file() for name in (FINISHED, ARCHIVE))

    @property
    def _begun(self) -> bool:
        """Whether there is something to go on with: anything that is not there before training."""
        return self._is_run and not self._names <= _BEFORE_TRAINING

    def require(self, resume: bool | str, force: bool) -> None:
        """Raise `TrainingError` if what is in the folder does not go with these parameters."""
        if resume not in (True, False, "auto"):
            raise TrainingError(f"resume is {resume!r}, expected 'auto', True or False.")
        if resume is True and force:
            raise TrainingError("Got resume=True and force=True: go on with a run, or remove it?")
        if resume is True and not self._begun:
            raise TrainingError(f"There is no run in '{self._folder}' that could be gone on with.")
        if resume is False and self._begun and not force:
            raise TrainingError(
                f"There is a run in '{self._folder}'. Choose another output, or remove it with "
                "force=True."
            )
        if _NEW_TEXTS in self._names and not self._are_texts(_NEW_TEXTS):
            raise TrainingError(
                f"'{self._folder / _NEW_TEXTS}' is in the way of texts that are written. Move it."
            )
        others = {name for name in self._names if not self._are_texts(name)}
        if others and not self._is_run:
            raise TrainingError(
                f"'{self._folder}' is no run, but holds files: {', '.join(sorted(others)[:3])}. "
                "Choose another output, or an empty folder."
            )

    def _are_texts(self, name: str) -> bool:
        """Return whether an entry of the folder is one of texts, and holds nothing else."""
        place = self._folder / name
        if name not in (TEXTS, _NEW_TEXTS) or place.is_symlink() or not place.is_dir():
            return False
        return {file.removesuffix(".tmp") for file in os.listdir(place)} <= set(NAMES)

    def _is_of_a_run(self, name: str) -> bool:
        """Return whether an entry of the folder is one that trainings write."""
        if name in (TEXTS, _NEW_TEXTS):
            return self._are_texts(name)
        return any(fnmatch(name, pattern) for pattern in _OF_RUNS)

    def prepare(self, params: Params, data: Any, validation: Any, force: bool) -> bool:
        """Write texts and the configuration, and return whether there is anything to train.

        # Raises

        `TrainingError` : the folder holds a run with other parameters or texts.
        """
        config, new = params.params, self._folder / _NEW_TEXTS
        shutil.rmtree(new, ignore_errors=True)
        follows = bool((config.get("data_loader") or {}).get("consecutive"))
        if data is None:
            data = config.get(PATHS[0])
            data = [Path(one) for one in data] if isinstance(data, list) else data
        texts = TextFiles(config["dataset_reader"], follows)
        existed = self._folder.exists()
        try:
            files = texts.write(new, data, validation)
            written = {name.name for name in new.iterdir()} if new.exists() else set()
            self._set_paths(config, files, written)
            own = new / files[0] if NAMES[0] in written else None
            use_first_table(config, own, None if force else self._folder)
            return self._prepared(params, new, written, force)
        finally:
            shutil.rmtree(new, ignore_errors=True)
            if not existed and self._folder.exists() and not any(self._folder.iterdir()):
                self._folder.rmdir()

    def _set_paths(self, config: dict[str, Any], files: Sequence[Any], written: set[str]) -> None:
        """Set the paths of data in a configuration; texts that were written will be in the run."""
        for key, place, name in zip(PATHS, files, NAMES, strict=True):
            if place == name and name in written:
                config[key] = str(self._folder / TEXTS / name)
            elif place is not None:
                config[key] = place
        if config.get(PATHS[0]) is None:
            raise TrainingError("Got nothing to train on. Expected data, a path or texts.")

    def _prepared(self, params: Params, new: Path, written: set[str], force: bool) -> bool:
        if self._begun and not force:
            self._require_same(params, new, written)
            if self._is_finished:
                return False
            digests = {}
        else:
            self._require_disposable(params, {str(self._folder / TEXTS / name) for name in written})
            if self._is_run:
                self._clear()
            shutil.rmtree(self._folder / TEXTS, ignore_errors=True)
            self._folder.mkdir(parents=True, exist_ok=True)
            if written:
                new.rename(self._folder / TEXTS)
            digests = data_digests(params.params, self._folder)
        # The folder may have been moved since, and with it the texts.
        write_whole(self._folder / CONFIG, json.dumps(params.as_ordered_dict(), indent=4))
        if digests:
            write_whole(self._folder / DATA, json.dumps(digests, indent=2) + "\n")
        return True

    def _require_same(self, params: Params, new: Path, written: set[str]) -> None:
        """Raise `TrainingError` if the run in the folder was begun with anything else."""
        apart = begun_otherwise(self._folder, params, new, written)
        if apart:
            raise TrainingError(
                f"'{self._folder}' holds a run that was begun otherwise: {shown(apart)}. Call with "
                "what it was begun with to go on (where a release has changed the recipe, "
                f"recipe='{self._folder / CONFIG}'), with force=True to remove it and begin anew, "
                "or with another output."
            )

    def _require_disposable(self, params: Params, coming: set[str]) -> None:
        """Raise `TrainingError` if to begin anew would remove data, or what is not of a run.

        # Parameters

        coming : the paths of files that are written afterwards.
        """
        named = set(strings_in(params.params)) - coming
        inside = sorted(text for text in named if self._holds(text))
        if inside:
            raise TrainingError(
                f"To begin anew in '{self._folder}' would remove {inside[0]!r}, which this run "
                "needs. Choose another output."
            )
        others = sorted(name for name in self._names if not self._is_of_a_run(name))
        if others:
            raise TrainingError(
                f"To begin anew in '{self._folder}' would remove {', '.join(others[:3])}, which no "
                "training writes. Move it away, or choose another output."
            )

    def _clear(self) -> None:
        """Remove an earlier run from the folder."""
        for place in self._folder.iterdir() if self._folder.exists() else ():
            if place.name == _NEW_TEXTS:
                continue
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            else:
                place.unlink()

    def _holds(self, text: str) -> bool:
        try:
            place = local_path(text).resolve()
            if not place.is_relative_to(self._folder.resolve()):
                return False
            return place.exists() or any(glob.iglob(str(place), recursive=True))
        except (OSError, ValueError):  # no name of a file
            return False

    def train(self, params: Params) -> None:
        """Train, from the last checkpoint if there is one, and archive the model.

        # Raises

        `TrainingError` : a process of the training ended.
        `KeyboardInterrupt` : training was stopped.
        """
        distributed = params.params.get("distributed")
        folder = str(self._folder)
        if distributed and not (self._folder / "vocabulary").is_dir():
            make_vocab_from_params(params.duplicate(), folder)
        checkpointer = (params.params.get("trainer") or {}).get("checkpointer") or {}
        stops = short(checkpointer.get("type")) == "atomic" and not distributed
        try:
            with stops_after_a_step(stops):
                # AllenNLP begins a run with `recover`, too, if there is no checkpoint.
                train_model(params.duplicate(), folder, recover=True, return_model=False)
        except KeyboardInterrupt:
            logger.warning("Stopped. The same call goes on from the last checkpoint in %s.", folder)
            raise
        except ProcessExitedException as error:
            raise TrainingError(
                f"A process of the training ended ({error}); what it wrote stands above. In a "
                'script, the call of declutr.train must stand under `if __name__ == "__main__":`.'
            ) from error
        write_whole(self._folder / FINISHED, json.dumps({"release": __version__}) + "\n")
