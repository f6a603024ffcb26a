"""What commands print: to terminals of any encoding, and to pipes whose readers stop reading."""

from __future__ import annotations

import codecs
import os
import select
import sys

UNREAD = 141
"""The exit status that shells use for SIGPIPE."""


def prints_unicode() -> bool:
    """Return whether standard output takes all characters, as UTF-8 does."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return codecs.lookup(encoding).name.startswith("utf")


def escape_other_characters() -> None:
    """Let standard output, a file as well, escape what it cannot encode, as standard error does.

    Otherwise, an ellipsis ends a command on a terminal that is not UTF-8.
    """
    escapes = getattr(sys.stdout, "errors", None) == "strict" or not prints_unicode()
    if escapes and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")


def print_whole(text: str) -> None:
    """Print a text to standard output, and end the process as SIGPIPE would if nobody reads it."""
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        if not reader_has_gone():
            raise
        sys.exit(UNREAD)


def reader_has_gone() -> bool:
    """Return whether nobody reads standard output any more, as in `declutr search … | head`.

    If so, what is still to be printed goes nowhere. Where the system does not tell, nobody does.
    """
    try:
        output = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # it is closed, or in memory
        return False
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(output, select.POLLERR)
        if not poll.poll(0):
            return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return True
