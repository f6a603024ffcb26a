"""Variational autoencoders of texts (Bowman et al., 2016).

The classes are registered as the DatasetReader "text_lines" and the Model "text_vae".
"""

from declutr.task_models.text_vae.model import TextVae
from declutr.task_models.text_vae.reader import TextLinesReader

__all__ = ["TextLinesReader", "TextVae"]
