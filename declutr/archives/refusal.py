"""What is raised when an archive is refused, or cannot be read."""

from __future__ import annotations

import tarfile

TRUST = "If you made it yourself, or trust who did, allow it with --trust (trust=True)."


class UnsafeArchive(ValueError):
    """An archive or folder of a model that could run code or reach files outside it.

    The message says what was found, in which file and under which key, and what to do.
    """


class BrokenArchive(ValueError, tarfile.ReadError):
    """A file that is no `model.tar.gz`, is damaged, or is only the beginning of one."""
