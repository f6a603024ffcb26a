"""Compatibility layer that runs AllenNLP 2.10.1 on current torch, transformers and Python.

AllenNLP is archived. Its pins (torch < 1.13, transformers < 4.21, ...) no longer resolve on current
interpreters, so it is installed without them, and a small number of its modules no longer import or
run. This package patches exactly those modules in memory: no file of any library is changed.

`install` puts one finder on `sys.meta_path`. The finder does nothing until one of the `allennlp.*`
modules named in `declutr.bridge.switches` is imported. Then it lends that module the names it
expects *while its body runs* (`lending`), delays imports that are not needed (`deferral`), or
patches the module right after its body ran (`repairs`, `pretrained`, `resumption`, `additions`,
`archives`). Each such patch is called a switch. A switch that works around a change of a library
first tests whether that change is present.

`declutr_bridge.pth`, installed into site-packages, imports this package at the first import of
`allennlp`. For processes that start without site-packages, `repairs` makes sure that the bridge is
imported first.

Setting `DECLUTR_PLUGIN=0` in the environment leaves the repairs alone: AllenNLP then knows no name
of this package, and nothing is added to it. `DECLUTR_BRIDGE=0` switches the whole bridge off. The
logger `declutr.bridge` reports at level `DEBUG` which switches were applied.

The package can be deleted once AllenNLP itself supports the releases in use, or is no longer used.
The docstring of every switch says when that switch alone can be removed.
"""

import os
import sys

from declutr.bridge.finder import PLUGIN_SWITCH, SWITCH, BridgeFinder, plugin_is_on

TYPE_CHECKING = False
if TYPE_CHECKING:  # set above, because importing `typing` takes time
    from importlib.machinery import ModuleSpec
    from typing import Any

__all__ = ["PLUGIN_SWITCH", "SWITCH", "find_spec", "install", "is_active", "plugin_is_on"]


def install() -> None:
    """Install the bridge in this process, once, unless `DECLUTR_BRIDGE=0` is set."""
    if os.environ.get(SWITCH, "1") != "0" and not is_active():
        sys.meta_path.insert(0, BridgeFinder())


def find_spec(name: str, *args: "Any") -> "ModuleSpec | None":
    """Return what the bridge's finder finds for a module, or `None` if it is switched off.

    `declutr_bridge.pth` asks for `allennlp` itself: Python looks for that module already while the
    finder is put before the others, and so does not ask the finder.
    """
    finders = [finder for finder in sys.meta_path if isinstance(finder, BridgeFinder)]
    return finders[0].find_spec(name, *args) if finders else None


def is_active() -> bool:
    """Return whether the bridge is installed in this process."""
    return any(isinstance(finder, BridgeFinder) for finder in sys.meta_path)
