"""What AllenNLP may build from a configuration: parts with registered names, and not too large.

`"type": "module.Class"` makes AllenNLP import the module and call what it finds there, with
arguments of the configuration's choice. So does a bare string in the place of such a part
(`"activations": "module.function"`). Which strings stand in such places only AllenNLP itself knows,
so it is asked: at the one method through which all names go.

A configuration of some KB can ask for a vocabulary of billions. What is built is counted as modules
get their parameters, which is before these are initialised: no memory has been touched.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from typing import Any

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook

from declutr.archives import TRUST, UnsafeArchive
from declutr.archives.safety.extraction import MAX_RATIO, MAX_UNQUESTIONED_BYTES

MAX_PARAMETERS = 100_000  # tensors; a model of 100 layers has two thousand

# What was refused in this thread or task; `None` where nothing is.
_refused: ContextVar[list[UnsafeArchive] | None] = ContextVar("refused", default=None)
_untrusted: ContextVar[bool] = ContextVar("untrusted", default=False)


def is_untrusted() -> bool:
    """Return whether what this thread or task builds now is of an archive nobody vouches for.

    Some parts touch files or import modules only later, when they are used. They ask here when
    they are built, and then refuse to be used so.
    """
    return _untrusted.get()


@contextmanager
def untrusted() -> Iterator[None]:
    """Return a context in which what this thread or task builds is untrusted, as long as it lives.

    AllenNLP imports nothing for a name inside `registered_names_only`, which enters this one.
    """
    token = _untrusted.set(True)
    try:
        yield
    finally:
        _untrusted.reset(token)


def is_registered(name: str) -> bool:
    """Return whether anything is registered under this name."""
    from allennlp.common import Registrable  # not for transformers, which need no AllenNLP

    return any(name in names for names in list(Registrable._registry.values()))


@contextmanager
def registered_names_only() -> Iterator[None]:
    """Return a context in which AllenNLP imports nothing for a name, in this thread.

    What is built inside is untrusted, so it imports nothing later either (`is_untrusted`).

    # Raises

    `UnsafeArchive` : on the way out, if something failed inside after a name was refused. AllenNLP
        tries the alternatives of a `Union` one after the other and forgets why each one failed.
    """
    _watch_names()
    refused: list[UnsafeArchive] = []
    token = _refused.set(refused)
    try:
        with untrusted():
            yield
    except Exception as error:
        if refused and not isinstance(error, UnsafeArchive):
            raise refused[0] from error
        raise
    finally:
        _refused.reset(token)


@cache  # once a process
def _watch_names() -> None:
    from allennlp.common import Registrable

    original = Registrable.resolve_class_name.__func__  # type: ignore[attr-defined]

    @wraps(original)
    def resolve_class_name(cls: Any, name: str) -> Any:
        refused = _refused.get()
        if refused is not None and "." in name and name not in Registrable._registry.get(cls, {}):
            refused.append(import_refused("config.json", f"A {cls.__name__}", name))
            raise refused[-1]
        return original(cls, name)

    Registrable.resolve_class_name = classmethod(resolve_class_name)  # type: ignore


def import_refused(file: str, what: str, name: str) -> UnsafeArchive:
    """Return the refusal of a name that would have to be imported."""
    return UnsafeArchive(
        f"{file}: {what} is '{name}', which AllenNLP would import and run. Expected a registered "
        f"name. {TRUST}"
    )


@contextmanager
def parameters_in_proportion(weights_bytes: int) -> Iterator[None]:
    """Return a context in which this thread builds modules of 1 GiB, or 20 times the weights.

    Parameters count as often as they are registered: when tied, and when they are loaded.

    # Raises

    `UnsafeArchive` : more is built, whatever became of the error inside.
    """
    allowed = max(MAX_UNQUESTIONED_BYTES, MAX_RATIO * weights_bytes)
    thread, count, size = threading.get_ident(), 0, 0
    refused: list[UnsafeArchive] = []

    def take(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter | None) -> None:
        nonlocal count, size
        if parameter is None or threading.get_ident() != thread:
            return
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

    handle = register_module_parameter_registration_hook(take)
    try:
        yield
    except Exception as error:
        if refused and error is not refused[0]:
            raise refused[0] from error
        raise
    finally:
        handle.remove()
