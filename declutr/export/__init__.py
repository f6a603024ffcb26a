"""Export of trained models to the formats of other tools, each compared with the original.

One folder is at once a model of Hugging Face transformers, a model of sentence-transformers, and an
ONNX model that includes pooling. It comes with a model card.
"""

from typing import TYPE_CHECKING

from declutr.system import attributes_on_demand

if TYPE_CHECKING:  # a folder is written by some who need no transformers
    from declutr.export.comparison import Comparison, ExportDiffers
    from declutr.export.exporting import Exported, export_model
    from declutr.export.output_place import ExportError

__all__ = ["Comparison", "ExportDiffers", "ExportError", "Exported", "export_model"]

_NAMES = {
    "comparison": "Comparison ExportDiffers",
    "exporting": "Exported export_model",
    "output_place": "ExportError",
}
__getattr__, __dir__ = attributes_on_demand(__name__, _NAMES)
