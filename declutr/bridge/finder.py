"""The meta-path finder that wraps the loaders of the AllenNLP modules that need the bridge.

Every interpreter that imports `declutr` runs this file at its start, so it imports nothing but
`os` and `sys`, which Python itself has loaded. The switches are imported with the first module of
AllenNLP.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # set above, because importing `typing` takes time
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from declutr.bridge.switches import Switch

SWITCH = "DECLUTR_BRIDGE"
"""The environment variable that switches the whole bridge off, the plugin included, by `0`."""

PLUGIN_SWITCH = "DECLUTR_PLUGIN"
"""The environment variable that leaves the repairs of AllenNLP alone by `0`.

None of this package's names is then known to AllenNLP, and nothing that serves this package alone
is added.
"""


class BridgeError(RuntimeError):
    """Error that names a switch of the bridge that failed for an unexpected reason."""


class BridgeFinder:
    """A finder that asks the other finders and wraps the loaders of modules that need the bridge.

    The modules are named in `declutr.bridge.switches`. All others are left to the other finders.
    """

    def __init__(self) -> None:
        self._searching: set[str] = set()

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name in self._searching or not _is_needed(name):
            return None
        if name != "allennlp":  # looking for it must stay cheap
            from declutr.bridge.switches import LENT

            if name not in LENT and not _repairs_of(name):
                return None
        self._searching.add(name)
        try:
            spec = self._ask_others(name, path, target)
        finally:
            self._searching.discard(name)
        if spec is not None and spec.loader is not None:
            spec.loader = BridgeLoader(spec.loader)  # type: ignore[assignment]
        return spec

    def _ask_others(
        self, name: str, path: "Sequence[str] | None", target: "ModuleType | None"
    ) -> "ModuleSpec | None":
        for finder in list(sys.meta_path):
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None


class BridgeLoader:
    """A loader that runs a module with the names lent to it, then applies its repairs.

    The module gets its own loader back before its body runs.
    """

    def __init__(self, loader: "Any") -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> "Any":
        return getattr(self._loader, name)

    def create_module(self, spec: "ModuleSpec") -> "ModuleType | None":
        return self._loader.create_module(spec)

    def exec_module(self, module: "ModuleType") -> None:
        import contextlib

        from declutr.bridge.switches import LENT

        name = module.__name__
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        with contextlib.ExitStack() as stack:
            for lend in LENT.get(name, ()):
                with _blaming(lend, name):
                    stack.enter_context(lend())
            self._loader.exec_module(module)
        for repair in _repairs_of(name):
            with _blaming(repair, name):
                needed = repair(module) is not False
            _log("%s: %s %s", name, repair.__name__, "applied" if needed else "not needed")


class _blaming:
    """A context that turns an unexpected error into a `BridgeError` that names the switch."""

    def __init__(self, switch: "Callable[..., Any]", module_name: str) -> None:
        self._switch = switch
        self._module_name = module_name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: "BaseException | None", traceback: object) -> None:
        if isinstance(error, Exception):
            raise BridgeError(
                f"declutr.bridge: the switch {self._switch.__name__!r} could not be applied to "
                f"{self._module_name}: {type(error).__name__}: {error}. A release of torch or "
                f"transformers that the bridge does not know may be the cause. {SWITCH}=0 in the "
                "environment switches the whole bridge off."
            ) from error


def plugin_is_on() -> bool:
    """Return whether the environment lets AllenNLP know this package, as it does by default."""
    return "0" not in (os.environ.get(SWITCH), os.environ.get(PLUGIN_SWITCH))


def _repairs_of(name: str) -> "tuple[Switch, ...]":
    """Return the switches to apply after the body of a module, by its name."""
    from declutr.bridge.switches import ADDITIONS, REPAIRS

    return REPAIRS.get(name, ()) + (ADDITIONS.get(name, ()) if plugin_is_on() else ())


def _log(message: str, *args: object) -> None:
    import logging

    logging.getLogger("declutr.bridge").debug(message, *args)


def _is_needed(name: str) -> bool:
    """Return whether a module of AllenNLP may need a switch.

    They are for releases of torch that AllenNLP does not support. `allennlp` itself imports torch
    and transformers, so these are loaded before its submodules; it also imports spaCy, for which a
    switch stands in if it is not installed.
    """
    if name == "allennlp":
        from declutr.bridge.lending import is_installed

        return not is_installed("spacy")
    torch = sys.modules.get("torch")
    theirs = name.startswith(("allennlp.", "allennlp_models.", "rouge."))
    if not theirs or torch is None or "transformers" not in sys.modules:
        return False
    major = str(getattr(torch, "__version__", "0")).split(".")[0]
    return major.isdigit() and int(major) >= 2
