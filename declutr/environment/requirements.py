"""What this package requires, and what is installed, by the metadata of distributions alone."""

from __future__ import annotations

from importlib import metadata
from typing import Any, NamedTuple

ALLENNLP = "allennlp==2.10.1"
"""The last release of AllenNLP. Its own pins cannot be resolved beside current releases, so it is
not among the requirements of this package, and is installed without its requirements."""

_IMPORTED = {"jsonnet": "_jsonnet", "scikit-learn": "sklearn"}  # all others by their own names


class Requirement(NamedTuple):
    """One requirement and what is installed for it.

    # Parameters

    name : the name of the distribution.
    needs : the versions that will do, such as `">=2.6"`; empty for any.
    version : the installed version, or `None`.
    satisfied : whether the installed version will do.
    """

    name: str
    needs: str
    version: str | None
    satisfied: bool

    def __str__(self) -> str:
        return f"{self.name}{self.needs}"

    @property
    def module(self) -> str:
        """The name by which it is imported."""
        return _IMPORTED.get(self.name, self.name.replace("-", "_"))


def requirements(extra: str = "") -> list[Requirement]:
    """Return AllenNLP and what this package requires, in the order of its metadata.

    If this package is not installed but imported from a folder, there is no metadata, and AllenNLP
    is all that is known.

    # Parameters

    extra : the name of an extra, to get what it requires besides instead.
    """
    found = []
    for each in map(_parser(), [ALLENNLP, *_required()]):
        of_all = each.marker is None or each.marker.evaluate({"extra": ""})
        of_extra = not of_all and each.marker.evaluate({"extra": extra})
        if of_extra if extra else of_all:
            found.append(_found(each))
    return found


def extras() -> list[str]:
    """Return the names of the extras of this package."""
    try:
        return metadata.metadata("declutr").get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        return []


def installed(name: str) -> str | None:
    """Return the version of an installed distribution, or `None`."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _required() -> list[str]:
    try:
        return metadata.requires("declutr") or []
    except metadata.PackageNotFoundError:
        return []


def _found(required: Any) -> Requirement:
    version = installed(required.name)
    fits = version is not None and required.specifier.contains(version, prereleases=True)
    return Requirement(required.name, str(required.specifier), version, fits)


def _parser() -> Any:
    """Return `packaging.requirements.Requirement`, or the copy of it that pip has."""
    try:
        from packaging.requirements import Requirement as parse
    except ImportError:
        from pip._vendor.packaging.requirements import Requirement as parse  # type: ignore
    return parse
