"""Effective settings and findings: what the check of a configuration is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from allennlp.common import Lazy
from allennlp.common.checks import ConfigurationError

from declutr.system.nearest import did_you_mean, listed


@dataclass(frozen=True)
class Setting:
    """One effective setting of a configuration.

    # Parameters

    path : the dotted path of its key.
    value : its value, as in JSON; of a default, what the constructor has.
    default_of : the class whose default it is; `None` for a value of the configuration.
    """

    path: str
    value: Any
    default_of: str | None = None


@dataclass(frozen=True)
class Finding:
    """Something wrong with a configuration.

    # Parameters

    path : the dotted path of the key that is wrong or missing.
    message : what was got, what was expected and what to do.
    """

    path: str
    message: str


def parts_of(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the dotted paths and values below a path; a list without objects is one value."""
    if isinstance(value, Mapping) and value:
        for key, one in value.items():
            yield from parts_of(one, join(path, key))
    elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        for number, one in enumerate(value):
            yield from parts_of(one, join(path, number))
    else:
        yield path, value


def plain(value: Any) -> Any:
    """Return a default as JSON can say it: an object becomes the name of its class."""
    if isinstance(value, Lazy):
        made = value._constructor
        return getattr(made, "__qualname__", type(made).__name__).removesuffix(".default")
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return getattr(value, "__name__", type(value).__name__)


def problem_of_type(base: type, name: Any, names: list[str]) -> str | None:
    """Return what is wrong with a registered name, or `None`."""
    if name is None:
        return f"{base.__name__} needs a type, which is missing. Expected one of {listed(names)}."
    if not isinstance(name, str):
        return f"Expected the name of a {base.__name__}, got {name!r}."
    if name in names or "." in name:
        try:
            base.resolve_class_name(name)  # type: ignore[attr-defined]
        except (ConfigurationError, ImportError) as error:
            return str(error)
        return None
    return (
        f"'{name}' is not a registered {base.__name__}.{did_you_mean(name, names)} Expected one of "
        f"{listed(names)}, or the path of a class (module.Class)."
    )


def elsewhere(path: str, settings: list[Setting]) -> str | None:
    """Return where else in the configuration a class takes the last key of a path."""
    key = path.rpartition(".")[2]
    places = [one.path.rpartition(".")[0] for one in settings]
    keys = [one.path.rpartition(".")[2] for one in settings]
    found = [place for place, known in zip(places, keys, strict=True) if known == key]
    return min(found, key=lambda place: place.count("."), default=None) or None


def join(path: str, key: object) -> str:
    """Return the dotted path of a key of the object at a path."""
    return f"{path}.{key}" if path else str(key)
