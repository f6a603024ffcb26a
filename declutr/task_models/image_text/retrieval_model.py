"""The base class of Models that embed images and captions, and rank each for the other."""

from typing import Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.nn import RegularizerApplicator
from allennlp.nn.parallel import DdpAccelerator
from torch import Tensor
from torch.nn.functional import normalize

from declutr.objectives.memories.lipschitz_critic import Critic
from declutr.objectives.numerics import nothing, one_of, scalar_reduction
from declutr.system.distributed import gather_numbers, of_all_processes, process_rank
from declutr.task_models.image_text.features import Collection, Features
from declutr.task_models.image_text.matching import NEGATIVES, TIES, critic_scores, score_loss

SCORES = ("similarity", "critic")


class RetrievalModel(Model):
    """A base class of Models that embed images and captions, and rank each for the other.

    The loss is `score_loss` over the pairs of all processes. Validation measures recall@1, 5 and 10
    in both directions over the whole set, in per cent, and their sum `rsum`: by the similarity of
    the model and, inside of the model "reclaim", by the logit of its critic too (`critic_rsum` and
    so on), if u and v are the submodules `critic_features`.

    A subclass has the submodule `image_features`, a linear map, and the methods `caption_features`,
    `features_of_images`, `similarity` and `gathered`. Features have the entry `vectors`, `(n, d)`.

    # Parameters

    vocab : the vocabulary.
    image_width : the number of image features.
    margin : the margin of the loss.
    negatives : `"hardest"` of the batch, `"all"`, or `None` for a loss of 0 without any comparison,
        for the model "reclaim" with `task_weight` 0.
    reduction : `"mean"` or `"sum"` of the loss over pairs.
    ties : how equal scores are ranked; see `score_ranks`.
    fold_size : the number of images of a fold; see `Collection.recalls`.
    regularizer, serialization_dir, ddp_accelerator : as of AllenNLP's models.

    # Raises

    `ConfigurationError` : a name is unknown, a negative margin, or a size below 1; in `forward`,
        images of another shape.
    """

    default_predictor = "image_text"

    critic_features: tuple[str, str] = ("", "")
    """The submodules u and v whose outputs are the vectors of captions and of images."""

    image_features: torch.nn.Linear

    def __init__(
        self,
        vocab: Vocabulary,
        image_width: int,
        margin: float,
        negatives: Optional[str],
        reduction: str,
        ties: str,
        fold_size: Optional[int],
        regularizer: Optional[RegularizerApplicator],
        serialization_dir: Optional[str],
        ddp_accelerator: Optional[DdpAccelerator],
    ) -> None:
        super().__init__(vocab, regularizer, serialization_dir, ddp_accelerator)  # type: ignore[arg-type]
        if negatives is not None:
            one_of("negatives", negatives, NEGATIVES)
        if margin < 0 or image_width < 1:
            raise ConfigurationError(
                f"margin must be 0 or more and image_width at least 1, got {margin} and "
                f"{image_width}."
            )
        if fold_size is not None and fold_size < 1:
            raise ConfigurationError(f"fold_size must be at least 1, got {fold_size}.")
        self._margin, self._negatives = margin, negatives
        self._reduction = scalar_reduction(reduction)
        self._ties, self._fold_size = one_of("ties", ties, TIES), fold_size
        self._critics: tuple[Critic, ...] = ()  # not a submodule: it is the wrapper's
        self._seen = Collection()

    @property
    def without_loss(self) -> bool:
        """Whether the loss is 0, without any comparison."""
        return self._negatives is None

    def rank_by_critic(self, critic: Critic, u: str, v: str) -> None:
        """Let validation rank by a critic too, if it judges the vectors of captions and images.

        # Parameters

        critic : the critic of the model "reclaim".
        u, v : the names of the submodules that give its features.
        """
        self._critics = (critic,) if (u, v) == self.critic_features else ()

    def caption_features(self, tokens: TextFieldTensors) -> Features:
        """Return the features of captions."""
        raise NotImplementedError

    def features_of_images(self, image: Tensor) -> Features:
        """Return the features of images `(n, d)` or `(n, regions, d)`."""
        raise NotImplementedError

    def similarity(self, images: Features, captions: Features) -> Tensor:
        """Return the similarities `(n, m)` of n images and m captions."""
        raise NotImplementedError

    def gathered(self, images: Features, captions: Features) -> tuple[Features, Features]:
        """Return what `similarity` needs of the features of all processes.

        Each process has the gradients of its own rows, multiplied by the number of processes,
        because DistributedDataParallel averages them.
        """
        raise NotImplementedError

    def by_critic(self, images: Features, captions: Features) -> Tensor:
        """Return the logits `(n, m)` of the critic for n images and m captions."""
        return critic_scores(self._critics[0], images["vectors"], captions["vectors"])

    def score_names(self) -> list[str]:
        """Return the names of the scores that there are; what is trained comes first."""
        if not self._critics:
            return ["similarity"]
        return ["similarity", "critic"] if self._negatives else ["critic", "similarity"]

    def forward(  # type: ignore[override]
        self,
        tokens: Optional[TextFieldTensors] = None,
        image: Optional[Tensor] = None,
        image_ids: Optional[Tensor] = None,
    ) -> dict[str, Tensor]:
        """Embed captions, images, or both.

        # Parameters

        tokens : captions `(n, L)`.
        image : features `(n, d)` or `(n, regions, d)`.
        image_ids : `(n,)`; equal numbers mean the same image. By default all images are different,
            and recall is not measured.

        # Returns

        `caption_embeddings` and `image_embeddings` `(n, e)`, of unit length, and with both `loss`.
        """
        output, captions, images = {}, None, None
        if tokens is not None:
            captions = self.caption_features(tokens)
            output["caption_embeddings"] = normalize(captions["vectors"], dim=-1)
        if image is not None:
            images = self.features_of_images(self.checked(image))
            output["image_embeddings"] = normalize(images["vectors"], dim=-1)
        if captions is not None and images is not None:
            output["loss"] = self._loss(images, captions, image_ids)
        return output

    def checked(self, image: Tensor) -> Tensor:
        """Return images, or raise `ConfigurationError` if they have another shape."""
        width = self.image_features.in_features
        if image.dim() not in (2, 3) or image.size(-1) != width:
            raise ConfigurationError(
                f"Got images {tuple(image.shape)}, expected (n, {width}) or (n, regions, {width}). "
                "Set image_width of the model to the width of the features."
            )
        return image

    def _loss(self, images: Features, captions: Features, image_ids: Optional[Tensor]) -> Tensor:
        count = len(images["vectors"])
        if image_ids is None:
            image_ids = torch.arange(count, device=images["vectors"].device)
            image_ids = image_ids + process_rank() * count
        elif not self.training:
            self._seen.add(images, captions, image_ids)
        if self._negatives is None:
            return nothing(images["vectors"], captions["vectors"])
        if self.training:  # in validation, processes may have different numbers of batches
            images, captions = self.gathered(images, captions)
            image_ids = gather_numbers(image_ids)
        scores = self.similarity(images, captions)
        return score_loss(scores, image_ids, self._margin, self._negatives, self._reduction)

    def get_metrics(self, reset: bool = False) -> dict[str, float]:
        """Return the recalls over all validation batches since the last `reset`.

        Without `reset` the result is empty, because recalls need a comparison of all images with
        all captions.
        """
        if not reset:
            return {}
        seen = Collection()
        for other in of_all_processes(self._seen):
            seen.extend(other)
        self._seen = Collection()
        if not seen.images:
            return {}
        device = self.image_features.weight.device
        found: dict[str, float] = {}
        with torch.no_grad():
            for name in self.score_names():
                score, prefix = (
                    (self.similarity, "") if name == "similarity" else (self.by_critic, "critic_")
                )
                recalls = seen.recalls(score, device, self._ties, self._fold_size)
                found |= {f"{prefix}{key}": value for key, value in recalls.items()}
        return found
