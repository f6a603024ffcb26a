"""The registries of AllenNLP, extended by the names of this package."""

import functools
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from declutr.bridge.component_names import COMPONENTS, PREFIX
from declutr.bridge.names import Names, import_before_use, place_of, registering


class Registries(dict[type, Any]):
    """AllenNLP's registries by base class, with `Names` for those that this package adds to."""

    def __init__(self, registries: defaultdict[type, dict[str, Any]]) -> None:
        super().__init__()
        self._registries = registries
        for base in list(registries):
            self[base]

    def __missing__(self, base: type) -> Any:
        names: Any = self._registries[base]
        if (place := place_of(base)) in COMPONENTS:
            names = Names(place, names, COMPONENTS[place])
        return self.setdefault(base, names)  # if two threads get here, both use the first registry

    def get(self, base: type, default: Any = None) -> Any:
        return self[base] if place_of(base) in COMPONENTS else super().get(base, default)


def extend(before_use: str | None = None) -> None:
    """Make the names of this package known to AllenNLP, which imports none of their modules.

    # Parameters

    before_use : a module to import before the first class of this package is looked up.
    """
    from allennlp.common import registrable

    if before_use:
        import_before_use(before_use)
    if not isinstance(registrable.Registrable._registry, Registries):
        yielding_names(registrable)  # a switch, which is not applied where the bridge is off
        known = Registries(registrable.Registrable._registry)
        registrable.Registrable._registry = known  # type: ignore[assignment]


def yielding_names(module: ModuleType) -> bool:
    """Let others register names of this package, and let its prefixed names be chosen.

    AllenNLP refuses a name that is registered already, and chooses from listed names only.

    Can be removed when AllenNLP has a registry of its own for each plugin.
    """
    cls = module.Registrable
    if getattr(cls.register, "yields", False):
        return False
    registers, lists = cls.register.__func__, cls.list_available.__func__

    @functools.wraps(registers)
    def register(cls: Any, name: str, *args: Any, **kwargs: Any) -> Callable[[type], type]:
        if name in COMPONENTS.get(place_of(cls), ()):
            extend()  # before the first such class: an entry of ours must not be replaced
        add = registers(cls, name, *args, **kwargs)

        def add_subclass_to_registry(subclass: type) -> type:
            with registering(subclass):
                return add(subclass)

        return add_subclass_to_registry

    @functools.wraps(lists)
    def list_available(cls: Any) -> list[str]:
        names = module.Registrable._registry[cls]
        listed = lists(cls)
        return _Choices(listed, names) if isinstance(names, Names) else listed

    register.yields = True  # type: ignore[attr-defined]
    cls.register, cls.list_available = classmethod(register), classmethod(list_available)
    return True


class _Choices(list[str]):
    """The listed names of a base class, among which those with the prefix can be chosen, too."""

    def __init__(self, listed: list[str], names: Names) -> None:
        super().__init__(listed)
        self._prefixed = {PREFIX + name for name in names.own}

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._prefixed


def _known() -> Iterator[Names]:
    """Yield the names of each base class that AllenNLP has and this package adds to."""
    allennlp = sys.modules.get("allennlp.common.registrable")
    registries = allennlp.Registrable._registry if allennlp else {}
    yield from (names for names in list(registries.values()) if isinstance(names, Names))


def any_taken() -> bool:
    """Return whether another package has registered a name of this package."""
    return any(names.taken for names in _known())


def own_name(base: str, name: Any) -> str | None:
    """Return the name in the table for one that means a class of this package; else `None`.

    # Parameters

    base : the name of a base class of AllenNLP, such as `"Model"`.
    name : a registered name, with or without the prefix, or anything that is none.
    """
    (place,) = (place for place in COMPONENTS if place.endswith(f":{base}"))
    known = next((names for names in _known() if names.base == place), None)
    names = Names(place, {}, COMPONENTS[place]) if known is None else known
    return names.own_name(name)
