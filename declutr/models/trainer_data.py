"""Whether the data of a trainer can serve the Model "declutr"."""

from __future__ import annotations

from typing import Any

from allennlp.common.checks import ConfigurationError

from declutr.objectives import Objective


def require_room(loss: Objective | None, loader: Any) -> None:
    """Raise if there are more instances than an objective has places for."""
    room, rows = getattr(loss, "instances", None), getattr(loader, "documents", None)
    if room is not None and rows is not None and len(rows) and int(rows.max()) >= room:
        raise ConfigurationError(
            f"{type(loss).__name__} has places for {room} instances, but ids go up to "
            f"{int(rows.max())}. Set model.loss.instances to the rows of train_data_path, "
            f"blank ones included: at least {int(rows.max()) + 1}."
        )


def require_validation_loss(trainer: Any) -> None:
    """Raise if a trainer is to follow a validation loss that there will not be.

    Without positives, a model that does not train only embeds: AllenNLP would take its loss for 0,
    and the first epoch for the best.
    """
    loader: Any = getattr(trainer, "_validation_data_loader", None)
    reader = getattr(loader, "reader", None)
    tracked = {name for _, name in trainer._metric_tracker.tracked_metrics}
    if reader is None or "loss" not in tracked:
        return
    path, documents = loader.data_path, getattr(loader, "documents", None)
    if documents is None:  # of AllenNLP's own loader
        documents = reader.documents(path) if hasattr(reader, "documents") else []
    if not len(documents):
        return
    instance = reader.instance(path, int(documents[0]))
    if "positives" not in instance.fields:
        raise ConfigurationError(
            "There is no validation loss where the dataset reader brings no positives: both "
            "views are the same text, and they differ in training alone. Remove "
            "validation_data_path; to choose among epochs, use the callback "
            "evaluate_embeddings (select_by)."
        )
