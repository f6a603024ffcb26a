"""Parts of trained archives for any AllenNLP model.

Registered as "declutr", each with the key `archive`: a `Tokenizer`, a `TokenIndexer`, a
`TokenEmbedder`, a `TextFieldEmbedder` and a `Seq2VecEncoder`. Together they give the embedding that
the archive was trained for: not whitened, not scaled to length 1. An archive that is trained with
them carries what they are built from, and loads without the first one (`declutr.archives.carried`).
"""

from declutr.pretrained_parts.opened import OpenedModel, open_model
from declutr.pretrained_parts.pooler import TrainedPooler
from declutr.pretrained_parts.text_field_embedder import TrainedTextFieldEmbedder
from declutr.pretrained_parts.token_embedder import TrainedTokenEmbedder
from declutr.pretrained_parts.token_indexer import ArchivedVocabularyIndexer
from declutr.pretrained_parts.tokenizer import NormalisingTokenizer, TrainedTokenizer

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
