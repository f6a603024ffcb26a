"""Limits on what AllenNLP builds from an untrusted configuration.

The first limit is on names. `"type": "module.Class"` makes AllenNLP import the module and call the
class with arguments that the configuration chooses. A bare string in place of such an object
(`"activations": "module.function"`) has the same effect. Only AllenNLP knows which strings are in
such places, so the check is in the one method that resolves all names.

The second limit is on size. A configuration of a few KB can ask for a vocabulary of billions of
tokens. Parameters are counted when they are registered in modules, which is before they are
initialised and occupy memory.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from typing import Any

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook

from declutr.archives import TRUST, UnsafeArchive

# gzip shrinks float32 weights by a tenth, float32 weights that were bfloat16 by two thirds, and
# text to a tenth. It reaches a ratio of 1000 only with zeros, as in a decompression bomb.
MAX_UNQUESTIONED_BYTES = 2**30
"""The total size of files up to which an archive may have any compression ratio."""
MAX_RATIO = 20
"""The maximum compression ratio of archives with larger files."""
MAX_PARAMETERS = 100_000
"""The maximum number of parameter tensors; a model of 100 layers has about two thousand."""

# The refusals in this thread or task; `None` outside of `registered_names_only`.
_refused: ContextVar[list[UnsafeArchive] | None] = ContextVar("refused", default=None)
# The names that the user vouches for.
_vouched: ContextVar[Collection[str]] = ContextVar("vouched", default=())
_untrusted: ContextVar[bool] = ContextVar("untrusted", default=False)
# The limits of `parameters_in_proportion`, which are called with each parameter that is registered.
_limits: ContextVar[tuple[Callable[..., None], ...]] = ContextVar("limits", default=())


def is_untrusted() -> bool:
    """Return whether this thread or task is building a model from an untrusted archive.

    Some objects read files or import modules not when they are built but when they are used. They
    call this in their constructor, and refuse such use later if it returned `True`.
    """
    return _untrusted.get()


@contextmanager
def untrusted() -> Iterator[None]:
    """Return a context in which `is_untrusted` is true for this thread or task.

    Objects that are built inside stay untrusted after the context has ended. The context alone does
    not keep AllenNLP from importing: `registered_names_only` does, and enters this one.
    """
    token = _untrusted.set(True)
    try:
        yield
    finally:
        _untrusted.reset(token)


def is_registered(name: str) -> bool:
    """Return whether any class is registered with AllenNLP under `name`."""
    from allennlp.common import Registrable  # Checks of transformers should not import AllenNLP.

    return any(name in names for names in list(Registrable._registry.values()))


@contextmanager
def registered_names_only(vouched: Collection[str] = ()) -> Iterator[None]:
    """Return a context in which AllenNLP, in this thread or task, imports nothing for a name.

    Objects that are built inside are untrusted, so they import nothing later either
    (`is_untrusted`).

    # Parameters

    vouched : names that AllenNLP may import all the same, because the user chose them.

    # Raises

    `UnsafeArchive` : for a name that would have to be imported. It is raised on exit as well if
        anything failed inside after a refusal, because AllenNLP tries the alternatives of a `Union`
        one after the other and drops the errors of all of them.
    """
    _watch_names()
    refused: list[UnsafeArchive] = []
    token, names = _refused.set(refused), _vouched.set(vouched)
    try:
        with untrusted():
            yield
    except Exception as error:
        if refused and not isinstance(error, UnsafeArchive):
            raise refused[0] from error
        raise
    finally:
        _refused.reset(token)
        _vouched.reset(names)


@cache  # The patch must be applied only once per process.
def _watch_names() -> None:
    """Patch the method by which AllenNLP resolves names, so that it refuses inside the context."""
    from allennlp.common import Registrable

    original = Registrable.resolve_class_name.__func__  # type: ignore[attr-defined]

    @wraps(original)
    def resolve_class_name(cls: Any, name: str) -> Any:
        refused = _refused.get()
        imports = "." in name and name not in Registrable._registry.get(cls, {})
        if refused is not None and imports and name not in _vouched.get():
            refused.append(import_refused("config.json", f"A {cls.__name__}", name))
            raise refused[-1]
        return original(cls, name)

    Registrable.resolve_class_name = classmethod(resolve_class_name)  # type: ignore


def import_refused(file: str, what: str, name: str) -> UnsafeArchive:
    """Return the error for a name that AllenNLP would have to import.

    # Parameters

    file : the file that holds the name.
    what : what the name stands for, as the subject of a sentence.
    name : the name itself.
    """
    return UnsafeArchive(
        f"{file}: {what} is '{name}', which AllenNLP would import and run. Expected a registered "
        f"name. {TRUST}"
    )


@contextmanager
def parameters_in_proportion(weights_bytes: int) -> Iterator[None]:
    """Return a context that limits the size of the modules that this thread or task builds.

    The limit is 1 GiB or 20 times the weights, whichever is more. A parameter counts each time it
    is registered, which includes tied parameters and loading.

    # Parameters

    weights_bytes : the size of the weight file in bytes.

    # Raises

    `UnsafeArchive` : if the limit is exceeded, even if code inside replaced the error by another.
    """
    allowed = max(MAX_UNQUESTIONED_BYTES, MAX_RATIO * weights_bytes)
    count, size = 0, 0
    refused: list[UnsafeArchive] = []

    def take(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter) -> None:
        nonlocal count, size
        count += 1
        size += parameter.numel() * parameter.element_size()
        if count > MAX_PARAMETERS or size > allowed:
            refused.append(
                UnsafeArchive(
                    f"Its configuration asks for {count:,} parameters of {size:,} bytes or more "
                    f"(the last is {name} of {type(module).__name__}, {tuple(parameter.shape)}), "
                    f"its weights have {weights_bytes:,} bytes. {TRUST}"
                )
            )
            raise refused[0]

    token = _limits.set((*_limits.get(), take))
    try:
        yield
    except Exception as error:
        if refused and error is not refused[0]:
            raise refused[0] from error
        raise
    finally:
        _limits.reset(token)


def _take(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter) -> None:
    for take in _limits.get():
        take(module, name, parameter)


# For good: where hooks come and go, torch's loop over them fails in threads that build a module.
register_module_parameter_registration_hook(_take)
