"""Losses of metric learning, which are functions of the distances between labelled rows.

They are the contrastive loss (Chopra et al., 2005; Hadsell et al., 2006), the lifted structured
loss (Oh Song et al., 2016) and the soft nearest neighbour loss (Frosst et al., 2019).
"""

import math

import torch
from torch import Tensor

from declutr.objectives import numerics
from declutr.objectives.distances import euclidean_distances, squared_distances
from declutr.objectives.objective import MetricLearningObjective, Objective

DISTANCES = ("squared_euclidean", "cosine")


@numerics.full_precision
def contrastive_loss(
    embeddings: Tensor, labels: Tensor, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """Compute the contrastive loss, which keeps rows of different labels at least `margin` apart.

    The term of an unordered pair is `D^2` if the labels are equal and `max(0, margin - D)^2` if
    not, where D is the Euclidean distance of the raw rows (Hadsell et al., 2006, equation 4, which
    has half of both). The `ContrastiveLoss` of pytorch-metric-learning is a different loss: it has
    neither square, works on unit vectors, and averages the non-zero terms of both kinds separately.

    # Parameters

    embeddings : raw embeddings `(M, d)`.
    labels : their classes `(M,)`.
    margin : the distance from which on two rows of different labels have no loss.
    reduction : `"mean"` or `"sum"` over the M (M - 1) / 2 pairs, or `"none"` for their losses in
        the order (0, 1), (0, 2), ...

    # Raises

    `ValueError` : if the reduction is unknown.
    """
    distances = euclidean_distances(embeddings, embeddings)  # (M, M)
    lacking = (margin - distances).clamp_min(0)  # (M, M)
    size = len(distances)
    first, second = torch.triu_indices(size, size, offset=1, device=distances.device)
    terms = distances.where(numerics.same_label(labels), lacking)[first, second].pow(2)
    return numerics.reduced(terms, reduction, embeddings)


@Objective.register("contrastive")
class Contrastive(MetricLearningObjective):
    """The contrastive loss over the 2N rows of both views; see `contrastive_loss`.

    # Parameters

    margin : the distance from which on two rows of different labels have no loss, above 0.
    normalize_embeddings : whether to scale embeddings to length 1 first.
    reduction : `"mean"` or `"sum"` over the pairs.
    """

    def __init__(
        self, margin: float = 1.0, normalize_embeddings: bool = False, reduction: str = "mean"
    ) -> None:
        super().__init__()
        self.margin = numerics.above_zero("margin", margin)
        self.normalize_embeddings = normalize_embeddings
        self.reduction = numerics.scalar_reduction(reduction)

    def labelled_loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        rows = numerics.unit(embeddings) if self.normalize_embeddings else embeddings
        return contrastive_loss(rows, labels, self.margin, self.reduction)


@numerics.full_precision
def lifted_structured_loss(
    embeddings: Tensor,
    labels: Tensor | None,
    margin: float = 1.0,
    hinge: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Compute the lifted structured loss: each positive pair against all negatives of both rows.

    For a positive pair let
    `J_ij = D_ij + log(sum_k exp(margin - D_ik) + sum_l exp(margin - D_jl))`, with k and l over the
    rows of other labels and D the Euclidean distance of the raw rows. The loss is the mean of
    `max(0, J_ij)^2 / 2` over the unordered positive pairs (Oh Song et al., 2016, equation 4).
    Without negatives there are no terms, and the loss is 0.

    # Parameters

    embeddings : raw embeddings `(M, d)`.
    labels : their classes `(M,)`, or `None` if rows i and M / 2 + i belong together, which takes
        less to compute.
    margin : the distance by which a negative should be further away than the positive.
    hinge : whether to take the hardest negative instead of the logarithm of the sum over all
        negatives (equation 3).
    reduction : `"mean"` or `"sum"` over the unordered positive pairs, or `"none"` for their losses.

    # Raises

    `ValueError` : if the reduction is unknown.
    """
    if len(embeddings) < 2:  # There are no pairs.
        return numerics.reduced(embeddings[:0].sum(dim=1), reduction, embeddings)
    distances = euclidean_distances(embeddings, embeddings)  # (M, M)
    pairs = len(distances) // 2
    own = torch.arange(pairs, device=distances.device).repeat(2)
    same = numerics.same_label(own if labels is None else labels)
    several = ~same.all()  # With a single label no row has a negative, with two every row has one.
    near = (margin - distances).masked_fill(same & several, -math.inf)  # (M, M)
    negatives = near.amax(dim=1) if hinge else near.logsumexp(dim=1)  # (M,)
    of_both = torch.maximum if hinge else torch.logaddexp
    if labels is None:
        joined = distances.diagonal(pairs) + of_both(negatives[:pairs], negatives[pairs:])
        kept = several.expand(pairs)
    else:
        joined = distances + of_both(negatives.unsqueeze(1), negatives)  # (M, M)
        kept = same.triu(1) & several
    return numerics.reduced_where(kept, joined.relu().square(), reduction) / 2


@Objective.register("lifted_structured")
class LiftedStructured(MetricLearningObjective):
    """The lifted structured loss over the 2N rows of both views; see `lifted_structured_loss`.

    # Parameters

    margin : the distance by which a negative should be further away, 0 or above.
    hinge : whether to take the hardest negative instead of all negatives.
    normalize_embeddings : whether to scale embeddings to length 1 first.
    reduction : `"mean"` or `"sum"` over the positive pairs.
    """

    def __init__(
        self,
        margin: float = 1.0,
        hinge: bool = False,
        normalize_embeddings: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.margin = numerics.at_least_zero("margin", margin)
        self.hinge = hinge
        self.normalize_embeddings = normalize_embeddings
        self.reduction = numerics.scalar_reduction(reduction)

    def forward(
        self, anchors: Tensor, positives: Tensor, *, labels: Tensor | None = None
    ) -> Tensor:
        if labels is not None:
            return super().forward(anchors, positives, labels=labels)
        numerics.check_views(anchors, positives)
        return self.labelled_loss(torch.cat([anchors, positives]), None)

    def labelled_loss(self, embeddings: Tensor, labels: Tensor | None) -> Tensor:
        rows = numerics.unit(embeddings) if self.normalize_embeddings else embeddings
        return lifted_structured_loss(rows, labels, self.margin, self.hinge, self.reduction)


@numerics.full_precision
def soft_nearest_neighbour_loss(
    embeddings: Tensor,
    labels: Tensor,
    temperature: float = 1.0,
    distance: str = "squared_euclidean",
    reduction: str = "mean",
) -> Tensor:
    """Compute the soft nearest neighbour loss of labelled rows.

    The loss of row i is
    `l_i = log sum_{k != i} exp(-D_ik / tau) - log sum_{j != i, y_j = y_i} exp(-D_ij / tau)`
    (Frosst et al., 2019, definition 1): it is small if the nearest rows have the same label. D is a
    distance; surveys that call it a similarity keep the minus sign all the same. Rows whose label
    no other row has are left out.

    # Parameters

    embeddings : raw embeddings `(M, d)`.
    labels : their classes `(M,)`.
    temperature : tau.
    distance : D, either `"squared_euclidean"` of the raw rows, or `"cosine"`, which is 1 - cos.
    reduction : `"mean"` or `"sum"` over the rows that are not left out, or `"none"` for their
        losses.

    # Raises

    `ValueError` : if the distance or the reduction is unknown.
    """
    numerics.one_of("distance", distance, DISTANCES, ValueError)
    if distance == "cosine":
        rows = numerics.unit(embeddings)
        distances = 1 - rows @ rows.T  # (M, M)
    else:
        distances = squared_distances(embeddings, embeddings)  # (M, M)
    positive = numerics.positive_pairs(labels)
    accompanied = positive.any(dim=1)  # (M,)
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    # A row that is left out keeps all its terms: the logarithm of an empty sum is not finite.
    counts = accompanied.unsqueeze(1)  # (M, 1)
    nearness = (-distances / temperature).masked_fill(itself & counts, -math.inf)  # (M, M)
    own = nearness.masked_fill(~positive & counts, -math.inf)
    terms = nearness.logsumexp(dim=1) - own.logsumexp(dim=1)
    return numerics.reduced_where(accompanied, terms, reduction)


@Objective.register("soft_nearest_neighbours")
class SoftNearestNeighbours(MetricLearningObjective):
    """The soft nearest neighbour loss of both views; see `soft_nearest_neighbour_loss`.

    # Parameters

    temperature : tau, above 0.
    distance : `"squared_euclidean"` or `"cosine"`.
    reduction : `"mean"` or `"sum"` over the rows.
    """

    def __init__(
        self, temperature: float = 1.0, distance: str = "squared_euclidean", reduction: str = "mean"
    ) -> None:
        super().__init__()
        self.temperature = numerics.above_zero("temperature", temperature)
        self.distance = numerics.one_of("distance", distance, DISTANCES)
        self.reduction = numerics.scalar_reduction(reduction)

    def labelled_loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        settings = self.temperature, self.distance, self.reduction
        return soft_nearest_neighbour_loss(embeddings, labels, *settings)
