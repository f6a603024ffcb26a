"""What is raised when an archive is refused."""

from __future__ import annotations

TRUST = "If you made it yourself, or trust who did, allow it with --trust (trust=True)."


class UnsafeArchive(ValueError):
    """An archive or folder of a model that could run code or reach files outside it.

    The message says what was found, in which file and under which key, and what to do.
    """
