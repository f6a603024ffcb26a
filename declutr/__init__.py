"""Self-supervised sentence embeddings: DeCLUTR and its family, as an AllenNLP plugin.

Importing this package is cheap. It only installs import hooks: the bridge to current releases of
torch and transformers (`declutr.bridge`), and the module paths of earlier releases
(`declutr.earlier_paths`, at the first import that may need them). `declutr.plugin` registers the
readers, models and predictors with AllenNLP.
"""

import sys
from typing import TYPE_CHECKING, Any

from declutr import bridge
from declutr._version import __version__

__all__ = ["Encoder", "__version__", "train"]

if TYPE_CHECKING:
    from declutr.inference.encoder import Encoder
    from declutr.runs.training import train

# Modules that a pipeline needs which uses the bridge alone: they have no earlier paths.
_OF_THE_BRIDGE = ("declutr._version", "declutr.bridge", "declutr.earlier_paths")
_MOVED = "declutr.bridge.children"


class _AtFirstUse:
    """A finder that puts that of earlier paths in its place when any other module is imported."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        own = name.startswith("declutr.") and not name.startswith("declutr.deprecations")
        if own and (name == _MOVED or not name.startswith(_OF_THE_BRIDGE)):
            from declutr import earlier_paths

            if cls in sys.meta_path:
                sys.meta_path.remove(cls)  # type: ignore[arg-type]
            return earlier_paths.install().find_spec(name, path, target)
        return None


bridge.install()
sys.meta_path.insert(0, _AtFirstUse)  # type: ignore[arg-type]


def __getattr__(name: str) -> Any:
    """Load a name on first use, so that `import declutr` does not import torch."""
    if name == "Encoder":
        from declutr.bridge.deferral import garbage

        with garbage():
            from declutr.inference.encoder import Encoder

        return Encoder
    if name == "train":
        from declutr.bridge.deferral import garbage

        with garbage():
            from declutr.runs.training import train

        return train
    if name == "DeCLUTR":  # the original package exports it here
        from declutr.models.declutr import DeCLUTR

        return DeCLUTR
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
