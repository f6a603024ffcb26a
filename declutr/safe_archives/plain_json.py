"""JSON that is JSON: AllenNLP evaluates `config.json` as Jsonnet, a language that reads files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union

from declutr.safe_archives.refusal import TRUST, UnsafeArchive

KeyPath = tuple[Union[str, int], ...]

# What Jsonnet has and JSON has not, outside of strings.
_JSONNET = re.compile(
    r'"(?:[^"\\]|\\.)*"'
    r"|(?P<comment>//|/\*|\#)|(?P<text>'|\|\|\|)"
    r"|\b(?P<word>importstr|importbin|import|function|local|std|self|super|error|assert|for|if)\b"
)


def read_plain_json(file: Path) -> Any:
    """What a file of plain JSON holds.

    # Raises

    `UnsafeArchive` : it is something else; the message names what stands there.
    """
    try:
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnsafeArchive(f"{file.name} is no UTF-8 text ({error}). {TRUST}") from None
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        raise UnsafeArchive(
            f"{file.name} is not plain JSON: {_what_stands_there(text) or error}. A "
            f"configuration in Jsonnet can read files, so it is not evaluated. {TRUST}"
        ) from None


def entries(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every value inside a JSON value, with the keys and positions that lead to it."""
    held: Iterator[tuple[str | int, Any]] = iter(())
    if isinstance(value, dict):
        held = iter(value.items())
    elif isinstance(value, list):
        held = iter(enumerate(value))
    for key, item in held:
        yield (*path, key), item
        yield from entries(item, (*path, key))


def dotted(path: KeyPath) -> str:
    """The path as in AllenNLP's overrides: `model.encoders.0.type`."""
    return ".".join(str(key) for key in path)


def nearest_key(path: KeyPath) -> str:
    """The last key of a path, past the positions in lists."""
    return next((key for key in reversed(path) if isinstance(key, str)), "")


def _what_stands_there(text: str) -> str | None:
    for match in _JSONNET.finditer(text):
        found = match["comment"] or match["text"] or match["word"]
        if found:
            kind = "the comment" if match["comment"] else ""
            kind = kind or ("text in" if match["text"] else "the Jsonnet")
            line = text.count("\n", 0, match.start()) + 1
            return f"line {line} has {kind} `{found}`"
    return None


def _no_constant(name: str) -> Any:
    raise ValueError(f"it holds {name}")
