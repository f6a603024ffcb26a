"""Releases of other libraries that this package was tested with."""

import importlib.metadata
import warnings
from functools import cache

# The last major release that all tests passed with, by the name of the distribution.
TESTED = {"transformers": 5, "torch": 2}


@cache
def warn_of_untested_releases() -> None:
    """Warn, once in a process, of installed releases above the tested major releases."""
    for name, major in TESTED.items():
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        number = version.partition(".")[0]
        if number.isdigit() and int(number) > major:
            warnings.warn(
                f"This release of declutr was tested with {name} up to {major}.x, and {version} is "
                f"installed. It may work. If it does not: pip install '{name}<{major + 1}', or a "
                "newer declutr.",
                stacklevel=3,
            )
