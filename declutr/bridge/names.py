"""The registered names of a base class: those of this package yield to those of all others.

Whoever else registers a name of this package with a base class of AllenNLP gets it, before or after
this package. Every name of this package stays reachable with the prefix `declutr-`, which AllenNLP
lists only where the name itself belongs to somebody else. The module of a class is imported when
its name is looked up.
"""

import importlib
import logging
import sys
import threading
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from declutr.bridge.component_names import PREFIX, may_be_taken

logger = logging.getLogger("declutr.bridge")

# Two threads that import two modules of one package can wait for each other, and Python resolves
# such a deadlock by an error in one of them. Only one thread at a time begins an import here.
_IMPORTING = threading.RLock()
_ALL = ("",)  # every place of a base class begins with it
_own_first: ContextVar[tuple[str, ...]] = ContextVar("own_first", default=())
_registering: ContextVar[type | None] = ContextVar("registering", default=None)
_before_use: list[str] = []


class Names(MutableMapping[str, Any]):
    """The names of one base class: those that others registered, and those of this package.

    Looking up a name of this package imports its module. A module that registers its own class
    still finds the name free.

    # Parameters

    base : the place of the base class, `"module:Class"`. `shared` tells whether others may take
        names of this package with it.
    others : the entries of others; other code may keep a reference to this dictionary. Entries of
        this package are taken out of it.
    places : the module, or `"module:Class"`, that adds an entry of this package, by its name.
    """

    def __init__(self, base: str, others: dict[str, Any], places: dict[str, str]) -> None:
        self.base, self._others, self._places = base, others, dict(places)
        self.shared = may_be_taken(base)
        self._registered: dict[str, Any] = {}
        self._hidden: set[str] = set()  # deleted: only the prefixed name is left
        for name, entry in list(others.items()):
            if self._is_own(name, entry):
                self._registered[name] = others.pop(name)
            elif name in places:
                self._tell(name, entry)

    @property
    def imported(self) -> dict[str, Any]:
        """The entries of modules that have been imported, in the order in which they were added."""
        return {**self._registered, **self._others}

    @property
    def own(self) -> set[str]:
        """The names of this package, without the prefix."""
        return set(self._places)

    @property
    def taken(self) -> set[str]:
        """The names of this package that others have registered."""
        return self._others.keys() & self._places.keys()

    def own_name(self, name: Any) -> str | None:
        """Return the name in the table for one that means a class of this package; else `None`.

        >>> names = Names("allennlp.a:Base", {"mine": None}, {"mine": "m:C", "ours": "m:D"})
        >>> names.own_name("ours"), names.own_name("declutr-mine"), names.own_name("mine")
        ('ours', 'mine', None)
        """
        if not isinstance(name, str):
            return None
        if name in self._others and (_registering.get() or not self._own_first()):
            return None
        if name in self._places:
            return None if name in self._hidden else name
        found = name.removeprefix(PREFIX)
        return found if found in self._places else None

    def listed(self, name: str) -> str:
        """Return what a name of this package is listed as: with the prefix where it is taken."""
        return PREFIX + name if name in self.taken and not self._own_first() else name

    def __getitem__(self, name: str) -> Any:
        own = self.own_name(name)
        if own is None:
            return self._others[name]
        for module in (*_before_use, self._places[own].partition(":")[0]):
            _import(module)  # also if it is known: another thread may still be importing the module
        return self._registered[own]

    def __contains__(self, name: object) -> bool:
        adding = _registering.get()
        if adding is None:
            return name in self._others or self.own_name(name) is not None
        if self._is_own(name, adding):
            return False
        # What others registered, and what they may not take: its class is imported, to be told.
        return name in self._others or (not self.shared and super().__contains__(name))

    def __setitem__(self, name: str, entry: Any) -> None:
        if self._is_own(name, entry):
            self._registered[name] = entry
            self._hidden.discard(name)
            if _registering.get() is None:  # it is put back, after another was there for a while
                self._others.pop(name, None)
            return
        if name not in self._places and self.own_name(name) is not None:
            from allennlp.common.checks import ConfigurationError

            raise ConfigurationError(
                f"Cannot register '{name}': names that begin with '{PREFIX}' are for the classes "
                "of the package declutr. Expected another name."
            )
        if name in self._places and name not in self._others:
            self._tell(name, entry)
        self._others[name] = entry

    def __delitem__(self, name: str) -> None:
        if self.own_name(name) is not None:
            _ = self[name]  # The import of its module must not add the entry again later.
            self._hidden.add(name)
        else:
            del self._others[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._others, *map(self.listed, self._shown())]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)})"

    def _is_own(self, name: object, entry: Any) -> bool:
        cls = entry[0] if isinstance(entry, tuple) else entry
        return self._places.get(name) == place_of(cls)  # type: ignore[call-overload]

    def _shown(self) -> list[str]:
        return [name for name in self._places if name not in self._hidden or name in self._others]

    def _own_first(self) -> bool:
        return self.base.startswith(_own_first.get())

    def _tell(self, name: str, entry: Any) -> None:
        cls = entry[0] if isinstance(entry, tuple) else entry
        logger.info(
            "'%s' is now %s, and also a name of declutr, which stays reachable as '%s%s'",
            *(name, place_of(cls).replace(":", "."), PREFIX, name),
        )


def place_of(cls: Any) -> str:
    """Return the place of a class, `"module:Class"`, as in `COMPONENTS`."""
    return f"{getattr(cls, '__module__', None)}:{getattr(cls, '__qualname__', cls)}"


@contextmanager
def own_first(*bases: str) -> Iterator[None]:
    """Return a context in which names of this package win over the same names of others.

    It holds for this thread or task.

    # Parameters

    bases : what the places of the base classes begin with; all base classes by default.
    """
    token = _own_first.set(bases or _ALL)
    try:
        yield
    finally:
        _own_first.reset(token)


@contextmanager
def registering(added: type) -> Iterator[None]:
    """Return a context in which a class is registered, for which yielded names count as free."""
    token = _registering.set(added)
    try:
        yield
    finally:
        _registering.reset(token)


def import_before_use(module: str) -> None:
    """Let a module be imported before the first class of this package is looked up."""
    if module not in _before_use:
        _before_use.append(module)


def _import(module: str) -> None:
    if module in sys.modules:  # Another thread may be importing it; this waits for the end.
        importlib.import_module(module)
    else:
        with _IMPORTING:
            importlib.import_module(module)
