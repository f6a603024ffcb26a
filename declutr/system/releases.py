"""Releases of other libraries that this package was tested with."""

import warnings
from collections.abc import Iterator
from functools import cache

from declutr.system import installed_versions

# The last major release that all tests passed with, by the name of the distribution.
TESTED = {"transformers": 5, "torch": 2}


def untested_releases() -> Iterator[str]:
    """Yield a warning on each installed release above the tested major releases."""
    for name, version in installed_versions(*TESTED).items():
        major, number = TESTED[name], version.partition(".")[0]
        if number.isdigit() and int(number) > major:
            yield (
                f"This release of declutr was tested with {name} up to {major}.x, and {version} is "
                f"installed. It may work. If it does not: pip install '{name}<{major + 1}', or a "
                "newer declutr."
            )


@cache
def warn_of_untested_releases() -> None:
    """Warn, once in a process, of installed releases above the tested major releases."""
    for message in untested_releases():
        warnings.warn(message, stacklevel=3)
