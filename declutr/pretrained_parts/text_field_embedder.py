"""The TextFieldEmbedder "declutr": that of a trained archive, as a whole."""

from typing import Any, Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.modules import TextFieldEmbedder

from declutr.pretrained_parts.opened import open_model
from declutr.pretrained_parts.trained_part import (
    TrainedPart,
    VocabularyCheck,
    require_same_folding,
    use_its_indexer,
)


@TextFieldEmbedder.register("declutr")
class TrainedTextFieldEmbedder(TrainedPart, TextFieldEmbedder):
    """Token vectors as a trained archive makes them, by a transformer or anything else.

    With the Seq2VecEncoder "declutr" of the same archive, the embedding that it was trained for.
    The dataset reader needs the token indexers of the archive, under the same names ("tokens", as a
    rule).

    # Parameters

    archive : a serialization folder, a `model.tar.gz` or a URL of one, or an exported folder.
    train_parameters : train it further. By default it is frozen, and without dropout.
    load_weights : False builds the architecture only; archives do so, as they hold the weights.
    vocab : of the model around, to see that texts were indexed for this embedder.

    # Raises

    `ConfigurationError` : no archive there; texts that were indexed in another way.
    """

    def __init__(
        self,
        archive: str,
        train_parameters: bool = False,
        load_weights: bool = True,
        vocab: Optional[Vocabulary] = None,
    ) -> None:
        super().__init__()
        opened = open_model(archive)
        self.embedder: TextFieldEmbedder = opened.take("embedder", load_weights=load_weights)
        self._place = opened.place
        self._check_vocabulary = VocabularyCheck(opened, vocab)
        self._set_trainable(train_parameters)

    def get_output_dim(self) -> int:
        """The width d of token vectors."""
        return self.embedder.get_output_dim()

    def forward(
        self, text_field_input: TextFieldTensors, num_wrapping_dims: int = 0, **kwargs: Any
    ) -> torch.Tensor:
        """Token vectors `(N, L, d)` of texts `(N, L)`."""
        inside = getattr(self.embedder, "_token_embedders", {})
        if inside and set(inside) != set(text_field_input):
            raise ConfigurationError(
                f"Texts come with the token indexers {sorted(text_field_input)}, expected "
                f"{sorted(inside)} as in training. {use_its_indexer(self._place)}"
            )
        self._check_vocabulary()
        for name, embedder in inside.items():
            require_same_folding(embedder, text_field_input[name])
        return self.embedder(text_field_input, num_wrapping_dims=num_wrapping_dims, **kwargs)
