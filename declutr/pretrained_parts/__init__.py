"""Parts of trained archives for any AllenNLP model.

A `Tokenizer`, a `TokenIndexer`, a `TokenEmbedder`, a `TextFieldEmbedder` and a `Seq2VecEncoder`
have the registered name "declutr", and the configuration key `archive` for the trained archive.
Together they compute the sentence embedding that the archive was trained for, neither whitened nor
scaled to length 1. An archive of a model that is trained with such parts contains all that they are
built from, so that it loads without the first archive (`declutr.archives.carried`).
"""

from declutr.pretrained_parts.modules import (
    TrainedPooler,
    TrainedTextFieldEmbedder,
    TrainedTokenEmbedder,
)
from declutr.pretrained_parts.opened import OpenedModel, open_model
from declutr.pretrained_parts.tokens import (
    ArchivedVocabularyIndexer,
    NormalisingTokenizer,
    TrainedTokenizer,
)

__all__ = [
    "ArchivedVocabularyIndexer",
    "NormalisingTokenizer",
    "OpenedModel",
    "TrainedPooler",
    "TrainedTextFieldEmbedder",
    "TrainedTokenEmbedder",
    "TrainedTokenizer",
    "open_model",
]
