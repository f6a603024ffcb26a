"""Let mkdocstrings read the docstrings of this package: griffe's extension `Sections`.

Sections begin with `# Parameters`, `# Returns`, `# Raises` or `# Attributes`, as AllenNLP has them,
and their items are `name : text`. Here they become sections of Google's style.
"""

import re
from typing import Any

import griffe

_TITLES = {
    "Parameters": "Args", "Attributes": "Attributes", "Returns": "Returns", "Raises": "Raises",
}  # fmt: skip
_TITLE = re.compile(rf"^# ({'|'.join(_TITLES)})\n+", re.MULTILINE)
_ITEM = re.compile(r"^(\S.*?) : ", re.MULTILINE)


class Sections(griffe.Extension):
    """Rewrites the docstring of every object that griffe has read."""

    def on_object(self, *, obj: griffe.Object, loader: Any, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = in_google_style(obj.docstring.value)


def in_google_style(docstring: str) -> str:
    """A docstring without indentation, with its sections, which end it, in Google's style.

    Several names that share a text get it each, or their types and defaults would not be shown.
    """
    text, *sections = _TITLE.split(docstring)
    for title, content in zip(sections[::2], sections[1::2], strict=True):
        items = [" ".join(content.split())]
        if title != "Returns":
            _, *parts = _ITEM.split(content)
            items = [
                f"{name.split()[0].strip('`')}: {described.rstrip()}"
                for names, described in zip(parts[::2], parts[1::2], strict=True)
                for name in names.split(", ")
            ]
        lines = "\n".join(items).split("\n")
        text += "\n    ".join([f"{_TITLES[title]}:", *lines]) + "\n\n"
    return text.rstrip()
