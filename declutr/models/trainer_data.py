"""Checks that a trainer and its data can train the Model "declutr"."""

import logging
from typing import Any

import numpy as np
import torch
from allennlp.common.checks import ConfigurationError

from declutr.objectives import Objective
from declutr.system.distributed import is_sharded, world_size

logger = logging.getLogger(__name__)


def require_trained(model: torch.nn.Module) -> None:
    """Raise if all parameters of a model are frozen."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigurationError(
            "All parameters are frozen, so that nothing can be trained. Take back one of "
            "train_parameters false (of the token embedder), the trainer's no_grad, and "
            "requires_grad false (of parameter_groups), or give the model a head."
        )


def require_room(loss: Objective | None, loader: Any) -> None:
    """Raise if the data have more instances than the memory bank of an objective has places for.

    An objective with `of_every_row` needs as many as the corpus has rows, unused ones included.
    """
    room, rows = getattr(loss, "instances", None), getattr(loader, "documents", None)
    if getattr(loss, "of_every_row", False) and hasattr(loader.reader, "corpus"):
        found = len(loader.reader.corpus(loader.data_path))
        if found != room:
            raise ConfigurationError(
                f"{type(loss).__name__} has {room} embeddings, and '{loader.data_path}' has "
                f"{found} rows. {loss.more_room}"  # type: ignore[union-attr]
            )
    if room is not None and rows is not None and len(rows) and int(rows.max()) >= room:
        advice = getattr(loss, "more_room", None) or (
            "Set model.loss.instances to the rows of train_data_path, blank ones included: at "
            f"least {int(rows.max()) + 1}."
        )
        raise ConfigurationError(
            f"{type(loss).__name__} has places for {room} instances, but ids go up to "
            f"{int(rows.max())}. {advice}"
        )


def require_whole_groups(group: int, loader: Any) -> None:
    """Raise if not all batches consist of whole groups, which views make of `group` pairs."""
    size, rows = 2 * group - 1, getattr(loader, "batch_size", None)
    if group > 1 and rows is not None and (rows % size or not getattr(loader, "drop_last", True)):
        raise ConfigurationError(
            f"The views make groups of {size} texts, and batches have {rows}, the last one fewer "
            f"where drop_last is false: set data_loader.batch_size to a multiple of {size}, and "
            "drop_last to true."
        )


def require_consecutive(loss: Objective | None, loader: Any) -> None:
    """Raise if no batch can have as many rows of a document in a row as an objective needs."""
    rows, needed = getattr(loader, "documents", None), getattr(loss, "min_consecutive", 1)
    if needed < 2 or rows is None or not len(rows):
        return
    name = type(loss).__name__
    if not getattr(loader, "consecutive", True):
        raise ConfigurationError(
            f"{name} needs sentences that follow each other in the corpus, but the data loader "
            "draws them from anywhere: set its 'consecutive' to true."
        )
    ends = np.flatnonzero(np.diff(rows) != 1) + 1  # of the sentences of each document
    longest = int(np.diff([0, *ends.tolist(), len(rows)]).max())
    if longest < needed:
        lower = "Lower model.loss.steps, or write" if needed > 2 else "Write"  # the steps ahead
        raise ConfigurationError(
            f"{loader.data_path}: at most {longest} sentence(s) follow each other, and {name} "
            f"needs {needed}. {lower} the sentences of a document on consecutive lines (declutr "
            "split-sentences does)."
        )


def require_enough_texts(loss: Objective | None, texts: int) -> None:
    """Raise if an objective makes more clusters than there are texts."""
    clusters = getattr(loss, "clusters", 0)
    if texts < clusters:
        raise ConfigurationError(
            f"There are {texts} texts for {clusters} clusters: set model.loss.clusters to fewer, "
            "such as a hundredth of the texts."
        )


def require_clusters(loss: Objective | None, trainer: Any) -> None:
    """Raise if an objective needs clusters that no callback of a trainer assigns."""
    callbacks = getattr(trainer, "_callbacks", None) or []
    if not getattr(loss, "needs_clusters", False):
        return
    if not any(getattr(callback, "assigns_clusters", False) for callback in callbacks):
        raise ConfigurationError(
            f"{type(loss).__name__} needs clusters of all texts: add "
            '{"type": "refresh_clusters"} to trainer.callbacks, as the last one.'
        )


def require_whole(model: torch.nn.Module, trainer: Any, **part: Any) -> None:
    """Raise if a model is sharded over processes although it has a part that needs it whole."""
    ((key, value),) = part.items()
    if value is None:
        return
    if is_sharded(model) or getattr(trainer._ddp_wrapped_model, "attach", None) is not None:
        raise ConfigurationError(
            f'{key} does not work with the accelerator "fsdp": remove one of them.'
        )


def require_validation_data(trainer: Any) -> None:
    """Raise if the schedule of a trainer looks at validation data, and it has none."""
    schedule = getattr(trainer, "_learning_rate_scheduler", None)
    missing = getattr(trainer, "_validation_data_loader", None) is None
    if missing and getattr(schedule, "needs_validation", False):
        raise ConfigurationError(
            f"The schedule {type(schedule).__name__} looks at the validation metric of every "
            "epoch, and there are no validation data: set validation_data_path, or another "
            "trainer.learning_rate_scheduler."
        )


def require_validation_loss(trainer: Any, loss: Objective | None, alone: bool) -> None:
    """Raise if a trainer tracks a validation loss that its validation data cannot give.

    Without positives, a model in evaluation mode returns no loss, and none for a batch of too few
    pairs either; AllenNLP would take it to be 0. Releases up to 2.4.7 began some such runs, which
    go on with a warning.

    # Parameters

    trainer : the trainer.
    loss : the objective, `None` for masked language modelling alone.
    alone : whether there is no masked language modelling.
    """
    loader: Any = getattr(trainer, "_validation_data_loader", None)
    tracked = {name for _, name in trainer._metric_tracker.tracked_metrics}
    documents = _documents(loader)
    if not len(documents) or "loss" not in tracked:
        return
    path, instance = loader.data_path, loader.reader.instance(loader.data_path, int(documents[0]))
    if "positives" not in instance.fields:
        message = (
            "There is no validation loss where the dataset reader brings no positives: the model "
            "embeds such texts, and views of one text differ in training alone. Remove "
            "validation_data_path; to choose among epochs, use the callback "
            "evaluate_embeddings (select_by)."
        )
        if loss is not None:
            raise ConfigurationError(message)
        _refuse(trainer, message)
    if loss is None or not alone:
        return
    of_each = instance["anchors"].get_padding_lengths()  # several spans, or a single text
    rows = min(getattr(loader, "batch_size", None) or len(documents), len(documents))
    pairs = rows * of_each.get("num_spans", of_each.get("num_fields", 1)) * world_size()
    if pairs < loss.min_pairs:
        _refuse(
            trainer,
            f"A batch of '{path}' has at most {pairs} pair(s), and {type(loss).__name__} needs "
            f"{loss.min_pairs} for a validation loss: raise validation_data_loader.batch_size, or "
            "give more validation data.",
        )


def warn_of_missing_negatives(loss: Objective | None, loader: Any) -> None:
    """Warn of a setting for hard negatives if the data have none."""
    if loss is None or not any(getattr(one, "own_negative_logit", 0) for one in loss.modules()):
        return
    documents = _documents(loader)
    if not len(documents):
        return
    if "negatives" not in loader.reader.instance(loader.data_path, int(documents[0])).fields:
        logger.warning(
            "The objective's own_negative_logit changes nothing, as the data have no hard "
            'negatives. Remove the key, or set the "negative" of the dataset reader.'
        )


def _documents(loader: Any) -> Any:
    """Return the rows that a loader reads, if its reader is of this package; else nothing."""
    reader: Any = getattr(loader, "reader", None)
    if not hasattr(reader, "documents") or not hasattr(reader, "instance"):
        return []
    documents = getattr(loader, "documents", None)  # a loader of AllenNLP's has none
    return reader.documents(loader.data_path) if documents is None else documents


def _refuse(trainer: Any, message: str) -> None:
    """Raise `ConfigurationError`, or warn if the run has been begun, by an earlier release."""
    checkpointer = getattr(trainer, "_checkpointer", None)
    if checkpointer is None or checkpointer.find_latest_checkpoint() is None:
        raise ConfigurationError(message)
    logger.warning(message)
