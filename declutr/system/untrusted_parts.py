"""Whether what is being built now belongs to an archive that nobody vouches for.

Some parts touch files or import modules only later, when they are used. They ask here when they are
built, and then refuse to be used so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_untrusted: ContextVar[bool] = ContextVar("untrusted", default=False)


def is_untrusted() -> bool:
    """Whether this thread or task is inside `untrusted`."""
    return _untrusted.get()


@contextmanager
def untrusted() -> Iterator[None]:
    """A context in which what this thread or task builds is untrusted, for as long as it lives."""
    token = _untrusted.set(True)
    try:
        yield
    finally:
        _untrusted.reset(token)
