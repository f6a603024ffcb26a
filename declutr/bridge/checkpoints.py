"""Repairs of what AllenNLP saves with torch, and torch refuses to load.

`torch.load` has read only types that it knows to be safe, and one protocol of pickle, since 2.6.
Nothing here lets it read a type that runs code.
"""

import collections
import contextlib
import functools
import io
import pathlib
import pickle
import re
import warnings
from types import ModuleType, SimpleNamespace
from typing import Any

from declutr.bridge.repairs import replaces

_KINDS = (
    *("f2", "f4", "f8", "g", "c8", "c16", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"),
    *("?", "U", "S", "M8[s]", "m8[s]"),
)


def checkpoint_globals(module: ModuleType) -> bool:
    """Allow `torch.load` to read numpy's scalars and arrays, `deque`, `defaultdict` and `Path`.

    The states of schedulers contain the first, those of callbacks any of them. Arrays of objects
    are still refused. Nothing else is added to the list of safe types. Can be removed when
    AllenNLP's checkpointer does the same, or these states keep plain numbers and lists.
    """
    import numpy
    import torch

    add_safe_globals = getattr(torch.serialization, "add_safe_globals", None)
    if add_safe_globals is None:
        return False
    core = getattr(numpy, "_core", None) or numpy.core
    known: list[Any] = [numpy.dtype, numpy.ndarray]
    known += {type(numpy.dtype(kind)) for kind in _KINDS}
    for name in ("scalar", "_reconstruct"):
        function = getattr(core.multiarray, name)
        known += [(function, f"numpy.{kind}.multiarray.{name}") for kind in ("core", "_core")]
    # Empty `list` and so on are what a defaultdict makes.
    known += [collections.deque, collections.defaultdict, list, dict, set, int, float, str, bool]
    paths: set[type] = {type(pathlib.Path()), pathlib.PurePosixPath, pathlib.PureWindowsPath}
    for path in paths:
        known += [(path, f"{place}.{path.__name__}") for place in ("pathlib", "pathlib._local")]
    add_safe_globals(known)
    return True


def callback_states(module: ModuleType) -> bool:
    """Save the states of callbacks so that a resumed run can load them, or refuse to save.

    `deque` and `defaultdict` are pickled as one call each, which `torch.load` can read. A state
    that it would refuse stops the run when it is saved, not when it is resumed. Can be removed when
    AllenNLP loads the states of callbacks by rules of its own.
    """

    @replaces(module.GradientDescentTrainer)
    def get_checkpoint_state(original: Any, self: Any) -> Any:
        checkpoint = original(self)
        if checkpoint is not None and "callbacks" in checkpoint.trainer_state:
            states = checkpoint.trainer_state["callbacks"]
            checkpoint.trainer_state["callbacks"] = [
                _loadable(type(callback).__name__, state)
                for callback, state in zip(self._callbacks, states, strict=True)
            ]
        return checkpoint

    return True


def _loadable(name: str, state: Any) -> Any:
    import torch

    if not state:
        return state
    state, buffer = _portable(state), io.BytesIO()
    try:
        torch.save(state, buffer)
        buffer.seek(0)
        torch.load(buffer, map_location="cpu")
    except Exception as error:
        refused = re.search(r"GLOBAL (\S+)", str(error))
        held = f"an object of {refused[1]}" if refused else str(error).splitlines()[0]
        raise ValueError(
            f"The state of the callback {name} cannot be saved, because a run that is resumed "
            f"(--recover) could not load it: {held}. Expected tensors, numbers, strings, None, "
            "lists, tuples, sets, dictionaries, arrays of numpy (not of objects), deque, "
            "defaultdict and Path. Change what its state_dict() returns."
        ) from error
    return state


def _portable(value: Any) -> Any:
    """Return a value in which each `deque` and `defaultdict` is one that is pickled as a call."""
    kind = type(value)
    if kind in (list, tuple, set):
        return kind(map(_portable, value))
    if kind in (dict, collections.OrderedDict):
        return kind((key, _portable(item)) for key, item in value.items())
    if kind is collections.deque:
        return Deque(map(_portable, value), value.maxlen)
    if kind is collections.defaultdict:
        return DefaultDict(
            value.default_factory, {key: _portable(item) for key, item in value.items()}
        )
    return value


class Deque(collections.deque):
    """A deque that is pickled as one call of `collections.deque`."""

    def __reduce__(self) -> Any:
        return collections.deque, (list(self), self.maxlen)


class DefaultDict(collections.defaultdict):
    """A defaultdict that is pickled as one call of `collections.defaultdict`."""

    def __reduce__(self) -> Any:
        return collections.defaultdict, (self.default_factory, dict(self))


def tensor_caches(module: ModuleType) -> bool:
    """Let `TensorCache` read the tensors that it wrote, in this environment or an earlier one.

    It pickles with the highest protocol, of which `torch.load` reads only tensors of protocol 2
    unless it may run code. Can be removed when AllenNLP writes protocol 2 and no older caches are
    in use.
    """
    import torch

    buffer = io.BytesIO()
    torch.save(torch.ones(1), buffer, pickle_protocol=pickle.HIGHEST_PROTOCOL)
    with warnings.catch_warnings(), contextlib.suppress(pickle.UnpicklingError):
        warnings.simplefilter("ignore")  # torch warns of the protocol before it refuses
        torch.load(io.BytesIO(buffer.getvalue()))
        return False
    tensors_only = ModuleType("tensors_only")
    tensors_only.Unpickler = TensorUnpickler  # type: ignore[attr-defined]
    load = functools.partial(torch.load, weights_only=False, pickle_module=tensors_only)

    def __getitem__(self: Any, key: str) -> torch.Tensor:
        if key in self.cache_cache:
            return self.cache_cache[key]
        with self.lmdb_env.begin(write=False) as transaction:
            stored = transaction.get(key.encode())
        if stored is None:
            raise KeyError(key)
        self.cache_cache[key] = tensor = load(io.BytesIO(stored), map_location="cpu")
        return tensor

    module.TensorCache.__getitem__ = __getitem__
    return True


class TensorUnpickler(pickle.Unpickler):
    """An unpickler of any protocol that makes tensors and nothing else.

    What it finds are copies, because a pickle can set the attributes of what it is given.
    """

    def find_class(self, module: str, name: str) -> Any:
        import torch

        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if module == "torch._utils" and name in ("_rebuild_tensor_v2", "_rebuild_tensor_v3"):
            return functools.partial(getattr(torch._utils, name))
        if (module, name) == ("torch.storage", "UntypedStorage"):
            return SimpleNamespace(dtype=torch.uint8)  # all that torch asks of it
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        raise pickle.UnpicklingError(
            f"This cache of tensors holds an object of {module}.{name}. Expected tensors only."
        )
