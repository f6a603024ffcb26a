"""Training from Python: `declutr.train`, a recipe and texts in, an `Encoder` out."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from allennlp.common import Params
from allennlp.common.params import parse_overrides
from allennlp.models import Model

from declutr.bridge.names import own_first
from declutr.inference.encoder import Encoder
from declutr.models.declutr import DeCLUTR
from declutr.runs.process_state import (
    as_in_a_new_process,
    logging_to_file,
    random_numbers_restored,
)
from declutr.runs.recipe_parameters import recipe_parameters
from declutr.runs.run_folder import RunFolder, TrainingError
from declutr.runs.training_texts import as_path
from declutr.system import local_path

_running = threading.Lock()


@own_first()
def train(
    data: str | os.PathLike | Iterable[Any] | None = None,
    *,
    model: str | os.PathLike | None = None,
    recipe: str | os.PathLike = "declutr",
    output: str | os.PathLike = "output",
    validation: str | os.PathLike | Iterable[Any] | float | None = None,
    resume: bool | str = "auto",
    force: bool = False,
    overrides: Mapping[str, Any] | str | None = None,
    **keys: Any,
) -> Encoder:
    """Train a sentence encoder by a recipe, and return it.

        texts = ["A first document.", "Another one."]  # thousands of them
        encoder = declutr.train(texts, model="distilroberta-base", recipe="simcse", batch_size=32)
        embeddings = encoder(["A sentence."])  # (1, d)

    It is `allennlp train` of the same recipe: the same losses and weights to the bit, with the same
    progress bars, checks and files in the folder `output`. The process is left as it was: random
    numbers, logging, signal handlers and the number of threads.

    Registered names in the recipe mean classes of this package, also where another package that is
    loaded has taken one.

    The same call again goes on where an interrupted run was (Ctrl-C leaves a checkpoint of the last
    step; several processes go on from the last one that was written), and returns the encoder of a
    finished one at once.

    # Parameters

    data : a path, as `train_data_path` of a recipe: a file, a folder, a glob, a URL, or a list of
        `pathlib.Path`. Or texts in memory: a list, generator, Series or column of strings. Recipes
        of pairs and labels (`simcse_supervised`, `sbert_triplet`, `sup_con`) take rows instead,
        tuples or dicts of the columns of its reader, or a table (pandas, polars, datasets); classes
        may be named. Texts are kept in `output/texts`. By default, the path that the recipe has.
    model : the pretrained transformer, a folder or a name on the hub; by default the environment
        variable `TRANSFORMER_MODEL`, or else the recipe's own. Recipes of static encoders begin
        with a table of token vectors instead, by default one that is made of the training texts.
    recipe : the name of a recipe (`declutr recipes` lists them) or the path of a Jsonnet file.
    output : the folder of the run: checkpoints, metrics, `out.log`, and `model.tar.gz`.
    validation : validation data, like `data`; or the share of the data to hold out, such as 0.1.
    resume : `"auto"` goes on with a run that is in `output`, and begins one if there is none. True
        requires a run there, and False requires that there is none.
    force : remove a run that is in `output`, and begin anew.
    overrides : changes of the configuration, as `allennlp train -o` takes them.
    keys : settings of the recipe (`batch_size=32`, `num_epochs=3`, `learning_rate=1e-5`), and keys
        of its configuration (`**{"trainer.patience": 2}`). Several GPUs train with
        `distributed={"cuda_devices": [0, 1]}`; a script then needs `if __name__ == "__main__":`.

    # Returns

    An encoder of the trained model, `declutr.Encoder(output)`.

    # Raises

    `TrainingError` : `output` holds a run with other parameters or texts, or files that are no run,
        or another process trains in it; or the recipe trains no sentence encoder (those of RECLAIM
        train task models).
    `declutr.runs.known_keys.RecipeError` : the recipe has no such key, or needs a model.
    `declutr.recipes.UnknownRecipe` (a `ValueError`) : there is no such recipe.
    `TypeError`, `ValueError` : the texts are not what the recipe reads.
    `KeyboardInterrupt` : training was stopped; of one process, the last step is in a checkpoint.
    """
    _refuse_in_started_process()
    run = RunFolder(local_path(output).absolute())
    run.require(resume, force)
    params = recipe_parameters(recipe, model, keys, overrides)
    _require_given_once(data, validation, keys, overrides)
    _require_encoder(params, recipe)
    if not _running.acquire(blocking=False):
        raise TrainingError("A training runs in this process already, in another thread.")
    try:
        with random_numbers_restored():
            with run.alone():
                if run.prepare(params, data, validation, force):
                    with as_in_a_new_process(), logging_to_file():
                        run.train(params)
            return Encoder(os.path.expanduser(output))
    finally:
        _running.release()


def _require_given_once(
    data: Any, validation: Any, keys: Mapping[str, Any], overrides: Mapping[str, Any] | str | None
) -> None:
    """Raise `TrainingError` if data are given as an argument and, otherwise, as a key."""
    changes = parse_overrides(overrides) if isinstance(overrides, str) else overrides or {}
    for name, given in (("train", data), ("validation", validation)):
        key = f"{name}_data_path"
        named = keys.get(key, changes.get(key))
        if given is not None and named is not None and (as_path(named) or named) != as_path(given):
            argument = "data" if name == "train" else name
            raise TrainingError(
                f"Got {argument}, and {key}={named!r} as well: which of them? Leave one out."
            )


def _require_encoder(params: Params, recipe: str | os.PathLike) -> None:
    """Raise `TrainingError` if a recipe trains a model that `Encoder` cannot open."""
    name = (params.params.get("model") or {}).get("type")
    if name is None or not issubclass(Model.resolve_class_name(name)[0], DeCLUTR):
        raise TrainingError(
            f"The recipe '{recipe}' trains a model of type {name!r}, which is no sentence encoder. "
            "Train it by `declutr train`, and open it with AllenNLP's `load_archive`."
        )


def _refuse_in_started_process() -> None:
    """Raise if this process is being started by a training, and runs the script of its caller."""
    # multiprocessing marks a process that it starts while that imports the script.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise TrainingError(
            "declutr.train is called while a process of its training starts, which runs the script "
            'once more. Put the call under `if __name__ == "__main__":`.'
        )
