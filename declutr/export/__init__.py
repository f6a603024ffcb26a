"""A trained model in the forms that other tools load, each compared with what it was made from.

One folder is at once a Hugging Face folder, a sentence-transformers folder and an ONNX model with
pooling inside, with a model card.
"""

from __future__ import annotations

from declutr.export.comparison import Comparison, ExportDiffers
from declutr.export.exportable import ExportError
from declutr.export.exporting import Exported, export_model

__all__ = ["Comparison", "ExportDiffers", "ExportError", "Exported", "export_model"]
