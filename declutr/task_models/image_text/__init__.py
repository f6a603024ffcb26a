"""Images and their captions, each found for the other: VSE++ and stacked cross attention (SCAN).

The classes are registered as the DatasetReader "image_text", the Models "image_text" (embeddings
in one space; Faghri et al., 2018) and "scan" (Lee et al., 2018), and the Predictor "image_text".
Images are given as precomputed features.
"""

from declutr.task_models.image_text.model import ImageText
from declutr.task_models.image_text.reader import ImageTextReader
from declutr.task_models.image_text.scan import Scan

__all__ = ["ImageText", "ImageTextReader", "Scan"]
