"""AllenNLP builds what a configuration names; here, only names that are registered.

`"type": "module.Class"` makes AllenNLP import the module and call what it finds there, with
arguments of the configuration's choice. So does a bare string in the place of such a part
(`"activations": "module.function"`). Which strings stand in such places only AllenNLP itself knows,
so it is asked: at the one method through which all names go.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from typing import Any

from declutr.archives.refusal import TRUST, UnsafeArchive
from declutr.system.untrusted_parts import untrusted

# What was refused in this thread or task; `None` where nothing is.
_refused: ContextVar[list[UnsafeArchive] | None] = ContextVar("refused", default=None)


def is_registered(name: str) -> bool:
    """Whether anything is registered under this name."""
    from allennlp.common import Registrable  # not for transformers, which need no AllenNLP

    return any(name in names for names in list(Registrable._registry.values()))


@contextmanager
def registered_names_only() -> Iterator[None]:
    """A context in which AllenNLP imports nothing for a name, in this thread.

    What is built inside is untrusted, so it imports nothing later either (`untrusted_parts`).

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
    """The refusal of a name that would have to be imported."""
    return UnsafeArchive(
        f"{file}: {what} is '{name}', which AllenNLP would import and run. Expected a registered "
        f"name. {TRUST}"
    )
