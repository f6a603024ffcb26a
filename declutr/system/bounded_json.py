"""JSON that others wrote, within bounds: it is read into memory before anyone can look at it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONFIGURATION_BYTES = 2**20
"""The largest configuration; those of transformers have some KB."""

MAX_DEPTH = 100


class JSONError(ValueError):
    """A file that is no JSON, or more of it than is read. Its message follows the file's name.

    # Parameters

    message : what is wrong.
    text : what the file holds, as far as that was read.
    """

    def __init__(self, message: str, text: str = "") -> None:
        super().__init__(message)
        self.text = text


def read_bounded_json(
    file: Path, *, limit: int = CONFIGURATION_BYTES, constants: bool = True
) -> Any:
    """What a file of JSON holds.

    # Parameters

    file : the file, in UTF-8.
    limit : its size at most, in bytes.
    constants : allow `NaN` and `Infinity`, which Python reads and JSON has not.

    # Raises

    `JSONError` : it is larger, nested deeper than `MAX_DEPTH`, names a key twice in one object (so
        that readers would not agree on its value), or is no JSON.
    """
    size = file.stat().st_size
    if size > limit:
        raise JSONError(
            f"has {size / 2**20:,.1f} MiB; expected at most {limit / 2**20:,.0f} MiB of such a file"
        )
    try:
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise JSONError(f"is no UTF-8 text ({error})") from None
    try:
        value = json.loads(
            text,
            object_pairs_hook=_without_repetition,
            parse_constant=None if constants else _no_constant,
        )
    except RecursionError:
        raise JSONError("is nested too deeply") from None
    except JSONError:
        raise
    except ValueError as error:
        raise JSONError(f"is not plain JSON: {error}", text) from None
    _require_shallow(value)
    return value


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise JSONError(f"has the key '{twice}' twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"it holds {name}")


def _require_shallow(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for held in level
            if isinstance(held, (dict, list))
            for item in (held.values() if isinstance(held, dict) else held)
        ]
        if not level:
            return
    raise JSONError("is nested too deeply")
