"""The Model "image_text", which embeds captions and images in one space."""

from typing import Optional

from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules import Seq2VecEncoder, TextFieldEmbedder
from allennlp.nn import InitializerApplicator, RegularizerApplicator
from allennlp.nn.parallel import DdpAccelerator
from allennlp.nn.util import get_text_field_mask
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import normalize

from declutr.system.distributed import gather_rows, world_size
from declutr.task_models.image_text.features import Features, each
from declutr.task_models.image_text.matching import products
from declutr.task_models.image_text.retrieval_model import RetrievalModel


@Model.register("image_text")
class ImageText(RetrievalModel):
    """A model of visual-semantic embeddings (VSE++; Faghri et al., 2018).

    The embedding of a caption is the output of an encoder for its words. The embedding of an image
    is a linear map of its features, averaged over regions if there are several. Both are scaled to
    unit length; their similarity is the cosine.

    For the model "reclaim", u is the output of `_seq2vec_encoder` and v that of `image_features`,
    both before they are scaled to unit length.

    # Parameters

    vocab : the vocabulary.
    text_field_embedder : embeds words, or is a transformer.
    seq2vec_encoder : makes the embedding of a caption, such as a GRU. Its output size is the size
        of the common space.
    image_width : d, the number of image features.
    margin, negatives, ties, fold_size : see `RetrievalModel`. The loss is the mean over pairs.
    initializer, regularizer, serialization_dir, ddp_accelerator : as of AllenNLP's models.

    # Raises

    `ConfigurationError` : unknown `negatives` or `ties`, a negative margin, or a width below 1; in
        `forward`, images of another shape.
    """

    critic_features = ("_seq2vec_encoder", "image_features")

    def __init__(
        self,
        vocab: Vocabulary,
        text_field_embedder: TextFieldEmbedder,
        seq2vec_encoder: Seq2VecEncoder,
        image_width: int,
        margin: float = 0.2,
        negatives: Optional[str] = "hardest",
        ties: str = "half",
        fold_size: Optional[int] = None,
        initializer: Optional[InitializerApplicator] = None,
        regularizer: Optional[RegularizerApplicator] = None,
        serialization_dir: Optional[str] = None,
        ddp_accelerator: Optional[DdpAccelerator] = None,
    ) -> None:
        own = regularizer, serialization_dir, ddp_accelerator
        super().__init__(vocab, image_width, margin, negatives, "mean", ties, fold_size, *own)
        self._text_field_embedder = text_field_embedder
        self._seq2vec_encoder = seq2vec_encoder
        self.image_features = Linear(image_width, seq2vec_encoder.get_output_dim())
        (initializer or InitializerApplicator())(self)

    def caption_features(self, tokens: TextFieldTensors) -> Features:
        vectors = self._text_field_embedder(tokens)
        return {"vectors": self._seq2vec_encoder(vectors, get_text_field_mask(tokens))}

    def features_of_images(self, image: Tensor) -> Features:
        return {"vectors": self.image_features(image.mean(dim=1) if image.dim() == 3 else image)}

    def similarity(self, images: Features, captions: Features) -> Tensor:
        both = (normalize(features["vectors"], dim=-1) for features in (images, captions))
        return products(*both)

    def gathered(self, images: Features, captions: Features) -> tuple[Features, Features]:
        one, other = (
            each(features, lambda rows: gather_rows(rows, world_size()))
            for features in (images, captions)
        )
        return one, other
