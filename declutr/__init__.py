"""Self-supervised sentence embeddings: DeCLUTR and its family, as an AllenNLP plugin.

Importing this package is cheap. It only installs import hooks: the bridge to current releases of
torch and transformers (`declutr.bridge`), and the module paths of earlier releases
(`declutr.earlier_paths`). `declutr.plugin` registers the readers, models and predictors with
AllenNLP.
"""

from typing import TYPE_CHECKING, Any

from declutr import bridge, earlier_paths
from declutr._version import __version__

__all__ = ["Encoder", "__version__", "train"]

if TYPE_CHECKING:
    from declutr.inference.encoder import Encoder
    from declutr.runs.training import train

bridge.install()
earlier_paths.install()


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
