"""Export of trained models to the formats of other tools, each compared with the original.

One folder is at once a model of Hugging Face transformers, a model of sentence-transformers, and an
ONNX model that includes pooling. It comes with a model card.
"""

from declutr.export.comparison import Comparison, ExportDiffers
from declutr.export.exportable import ExportError
from declutr.export.exporting import Exported, export_model

__all__ = ["Comparison", "ExportDiffers", "ExportError", "Exported", "export_model"]
