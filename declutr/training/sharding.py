"""The DdpAccelerator "fsdp", which shards a model and its optimizer over processes.

DistributedDataParallel keeps the whole model, its gradients and the moments of the optimizer in
every process. Here each of W processes keeps 1/W of all three, and the parameters of one layer at a
time are gathered when they are needed (`torch.distributed.fsdp.fully_shard`; Zhao et al., 2023,
https://arxiv.org/abs/2304.11277). The computation and the files are the same as with
DistributedDataParallel: checkpoints and archives hold whole tensors.
"""

import logging
from collections import Counter
from itertools import chain
from typing import Any, Optional, Union

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.models import Model
from allennlp.nn.parallel import DdpAccelerator, DdpWrappedModel

from declutr.bridge.adamw import own_part
from declutr.objectives.numerics import one_of
from declutr.system.distributed import copy_from_first, is_distributed
from declutr.training.sharded_model import ShardedModel

logger = logging.getLogger(__name__)

_GATHER_DTYPES = ("float32", "bfloat16")


@DdpAccelerator.register("fsdp")
class FsdpAccelerator(DdpAccelerator):
    """A DdpAccelerator for models that do not fit on one GPU with their gradients and optimizer.

        "distributed": {"cuda_devices": [0, 1, 2, 3], "ddp_accelerator": {"type": "fsdp"}}

    Every layer of the transformer is gathered, used and freed on its own. All other parameters
    (input embeddings, language modelling head, projection) are gathered for the whole step. It
    works on CPUs as well, with gloo.

    # Parameters

    reshard_after_forward : True frees the gathered parameters of a layer after its forward pass and
        gathers them again for its backward pass. False keeps them in between, which needs more
        memory and less communication.
    cpu_offload : True keeps parameters, gradients and optimizer in main memory, and runs the
        optimizer on the CPU.
    gather_dtype : the dtype in which the parameters of layers are gathered and the layers computed,
        `"float32"` or `"bfloat16"`. bfloat16 halves the communication and the memory of gathered
        parameters. Weights, the reduction of gradients and the optimizer are float32 either way.
    replicas : the number of groups of processes that each hold a whole model. With one group for
        each node, only gradients are sent between nodes.
    local_rank, world_size, cuda_device : arguments that AllenNLP passes.

    # Raises

    `ConfigurationError` : there is a single process, the model or trainer has a part that cannot be
        sharded (`regularizer`, `moving_average`, `use_amp`, a parameter that is one number), or
        torch has no `fully_shard`.
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
        one_of("gather_dtype", gather_dtype, _GATHER_DTYPES)
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
        """Shard a model in place, and return it with its wrapper.

        torch changes the class of the model, but it remains the same object.

        # Raises

        `ConfigurationError` : the model has a regularizer or a parameter that is one number, or
            torch has no `fully_shard`.
        """
        fsdp = _fsdp()
        require_parts(model)
        # All processes start with the weights of the first, as with DistributedDataParallel.
        # Buffers of integers hold positions, which are equal already.
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
                layer, mp_policy=policy, reshard_after_forward=self._reshard_after_forward, **shared
            )
            if self._reshard_after_forward:
                layer.register_forward_pre_hook(_gather_recomputed)
                layer.register_forward_hook(_free_recomputed)
        # The root keeps its parameters gathered during a step, because the language modelling head
        # is not called through a module that would gather them
        # (`declutr.transformer.architectures`).
        fsdp.fully_shard(model, reshard_after_forward=False, **shared)
        logger.info(
            f"Each of {self.world_size} processes holds "
            f"{sum(own_part(p).numel() for p in model.parameters()):,} of "
            f"{sum(p.numel() for p in model.parameters()):,} parameters; {len(layers)} layers "
            "are gathered one at a time."
        )
        return model, ShardedModel(model, self.local_rank, self.world_size, self._replicas)

    def _mesh(self) -> Any:
        from torch.distributed.device_mesh import init_device_mesh

        if self.cuda_device.type == "cuda":
            torch.cuda.init()  # otherwise the mesh chooses a device by the rank
        if self._replicas == 1:
            return init_device_mesh(self.cuda_device.type, (self.world_size,))
        shape = (self._replicas, self.world_size // self._replicas)
        names = ("replicate", "shard")
        return init_device_mesh(self.cuda_device.type, shape, mesh_dim_names=names)


def repeated_layers(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the layers of a transformer of any architecture.

    They are the members of the largest `ModuleList` of modules of one class, by its parameters, and
    of other lists of at least a tenth of its size (such as the decoder of an encoder-decoder).
    Lists inside of layers are left out, and so are layers that share parameters with other modules,
    which cannot be gathered on their own, and those of a module with a true attribute
    `reads_weights`, which reads weights of its layers without calling them.
    """
    uses = Counter(id(p) for m in model.modules() for p in m.parameters(recurse=False))
    found: list[tuple[int, list[torch.nn.Module]]] = []
    inside: set[torch.nn.Module] = set()
    for module in model.modules():  # from the outside in
        if getattr(module, "reads_weights", False):
            inside.update(module.modules())
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


def require_parts(model: torch.nn.Module) -> None:
    """Raise `ConfigurationError` if a model has something that needs whole parameters."""
    if getattr(model, "_regularizer", None) is not None:
        raise ConfigurationError(
            "A regularizer needs whole parameters, of which a process has a part only with the "
            'accelerator "fsdp". Remove it from the model, and use the weight_decay of the '
            "optimizer."
        )
    scalars = [name for name, parameter in model.named_parameters() if not parameter.dim()]
    if scalars:
        raise ConfigurationError(
            f"'{scalars[0]}' is a single number that is learnt, which torch cannot shard. Do "
            'not learn it (learn_scale and learn_bias of the loss "nce"), or remove '
            '"ddp_accelerator".'
        )


def _in_recomputation(layer: Any) -> bool:
    """Return whether a layer is recomputed while the backward pass is not at this layer.

    That is so with gradient caching, which encodes a whole chunk once more before the backward pass
    goes through its layers. With gradient checkpointing, in contrast, the backward pass recomputes
    the layer that it is at, which it has gathered and still needs.
    """
    if torch._C._current_graph_task_id() == -1:
        return False
    group = getattr(layer._get_fsdp_state(), "_fsdp_param_group", None)
    state = getattr(group, "_training_state", None)
    return getattr(state, "name", "PRE_BACKWARD") != "PRE_BACKWARD"


def _gather_recomputed(layer: Any, inputs: Any) -> None:
    if _in_recomputation(layer):
        layer.unshard()  # recent versions of torch have already done so


def _free_recomputed(layer: Any, inputs: Any, outputs: Any) -> None:
    if _in_recomputation(layer):
        layer.reshard()  # otherwise all layers would stay gathered


def _on_its_own(module: torch.nn.Module, uses: Counter[int]) -> bool:
    own = Counter(id(p) for m in module.modules() for p in m.parameters(recurse=False))
    return all(uses[key] == count for key, count in own.items())


def _fsdp() -> Any:
    """Import the FSDP module of torch, or raise if it has no `fully_shard`.

    It is imported late, because commands other than `train` do not need it.
    """
    import torch.distributed.fsdp as fsdp

    if not hasattr(fsdp, "fully_shard"):
        raise ConfigurationError(
            f'The accelerator "fsdp" needs torch 2.6 or newer, got {torch.__version__}. Update '
            'torch, or remove "ddp_accelerator".'
        )
    return fsdp
