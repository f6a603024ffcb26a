"""The Model "scan", stacked cross attention between the regions of images and words."""

from typing import Optional, Union

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules import Seq2SeqEncoder, TextFieldEmbedder
from allennlp.nn import InitializerApplicator, RegularizerApplicator
from allennlp.nn.parallel import DdpAccelerator
from allennlp.nn.util import get_text_field_mask
from torch import Tensor
from torch.nn.functional import normalize

from declutr.modules.text_batches import mean_of_texts
from declutr.system.distributed import gather_rows, gather_tokens, world_size
from declutr.task_models.image_text.cross_attention import StackedCrossAttention
from declutr.task_models.image_text.features import Features
from declutr.task_models.image_text.retrieval_model import RetrievalModel


class MeanVector(torch.nn.Module):
    """A mean over words or regions, as a submodule that the model "reclaim" can name.

    # Parameters

    width : the width of the vectors.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self._width = width

    def get_output_dim(self) -> int:
        return self._width

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Return the means `(n, d)` of vectors `(n, L, d)` where `mask` `(n, L)` is true."""
        return mean_of_texts(vectors, mask)


@Model.register("scan")
class Scan(RetrievalModel):
    """The Stacked Cross Attention Network (SCAN; Lee et al., 2018).

    The words of a caption are the outputs of an encoder, of which both directions are averaged; the
    regions of an image are a linear map of its features. Words and regions are scaled to unit
    length. `StackedCrossAttention` compares them. Settings that are not given are those of the
    authors' code.

    For the model "reclaim", u is the output of `caption_vectors` and v that of `image_vectors`: the
    means of words and of regions before they are scaled to unit length. (A 1-Lipschitz critic could
    hardly tell apart means of vectors of length 1.)

    # Parameters

    vocab : the vocabulary.
    text_field_embedder : embeds words, or is a transformer.
    seq2seq_encoder : makes the words of a caption, such as a bidirectional GRU. The size of one of
        its directions is the size of the common space.
    image_width : d, the number of features of a region. Images `(n, d)` count as one region.
    attention : the similarity, or a list of several, of which the mean is taken (one for each
        direction, for example).
    scale_regions, scale_words : whether they are scaled to unit length.
    margin, negatives, reduction, ties, fold_size : see `RetrievalModel`.
    initializer, regularizer, serialization_dir, ddp_accelerator : as of AllenNLP's models.

    # Raises

    `ConfigurationError` : a name is unknown, `attention` is empty, a negative margin, or a width
        below 1; in `forward`, images of another shape.
    """

    critic_features = ("caption_vectors", "image_vectors")

    def __init__(
        self,
        vocab: Vocabulary,
        text_field_embedder: TextFieldEmbedder,
        seq2seq_encoder: Seq2SeqEncoder,
        image_width: int = 2048,
        attention: Optional[Union[StackedCrossAttention, list[StackedCrossAttention]]] = None,
        scale_regions: bool = True,
        scale_words: bool = True,
        margin: float = 0.2,
        negatives: Optional[str] = "hardest",
        reduction: str = "sum",
        ties: str = "later",
        fold_size: Optional[int] = None,
        initializer: Optional[InitializerApplicator] = None,
        regularizer: Optional[RegularizerApplicator] = None,
        serialization_dir: Optional[str] = None,
        ddp_accelerator: Optional[DdpAccelerator] = None,
    ) -> None:
        own = regularizer, serialization_dir, ddp_accelerator
        super().__init__(vocab, image_width, margin, negatives, reduction, ties, fold_size, *own)
        if attention is None:
            attention = StackedCrossAttention()
        self._attentions = attention if isinstance(attention, list) else [attention]
        if not self._attentions:
            raise ConfigurationError("attention is an empty list: give at least one direction.")
        self._text_field_embedder = text_field_embedder
        self._seq2seq_encoder = seq2seq_encoder
        directions = 2 if seq2seq_encoder.is_bidirectional() else 1
        self._width = seq2seq_encoder.get_output_dim() // directions
        self.image_features = torch.nn.Linear(image_width, self._width)
        torch.nn.init.xavier_uniform_(self.image_features.weight)
        torch.nn.init.zeros_(self.image_features.bias)
        self.caption_vectors, self.image_vectors = MeanVector(self._width), MeanVector(self._width)
        self._scale_regions, self._scale_words = scale_regions, scale_words
        (initializer or InitializerApplicator())(self)

    def caption_features(self, tokens: TextFieldTensors) -> Features:
        mask = get_text_field_mask(tokens)
        words = self._seq2seq_encoder(self._text_field_embedder(tokens), mask)
        words = words.unflatten(-1, (-1, self._width)).mean(dim=-2)  # of the directions
        vectors = self.caption_vectors(words, mask)
        words = normalize(words, dim=-1) if self._scale_words else words
        return {"vectors": vectors, "words": words, "mask": mask}

    def features_of_images(self, image: Tensor) -> Features:
        regions = self.image_features(image.unsqueeze(1) if image.dim() == 2 else image)
        vectors = self.image_vectors(regions, image.new_ones(regions.shape[:2], dtype=torch.bool))
        regions = normalize(regions, dim=-1) if self._scale_regions else regions
        return {"vectors": vectors, "regions": regions}

    def similarity(self, images: Features, captions: Features) -> Tensor:
        given = images["regions"], captions["words"], captions["mask"]
        scores = [attention.similarities(*given) for attention in self._attentions]
        return scores[0] if len(scores) == 1 else torch.stack(scores).mean(dim=0)

    def gathered(self, images: Features, captions: Features) -> tuple[Features, Features]:
        words, mask = gather_tokens(captions["words"], captions["mask"], world_size())
        regions = gather_rows(images["regions"], world_size())
        return {"regions": regions}, {"words": words, "mask": mask}
