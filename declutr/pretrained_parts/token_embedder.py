"""The TokenEmbedder "declutr": the transformer of a trained archive."""

from typing import Any, Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.modules import TokenEmbedder

from declutr.modules.embedders import PretrainedTransformerEmbedderMLM
from declutr.pretrained_parts.opened import open_model
from declutr.pretrained_parts.trained_part import (
    TrainedPart,
    VocabularyCheck,
    require_same_folding,
    use_its_indexer,
)


@TokenEmbedder.register("declutr")
class TrainedTokenEmbedder(TrainedPart, TokenEmbedder):
    """Token vectors of the transformer of a trained archive, without its language modelling head.

    With the Seq2VecEncoder "declutr" of the same archive, the embedding that it was trained for.

    # Parameters

    archive : a serialization folder, a `model.tar.gz` or a URL of one, or an exported folder.
    train_parameters : train the transformer further. By default it is frozen, and without dropout.
    max_length : fold longer texts into segments of so many tokens; the indexer must have the same
        `max_length`. By default as in training (not at all, as a rule).
    gradient_checkpointing : less memory for more time; by default as in training.
    unpadding : how padding is kept from being computed on, see `declutr.transformer.unpadding`; by
        default as in training.
    load_weights : False builds the architecture only; archives do so, as they hold the weights.
    vocab : of the model around, to see that texts were indexed for this transformer.

    # Raises

    `ConfigurationError` : no archive there, or one without a transformer; texts that were indexed
        in another way.
    """

    def __init__(
        self,
        archive: str,
        train_parameters: bool = False,
        max_length: Optional[int] = None,
        gradient_checkpointing: Optional[bool] = None,
        unpadding: Optional[str] = None,
        load_weights: bool = True,
        vocab: Optional[Vocabulary] = None,
    ) -> None:
        super().__init__()
        given = {
            "max_length": max_length,
            "gradient_checkpointing": gradient_checkpointing,
            "unpadding": unpadding,
        }
        changes = {key: value for key, value in given.items() if value is not None}
        opened = open_model(archive)
        embedder = opened.take("embedder", load_weights=load_weights, embedder_changes=changes)
        inside = list(getattr(embedder, "_token_embedders", {}).values())
        if len(inside) != 1 or not isinstance(inside[0], PretrainedTransformerEmbedderMLM):
            raise ConfigurationError(
                f"The embedder of '{archive}' is not one transformer but "
                f"{[type(part).__name__ for part in inside] or type(embedder).__name__}. Take it "
                'as a whole: "text_field_embedder": {"type": "declutr", …}.'
            )
        self.transformer = inside[0]
        self._place = opened.place
        self._check_vocabulary = VocabularyCheck(opened, vocab)
        self._set_trainable(train_parameters)

    def get_output_dim(self) -> int:
        """The width d of token vectors."""
        return self.transformer.get_output_dim()

    def forward(  # type: ignore[override]
        self,
        token_ids: Optional[torch.Tensor] = None,
        mask: Optional[torch.Tensor] = None,
        type_ids: Optional[torch.Tensor] = None,
        segment_concat_mask: Optional[torch.Tensor] = None,
        **others: Any,
    ) -> torch.Tensor:
        """Token vectors `(N, L, d)` of `token_ids` `(N, L)`; padding where `mask` is False."""
        if token_ids is None or mask is None or others:
            got = {"token_ids": token_ids, "mask": mask, **others}
            raise ConfigurationError(
                "Expected token_ids and a mask, as an indexer of word pieces makes them, got "
                f"{[key for key, value in got.items() if value is not None]}. "
                f"{use_its_indexer(self._place)}"
            )
        self._check_vocabulary()
        require_same_folding(self.transformer, {"segment_concat_mask": segment_concat_mask})
        return self.transformer(token_ids, mask, type_ids, segment_concat_mask)
