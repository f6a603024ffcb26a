"""What the trainer of a configuration, and its model, refuse or warn of before a first step."""

from __future__ import annotations

import copy
import logging
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from allennlp.common import Params
from allennlp.models import Model
from allennlp.training import Trainer, TrainerCallback

from declutr.bridge.additions import attach
from declutr.bridge.component_names import short
from declutr.runs.check.memory import Device

_TELLING = ("declutr", "allennlp.training.optimizers")  # the second warns of patterns


def build_trainer(
    config: Mapping[str, Any], model: Model, loaders: list[Any], device: Device
) -> list[str]:
    """Build the trainer of a configuration, and return what is warned of meanwhile.

    It is that of one process, on the CPU. Callbacks of other packages are left out, for they may
    write or send something when they are built.

    # Parameters

    config : the configuration.
    model : the model, on "meta".
    loaders : the data loaders of training and validation; the latter may be `None`.
    device : the device that would be trained on.

    # Raises

    `ConfigurationError`, `ValueError` and others : as training would, before its first step.
    """
    given = copy.deepcopy(dict(config["trainer"])) | {"cuda_device": -1}
    if device.kind != "cpu":
        given.pop("use_amp", None)
    given["callbacks"] = [one for one in given.get("callbacks") or [] if _is_own(one)]
    accelerator = ((config.get("distributed") or {}).get("ddp_accelerator") or {}).get("type")
    with tempfile.TemporaryDirectory() as folder, _warned() as warnings:
        trainer: Any = Trainer.from_params(
            Params(given),
            serialization_dir=folder,
            model=model,
            data_loader=loaders[0],
            validation_data_loader=loaders[1],
            local_rank=0,
        )
        if short(accelerator) == "fsdp" and device.processes > 1:
            _require_shards(model, trainer, device.processes)
    return warnings


def _require_shards(model: Model, trainer: Any, processes: int) -> None:
    """Raise what the accelerator "fsdp" refuses."""
    from declutr.training.sharded_model import ShardedModel
    from declutr.training.sharding import require_parts

    require_parts(model)
    trainer._ddp_wrapped_model = ShardedModel(model, 0, processes)
    if trainer._use_amp:
        trainer._ddp_wrapped_model.init_grad_scaler()
    for part in (trainer._ddp_wrapped_model, model):
        attach(part, trainer)


def _is_own(callback: Any) -> bool:
    name = callback["type"] if isinstance(callback, dict) else callback
    return TrainerCallback.by_name(name).__module__.startswith("declutr.")


@contextmanager
def _warned() -> Iterator[list[str]]:
    """Collect what is warned of in this context, and log nothing."""
    found: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: (  # type: ignore[method-assign]
        found.append(record.getMessage()) if record.name.startswith(_TELLING) else None
    )
    root = logging.getLogger()
    before, root.handlers = root.handlers, [handler]
    try:
        yield found
    finally:
        root.handlers = before
