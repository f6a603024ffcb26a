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

from declutr.bridge.adamw import own_part
from declutr.objectives.checks import one_of
from declutr.system.distributed import copy_from_first, is_distributed
from declutr.training.sharded_model import ShardedModel

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
        """Shard `model` in place. It stays the model that was given, of a class made for it."""
        fsdp = _fsdp()
        if getattr(model, "_regularizer", None) is not None:
            raise ConfigurationError(
                "A regularizer needs whole parameters, of which a process has a part only with the "
                'accelerator "fsdp". Remove it from the model, and use the weight_decay of the '
                "optimizer."
            )
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
                layer, mp_policy=policy, reshard_after_forward=self._reshard_after_forward, **shared
            )
            if self._reshard_after_forward:
                layer.register_forward_pre_hook(_gather_recomputed)
                layer.register_forward_hook(_free_recomputed)
        # The root keeps its parameters gathered during a step, so that the language modelling head
        # finds them although it is not called through a module
        # (`declutr.transformer.architectures`).
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
