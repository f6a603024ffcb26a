"""Reading of untrusted configurations, which AllenNLP would evaluate as Jsonnet."""

import re
from pathlib import Path
from typing import Any

from declutr.archives import (
    CONFIGURATION_BYTES,
    TRUST,
    JSONError,
    UnsafeArchive,
    read_bounded_json,
)

# Matches strings, which are skipped, and syntax that Jsonnet has and JSON does not.
_JSONNET = re.compile(
    r'"(?:[^"\\]|\\.)*"'
    r"|(?P<comment>//|/\*|\#)|(?P<text>'|\|\|\|)"
    r"|\b(?P<word>importstr|importbin|import|function|local|std|self|super|error|assert|for|if)\b"
)
_JSONNET_KINDS = {"comment": "the comment", "text": "text in", "word": "the Jsonnet"}


def read_plain_json(file: Path) -> Any:
    """Return the parsed content of a file of plain JSON of at most `CONFIGURATION_BYTES` bytes.

    # Raises

    `UnsafeArchive` : if it is not plain JSON or exceeds a bound; the message quotes Jsonnet syntax.
    """
    try:
        return read_bounded_json(file, limit=CONFIGURATION_BYTES, constants=False)
    except JSONError as error:
        if not error.text:
            raise UnsafeArchive(f"{file.name} {error}. {TRUST}") from None
        found = _jsonnet_syntax(error.text)
        wrong = f"is not plain JSON: {found}" if found else error
        raise UnsafeArchive(
            f"{file.name} {wrong}. A configuration in Jsonnet can read files, so it is not "
            f"evaluated. {TRUST}"
        ) from None


def _jsonnet_syntax(text: str) -> str | None:
    for match in _JSONNET.finditer(text):
        if match.lastgroup:
            line = text.count("\n", 0, match.start()) + 1
            return f"line {line} has {_JSONNET_KINDS[match.lastgroup]} `{match[match.lastgroup]}`"
    return None
