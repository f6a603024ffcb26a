"""The Seq2VecEncoder "declutr": the pooler of a trained archive."""

from typing import Optional

import torch
from allennlp.modules import Seq2VecEncoder

from declutr.pretrained_parts.opened import open_model
from declutr.pretrained_parts.trained_part import TrainedPart


@Seq2VecEncoder.register("declutr")
class TrainedPooler(TrainedPart, Seq2VecEncoder):
    """Pools token vectors as a trained archive does: their mean, or what its recipe said.

    The embedding is that of `declutr.inference.encoder.Encoder` with its defaults. Whitening that
    is stored with an archive is not applied, nor are embeddings scaled to length 1: a layer that is
    trained on top learns such maps itself.

    # Parameters

    archive : a serialization folder, a `model.tar.gz` or a URL of one, or an exported folder.
    train_parameters : train it further, if it has parameters. By default it is frozen.
    load_weights : False builds the architecture only; archives do so, as they hold the weights.

    # Raises

    `ConfigurationError` : no archive there.
    """

    def __init__(
        self, archive: str, train_parameters: bool = False, load_weights: bool = True
    ) -> None:
        super().__init__()
        self.pooler: Seq2VecEncoder = open_model(archive).take("pooler", load_weights=load_weights)
        self._set_trainable(train_parameters)

    def get_input_dim(self) -> int:
        """The width of token vectors."""
        return self.pooler.get_input_dim()

    def get_output_dim(self) -> int:
        """The width of the embedding."""
        return self.pooler.get_output_dim()

    def forward(self, tokens: torch.Tensor, mask: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Embeddings `(N, d)`, float32, of token vectors `(N, L, d)`; `mask` is `(N, L)`."""
        return self.pooler(tokens.float(), mask=mask)
