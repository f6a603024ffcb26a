"""Decorrelation of features: Barlow Twins (Zbontar et al., 2021) and SCD (Klein & Nabi, 2022)."""

from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.objectives import numerics
from declutr.objectives.objective import Objective


@numerics.full_precision
def cross_correlation(first: Tensor, second: Tensor, eps: float = 1e-5) -> Tensor:
    """Return the correlations between the features of one view and the features of another.

    The matrix is `C = z_first' z_second / N`, where z are the views standardised over the batch
    (mean 0, and divided by the root of the biased variance plus `eps`). Gradients flow through the
    statistics. The papers print C without subtracting means; their code subtracts them.

    # Parameters

    first, second : views `(N, m)`, of which row i of both belongs together.
    eps : a number added to the variances.

    # Returns

    Correlations `(m, m)`: row j, column k is feature j of `first` with feature k of `second`.

    # Raises

    `ValueError` : if the views differ in shape or have fewer than two rows.
    """
    first, second = _standardised(first, second, eps)
    return first.T @ second / first.size(0)  # (m, m)


@numerics.full_precision
def correlation_terms(first: Tensor, second: Tensor, eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    """Return the diagonal `(m,)` of the cross-correlation C, and the sum of squares of the rest.

    If N is at most half of m, the matrix C is never built: the sum of all its squares is
    `sum_jk C_jk^2 = sum_il (z z')_il (y y')_il / N^2`, where z and y are the standardised views,
    which needs only two `(N, N)` matrices. As the rank of C is below N, the squares of its diagonal
    are then at most half of that sum, and subtracting them costs no precision.

    # Parameters

    first, second, eps : see `cross_correlation`, also for errors.
    """
    first, second = _standardised(first, second, eps)
    rows, width = first.shape
    if 2 * rows <= width:
        diagonal = (first * second).sum(dim=0) / rows  # (m,)
        everything = ((first @ first.T) * (second @ second.T)).sum() / rows**2
        return diagonal, everything - diagonal.square().sum()
    correlation = first.T @ second / rows  # (m, m)
    beside = correlation.flatten()[:-1].view(width - 1, width + 1)[:, 1:]  # all but the diagonal
    return correlation.diagonal(), beside.square().sum()


@numerics.full_precision
def barlow_twins_loss(
    first: Tensor, second: Tensor, redundancy_weight: float = 0.0051, eps: float = 1e-5
) -> Tensor:
    """Compute the Barlow Twins loss, which makes the cross-correlation of views an identity matrix.

    The loss is `sum_j (1 - C_jj)^2 + lambda sum_{j != k} C_jk^2`, where C is `cross_correlation`
    (Zbontar et al., 2021, equations 1 and 2). Equation 4 of the SCD paper prints the first sum with
    a minus, which would push C_jj away from 1 and contradicts the text there.

    # Parameters

    first, second : projections `(N, m)` of both views.
    redundancy_weight : lambda.
    eps : see `cross_correlation`, also for errors.
    """
    diagonal, beside = correlation_terms(first, second, eps)
    return (1 - diagonal).square().sum() + redundancy_weight * beside


@numerics.full_precision
def self_contrast(first: Tensor, second: Tensor, reduction: str = "mean") -> Tensor:
    """Compute the cosines of two embeddings of each sentence, which SCD minimises.

    This is equation 2 of Klein & Nabi (2022).

    # Parameters

    first, second : raw embeddings `(N, d)` of the same sentences under two dropout rates.
    reduction : `"mean"`, as in the paper, or `"sum"` over the sentences, with which the published
        models were trained, or `"none"` for the cosines `(N,)`.

    # Raises

    `ValueError` : if shapes differ or the reduction is unknown.
    """
    numerics.check_views(first, second)
    cosines = (numerics.unit(first) * numerics.unit(second)).sum(dim=-1)
    return numerics.reduced(cosines, reduction, first, second)


@numerics.full_precision
def scd_loss(
    first: Tensor,
    second: Tensor,
    projected_first: Tensor,
    projected_second: Tensor,
    *,
    contrast_weight: float = 1.0,
    decorrelation_weight: float = 0.005,
    redundancy_weight: float = 0.013,
    temperature: float = 0.05,
    reduction: str = "mean",
    eps: float = 1e-5,
) -> Tensor:
    """Compute the loss of SCD, self-contrast of embeddings plus decorrelation of projections.

    The loss is `L_S / tau_S + alpha L_C`, where L_S is `self_contrast` and L_C is
    `barlow_twins_loss` (Klein & Nabi, 2022, equation 1, with the temperature of its code). A term
    of weight 0 is not computed, but its inputs still get a gradient of zero.

    # Parameters

    first, second : raw embeddings `(N, d)` of the same sentences under two dropout rates.
    projected_first, projected_second : their projections `(N, m)`.
    contrast_weight : the weight of L_S; 0 is the ablation "L_C alone".
    decorrelation_weight : alpha, the weight of L_C; 0 is the ablation "L_S alone".
    redundancy_weight : lambda in L_C.
    temperature : tau_S. Equations 1 and 2 as printed have 1, but alpha = 0.005 belongs to 0.05.
    reduction : `"mean"` or `"sum"` of L_S over the sentences.
    eps : a number added to the variances in L_C.

    # Raises

    `ValueError` : if shapes do not fit, or if there are fewer than two rows.
    """
    views = (first, second, projected_first, projected_second)
    weights = (contrast_weight / temperature, decorrelation_weight)
    contrast, decorrelation = _scd_terms(views, weights, redundancy_weight, reduction, eps)
    return contrast + decorrelation


def _scd_terms(
    views: tuple[Tensor, Tensor, Tensor, Tensor],
    weights: tuple[float, float],
    redundancy_weight: float,
    reduction: str,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Return both terms of SCD, each multiplied by its weight."""
    embeddings, projections = views[:2], views[2:]
    contrast, decorrelation = numerics.nothing(*embeddings), numerics.nothing(*projections)
    if weights[0]:
        contrast = weights[0] * self_contrast(*embeddings, reduction)
    if weights[1]:
        decorrelation = weights[1] * barlow_twins_loss(*projections, redundancy_weight, eps)
    return contrast, decorrelation


def _standardised(first: Tensor, second: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Standardise both views to mean 0 and biased variance 1 in every column."""
    numerics.check_views(first, second)
    if first.size(0) < 2:
        raise ValueError(
            f"Correlation over a batch needs at least two rows, got {first.size(0)}. "
            "Raise batch_size."
        )
    centred = [view - view.mean(dim=0) for view in (first, second)]
    standardised = [view / (view.square().mean(dim=0) + eps).sqrt() for view in centred]
    return standardised[0], standardised[1]


@Objective.register("barlow_twins")
class BarlowTwins(Objective):
    """The Barlow Twins loss of two views; see `barlow_twins_loss`.

    The views are usually projections that are much wider than the embeddings.

    # Parameters

    redundancy_weight : lambda, the weight of the elements off the diagonal, 0 or above.
    eps : a number added to the variances, above 0.
    """

    def __init__(self, redundancy_weight: float = 0.0051, eps: float = 1e-5) -> None:
        super().__init__()
        self.redundancy_weight = numerics.at_least_zero("redundancy_weight", redundancy_weight)
        self.eps = numerics.above_zero("eps", eps)

    def forward(self, anchors: Tensor, positives: Tensor) -> Tensor:
        return barlow_twins_loss(anchors, positives, self.redundancy_weight, self.eps)


@Objective.register("scd")
class SCD(Objective):
    """The loss of SCD, self-contrastive decorrelation; see `scd_loss`.

    The views are two passes over the same sentences with a low and a high dropout rate. The
    defaults are those of the paper for BERT; for RoBERTa the paper has `decorrelation_weight`
    0.0033 and `redundancy_weight` 0.028. After a step `last_terms` has both weighted terms,
    detached: `self_contrast`, and `decorrelation`, which alone keeps cosines from becoming -1.

    # Parameters

    contrast_weight, decorrelation_weight, redundancy_weight, temperature, reduction, eps : see
        `scd_loss`; `reduction` is `"mean"` or `"sum"`.

    # Raises

    `ConfigurationError` : if both weights are 0, or if a setting is out of its range.
    """

    def __init__(
        self,
        contrast_weight: float = 1.0,
        decorrelation_weight: float = 0.005,
        redundancy_weight: float = 0.013,
        temperature: float = 0.05,
        reduction: str = "mean",
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        if not contrast_weight and not decorrelation_weight:
            raise ConfigurationError(
                "contrast_weight and decorrelation_weight are both 0, so there is nothing to train "
                "by: set one of them above 0."
            )
        self.contrast_weight = numerics.at_least_zero("contrast_weight", contrast_weight)
        self.decorrelation_weight = numerics.at_least_zero(
            "decorrelation_weight", decorrelation_weight
        )
        self.redundancy_weight = numerics.at_least_zero("redundancy_weight", redundancy_weight)
        self.temperature = numerics.above_zero("temperature", temperature)
        self.reduction = numerics.scalar_reduction(reduction)
        self.eps = numerics.above_zero("eps", eps)
        self.last_terms: dict[str, Tensor] = {}

    def forward(  # type: ignore[override]
        self,
        anchors: Tensor,
        positives: Tensor,
        projected_anchors: Tensor,
        projected_positives: Tensor,
    ) -> Tensor:
        views = (anchors, positives, projected_anchors, projected_positives)
        weights = (self.contrast_weight / self.temperature, self.decorrelation_weight)
        settings = self.redundancy_weight, self.reduction, self.eps
        contrast, decorrelation = _scd_terms(views, weights, *settings)
        terms = {"self_contrast": contrast, "decorrelation": decorrelation}
        self.last_terms = {name: term.detach() for name, term in terms.items()}
        return contrast + decorrelation
