"""Puts off what AllenNLP does at its start and training on text never needs.

Not cures of a version: they make commands start sooner, and processes smaller by some 60 MiB
(`python -m benchmarks startup`).
"""

import contextlib
import gc
import pkgutil
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any


def nltk() -> contextlib.AbstractContextManager[None]:
    """AllenNLP imports all of nltk for one name in an annotation.

    Can go when AllenNLP imports it for type checkers only.
    """
    return deferred("nltk")


def sklearn() -> contextlib.AbstractContextManager[None]:
    """scikit-learn brings pandas, and serves the metric "auc" and a mitigation of bias.

    Can go when AllenNLP imports it where it uses it.
    """
    return deferred("sklearn")


def scipy_stats() -> contextlib.AbstractContextManager[None]:
    """scipy's statistics serve rank correlation and a metric of bias.

    Can go when AllenNLP imports them where it uses them.
    """
    return deferred("scipy.stats")


@contextlib.contextmanager
def garbage() -> Iterator[None]:
    """Look for garbage after the imports: they make half a million objects, and no garbage.

    Python looks through all of them again and again while they become more. Can go when it does
    not any more.
    """
    if not gc.isenabled() or gc.get_freeze_count():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        # Together: what is there now counts as old, and is not looked through first thing.
        gc.freeze()
        gc.unfreeze()
        gc.enable()


@contextlib.contextmanager
def deferred(package: str) -> Iterator[None]:
    """Inside, `import package` and `from package import name` import nothing yet.

    What they give imports the package when it is first used: when an attribute is asked for after
    the context has ended, or when it is called. A package that is already imported is left alone.
    A module in a package, by its dotted name, can be put off in the same way.
    """
    if package in sys.modules:
        yield
        return
    module = _Deferred(package)
    sys.modules[package] = module
    try:
        yield
    finally:
        if sys.modules.get(package) is module:
            del sys.modules[package]


class _Deferred(ModuleType):
    """Stands for a module or for a name in one (dotted), and finds it when it is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        path = f"{self.__name__}.{name}"
        if sys.modules.get(self.__name__) is self:  # `from package import name`, inside the context
            return _Deferred(path)
        return _found(path)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _found(self.__name__)(*args, **kwargs)


def _found(path: str) -> Any:
    for name in [name for name, module in sys.modules.items() if isinstance(module, _Deferred)]:
        if f"{path}.".startswith(f"{name}."):  # used while the context still lasts
            del sys.modules[name]
    return pkgutil.resolve_name(path)
