"""What the steps of a run are made of, and whether a resumed run goes on with the same."""

import hashlib
import logging
from typing import Any

from allennlp.training import GradientDescentTrainer

from declutr.corpus.source_digests import source_digests
from declutr.data.data_loader import DeCLUTRDataLoader
from declutr.system.distributed import world_size

logger = logging.getLogger(__name__)


def data_of_steps(trainer: GradientDescentTrainer, loader: DeCLUTRDataLoader) -> dict[str, Any]:
    """Return what a checkpoint notes of the training data.

    # Returns

    `step_size`, how many documents or tokens all processes together take in a step, and in the
    first process `data`, a digest of the files that are read; it is left out if there is none.
    """
    times = trainer._num_gradient_accumulation_steps * world_size()
    sizes = {"documents": loader.batch_size, "tokens": loader.max_tokens}
    found: dict[str, Any] = {
        "step_size": {what: size * times for what, size in sizes.items() if size is not None}
    }
    if not trainer._primary:
        return found
    place = getattr(loader.reader, "cache_dir", None)  # readers of other packages have none
    digests = source_digests(loader.data_path, place)
    if digests is not None:
        found["data"] = hashlib.sha256(" ".join(digests).encode()).hexdigest()
    return found


def tell_other_data(before: dict[str, Any], now: dict[str, Any], step: int, path: Any) -> None:
    """Warn if a run goes on with other data than its checkpoint has seen, or in other steps.

    # Parameters

    before, now : what `data_of_steps` returned for the checkpoint, and now. Those of releases up to
        2.4.8 have noted nothing.
    step : the number of steps in the epoch that were done before the checkpoint.
    path : the training data.
    """
    then = before.get("step_size", now["step_size"])
    if step and then != now["step_size"]:
        logger.warning(
            f"This epoch began with steps of {_in_words(then)}, and goes on after {step} of them "
            f"with steps of {_in_words(now['step_size'])}: it leaves out some documents, or reads "
            "some twice. Set data_loader.batch_size (max_tokens) so that all processes together "
            "take as much as before."
        )
    if "data" in before and "data" in now and before["data"] != now["data"]:
        logger.warning(
            f"What is in the training data, {path}, has changed since the last checkpoint: the run "
            "goes on with what is there now, and not as it would have. To train on that alone, "
            "begin anew."
        )


def _in_words(step_size: dict[str, int]) -> str:
    return " and ".join(f"{size} {what}" for what, size in step_size.items())
