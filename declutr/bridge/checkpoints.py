"""Repairs of what AllenNLP saves with torch, and torch refuses to load.

`torch.load` has read only types that it knows to be safe, and one protocol of pickle, since 2.6.
Nothing here lets it read a type that runs code.
"""

import collections
import contextlib
import functools
import io
import math
import pathlib
import pickle
import re
import warnings
from types import ModuleType, SimpleNamespace
from typing import Any

from declutr.bridge.repairs import replaces

_SCALARS = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")
_ARRAYS = "biufcSUmM"  # the letters of numpy for kinds of numbers, strings and times


def checkpoint_globals(module: ModuleType) -> bool:
    """Allow `torch.load` to read numpy's scalars, `deque`, `defaultdict` and `Path`.

    The states of schedulers contain the first, those of callbacks any of them, and arrays, which
    are read by functions of this module: numpy's own would read any memory as objects. Nothing
    else is added to the list of safe types. Can be removed when AllenNLP's checkpointer does the
    same, or these states keep plain numbers and lists.
    """
    import numpy
    import torch

    add_safe_globals = getattr(torch.serialization, "add_safe_globals", None)
    if add_safe_globals is None:
        return False
    core = getattr(numpy, "_core", None) or numpy.core
    scalar_of_numpy = core.multiarray.scalar
    names = ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar")  # numpy 1 and 2
    known: list[Any] = [numpy.dtype, *(type(numpy.dtype(kind)) for kind in _SCALARS)]
    known += [*((scalar_of_numpy, name) for name in names), array, scalar]
    # Empty `list` and so on are what a defaultdict makes.
    known += [collections.deque, collections.defaultdict, list, dict, set, int, float, str, bool]
    paths: set[type] = {type(pathlib.Path()), pathlib.PurePosixPath, pathlib.PureWindowsPath}
    for path in paths:
        known += [(path, f"{place}.{path.__name__}") for place in ("pathlib", "pathlib._local")]
    add_safe_globals(known)
    return True


def callback_states(module: ModuleType) -> None:
    """Save the states of callbacks so that a resumed run can load them, or refuse to save.

    Arrays, `deque` and `defaultdict` are pickled as one call each, which `torch.load` can read.
    A state that it would refuse stops the run when it is saved, not when it is resumed.
    Can be removed when AllenNLP loads the states of callbacks by rules of its own.
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


def _loadable(name: str, state: Any) -> Any:
    import torch

    if state is None or (type(state) is dict and not state):
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
    """Return a value in which what `torch.load` could not read is pickled as a call."""
    import numpy

    kind = type(value)
    if kind in (list, tuple, set):
        return kind(map(_portable, value))
    if kind in (dict, collections.OrderedDict):
        return kind((_portable(key), _portable(item)) for key, item in value.items())
    if kind is collections.deque:
        return Deque(map(_portable, value), value.maxlen)
    if kind is collections.defaultdict:
        return DefaultDict(
            value.default_factory,
            {_portable(key): _portable(item) for key, item in value.items()},
        )
    if kind is numpy.ndarray and value.dtype.kind in _ARRAYS:
        # Empty bytes are left out: torch.load does not read them.
        memory = [value.tobytes()] if value.nbytes else []
        return Call(array, value.dtype.str, value.shape, *memory)
    if isinstance(value, numpy.generic) and value.dtype.kind in _ARRAYS:
        held = numpy.asarray(value)
        return Call(scalar, held.dtype.str, held.tobytes())
    return value


class Call:
    """An object that is pickled as one call of a function, and unpickled as its result.

    # Parameters

    function, arguments : the function, found by its name where it is read, and its arguments.
    """

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._call = function, arguments

    def __reduce__(self) -> Any:
        return self._call


def array(kind: str, shape: tuple[int, ...], data: bytes = b"") -> Any:
    """Return an array of numpy with this memory. States of callbacks are read with it.

    # Raises

    `ValueError` : the kind is not one of numbers, strings or times, or the sizes do not agree.
    """
    import numpy

    # Nothing but plain types: a dtype, for one, could have been given any fields.
    plain = type(kind) is str and type(shape) is tuple and type(data) is bytes
    dtype = numpy.dtype(kind) if plain else None
    if dtype is None or dtype.kind not in _ARRAYS or dtype.str != kind:
        raise ValueError(f"Expected an array of numbers, strings or times, but its kind is {kind}.")
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"Expected sizes of an array, but found {shape}.")
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"An array of {shape} of the kind {kind} has not {len(data)} bytes.")
    return numpy.ndarray(shape, dtype, bytearray(data))


def scalar(kind: str, data: bytes) -> Any:
    """Return a scalar of numpy with this memory, as `array` does."""
    return array(kind, (), data)[()]


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
    tensors_only.load = _refuse_older_format  # type: ignore[attr-defined]
    load = functools.partial(torch.load, weights_only=False, pickle_module=tensors_only)

    def __getitem__(self: Any, key: str) -> torch.Tensor:
        if key in self.cache_cache:
            return self.cache_cache[key]
        with self.lmdb_env.begin(write=False) as transaction:
            stored = transaction.get(key.encode())
        if stored is None:
            raise KeyError(key)
        if _is_torchscript(stored):
            raise pickle.UnpicklingError(
                "This cache of tensors holds a program of TorchScript. Expected tensors only."
            )
        tensor = load(io.BytesIO(stored), map_location="cpu")
        if not isinstance(tensor, torch.Tensor):
            raise pickle.UnpicklingError(
                f"This cache of tensors holds a {type(tensor).__name__}. Expected tensors only."
            )
        self.cache_cache[key] = tensor
        return tensor

    module.TensorCache.__getitem__ = __getitem__
    return True


def _is_torchscript(stored: bytes) -> bool:
    """Return whether `torch.load` would take this for a program, and load it as one."""
    import torch

    try:
        archive = torch._C.PyTorchFileReader(io.BytesIO(stored))
    except RuntimeError:
        return False  # not an archive: torch.load refuses it
    asked = getattr(torch.serialization, "_is_torchscript_zip", None)
    return bool(asked(archive) if asked else "constants.pkl" in archive.get_all_records())


def _refuse_older_format(*arguments: Any, **options: Any) -> Any:
    """Refuse what is no zip archive. `torch.load` would read it as the format before 1.6."""
    raise pickle.UnpicklingError(
        "This cache of tensors holds an entry that torch.save did not write, or wrote before torch "
        "1.6. Expected tensors in zip archives. Delete the cache, so that it is made anew."
    )


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
