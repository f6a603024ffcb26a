"""The code of Markdown pages: blocks of shell commands, of Python and of other text."""

import shlex
from typing import NamedTuple


class Block(NamedTuple):
    """A block of code of a page.

    # Parameters

    kind : `"python"`, `"shell"`, or the language that its fence names.
    text : what is in it, without indentation.
    line : the number of its first line.
    """

    kind: str
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    """All blocks of a page, fenced ones and those that are indented by four blanks."""
    found: list[Block] = []
    lines = page.split("\n")
    number = 0
    while number < len(lines):
        start = number
        if lines[number].startswith("```"):
            number = next(n for n in range(start + 1, len(lines)) if lines[n].startswith("```"))
            language = lines[start][3:].strip() or "shell"
            found.append(Block(language, "\n".join(lines[start + 1 : number]), start + 2))
        elif lines[number].startswith("    ") and not (number and lines[number - 1].strip()):
            while number < len(lines) and (lines[number].startswith("    ") or not lines[number]):
                number += 1
            text = "\n".join(line[4:] for line in lines[start:number]).rstrip()
            found.append(Block("shell", text, start + 1))
            continue
        number += 1
    return found


def commands(text: str) -> list[list[str]]:
    """The words of each command of a shell block, without comments, as a shell would take them."""
    found, pending = [], ""
    for line in text.replace("\\\n", "").split("\n"):
        pending += line + "\n"
        try:
            words = shlex.split(pending, comments=True)
        except ValueError:  # A quotation goes on in the next line.
            continue
        found += [words] if words else []
        pending = ""
    if pending:
        raise ValueError(f"A quotation does not end: {pending!r}")
    return found
