"""Configurations in which every name of this package says that it is one of this package.

`declutr-glue` is always this package's reader; what "glue" is depends on the packages that are
loaded. A name that is spelt with the prefix in the configuration of a run is so in its archive.
"""

import collections.abc
import inspect
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Union

from declutr.bridge.component_names import COMPONENTS, PREFIX, may_be_taken, short
from declutr.bridge.names import Names, own_first
from declutr.bridge.registry import any_taken, extend

_SHORT = {name for base, names in COMPONENTS.items() if may_be_taken(base) for name in names}
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
CARRIED_NAMES = "transformer/names.json"
"""A file that only archives of this package have, also of releases that wrote short names."""


def spelt(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration of `allennlp train` in which names of this package have the prefix.

    As in AllenNLP's `FromParams`, the annotation of a parameter says what a name stands for. Names
    in places that no annotation describes stay as they are, and so do those of others, of base
    classes that others may not add to, and all that are not registered.

    # Parameters

    config : the configuration, as plain dictionaries and lists, which is not changed.
    """
    if not any(map(_SHORT.__contains__, strings_in(config))):
        return dict(config)
    from allennlp.commands.train import TrainModel
    from allennlp.nn.parallel import DdpAccelerator

    extend()
    new: dict[str, Any] = _of_class(TrainModel, config)
    processes, key = new.get("distributed"), "ddp_accelerator"
    if isinstance(processes, Mapping) and key in processes:
        new["distributed"] = {**processes, key: _of_class(DdpAccelerator, processes[key])}
    return new


def names_own(file: str) -> bool:
    """Return whether a `config.json` may name a class of this package; False if unreadable."""
    try:
        texts = strings_in(json.loads(Path(file).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return False
    return any(short(text) in _SHORT for text in texts)


def of_archive(config: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Return the configuration of an archive in which the names of this package have the prefix.

    Archives of release 2.0 and before have short names. If another package has taken one, and the
    archive carries what only this package writes, its names mean classes of this package.

    # Parameters

    config : the configuration, as plain dictionaries and lists, which is not changed.
    folder : the folder of the extracted archive.
    """
    if not any_taken() or any(short(text) != text for text in strings_in(config)):
        return dict(config)
    if not Path(folder, CARRIED_NAMES).is_file():
        return dict(config)
    with own_first():
        return spelt(config)


def as_before(now: Any, before: Any) -> Any:
    """Return a configuration with names spelt as in an earlier one, where both mean the same class.

    # Parameters

    now : the configuration, with names of this package spelt by `spelt`.
    before : that of a run which an earlier release may have begun. Where it has names with the
        prefix, or another package has taken a name, the same text need not mean the same class.
    """
    if any_taken() or any(short(text) != text for text in strings_in(before)):
        return now
    return _as_before(now, before)


def _as_before(now: Any, before: Any) -> Any:
    if isinstance(now, Mapping) and isinstance(before, Mapping):
        return {
            key: one if key.endswith("_path") else _as_before(one, before.get(key))
            for key, one in now.items()
        }
    if isinstance(now, list) and isinstance(before, list):
        both = zip(now, [*before, *now[len(before) :]], strict=False)
        return [_as_before(one, other) for one, other in both]
    return before if isinstance(now, str) and now != before and short(now) == before else now


def strings_in(value: Any) -> Iterator[str]:
    """Yield every string in a JSON value, except keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (Mapping, list)):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from strings_in(one)


def _of_class(base: Any, value: Any) -> Any:
    """Spell the names in what an object of a class, or of one registered under it, is built of."""
    from allennlp.common import Registrable
    from allennlp.common.checks import ConfigurationError
    from allennlp.common.from_params import infer_method_params

    names = Registrable._registry.get(base)
    if isinstance(value, str):
        return _of_name(names, value)
    if not isinstance(value, Mapping):
        return value
    new, cls, constructor = dict(value), base, None
    if names is not None:
        name = value.get("type", getattr(base, "default_implementation", None))
        try:
            cls, method = base.resolve_class_name(name)
        except (ConfigurationError, ImportError, TypeError):  # AllenNLP reports it when it builds
            return new
        constructor = getattr(cls, method) if method else None
        if "type" in value:
            new["type"] = _of_name(names, name)
    if inspect.isclass(cls):
        kind: Any = cls
        parameters = infer_method_params(kind, constructor or cls.__init__)
        for key in new.keys() & parameters.keys() - {"type"}:
            new[key] = _of_annotation(parameters[key].annotation, new[key])
    return new


def _of_name(names: Any, name: str) -> str:
    own = names.own_name(name) if isinstance(names, Names) and names.shared else None
    return name if own is None else PREFIX + own


def _of_annotation(annotation: Any, value: Any) -> Any:
    """Spell the names in the value of a parameter."""
    from allennlp.common import Lazy

    origin: Any = getattr(annotation, "__origin__", None)
    args: tuple[Any, ...] = getattr(annotation, "__args__", ())
    if inspect.isclass(annotation) and hasattr(annotation, "from_params"):
        return _of_class(annotation, value)
    if origin is Lazy:
        return _of_annotation(args[0], value)
    if origin is Union:
        for arg in args:
            value = _of_annotation(arg, value)
        return value
    if origin in _MAPPINGS and isinstance(value, Mapping):
        return {key: _of_annotation(args[-1], one) for key, one in value.items()}
    if args and isinstance(value, list):
        kinds = args if origin is tuple and Ellipsis not in args else args[:1] * len(value)
        spelt_ones = [_of_annotation(kind, one) for kind, one in zip(kinds, value, strict=False)]
        return [*spelt_ones, *value[len(spelt_ones) :]]
    return value
