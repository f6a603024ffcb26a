"""Puts functions in the place of AllenNLP's own, which they may call."""

import functools
from collections.abc import Callable
from typing import Any


def replaces(owner: Any, name: str = "") -> Callable[[Callable[..., Any]], None]:
    """Return a decorator that puts a function in the place of one in `owner`.

    The function is handed the one it replaces, and then the arguments of the call. It is seen with
    the signature of the original, by which AllenNLP builds objects.

    # Parameters

    owner : a module, or a class for its plain methods.
    name : of the one that is replaced; by default that of the function.
    """

    def put(function: Callable[..., Any]) -> None:
        replaced = name or function.__name__
        original = getattr(owner, replaced)

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        setattr(owner, replaced, replacement)

    return put
