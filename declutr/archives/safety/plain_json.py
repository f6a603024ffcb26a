"""JSON that is JSON: AllenNLP evaluates `config.json` as Jsonnet, a language that reads files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union

from declutr.archives.refusal import TRUST, UnsafeArchive
from declutr.system.bounded_json import CONFIGURATION_BYTES, JSONError, read_bounded_json

KeyPath = tuple[Union[str, int], ...]

# What Jsonnet has and JSON has not, outside of strings.
_JSONNET = re.compile(
    r'"(?:[^"\\]|\\.)*"'
    r"|(?P<comment>//|/\*|\#)|(?P<text>'|\|\|\|)"
    r"|\b(?P<word>importstr|importbin|import|function|local|std|self|super|error|assert|for|if)\b"
)

_OUTSIDE = re.compile(r"[/\\~]|[A-Za-z]:[/\\]|\.{1,2}([/\\]|$)")


def read_plain_json(file: Path, limit: int = CONFIGURATION_BYTES) -> Any:
    """What a file of plain JSON holds, of `limit` bytes at most.

    # Raises

    `UnsafeArchive` : it is something else; the message names what stands there.
    """
    try:
        return read_bounded_json(file, limit=limit, constants=False)
    except JSONError as error:
        found = _what_stands_there(error.text)
        if not error.text:
            raise UnsafeArchive(f"{file.name} {error}. {TRUST}") from None
        wrong = f"is not plain JSON: {found}" if found else error
        raise UnsafeArchive(
            f"{file.name} {wrong}. A configuration in Jsonnet can read files, so it is not "
            f"evaluated. {TRUST}"
        ) from None


def entries(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every value inside a JSON value, with the keys and positions that lead to it, in order."""
    left = [(path, value)]  # a stack: what others nest is not followed by calls
    while left:
        where, held = left.pop()
        if where != path:
            yield where, held
        if isinstance(held, dict):
            left += [((*where, key), item) for key, item in reversed(held.items())]
        elif isinstance(held, list):
            numbered = [((*where, number), item) for number, item in enumerate(held)]
            left += reversed(numbered)


def dotted(path: KeyPath) -> str:
    """The path as in AllenNLP's overrides: `model.encoders.0.type`."""
    return ".".join(str(key) for key in path)


def nearest_key(path: KeyPath) -> str:
    """The last key of a path, past the positions in lists."""
    return next((key for key in reversed(path) if isinstance(key, str)), "")


def leads_outside(value: str) -> bool:
    """Whether a text is a path to somewhere else, or a URL."""
    return bool(_OUTSIDE.match(value) or "://" in value or ".." in re.split(r"[/\\]", value))


def _what_stands_there(text: str) -> str | None:
    for match in _JSONNET.finditer(text):
        found = match["comment"] or match["text"] or match["word"]
        if found:
            kind = "the comment" if match["comment"] else ""
            kind = kind or ("text in" if match["text"] else "the Jsonnet")
            line = text.count("\n", 0, match.start()) + 1
            return f"line {line} has {kind} `{found}`"
    return None
