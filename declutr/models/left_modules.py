"""What training leaves out of a sentence-transformers model, of which it takes the transformer."""

import logging
from collections.abc import Iterator

from allennlp.modules import Seq2VecEncoder, TextFieldEmbedder

from declutr.archives.model_files import NotFollowed
from declutr.archives.sentence_transformers_folder import read_modules
from declutr.modules.token_pooling import pooling_of
from declutr.modules.transformer_embedder import TransformerEmbedder

logger = logging.getLogger(__name__)


def warn_of_left_modules(embedder: TextFieldEmbedder, pooler: Seq2VecEncoder) -> None:
    """Warn of what the sentence-transformers model has that training starts from, and it leaves.

    # Parameters

    embedder, pooler : of the model that is trained.
    """
    places = [e.model_name for e in embedder.modules() if isinstance(e, TransformerEmbedder)]
    for place in dict.fromkeys(places):
        try:
            left = list(_left(place, pooling_of(pooler)))
        except NotFollowed as error:
            left = [f"what else it has: {error}"]
        if left:
            logger.warning(
                f"Of '{place}', a sentence-transformers model, training takes the transformer and "
                f"the tokenizer alone, so that it does not begin with the embeddings of that "
                f"model. It leaves out {'; '.join(left)}."
            )


def _left(place: str, pooling: str | None) -> Iterator[str]:
    modules = read_modules(place)
    if modules.listed and modules.pooling != pooling:
        yield (
            f"its pooling, which is {modules.pooling} (the model's seq2vec_encoder "
            f'{{"type": "token_pooling", "pooling": "{modules.pooling}"}} pools so)'
        )
    if len(modules.dense):
        yield f"its {len(modules.dense)} dense layer(s) behind the pooling"
    if prompts := [name for name, text in modules.prompts.items() if text]:
        yield f"its prompts ({', '.join(prompts)}): texts are trained and embedded as they are"
