"""Deferred imports of libraries that AllenNLP and transformers import, and few ever use.

They do not work around a change of a library. They make commands start sooner, and processes
smaller by some 60 MiB (measure with `python -m benchmarks startup`).
"""

import contextlib
import gc
import pkgutil
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any


def sklearn() -> contextlib.AbstractContextManager[None]:
    """Defer the import of scikit-learn, which imports pandas.

    Only the metric "auc" and a method of bias mitigation use it. Can be removed when AllenNLP
    imports it where it uses it.
    """
    return deferred("sklearn")


def scipy_stats() -> contextlib.AbstractContextManager[None]:
    """Defer the import of `scipy.stats`, which only rank correlation and a bias metric use.

    Can be removed when AllenNLP imports it where it uses it.
    """
    return deferred("scipy.stats")


def scipy_optimize() -> contextlib.AbstractContextManager[None]:
    """Defer the import of `scipy.optimize`, which takes a tenth of the start of a command.

    All models of transformers import it for one function of the losses of object detection.
    Transformers 4 imports it through scikit-learn as well, and so always. Can be removed when
    transformers imports it where it uses it.
    """
    return deferred("scipy.optimize")


@contextlib.contextmanager
def garbage() -> Iterator[None]:
    """Disable the garbage collector within this context, in which modules are imported.

    The imports make half a million objects and no garbage, and Python would scan all of them again
    and again while their number grows. Can be removed when Python no longer does.
    """
    if not gc.isenabled() or gc.get_freeze_count():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        # Together these two calls move all objects into the oldest generation, so that the first
        # collection does not scan them.
        gc.freeze()
        gc.unfreeze()
        gc.enable()


@contextlib.contextmanager
def deferred(package: str) -> Iterator[None]:
    """Defer imports of a package that are made within this context.

    `import package` and `from package import name` give placeholders. A placeholder imports the
    package when it is first used: if it is called, if one of its attributes is read after the
    context has ended, if a class is derived from it, or if a module in it is imported. A package
    that is already imported is left alone.

    # Parameters

    package : the name of a package, or the dotted name of a module in one.
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
    """A placeholder for a module, or for a dotted name in one, that resolves itself when used."""

    def __getattr__(self, name: str) -> Any:
        # Python's import system asks for the path when it looks for a module in a package. The
        # statement `from package import name` asks as well, but does not need it.
        asking = sys._getframe(1).f_globals.get("__name__", "")
        if name == "__path__" and str(asking).startswith("importlib."):
            return getattr(_found(self.__name__), name)
        if name.startswith("__"):
            raise AttributeError(name)
        path = f"{self.__name__}.{name}"
        if sys.modules.get(self.__name__) is self:  # for `from package import name`
            return _Deferred(path)
        return _found(path)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _found(self.__name__)(*args, **kwargs)

    # Another thread may import a module that uses the package before the context has ended.

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (_found(self.__name__),)

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, _found(self.__name__))

    def __subclasscheck__(self, cls: type) -> bool:
        return issubclass(cls, _found(self.__name__))


def _found(path: str) -> Any:
    for name in [name for name, module in sys.modules.items() if isinstance(module, _Deferred)]:
        if f"{path}.".startswith(f"{name}."):  # it is used before the context has ended
            del sys.modules[name]
    return pkgutil.resolve_name(path)
