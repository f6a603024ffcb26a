"""The DdpAccelerator "fsdp": every process holds a part of the model and of its optimizer.

DistributedDataParallel keeps the whole model, its gradients and the optimizer's moments in every
process. Here each of W processes keeps 1/W of all three, and the parameters of one layer at a time
are gathered when they are needed (`torch.distributed.fsdp.fully_shard`; Zhao et al., 2023,
https://arxiv.org/abs/2304.11277). The arithmetic is that of DistributedDataParallel, and so are the
files: checkpoints and archives hold whole tensors, whoever wrote them.
"""

import logging
from collections import Counter
from itertools import chain
from typing import Any, Optional, Union

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.models import Model
from allennlp.nn.parallel import DdpAccelerator, DdpWrappedModel
from allennlp.nn.parallel.ddp_accelerator import LoadStateDictReturnType, StateDictType
from allennlp.training.optimizers import MultiOptimizer

from declutr.bridge.adamw import own_part
from declutr.system.distributed import all_reduced, copy_from_first, is_distributed

logger = logging.getLogger(__name__)

_GATHER_DTYPES = ("float32", "bfloat16")


@DdpAccelerator.register("fsdp")
class FsdpAccelerator(DdpAccelerator):
    """For models that do not fit on one GPU beside their gradients and optimizer.

        "distributed": {"cuda_devices": [0, 1, 2, 3], "ddp_accelerator": {"type": "fsdp"}}

    Every layer of the transformer is a unit that is gathered, used and freed; everything else
    (embeddings, language modelling head, projection) is gathered for the whole step. Works on CPUs
    too, over gloo.

    # Parameters

    reshard_after_forward : free a layer's gathered parameters after its forward pass and gather
        them again for its backward pass. False keeps them in between: more memory, less traffic.
    cpu_offload : keep parameters, gradients and optimizer in main memory, and step there.
    gather_dtype : `"bfloat16"` gathers the layers' parameters, and runs the layers, in it: half the
        traffic, and half the memory of what is gathered. Gradients are still reduced, and weights
        and the optimizer kept, in float32.
    replicas : groups of processes that each hold a whole model. With one group a node (`replicas`
        the number of nodes), only gradients travel between nodes.
    local_rank, world_size, cuda_device : come from AllenNLP.

    # Raises

    `ConfigurationError` : a single process, a model or trainer with what cannot be sharded
        (`regularizer`, `moving_average`, `use_amp`), or a torch without `fully_shard`.
    """

    def __init__(
        self,
        *,
        reshard_after_forward: bool = True,
        cpu_offload: bool = False,
        gather_dtype: str = "float32",
        replicas: int = 1,
        local_rank: Optional[int] = None,
        world_size: Optional[int] = None,
        cuda_device: Union[torch.device, int] = -1,
    ) -> None:
        if not is_distributed():
            raise ConfigurationError(
                'The accelerator "fsdp" spreads a model over several processes, but there is only '
                'this one. Set "distributed": {"cuda_devices": [0, 1, …]}, or remove '
                '"ddp_accelerator".'
            )
        super().__init__(local_rank=local_rank, world_size=world_size, cuda_device=cuda_device)
        if gather_dtype not in _GATHER_DTYPES:
            raise ConfigurationError(
                f"Unknown gather_dtype '{gather_dtype}': expected one of "
                f"{', '.join(_GATHER_DTYPES)}."
            )
        if replicas < 1 or self.world_size % replicas:
            raise ConfigurationError(
                f"{self.world_size} process(es) cannot hold {replicas} whole model(s) of equally "
                "many parts: replicas must divide the number of processes."
            )
        self._reshard_after_forward = reshard_after_forward
        self._cpu_offload = cpu_offload
        self._gather_dtype = gather_dtype
        self._replicas = replicas

    def wrap_model(self, model: Model) -> tuple[Model, DdpWrappedModel]:
        """Shard `model` in place. It stays the model that was given, of a class made for it."""
        fsdp = _fsdp()
        self._refuse(model)
        # As DistributedDataParallel does. Buffers of integers hold positions, the same anyway.
        tensors = chain(model.parameters(), model.buffers())
        copy_from_first((t for t in tensors if t.is_floating_point()), self.cuda_device)
        offload = fsdp.OffloadPolicy()
        if self._cpu_offload:
            offload = fsdp.CPUOffloadPolicy(pin_memory=self.cuda_device.type == "cuda")
        shared = {"mesh": self._mesh(), "offload_policy": offload}
        policy = fsdp.MixedPrecisionPolicy()
        if self._gather_dtype == "bfloat16":
            policy = fsdp.MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.float32)
        layers = repeated_layers(model)
        for layer in layers:
            fsdp.fully_shard(
                layer,
                mp_policy=policy,
                reshard_after_forward=self._reshard_after_forward,
                **shared,
            )
            if self._reshard_after_forward:
                layer.register_forward_pre_hook(_gather_recomputed)
                layer.register_forward_hook(_free_recomputed)
        # The root keeps its parameters gathered during a step, so that the language modelling head
        # finds them although it is not called through a module
        # (`declutr.transformer.masked_lm_head`).
        fsdp.fully_shard(model, reshard_after_forward=False, **shared)
        logger.info(
            "Each of %d processes holds %s of %s parameters; %d layers are gathered one at a time.",
            self.world_size,
            f"{sum(own_part(p).numel() for p in model.parameters()):,}",
            f"{sum(p.numel() for p in model.parameters()):,}",
            len(layers),
        )
        return model, ShardedModel(model, self.local_rank, self.world_size, self._replicas)

    def _mesh(self) -> Any:
        from torch.distributed.device_mesh import init_device_mesh

        if self.cuda_device.type == "cuda":
            torch.cuda.init()  # or the mesh would choose a device by the rank
        if self._replicas == 1:
            return init_device_mesh(self.cuda_device.type, (self.world_size,))
        shape = (self._replicas, self.world_size // self._replicas)
        names = ("replicate", "shard")
        return init_device_mesh(self.cuda_device.type, shape, mesh_dim_names=names)

    def _refuse(self, model: Model) -> None:
        if getattr(model, "_regularizer", None) is not None:
            raise ConfigurationError(
                "A regularizer needs whole parameters, of which a process has a part only with the "
                'accelerator "fsdp". Remove it from the model, and use the weight_decay of the '
                "optimizer."
            )


class ShardedModel(DdpWrappedModel):
    """A model of which each process holds a part, with the states and norms of the whole.

    `state_dict`, `load_state_dict` and `clip_grad_norm_` must be called in all processes.
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

    # `is_sharded` stays False. To AllenNLP it means one file a process, which a run with another
    # number of processes could not read, nor an archive hold.

    def attach(self, trainer: Any) -> None:
        """Make a trainer's checkpoints whole; the bridge calls this for every trainer.

        # Raises

        `ConfigurationError` : the trainer would need what a single process does not have.
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
                # AllenNLP asks only the first process of a node, but gathering takes all, and all
                # must know when the next checkpoint is due.
                self.state_dict()
                trainer.optimizer.state_dict()
                done = trainer._epochs_completed, trainer._batches_in_epoch_completed
                checkpointer._last_save_num_epochs_completed = done[0]
                checkpointer._last_save_num_batches_in_epoch_completed = done[1]
            return first()

        trainer.get_checkpoint_state = get_checkpoint_state

    def state_dict(self, *args: Any, **kwargs: Any) -> StateDictType:
        """Whole tensors in main memory, in the first process of each node; nothing elsewhere."""
        self._reshard()
        return self._whole(self.model.state_dict(keep_vars=True))

    def load_state_dict(
        self, state_dict: StateDictType, strict: bool = True
    ) -> LoadStateDictReturnType:
        """Take this process's part of whole tensors."""
        self._reshard()
        own = self.model.state_dict(keep_vars=True)
        parts = {
            name: _part(value, own[name]) if name in own else value
            for name, value in state_dict.items()
        }
        return self.model.load_state_dict(parts, strict=strict)  # type: ignore[return-value]

    def clip_grad_norm_(self, max_norm: Union[float, int]) -> torch.Tensor:
        """Scale all gradients so that their norm is at most `max_norm`; returns what it was."""
        gradients = [own_part(p.grad) for p in self.model.parameters() if p.grad is not None]
        squares = torch.stack([torch.linalg.vector_norm(g).square() for g in gradients]).sum()
        # Offloaded gradients lie where the processes have no connection.
        total = all_reduced(squares.to(self._device())) / self._replicas
        norm = total.sqrt().to(squares.device)
        factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)  # as torch does
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
        """Give up gathered parameters: validation leaves those of the root."""
        unit = _fsdp().FSDPModule
        for module in self.model.modules():
            if isinstance(module, unit):
                module.reshard()

    def _whole(self, values: dict[Any, Any]) -> dict[Any, Any]:
        """`values` with whole tensors in place of parts; the same tensor once (tied weights)."""
        known: dict[int, Any] = {}
        for value in values.values():
            if id(value) not in known:
                whole = _gathered(value)
                if not self.is_primary:
                    whole = None  # it only took part
                known[id(value)] = whole.cpu() if torch.is_tensor(whole) else whole
        return {name: known[id(value)] for name, value in values.items() if self.is_primary}

    def _whole_optimizer(self, optimizer: Any, state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "state": {i: self._whole(v) for i, v in state["state"].items()}}


def repeated_layers(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The layers of a transformer, whatever its family calls them.

    They are the members of the largest `ModuleList` of modules of one class, and of lists at least
    a tenth of its size (the decoder of an encoder-decoder). Left out are lists inside of layers and
    layers that share parameters with anything else: those cannot be gathered on their own.
    """
    uses = Counter(id(p) for m in model.modules() for p in m.parameters(recurse=False))
    found: list[tuple[int, list[torch.nn.Module]]] = []
    inside: set[torch.nn.Module] = set()
    for module in model.modules():  # from the outside in
        if module in inside or not isinstance(module, torch.nn.ModuleList):
            continue
        members = list(module)
        alike = len(members) > 1 and len({type(member) for member in members}) == 1
        if not alike or isinstance(members[0], (torch.nn.ModuleList, torch.nn.ModuleDict)):
            continue
        inside.update(inner for member in members for inner in member.modules())
        if all(_on_its_own(member, uses) for member in members):
            found.append((sum(p.numel() for p in module.parameters()), members))
    largest = max((size for size, _ in found), default=0)
    return [layer for size, layers in found if size and size * 10 >= largest for layer in layers]


def _in_recomputation(layer: Any) -> bool:
    """Whether a layer is run by a backward pass that has not come to it, or has left it.

    So it is with gradient caching: before the backward pass of a chunk goes through the layers, it
    encodes the whole chunk once more. When single layers are checkpointed, it has come to the
    layer that it runs again, has gathered it and still needs it.
    """
    if torch._C._current_graph_task_id() == -1:
        return False
    group = getattr(layer._get_fsdp_state(), "_fsdp_param_group", None)
    state = getattr(group, "_training_state", None)
    return getattr(state, "name", "PRE_BACKWARD") != "PRE_BACKWARD"


def _gather_recomputed(layer: Any, inputs: Any) -> None:
    if _in_recomputation(layer):
        layer.unshard()  # which recent versions of torch have done by now


def _free_recomputed(layer: Any, inputs: Any, outputs: Any) -> None:
    if _in_recomputation(layer):
        layer.reshard()  # or all layers would lie gathered beside each other


def _on_its_own(module: torch.nn.Module, uses: Counter[int]) -> bool:
    own = Counter(id(p) for m in module.modules() for p in m.parameters(recurse=False))
    return all(uses[key] == count for key, count in own.items())


def _fsdp() -> Any:
    """The module of torch, which commands other than `train` need not wait for."""
    import torch.distributed.fsdp as fsdp

    if not hasattr(fsdp, "fully_shard"):
        raise ConfigurationError(
            f'The accelerator "fsdp" needs torch 2.6 or newer, got {torch.__version__}. Update '
            'torch, or remove "ddp_accelerator".'
        )
    return fsdp


def _gathered(value: Any) -> Any:
    """The whole of a DTensor, on the device of the processes; other values as they are."""
    if not hasattr(value, "full_tensor"):
        return value.detach() if torch.is_tensor(value) else value
    return value.detach().to(value.device_mesh.device_type).full_tensor()


def _part(whole: Any, like: Any) -> Any:
    """This process's part of a whole tensor, cut as the DTensor `like` is."""
    if not hasattr(like, "placements"):
        return whole
    if whole.shape != like.shape:
        raise RuntimeError(
            f"A saved tensor is {tuple(whole.shape)}, its parameter {tuple(like.shape)}: they are "
            "of different models or optimizers."
        )
    part = torch.empty_like(like, dtype=whole.dtype, requires_grad=False)
    mesh, last = like.device_mesh, like.device_mesh.ndim - 1  # before it, if at all, are replicas
    pieces = whole.chunk(mesh.size(last))  # as fully_shard cuts
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
    """Whether a value of an optimizer is one of each element, not a number of steps."""
    return torch.is_tensor(value) and value.dim() > 0
