"""Decorrelated features: Barlow Twins (Zbontar et al., 2021) and SCD (Klein & Nabi, 2022)."""

from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.objectives.checks import above_zero, at_least_zero, check_views, scalar_reduction
from declutr.objectives.numerics import full_precision, nothing, reduced, unit
from declutr.objectives.objective import Objective


@full_precision
def cross_correlation(first: Tensor, second: Tensor, eps: float = 1e-5) -> Tensor:
    """C `(m, m)`: correlation of feature j of the first view with feature k of the second.

    `first` and `second` are `(N, m)`; with z the views standardised over the batch (mean 0, biased
    variance, `eps` added to it), `C = z_first' z_second / N`. Gradients flow through the
    statistics. The papers print C without centring; their code centres.

    # Raises

    `ValueError` : fewer than two rows, which have no variance; views of different shapes.
    """
    first, second = _standardised(first, second, eps)
    return first.T @ second / first.size(0)  # (m, m)


@full_precision
def correlation_terms(first: Tensor, second: Tensor, eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    """The diagonal `(m,)` of `cross_correlation` and the sum of squares beside it, a scalar.

    A batch smaller than half the width never builds the matrix:
    `sum_jk C_jk^2 = sum_il (z z')_il (y y')_il / N^2`, a product of two `(N, N)` matrices. The rank
    of C is below N, so that its diagonal is then at most half of that sum, and taking it off costs
    no precision.

    # Raises

    `ValueError` : as `cross_correlation`.
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


@full_precision
def barlow_twins_loss(
    first: Tensor, second: Tensor, redundancy_weight: float = 0.0051, eps: float = 1e-5
) -> Tensor:
    """`sum_j (1 - C_jj)^2 + lambda sum_{j != k} C_jk^2` (Zbontar et al., 2021, equations 1 and 2).

    `first` and `second` are projections `(N, m)`; `redundancy_weight` is lambda. SCD's equation 4
    prints the first sum with a minus, which would push C_jj away from 1 against its own text.

    # Raises

    `ValueError` : as `cross_correlation`.
    """
    diagonal, beside = correlation_terms(first, second, eps)
    return (1 - diagonal).square().sum() + redundancy_weight * beside


@full_precision
def self_contrast(first: Tensor, second: Tensor, reduction: str = "mean") -> Tensor:
    """Cosines of each sentence with itself, to be minimised (Klein & Nabi, 2022, equation 2).

    `first` and `second` are embeddings `(N, d)` of the same sentences under two dropout rates. The
    mean is the paper's; the public checkpoints were trained with the sum.
    """
    check_views(first, second)
    return reduced((unit(first) * unit(second)).sum(dim=-1), reduction, first, second)


@full_precision
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
    """`L_S / tau_S + alpha L_C` (Klein & Nabi, 2022, equation 1, with the temperature of its code).

    `first` and `second` are embeddings `(N, d)` of the same sentences under two dropout rates, from
    which `self_contrast` is taken; the other two are their projections `(N, m)`, from which
    `barlow_twins_loss` is taken. A term of weight 0 is not computed, but its inputs keep a
    (zero) gradient.

    # Parameters

    contrast_weight : of L_S; 0 is the ablation "L_C alone".
    decorrelation_weight : alpha, of L_C; 0 is the ablation "L_S alone".
    redundancy_weight : lambda inside L_C.
    temperature : tau_S. Equations 1 and 2 as printed have 1; alpha = 0.005 belongs to 0.05.
    reduction : of L_S over the batch.
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
    """Both weighted terms of SCD."""
    embeddings, projections = views[:2], views[2:]
    contrast, decorrelation = nothing(*embeddings), nothing(*projections)
    if weights[0]:
        contrast = weights[0] * self_contrast(*embeddings, reduction)
    if weights[1]:
        decorrelation = weights[1] * barlow_twins_loss(*projections, redundancy_weight, eps)
    return contrast, decorrelation


def _standardised(first: Tensor, second: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Both views with mean 0 and (biased) variance 1 in every column."""
    check_views(first, second)
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
    """`barlow_twins_loss` of two views, usually projections much wider than the embeddings.

    # Parameters

    redundancy_weight : lambda, the weight of what is beside the diagonal.
    eps : added to the variances, above 0.
    """

    def __init__(self, redundancy_weight: float = 0.0051, eps: float = 1e-5) -> None:
        super().__init__()
        self.redundancy_weight = at_least_zero("redundancy_weight", redundancy_weight)
        self.eps = above_zero("eps", eps)

    def forward(self, anchors: Tensor, positives: Tensor) -> Tensor:
        return barlow_twins_loss(anchors, positives, self.redundancy_weight, self.eps)


@Objective.register("scd")
class SCD(Objective):
    """`scd_loss`: self-contrastive decorrelation, without negatives.

    The views are two passes over the same sentences with a low and a high dropout rate. The
    defaults are those of the paper for BERT; for RoBERTa it has `decorrelation_weight` 0.0033 and
    `redundancy_weight` 0.028. After a step `last_terms` holds, detached, both weighted terms
    (`self_contrast`, `decorrelation`): nothing but the second keeps cosines from -1.

    # Parameters

    contrast_weight, decorrelation_weight, redundancy_weight, temperature, reduction, eps : see
        `scd_loss`; `reduction` is `"mean"` or `"sum"`.
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
        self.contrast_weight = at_least_zero("contrast_weight", contrast_weight)
        self.decorrelation_weight = at_least_zero("decorrelation_weight", decorrelation_weight)
        self.redundancy_weight = at_least_zero("redundancy_weight", redundancy_weight)
        self.temperature = above_zero("temperature", temperature)
        self.reduction = scalar_reduction(reduction)
        self.eps = above_zero("eps", eps)
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
        contrast, decorrelation = _scd_terms(
            views, weights, self.redundancy_weight, self.reduction, self.eps
        )
        self.last_terms = {
            "self_contrast": contrast.detach(),
            "decorrelation": decorrelation.detach(),
        }
        return contrast + decorrelation
