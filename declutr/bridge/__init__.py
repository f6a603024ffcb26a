"""Runs AllenNLP 2.10.1 on today's torch, transformers, huggingface_hub and Python.

AllenNLP is archived. Its pins (torch < 1.13, transformers < 4.21, ...) no longer resolve on current
interpreters, so it is installed without them, and a small number of its modules no longer import or
run. This package cures exactly those, from outside: no file of any library is changed.

How: `install` puts one finder on `sys.meta_path`. It does nothing until one of the `allennlp.*`
modules named in `declutr.bridge.switches` is imported. Then it lends that module the names it
expects *while its body runs* (`lending`), or adjusts the module right after (`repairs`,
`pretrained`, `resumption`, `additions`, `archives`). Every switch tests for the very thing it
replaces.

`declutr_bridge.pth`, installed into site-packages, imports this package at the first import of
`allennlp`; processes that start without site-packages are cured by `repairs`.

`DECLUTR_BRIDGE=0` in the environment switches everything off. `DEBUG` records of the logger
`declutr.bridge` say what was done.

The package can be deleted once AllenNLP itself supports the releases in use, or is not used any
more; every switch says when it alone can go.
"""

import os
import sys

from declutr.bridge.finder import SWITCH, BridgeFinder

__all__ = ["SWITCH", "install", "is_active"]


def install() -> None:
    """Put the bridge in place, once; with `DECLUTR_BRIDGE=0` do nothing."""
    if os.environ.get(SWITCH, "1") != "0" and not is_active():
        sys.meta_path.insert(0, BridgeFinder())


def is_active() -> bool:
    """Whether the bridge is in place in this process."""
    return any(isinstance(finder, BridgeFinder) for finder in sys.meta_path)
