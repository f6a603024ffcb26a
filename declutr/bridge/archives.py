"""Additions to AllenNLP's archives: they carry their transformer, and are extracted safely.

They do not work around a change of a library, but are applied in the same way and switched off
together with the bridge; with `DECLUTR_PLUGIN=0`, carried transformers are used all the same. Each
function takes a module of AllenNLP right after its body ran.
"""

import contextlib
import importlib
import inspect
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from declutr.bridge.own_names import CARRIED_NAMES, names_own, of_archive
from declutr.bridge.repairs import replaces

# Modules of a package that builds on the bridge, imported only when AllenNLP needs them.
CARRIED = "declutr.archives.carried"
SAFETY = "declutr.archives.safety"

_archived: ContextVar[bool] = ContextVar("archived", default=False)


def is_archived() -> bool:
    """Return whether this thread or task is building the dataset readers of an archive.

    They serve prediction and evaluation; what a reader does in training only, it leaves out.
    """
    return _archived.get()


def carried_transformers(module: ModuleType) -> None:
    """Let archives use the files of the transformer that they carry.

    See `declutr.archives.carried`. The rules for untrusted archives count on it: they let pass a
    name that loading replaces. Can be removed when AllenNLP archives the files that the parts of a
    model are built from.
    """

    def with_archived(config: Any, serialization_dir: str) -> Any:
        if not os.path.isfile(os.path.join(serialization_dir, CARRIED_NAMES)):
            return config
        carried = importlib.import_module(CARRIED)
        return carried.use_archived_transformer(config, str(serialization_dir))

    @replaces(module)
    def _load_dataset_readers(original: Any, config: Any, serialization_dir: str) -> Any:
        token = _archived.set(True)
        try:
            return original(with_archived(config, serialization_dir), serialization_dir)
        finally:
            _archived.reset(token)

    @replaces(module)
    def _load_model(
        original: Any, config: Any, weights_path: Any, serialization_dir: str, cuda_device: int
    ) -> Any:
        config = with_archived(config, serialization_dir)
        return original(config, weights_path, serialization_dir, cuda_device)


def included_files(module: ModuleType) -> None:
    """Let `include_in_archive` find files in a serialization directory of any name.

    AllenNLP took brackets and stars in it for a pattern, and left the files out without a word.
    Can be removed when `archive_model` escapes the directory.
    """
    plain = module.glob

    @replaces(module)
    def archive_model(original: Any, *args: Any, **kwargs: Any) -> str:
        arguments = inspect.signature(original).bind(*args, **kwargs).arguments
        begin = os.path.join(arguments["serialization_dir"], "")

        def within(pattern: str) -> list[str]:
            inside = pattern.startswith(begin)  # unless the user gave another place
            return plain.glob(plain.escape(begin) * inside + pattern.removeprefix(begin))

        module.glob = SimpleNamespace(glob=within)  # type: ignore[attr-defined]
        try:
            return original(**arguments)
        finally:
            module.glob = plain  # type: ignore[attr-defined]


def archived_transformers(module: ModuleType) -> None:
    """Let archives carry the files of their transformer, and refuse damaged weights.

    See `declutr.archives.carried`. Can be removed when AllenNLP archives the files that the parts
    of a model are built from.
    """

    @replaces(module)
    def archive_model(original: Any, *args: Any, **kwargs: Any) -> str:
        arguments = inspect.signature(original).bind(*args, **kwargs).arguments
        folder = str(arguments["serialization_dir"])
        weights = os.path.join(folder, arguments.get("weights", module._DEFAULT_WEIGHTS))
        if not names_own(os.path.join(folder, module.CONFIG_NAME)) and _is_sound(weights):
            return original(**arguments)
        carried = importlib.import_module(CARRIED)
        carried.require_whole_weights(weights)
        if files := carried.archive_transformer(folder, weights):
            included = arguments.get("include_in_archive") or []
            # An archive that has a file twice would be refused.
            arguments["include_in_archive"] = list(dict.fromkeys([*included, *files]))
        return original(**arguments)


def folders_as_vocabularies(module: ModuleType) -> None:
    """Refuse an archive whose vocabulary is a file.

    AllenNLP extracts it as an archive, through links and to any place. Can be removed when it
    extracts by rules, or takes the vocabulary of an archive from a folder only.
    """

    @replaces(module)
    def _load_model(
        original: Any, config: Any, weights_path: Any, serialization_dir: str, cuda_device: int
    ) -> Any:
        if os.path.isfile(os.path.join(serialization_dir, "vocabulary")):
            raise importlib.import_module(SAFETY).UnsafeArchive(
                f"{serialization_dir}: 'vocabulary' is a file; expected a folder. Take it out."
            )
        return original(config, weights_path, serialization_dir, cuda_device)


def _is_sound(weights: str) -> bool:
    """Return whether all records of a weight file are what was written."""
    try:
        with zipfile.ZipFile(weights) as records:
            return records.testzip() is None
    except Exception:  # a malformed file can raise nearly any error
        return False


def archived_names(module: ModuleType) -> None:
    """Let names in an archive of this package mean its own classes, whoever has them here.

    See `declutr.bridge.own_names.of_archive`. Can be removed when archives of release 2.0 and
    before are not opened any more: later ones have names that no other package can take.
    """
    plain: Any = module.Params  # which can be pickled

    class ArchivedParams(plain):
        @classmethod
        def from_file(cls, params_file: Any, *args: Any, **kwargs: Any) -> Any:
            params = super().from_file(params_file, *args, **kwargs)
            return plain(of_archive(params.params, os.path.dirname(params_file)))

    module.Params = ArchivedParams  # type: ignore[attr-defined]


def checked_extraction(module: ModuleType) -> None:
    """Extract archives by the rules of `declutr.archives.safety`, only into a new folder.

    AllenNLP extracts every member, also paths with `../`, links and devices. Can be removed when it
    gives tarfile a filter and limits the size.
    """

    @contextlib.contextmanager
    def extracted_archive(resolved_archive_file: Any, cleanup: bool = True) -> Iterator[str]:
        safety = importlib.import_module(SAFETY)
        folder = tempfile.mkdtemp()
        try:
            # Where nobody has asked for safety, sizes are limited by the disk alone.
            trust = not safety.is_untrusted()
            safety.extract(Path(resolved_archive_file), Path(folder), trust)
        except BaseException:  # AllenNLP does not know the folder yet, so it cannot remove it
            shutil.rmtree(folder, ignore_errors=True)
            raise
        try:
            yield folder
        finally:
            if cleanup:
                shutil.rmtree(folder, ignore_errors=True)

    module.extracted_archive = extracted_archive  # type: ignore[attr-defined]
