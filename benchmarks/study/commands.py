"""The package's own commands, which runs of the study use beside training."""

from __future__ import annotations

import subprocess
import sys


def run_command(*arguments: str) -> None:
    """Run `declutr` with these arguments, in silence.

    Raises:
        RuntimeError: it failed, with what it said.
    """
    done = subprocess.run(
        [sys.executable, "-m", "declutr", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"declutr {' '.join(arguments)}: {done.stderr or done.stdout}")
