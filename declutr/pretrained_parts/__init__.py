"""Parts of trained archives for any AllenNLP model.

Registered as "declutr", each with the key `archive`: a `Tokenizer`, a `TokenIndexer`, a
`TokenEmbedder`, a `TextFieldEmbedder` and a `Seq2VecEncoder`. Together they give the embedding that
the archive was trained for: not whitened, not scaled to length 1. An archive that is trained with
them carries what they are built from, and loads without the first one (`declutr.archives.carried`).
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
