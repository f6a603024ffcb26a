"""What the processes of `test_sharding.py` do."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from allennlp.commands.train import TrainModel
from allennlp.common import Params
from allennlp.common.util import prepare_environment
from allennlp.nn.parallel import DdpAccelerator
from allennlp.training import TrainerCallback
from allennlp.training.optimizers import Optimizer
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

import declutr.plugin  # noqa: F401 - registers what configurations name
from declutr.system.distributed import is_distributed, process_rank, world_size
from tests.distributed_steps import built, exact, share
from tests.training.conftest import Killed

OPTIMIZER = {
    "type": "huggingface_adamw",
    "lr": 1e-2,
    "weight_decay": 0.1,
    "parameter_groups": [[["bias"], {"weight_decay": 0.0}]],
}


def accelerator(options: dict[str, Any] | None) -> DdpAccelerator | None:
    """As AllenNLP builds it in a process of a run; none in a single process."""
    if not is_distributed():
        return None
    return DdpAccelerator.from_params(
        Params(dict(options or {"type": "torch"})),
        local_rank=process_rank(),
        world_size=world_size(),
        cuda_device=-1,
    )


def whole(tensor: Any) -> Tensor:
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()


def held(values: Any) -> int:
    """Numbers that this process holds."""
    parts = [v.to_local() if hasattr(v, "to_local") else v for v in values if torch.is_tensor(v)]
    return sum(part.numel() for part in parts)


def steps(
    config: dict,
    batches: list[dict],
    options: dict[str, Any] | None,
    *,
    masks: str = "by_position",
    dtype: torch.dtype = torch.float64,
    accumulate: int = 1,
    validate: bool = False,
) -> dict[str, Any]:
    """Losses, metrics, all gradients and their norms of some steps, and the weights after them."""
    with exact(masks, dtype):
        # Processes that begin with different weights must go on with those of the first.
        torch.manual_seed(process_rank())
        model = built(config).to(dtype).train()
        wrapper = accelerator(options)
        wrapped = None if wrapper is None else wrapper.wrap_model(model)[1]
        module = model if wrapped is None else wrapped.model
        named = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        optimizer = Optimizer.from_params(Params(dict(OPTIMIZER)), model_parameters=named)
        if model._loss is not None:
            model._loss.follow_optimizer(optimizer)
        done: dict[str, Any] = {"losses": [], "gradients": [], "norms": [], "validation": []}
        for batch in batches:
            optimizer.zero_grad()
            for _ in range(accumulate):
                loss = module(**share(batch))["loss"]
                (loss / accumulate).backward()
                done["losses"].append(loss.item())
            gradients = {n: whole(p.grad) for n, p in named if p.grad is not None}
            done["gradients"].append({n.removeprefix("module."): g for n, g in gradients.items()})
            clip = partial(clip_grad_norm_, module.parameters())
            done["norms"].append((wrapped.clip_grad_norm_ if wrapped else clip)(1.0).item())
            optimizer.step()
            if validate:
                module.eval()
                with torch.no_grad():
                    done["validation"].append(module(**share(batch))["loss"].item())
                module.train()
        done["metrics"] = model.get_metrics()
        state = (wrapped or model).state_dict()
        moments = [v for state in optimizer.state.values() for v in state.values()]
        done["held"] = held(model.parameters()), held(moments)
        done["state"] = {n: whole(v) for n, v in state.items() if torch.is_tensor(v)}
        return done


def several(cases: list[tuple[tuple, dict]]) -> list[dict]:
    """`steps` of many cases."""
    return [steps(*arguments, **more) for arguments, more in cases]


def most_gathered(config: dict, batch: dict, options: dict[str, Any]) -> tuple[int, int]:
    """Of how many units, the layers and the rest, how many are gathered at a time."""
    from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup

    units: set[Any] = set()
    most = 0
    gather = FSDPParamGroup._to_unsharded

    def counted(self: Any) -> None:
        nonlocal most
        gather(self)
        units.add(self)
        most = max(most, sum(unit.is_unsharded for unit in units))

    with patch.object(FSDPParamGroup, "_to_unsharded", counted):
        steps(config, [batch], options)
    return most, len(units)


# ------------------------------------------------------------------------------- whole trainings


@TrainerCallback.register("killed_at")
class KilledAt(TrainerCallback):
    """Ends everything after so many steps of training."""

    def __init__(self, serialization_dir: str, steps: int) -> None:
        super().__init__(serialization_dir)
        self._left = steps

    def on_batch(self, *args: Any, is_training: bool = False, **kwargs: Any) -> None:
        self._left -= is_training
        if not self._left:
            raise Killed


def loop_of(config: dict, folder: str, options: dict[str, Any] | None) -> TrainModel:
    """What a process of `allennlp train` makes of a configuration."""
    config = json.loads(json.dumps(config))
    if is_distributed():
        config["trainer"] |= {"local_rank": process_rank(), "world_size": world_size()}
        config["trainer"] |= {"cuda_device": -1, "distributed": True}
    params = Params(config)
    prepare_environment(params)
    return TrainModel.from_params(
        params=params,
        serialization_dir=folder,
        local_rank=process_rank(),
        ddp_accelerator=accelerator(options),
    )


def train(config: dict, folder: str, options: dict[str, Any] | None, kill_at: int = 0) -> Any:
    """What the processes of `allennlp train` do; `allennlp` itself starts them and archives.

    Returns the trainer's own weights and optimizer at the end, as the checkpointer gets them.
    """
    config = json.loads(json.dumps(config))
    Path(folder).mkdir(exist_ok=True)
    if process_rank() == 0:
        Path(folder, "config.json").write_text(json.dumps(config))
    if kill_at:
        config["trainer"]["callbacks"].append({"type": "killed_at", "steps": kill_at})
    loop = loop_of(config, folder, options)
    try:
        loop.run()
    except Killed:
        return None
    return loop.trainer.get_checkpoint_state()


def from_checkpoint(config: dict, source: str, folder: str, options: dict[str, Any]) -> Any:
    """Go on where another run was in the middle of its second epoch."""
    if process_rank() == 0:
        Path(folder).mkdir()
        for name in ("model_state_e1_b2.th", "training_state_e1_b2.th"):
            shutil.copy(Path(source, name), folder)
    torch.distributed.barrier()
    return train(config, folder, options)


def broken(config: dict, folder: str, options: dict[str, Any]) -> str:
    """What a process says when it is to write weights that are not finite."""
    trainer = loop_of(config, folder, options).trainer
    with torch.no_grad():
        last = list(trainer.model.parameters())[-1].to_local()
        last.fill_(torch.nan if process_rank() == world_size() - 1 else 1.0)
    try:
        trainer._checkpointer.save_checkpoint(trainer)
    except ValueError as error:
        return str(error)
    return ""


def everything(cases: list, memory: list, config: dict, folder: str) -> dict[str, Any]:
    """All of the above: starting processes takes longer than what they do."""
    ddp, fsdp = {"type": "torch"}, {"type": "fsdp"}
    done = {
        "cases": several(cases),
        "memory": [most_gathered(*case) for case in memory],
        "ddp": train(config, f"{folder}/ddp", ddp),
        "fsdp": train(config, f"{folder}/fsdp", fsdp),
        "killed": train(config, f"{folder}/resumed", fsdp, kill_at=6),
        "resumed": train(config, f"{folder}/resumed", fsdp),
        "broken": broken(config, f"{folder}/broken", fsdp),
    }
    from_checkpoint(config, f"{folder}/ddp", f"{folder}/ddp to fsdp", fsdp)
    from_checkpoint(config, f"{folder}/fsdp", f"{folder}/fsdp to ddp", ddp)
    return done
