"""The effective settings of a configuration, and its wrong keys, without building anything.

As in AllenNLP's `FromParams`, the annotation of a parameter says what is built of its value.
"""

from __future__ import annotations

import collections.abc
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

from allennlp.common import Lazy
from allennlp.common.from_params import can_construct_from_params, remove_optional

from declutr.runs.check.constructors import (
    TrainCommand,
    accepted_keys,
    builds_itself,
    given_to,
    registered_names,
)
from declutr.runs.check.findings import (
    Finding,
    Setting,
    elsewhere,
    join,
    parts_of,
    plain,
    problem_of_type,
)
from declutr.system.nearest import listed, nearest

_NEEDED = inspect.Parameter.empty
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_LISTS = (list, collections.abc.Iterable, set, frozenset)
_SCALARS = {
    bool: ("true or false", (bool, int)),
    int: ("a whole number", (bool, int)),
    float: ("a number", (int, float)),
    str: ("a text", (str, Path)),
}


@dataclass
class Walk:
    """The settings and findings of a configuration, in the order of the constructors' parameters.

    # Parameters

    settings, findings : those found up to now.
    misplaced : findings of keys that are near no key of their class: their place in `findings`.
    """

    settings: list[Setting] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    misplaced: list[int] = field(default_factory=list)

    def wrong(self, path: str, message: str) -> None:
        """Add a finding on the key at a dotted path of the configuration."""
        self.findings.append(Finding(path, message))

    def of_class(self, base: type, given: Any, path: str, extras: frozenset[str] | None) -> None:
        """Walk through what an object of a class, or of one registered under it, is built of.

        # Parameters

        base : the class that an annotation names.
        given : the value of the configuration.
        path : the dotted path of the value; empty at the top.
        extras : the parameters that AllenNLP gives; `None` if that is not known.
        """
        if isinstance(given, str):
            given = {"type": given}
        if not isinstance(given, Mapping):
            self.wrong(path, f"Expected an object for {base.__name__}, got {given!r}.")
        elif "_pretrained" in given:
            self.raw(given, path)
        else:
            self._of_object(base, given, path, extras)

    def _of_object(
        self, base: type, given: Mapping, path: str, extras: frozenset[str] | None
    ) -> None:
        given = dict(given)
        names = registered_names(base)
        cls: type = base
        constructor: Any = None
        if names is not None:
            default = getattr(base, "default_implementation", None)
            named = given.pop("type", None)
            name = default if named is None else named
            problem = problem_of_type(base, name, names)
            if problem:
                self.wrong(join(path, "type"), problem)
                name = nearest(str(name), names)
                if name in (None, named):
                    self.raw(given, path)
                    return
            of = None if named is not None else base.__name__
            self.settings.append(Setting(join(path, "type"), name, of))
            cls, method = base.resolve_class_name(name)  # type: ignore[attr-defined]
            constructor = getattr(cls, method) if method else None
        if not inspect.isclass(cls) or (builds_itself(cls) and hasattr(cls, "from_params")):
            self.raw(given, path)  # only the class knows what it takes
            return
        self._of_keys(cls, constructor or cls.__init__, given, path, extras)  # type: ignore[misc]

    def _of_keys(
        self, cls: type, constructor: Any, given: dict, path: str, extras: frozenset[str] | None
    ) -> None:
        accepted = accepted_keys(cls, constructor)
        for name, parameter in accepted.parameters.items():
            place = join(path, name)
            if name in given:
                value = given.pop(name)
                if value is None:
                    self._of_null(parameter, place, cls)
                else:
                    self.of_argument(parameter.annotation, value, place, extras)
            elif extras is not None and name in extras:
                continue
            elif parameter.default is not _NEEDED:
                self.settings.append(Setting(place, plain(parameter.default), cls.__name__))
            elif extras is not None:
                self.wrong(place, f"{cls.__name__} needs this key, which is missing: set it.")
        for name, value in given.items():
            keys = [key for key in accepted.parameters if key not in (extras or ())]
            self._unknown(cls, name, value, keys, path, accepted.any_key)

    def _of_null(self, parameter: inspect.Parameter, path: str, cls: type) -> None:
        """Find `null` wrong for a number, or a `Lazy` part, without which the class cannot do."""
        annotation, default = parameter.annotation, parameter.default
        part = getattr(annotation, "__origin__", None) is Lazy
        if (part or annotation in (int, float)) and default is not None:
            kept = "set it" if default is _NEEDED else f"leave it out for {plain(default)!r}"
            what = "an object" if part else _SCALARS[annotation][0]
            self.wrong(path, f"Expected {what} for {cls.__name__}, got null: {kept}.")
        self.settings.append(Setting(path, None))

    def _unknown(
        self, cls: type, name: str, value: Any, keys: list[str], path: str, any_key: bool
    ) -> None:
        place = join(path, name)
        near = nearest(name, keys)
        if any_key:
            self.raw(value, place)
            return
        meant = f" Did you mean '{near}'?" if near else ""
        if not near:
            self.misplaced.append(len(self.findings))
        takes = listed(keys) if keys else "no keys"
        self.wrong(place, f"{cls.__name__} has no such key.{meant} It takes {takes}.")

    def of_argument(
        self, annotation: Any, value: Any, path: str, extras: frozenset[str] | None
    ) -> None:
        """Walk through the value of one parameter of a constructor.

        # Parameters

        annotation : that of the parameter.
        value, path, extras : as in `of_class`.
        """
        annotation = remove_optional(annotation)
        origin: Any = getattr(annotation, "__origin__", None)
        args: tuple[Any, ...] = getattr(annotation, "__args__", ())
        buildable = bool(args) and all(can_construct_from_params(arg) for arg in args[-1:])
        if annotation in _SCALARS:
            self._of_scalar(annotation, value, path)
        elif inspect.isclass(annotation) and hasattr(annotation, "from_params"):
            self.of_class(annotation, value, path, extras)
        elif origin is Lazy:
            self._of_lazy(args[0], value, path, extras)
        elif origin is Union:
            self._of_union(args, value, path, extras)
        elif origin in _MAPPINGS and buildable and isinstance(value, Mapping):
            for key, one in value.items():
                self.of_argument(args[-1], one, join(path, key), extras)
        elif origin is tuple and buildable and isinstance(value, list) and Ellipsis not in args:
            self._of_list(args, value, path, extras)
        elif origin in _LISTS and buildable and isinstance(value, list) and value:
            self._of_list(args * len(value), value, path, extras)
        elif origin in (*_MAPPINGS, *_LISTS) and buildable and isinstance(value, (int, float, str)):
            kind = "an object" if origin in _MAPPINGS else "a list"
            self.wrong(path, f"Expected {kind}, got {value!r}.")
        else:
            self.raw(value, path)

    def _of_lazy(self, cls: Any, value: Any, path: str, extras: frozenset[str] | None) -> None:
        more = given_to(cls) if inspect.isclass(cls) else None
        known = None if extras is None or more is None else extras | more
        self.of_argument(cls, value, path, known)

    def _of_scalar(self, annotation: Any, value: Any, path: str) -> None:
        expected, kinds = _SCALARS[annotation]
        if type(value) not in kinds and not isinstance(value, Path):
            self.wrong(path, f"Expected {expected}, got {value!r}.")
        self.settings.append(Setting(path, value))

    def _of_union(self, args: tuple, value: Any, path: str, extras: frozenset[str] | None) -> None:
        """Take the first kind that fits, and otherwise the one that is least wrong."""
        tries = []
        for arg in args:
            walk = Walk()
            walk.of_argument(arg, value, path, extras)
            if not walk.findings:
                tries = [walk]
                break
            is_object = isinstance(value, Mapping) and arg not in _SCALARS
            tries.append(walk) if not is_object else tries.insert(0, walk)
        self._add(min(tries, key=lambda walk: len(walk.findings)))

    def _of_list(
        self, kinds: tuple, values: list, path: str, extras: frozenset[str] | None
    ) -> None:
        walk = Walk()
        for number, (kind, one) in enumerate(zip(kinds, values, strict=False)):
            walk.of_argument(kind, one, join(path, number), extras)
        if all(kind in _SCALARS for kind in kinds):  # a pair of numbers is one setting
            walk.settings = [Setting(path, values)]
        self._add(walk)

    def _add(self, walk: Walk) -> None:
        self.settings += walk.settings
        self.misplaced += [len(self.findings) + place for place in walk.misplaced]
        self.findings += walk.findings

    def raw(self, value: Any, path: str) -> None:
        """Add a value whose meaning only its class knows, key by key."""
        self.settings += [Setting(place, one) for place, one in parts_of(value, path)]


def walk_through(config: Mapping[str, Any]) -> Walk:
    """Return all effective settings of a configuration of `allennlp train`, and what is wrong."""
    from allennlp.commands.train import TrainModel

    walk, given = Walk(), dict(config)
    of_command = accepted_keys(TrainCommand, TrainCommand.__init__).parameters
    own = {key: given.pop(key) for key in of_command if key in given}
    walk.of_class(TrainCommand, own, "", frozenset())
    given_by_command = frozenset(("serialization_dir", "local_rank", "ddp_accelerator"))
    walk.of_class(TrainModel, given, "", given_by_command)
    for place in walk.misplaced:
        finding = walk.findings[place]
        right = elsewhere(finding.path, walk.settings)
        if right:
            head, _, tail = finding.message.partition(" It takes ")
            message = f"{head} It is a key of {right}: move it there. Here it takes {tail}"
            walk.findings[place] = Finding(finding.path, message)
    return walk
