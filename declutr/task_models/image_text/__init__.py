"""Embeddings of images and their captions in one space (VSE++; Faghri et al., 2018).

The classes are registered as the DatasetReader and the Model "image_text". Images are given as
precomputed features.
"""

from declutr.task_models.image_text.model import ImageText
from declutr.task_models.image_text.reader import ImageTextReader

__all__ = ["ImageText", "ImageTextReader"]
