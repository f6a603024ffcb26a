"""Which keys a class takes from a configuration, and what AllenNLP gives it besides."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional, Union

from allennlp.common import FromParams, Registrable
from allennlp.common.from_params import infer_method_params
from allennlp.nn.parallel import DdpAccelerator

from declutr.data.row_reader import RowReader

# A `RowReader` sets them itself, although its base class has them.
_OF_ROW_READERS = ("manual_distributed_sharding", "manual_multiprocess_sharding")
_PLAIN = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

# What AllenNLP, or the model of this package, gives a `Lazy` part when it is built, by the name of
# the base class. Of other base classes it is not known which keys a configuration must have.
GIVEN = {
    "Checkpointer": "serialization_dir",
    "DataLoader": "reader data_path",
    "DdpAccelerator": "local_rank world_size cuda_device",
    "Head": "input_dim",
    "LearningRateScheduler": "optimizer num_epochs num_steps_per_epoch",
    "Model": "vocab serialization_dir ddp_accelerator",
    "MomentumScheduler": "optimizer",
    "MovingAverage": "parameters",
    "Objective": "embedding_size v_embedding_size",
    "Optimizer": "model_parameters",
    "Seq2VecEncoder": "embedding_dim",
    "Trainer": "serialization_dir model data_loader validation_data_loader local_rank "
    "ddp_accelerator ddp_wrapped_model distributed world_size",
    "TrainerCallback": "serialization_dir",
    "Vocabulary": "instances",
}


@dataclass(frozen=True)
class Accepted:
    """The keys that a constructor takes.

    # Parameters

    parameters : the parameters by name, as AllenNLP infers them.
    any_key : whether it takes further keys, as `**kwargs` that nobody lists.
    """

    parameters: dict[str, inspect.Parameter]
    any_key: bool


def accepted_keys(cls: type, constructor: Callable[..., Any]) -> Accepted:
    """Return the keys that a class takes from a configuration.

    # Parameters

    cls : the class that is built.
    constructor : `cls.__init__`, or the class method that is registered as its constructor.
    """
    if constructor is object.__init__:
        return Accepted({}, False)
    found = infer_method_params(cls, constructor)
    any_key = _takes_any(constructor)
    if any_key:  # they go on to `__init__`, and from there to the base classes
        found, any_key = _with_bases(cls, found)
    if issubclass(cls, RowReader):
        found = {name: found[name] for name in found if name not in _OF_ROW_READERS}
    parameters = {
        name: parameter
        for name, parameter in found.items()
        if parameter.kind in _PLAIN and name not in ("self", "cls")
    }
    return Accepted(parameters, any_key)


def _with_bases(cls: type, found: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Add the parameters of each `__init__` up to the first that lists all it takes."""
    found = dict(found)
    for base in cls.__mro__:
        if "__init__" not in vars(base) or base is object:
            continue
        own = vars(base)["__init__"]
        for name, parameter in inspect.signature(own).parameters.items():
            found.setdefault(name, parameter)
        if not _takes_any(own):
            return found, False
    return found, True


def _takes_any(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def builds_itself(cls: type) -> bool:
    """Return whether a class reads its configuration itself, so that its keys are not known."""
    own = getattr(getattr(cls, "from_params", None), "__func__", None)
    return own is not FromParams.from_params.__func__  # type: ignore[attr-defined]


def given_to(base: type) -> Optional[frozenset[str]]:
    """Return what a `Lazy` part is given when it is built; `None` if that is not known."""
    names = GIVEN.get(base.__name__)
    return None if names is None else frozenset(names.split())


def registered_names(base: type) -> Optional[list[str]]:
    """Return the names registered under a base class, the default first; `None` without any."""
    if not issubclass(base, Registrable) or Registrable._registry.get(base) is None:
        return None
    return base.list_available()


class Distributed(FromParams):
    """The settings of training in several processes."""

    def __init__(
        self,
        cuda_devices: Optional[list[int]] = None,
        num_nodes: int = 1,
        primary_address: str = "127.0.0.1",
        primary_port: Optional[int] = None,
        ddp_accelerator: Optional[DdpAccelerator] = None,
    ) -> None:
        raise NotImplementedError("Only its signature is used.")


class TrainCommand(FromParams):
    """The keys at the top of a configuration that the command `train` takes for itself."""

    def __init__(
        self,
        random_seed: Optional[Union[int, str]] = 13370,  # as of a variable of the environment
        numpy_seed: Optional[Union[int, str]] = 1337,
        pytorch_seed: Optional[Union[int, str]] = 133,
        evaluation: Any = None,
        include_in_archive: Optional[list[str]] = None,
        distributed: Optional[Distributed] = None,
    ) -> None:
        raise NotImplementedError("Only its signature is used.")
