"""Images and their captions in one space (VSE++; Faghri et al., 2018).

Registered as the DatasetReader and the Model "image_text". Images are features computed before.
"""

from declutr.task_models.image_text.model import ImageText
from declutr.task_models.image_text.reader import ImageTextReader

__all__ = ["ImageText", "ImageTextReader"]
