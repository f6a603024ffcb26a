"""Functions that spawned processes are given in place of AllenNLP's own.

A spawned process unpickles the function it is to run before anything else. A reference to a
function of AllenNLP would import AllenNLP first, before any plugin; a reference to one of these
imports this package first, and with it the bridge. (`declutr_bridge.pth` does the same for
processes that see site-packages; these are for the ones that do not.)
"""

import os
from collections.abc import Callable
from typing import Any


def run(function: Callable[..., Any], *args: Any) -> Any:
    """Call `function`, of a worker of a data loader, with one thread for torch.

    By now its reference was unpickled, with the bridge in place. Threads of its own would take
    processors from training; and a forked worker would wait for ever for those of its parent.
    """
    import torch

    torch.set_num_threads(1)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    return function(*args)


def train_worker(*args: Any, **kwargs: Any) -> Any:
    """Call AllenNLP's `_train_worker`, which `repairs.spawned_training` keeps as `__wrapped__`."""
    import allennlp.commands.train  # noqa: F401  (its repair sets `__wrapped__` in this process)

    return train_worker.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]
