"""Images and their captions in one space (VSE++; Faghri et al., 2018).

Registered as the DatasetReader and the Model "image_text". Images are features computed before.
"""

from declutr.image_text.model import ImageText
from declutr.image_text.reader import ImageTextReader

__all__ = ["ImageText", "ImageTextReader"]
