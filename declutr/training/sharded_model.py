"""A wrapper of a sharded model that saves, loads and clips it like a whole model."""

from typing import Any, Optional, Union

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.nn.parallel import DdpWrappedModel
from allennlp.nn.parallel.ddp_accelerator import LoadStateDictReturnType, StateDictType
from allennlp.training.optimizers import MultiOptimizer

from declutr.bridge.adamw import own_part
from declutr.system.distributed import all_reduced


class ShardedModel(DdpWrappedModel):
    """A model whose parameters are sharded over processes, with the state dicts of a whole model.

    All processes must call `state_dict`, `load_state_dict` and `clip_grad_norm_`.

    # Parameters

    model : the model, already sharded.
    local_rank, world_size : arguments of every `DdpWrappedModel`.
    replicas : the number of process groups that each hold a whole model.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        local_rank: Optional[int] = None,
        world_size: Optional[int] = None,
        replicas: int = 1,
    ) -> None:
        super().__init__(model, local_rank=local_rank, world_size=world_size)
        self._replicas = replicas

    # `is_sharded` stays False, because with True AllenNLP writes one file for each process, which
    # neither a run with another number of processes nor an archive could use.

    attached_to_trainers = True

    def attach(self, trainer: Any) -> None:
        """Make a trainer save and load whole tensors; `declutr.bridge` calls this.

        # Raises

        `ConfigurationError` : the trainer has a moving average, an optimizer "multi", or no
            checkpointer that saves after epochs.
        """
        if trainer._moving_average is not None:
            raise ConfigurationError(
                'A moving_average does not work with the accelerator "fsdp": remove it from the '
                "trainer."
            )
        if isinstance(trainer.optimizer, MultiOptimizer):
            raise ConfigurationError(
                'An optimizer of type "multi" does not work with the accelerator "fsdp", for its '
                "checkpoints would hold a part of it only: use one optimizer with "
                "parameter_groups."
            )
        checkpointer = trainer._checkpointer
        if trainer._serialization_dir and not getattr(
            checkpointer, "_save_completed_epochs", False
        ):
            raise ConfigurationError(
                'With the accelerator "fsdp", the best weights are those of a checkpoint: give the '
                'trainer a checkpointer (of type "atomic"), and leave its save_completed_epochs on.'
            )
        trainer.optimizer.register_state_dict_post_hook(self._whole_optimizer)
        trainer.optimizer.register_load_state_dict_pre_hook(_part_of_optimizer)
        first = trainer.get_checkpoint_state

        def get_checkpoint_state() -> Any:
            if not self.is_primary:
                # AllenNLP saves in the first process of a node only, but gathering needs all
                # processes, and all must know when the next checkpoint is due.
                self.state_dict()
                trainer.optimizer.state_dict()
                done = trainer._epochs_completed, trainer._batches_in_epoch_completed
                checkpointer._last_save_num_epochs_completed = done[0]
                checkpointer._last_save_num_batches_in_epoch_completed = done[1]
            return first()

        trainer.get_checkpoint_state = get_checkpoint_state

    def state_dict(self, *args: Any, **kwargs: Any) -> StateDictType:
        """Return whole tensors, on the CPU, in the first process of each node; others get none."""
        self._reshard()
        return self._whole(self.model.state_dict(keep_vars=True))

    def load_state_dict(
        self, state_dict: StateDictType, strict: bool = True
    ) -> LoadStateDictReturnType:
        """Load the part that belongs to this process from whole tensors."""
        self._reshard()
        own = self.model.state_dict(keep_vars=True)
        parts = {
            name: _part(value, own[name]) if name in own else value
            for name, value in state_dict.items()
        }
        return self.model.load_state_dict(parts, strict=strict)  # type: ignore[return-value]

    def clip_grad_norm_(self, max_norm: Union[float, int]) -> torch.Tensor:
        """Scale all gradients so that their total norm is at most `max_norm`.

        # Returns

        The norm before scaling, a scalar tensor.
        """
        gradients = [own_part(p.grad) for p in self.model.parameters() if p.grad is not None]
        squares = torch.stack([torch.linalg.vector_norm(g).square() for g in gradients]).sum()
        # With cpu_offload, gradients are on the CPU, but processes may communicate through GPUs
        # only.
        total = all_reduced(squares.to(self._device())) / self._replicas
        norm = total.sqrt().to(squares.device)
        factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)  # as in torch.nn.utils.clip_grad_norm_
        torch._foreach_mul_(gradients, factor)
        return norm

    def init_grad_scaler(self) -> Any:
        raise ConfigurationError(
            'use_amp does not work with the accelerator "fsdp". Remove it from the trainer: the '
            "model's precision computes in bfloat16, which needs no scaling."
        )

    def _device(self) -> torch.device:
        (mesh,) = {p.device_mesh for p in self.model.parameters() if hasattr(p, "device_mesh")}
        return torch.device(mesh.device_type)

    def _reshard(self) -> None:
        """Free gathered parameters, since validation leaves those of the root module gathered."""
        for module in self.model.modules():
            if hasattr(module, "_get_fsdp_state"):  # the module was sharded on its own
                module.reshard()  # type: ignore[operator]

    def _whole(self, values: dict[Any, Any]) -> dict[Any, Any]:
        """Return values with parts replaced by whole tensors, gathering each shared tensor once."""
        known: dict[int, Any] = {}
        for value in values.values():
            if id(value) not in known:
                whole = _gathered(value)
                if not self.is_primary:
                    whole = None  # this process only takes part in gathering
                known[id(value)] = whole.cpu() if torch.is_tensor(whole) else whole
        return {name: known[id(value)] for name, value in values.items() if self.is_primary}

    def _whole_optimizer(self, optimizer: Any, state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "state": {i: self._whole(v) for i, v in state["state"].items()}}


def _gathered(value: Any) -> Any:
    """Gather a DTensor on the device of the processes; return other values without gradients."""
    if not hasattr(value, "full_tensor"):
        return value.detach() if torch.is_tensor(value) else value
    return value.detach().to(value.device_mesh.device_type).full_tensor()


def _part(whole: Any, like: Any) -> Any:
    """Return the part of a whole tensor that this process has of the DTensor `like`."""
    if not hasattr(like, "placements"):
        return whole
    if whole.shape != like.shape:
        raise RuntimeError(
            f"A saved tensor is {tuple(whole.shape)}, its parameter {tuple(like.shape)}: they are "
            "of different models or optimizers."
        )
    part = torch.empty_like(like, dtype=whole.dtype, requires_grad=False)
    # A mesh with replicas has their dimension before the last.
    mesh, last = like.device_mesh, like.device_mesh.ndim - 1
    pieces = whole.chunk(mesh.size(last))  # as fully_shard does
    rank = mesh.get_local_rank(last)
    if rank < len(pieces):
        own_part(part).copy_(pieces[rank])
    return part


def _part_of_optimizer(optimizer: Any, state: dict[str, Any]) -> dict[str, Any]:
    parameters = dict(enumerate(p for group in optimizer.param_groups for p in group["params"]))
    parts = {
        number: {
            name: _part(value, parameters.get(number)) if _has_shape(value) else value
            for name, value in values.items()
        }
        for number, values in state["state"].items()
    }
    return {**state, "state": parts}


def _has_shape(value: Any) -> bool:
    """Return whether a value of an optimizer has an entry for each element, unlike a step count."""
    return torch.is_tensor(value) and value.dim() > 0
