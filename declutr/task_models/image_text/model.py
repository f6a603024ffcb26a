"""The Model "image_text", which embeds captions and images in one space."""

from typing import Any, Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules import Seq2VecEncoder, TextFieldEmbedder
from allennlp.nn import InitializerApplicator, RegularizerApplicator
from allennlp.nn.parallel import DdpAccelerator
from allennlp.nn.util import get_text_field_mask
from torch.nn.functional import normalize

from declutr.system.distributed import (
    gather_numbers,
    gather_rows,
    of_all_processes,
    process_rank,
    world_size,
)
from declutr.task_models.image_text import matching


@Model.register("image_text")
class ImageText(Model):
    """A model of visual-semantic embeddings (VSE++; Faghri et al., 2018).

    The embedding of a caption is the output of an encoder for its words. The embedding of an image
    is a linear map of its features, averaged over regions if there are several. Both are scaled to
    unit length. The loss is `matching_loss` over the pairs of all processes. Validation measures
    recall@1, 5 and 10 in both directions over the whole set, in per cent, and their sum `rsum`.

    For the model "reclaim", u is the output of `_seq2vec_encoder` and v that of `image_features`,
    both before they are scaled to unit length.

    # Parameters

    vocab : the vocabulary.
    text_field_embedder : embeds words, or is a transformer.
    seq2vec_encoder : makes the embedding of a caption, such as a GRU. Its output size is the size
        of the common space.
    image_width : d, the number of image features.
    margin : the margin of the loss.
    negatives : `"hardest"` of the batch, or `"all"`.
    initializer, regularizer, serialization_dir, ddp_accelerator : as of AllenNLP's models.

    # Raises

    `ConfigurationError` : unknown `negatives`, a negative margin, or a width below 1; in `forward`,
        images of another shape.
    """

    def __init__(
        self,
        vocab: Vocabulary,
        text_field_embedder: TextFieldEmbedder,
        seq2vec_encoder: Seq2VecEncoder,
        image_width: int,
        margin: float = 0.2,
        negatives: str = "hardest",
        initializer: Optional[InitializerApplicator] = None,
        regularizer: Optional[RegularizerApplicator] = None,
        serialization_dir: Optional[str] = None,
        ddp_accelerator: Optional[DdpAccelerator] = None,
    ) -> None:
        super().__init__(vocab, regularizer, serialization_dir, ddp_accelerator)  # type: ignore[arg-type]
        if negatives not in matching.NEGATIVES:
            raise ConfigurationError(
                f"Unknown negatives '{negatives}': expected one of {', '.join(matching.NEGATIVES)}."
            )
        if margin < 0 or image_width < 1:
            raise ConfigurationError(
                f"margin must be 0 or more and image_width at least 1, got {margin} and "
                f"{image_width}."
            )
        self._text_field_embedder = text_field_embedder
        self._seq2vec_encoder = seq2vec_encoder
        self.image_features = torch.nn.Linear(image_width, seq2vec_encoder.get_output_dim())
        self._margin, self._negatives = margin, negatives
        # Images, captions and image ids of each batch of validation.
        self._seen: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        (initializer or InitializerApplicator())(self)

    def forward(  # type: ignore[override]
        self,
        tokens: Optional[TextFieldTensors] = None,
        image: Optional[torch.Tensor] = None,
        image_ids: Optional[torch.Tensor] = None,
    ) -> dict[str, torch.Tensor]:
        """Embed captions, images, or both.

        # Parameters

        tokens : captions `(n, L)`.
        image : features `(n, d)` or `(n, regions, d)`.
        image_ids : `(n,)`; equal numbers mean the same image. By default all images are different,
            and recall is not measured.

        # Returns

        `caption_embeddings` and `image_embeddings` `(n, e)`, of unit length, and with both `loss`.
        """
        output = {}
        if tokens is not None:
            output["caption_embeddings"] = self._embedded_captions(tokens)
        if image is not None:
            output["image_embeddings"] = self._embedded_images(image)
        if len(output) == 2:
            captions, images = output["caption_embeddings"], output["image_embeddings"]
            output["loss"] = self._loss(captions, images, image_ids)
        return output

    def _embedded_captions(self, tokens: TextFieldTensors) -> torch.Tensor:
        vectors = self._text_field_embedder(tokens)
        return normalize(self._seq2vec_encoder(vectors, get_text_field_mask(tokens)), dim=-1)

    def _embedded_images(self, image: torch.Tensor) -> torch.Tensor:
        if image.dim() not in (2, 3) or image.size(-1) != self.image_features.in_features:
            width = self.image_features.in_features
            raise ConfigurationError(
                f"Got images {tuple(image.shape)}, expected (n, {width}) or (n, regions, {width}). "
                "Set image_width of the model to the width of the features."
            )
        if image.dim() == 3:
            image = image.mean(dim=1)
        return normalize(self.image_features(image), dim=-1)

    def _loss(
        self, captions: torch.Tensor, images: torch.Tensor, image_ids: Optional[torch.Tensor]
    ) -> torch.Tensor:
        if image_ids is None:
            image_ids = torch.arange(len(images), device=images.device)
            image_ids = image_ids + process_rank() * len(images)
        elif not self.training:
            seen = images, captions, image_ids
            self._seen.append(tuple(part.detach().cpu() for part in seen))  # type: ignore[arg-type]
        if self.training:  # in validation, processes may have different numbers of batches
            # Each process has the gradients of its own rows, and DistributedDataParallel averages
            # them.
            images, captions = (gather_rows(rows, world_size()) for rows in (images, captions))
            image_ids = gather_numbers(image_ids)
        return matching.matching_loss(images, captions, image_ids, self._margin, self._negatives)

    def get_metrics(self, reset: bool = False) -> dict[str, float]:
        """Return the recalls over all validation batches since the last `reset`.

        Without `reset` the result is empty, because recalls need a comparison of all images with
        all captions.
        """
        if not reset:
            return {}
        parts: Any = [part for each in of_all_processes(self._seen) for part in each]
        self._seen = []
        if not parts:
            return {}
        images, captions, ids = (torch.cat(rows) for rows in zip(*parts, strict=True))
        known, image_of = ids.unique(return_inverse=True)
        numbers = torch.arange(len(ids))
        first = torch.full((len(known),), len(ids)).scatter_reduce(0, image_of, numbers, "amin")
        device = self.image_features.weight.device
        found = matching.retrieval_ranks(
            images[first].to(device), captions.to(device), image_of.to(device)
        )
        return matching.recalls(found)
