"""Input and output that do not lie in each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from allennlp.common.checks import ConfigurationError

STDIN = "-"


def require_apart(inputs: Sequence[str], files: Sequence[Path | None], output: Path) -> None:
    """See that no run will take what it writes for its input.

    # Parameters

    inputs : as they were given: files, folders, globs, or `STDIN`.
    files : those behind them; `None` is standard input.

    # Raises

    `ConfigurationError` : an input lies in the output folder, or holds it.
    """
    folder = output.resolve()
    places = [Path(name).expanduser().resolve() for name in inputs if name != STDIN]
    for place in places:
        if place.is_dir() and folder.is_relative_to(place):
            raise ConfigurationError(
                f"The output '{output}' lies in the input folder '{place}', and would be read as "
                "input when the command goes on. Choose another --output."
            )
    for file in files:
        if file is not None and file.resolve().is_relative_to(folder):
            raise ConfigurationError(
                f"The input '{file}' lies in the output '{output}'. Choose another --output."
            )
