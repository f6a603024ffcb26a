"""The InfoNCE loss (van den Oord et al., 2018) and the N-pair loss (Sohn, 2016)."""

import math
from itertools import combinations
from typing import Any, Optional

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import softplus

from declutr.bridge.adamw import own_part
from declutr.objectives import numerics
from declutr.objectives.distances import off_diagonal
from declutr.objectives.objective import Objective, with_positives

SIMILARITIES: tuple[str, ...] = ("dot", "cosine", "bilinear")
PAIRS_OF_VIEWS = ("core_view", "full_graph")
LARGEST_SCALE = 100.0
"""The largest 1 / tau that a learnt temperature may reach (Radford et al., 2021, section 2.5)."""


@numerics.full_precision
def info_nce(
    x: Tensor,
    y: Tensor,
    similarity: str = "dot",
    temperature: float | Tensor = 1.0,
    symmetric: bool = False,
    negatives: Tensor | None = None,
    weight: Tensor | None = None,
    own_negative_logit: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Compute InfoNCE, the cross entropy of finding each row's partner among all rows of `y`.

    The loss of row i is `l_i = -s(x_i, y_i) / tau + log sum_j exp(s(x_i, y_j) / tau)`, with j over
    the N rows of `y` and the negatives (van den Oord et al., 2018, equation 4). In contrast to
    NT-Xent, the other rows of `x` are not candidates. With cosines in one direction this is SimCSE
    (Gao et al., 2021, equation 1), in both directions CLIP (Radford et al., 2021). A single pair
    without negatives gives 0.

    # Parameters

    x, y : raw rows `(N, d)`, of which row i of both belongs together.
    similarity : the similarity s: `"dot"`, `"cosine"`, or `"bilinear"`, which is x' `weight` y.
    temperature : tau, a number or a tensor of one element.
    symmetric : whether to average the loss with that of exchanged `x` and `y`.
    negatives : additional candidates for the rows of `x`: `(M, d)`, the same for every row, or
        `(N, M, d)`, different ones for each row. They are not used with exchanged `x` and `y`.
    weight : the matrix `(d_x, d_y)` of `"bilinear"`.
    own_negative_logit : a number added to the logit of row i of `x` with row i of `negatives`
        `(N, d)`, for the hard negatives of supervised SimCSE: the logarithm of alpha in equation 8.
    reduction : `"mean"` or `"sum"` over the N rows, or `"none"` for the losses `(N,)`.

    # Raises

    `ValueError` : if shapes do not fit, or the similarity or the reduction is unknown.
    """
    numerics.one_of("similarity", similarity, SIMILARITIES, ValueError)
    if x.dim() != 2 or y.dim() != 2 or len(x) != len(y):
        raise ValueError(
            "x and y must be (N, d), row i of both belonging together; got "
            f"{tuple(x.shape)} and {tuple(y.shape)}."
        )
    if (weight is not None) != (similarity == "bilinear"):
        raise ValueError("'bilinear', and only it, needs a weight (d_x, d_y).")
    if similarity == "cosine":
        x, y = numerics.unit(x), numerics.unit(y)
        negatives = None if negatives is None else numerics.unit(negatives)
    if weight is not None:
        x = x @ weight.to(x.dtype)
    logits = x @ y.T / temperature  # (N, N)
    terms = _cross_entropy(_with_negatives(logits, x, negatives, temperature, own_negative_logit))
    if symmetric:
        terms = (terms + _cross_entropy(logits.T)) / 2
    return numerics.reduced(terms, reduction, x, y)


def _cross_entropy(logits: Tensor) -> Tensor:
    """Return the cross entropy `(N,)` of `logits` `(N, C)`, in which row i has the class i."""
    return logits.logsumexp(dim=1) - logits.diagonal()


def _with_negatives(
    logits: Tensor,
    x: Tensor,
    negatives: Tensor | None,
    temperature: float | Tensor,
    own_negative_logit: float,
) -> Tensor:
    """Append a column for each of the M negatives of a row to `logits` `(N, N)`."""
    n, width = x.shape
    if negatives is None:
        if own_negative_logit:
            raise ValueError("own_negative_logit is for negatives (N, d), got none.")
        return logits
    fits = negatives.dim() == 2 or (negatives.dim() == 3 and len(negatives) == n)
    if not fits or negatives.size(-1) != width:
        raise ValueError(
            f"negatives must be (M, {width}) or ({n}, M, {width}), got {tuple(negatives.shape)}."
        )
    if negatives.dim() == 2:
        more = x @ negatives.T / temperature  # (N, M)
    else:
        more = torch.einsum("nd,nmd->nm", x, negatives) / temperature  # (N, M)
    if own_negative_logit:
        if negatives.dim() != 2 or len(negatives) != n:
            raise ValueError(
                f"own_negative_logit is for negatives ({n}, {width}), row i being that of row i; "
                f"got {tuple(negatives.shape)}."
            )
        more = more + own_negative_logit * torch.eye(n, dtype=more.dtype, device=more.device)
    return torch.cat([logits, more], dim=1)


@numerics.full_precision
def n_pair_loss(x: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    """Compute the N-pair loss (Sohn, 2016, equation 4).

    The loss of row i is `l_i = log(1 + sum_{j != i} exp(x_i y_j - x_i y_i))`, which is InfoNCE with
    dot products and temperature 1.

    # Parameters

    x, y : raw rows `(N, d)`, of which row i of both belongs together.
    reduction : `"mean"` or `"sum"` over the N rows, or `"none"` for the losses `(N,)`.

    # Raises

    `ValueError` : if the reduction is unknown.
    """
    logits = x @ y.T  # (N, N)
    others = logits - logits.diagonal().unsqueeze(1)
    n = len(x)
    if n == 1:  # The logarithm of an empty sum is not finite.
        return numerics.reduced(others.flatten(), reduction, x, y)
    others = off_diagonal(others).view(n, n - 1)
    return numerics.reduced(softplus(others.logsumexp(dim=1)), reduction, x, y)


@Objective.register("info_nce")
class InfoNCE(Objective):
    """The InfoNCE loss of two views or more and, where given, hard negatives; see `info_nce`.

    `forward` takes hard negatives `(M, d)` or `(N, M, d)` as its third argument.

    # Parameters

    temperature : tau, above 0; with `learn_temperature`, its value before the first update.
    similarity : `"dot"`, `"cosine"`, or `"bilinear"` with a learnt matrix that starts as the
        identity.
    symmetric : whether to average both directions, as in CLIP.
    embedding_size : the width d of the views, for `"bilinear"` only.
    own_negative_logit : see `info_nce`. It only has an effect with negatives `(N, d)`.
    reduction : `"mean"` or `"sum"` over the rows.
    learn_temperature : whether to learn log(1 / tau). Updates beyond that of `LARGEST_SCALE` are
        cut off (Radford et al., 2021) by `follow_optimizer`, which the model calls.
    view_pairs : `None` for the anchor and the mean of its positives. Otherwise each positive is a
        view of its own, and the loss the mean over pairs of views: `"core_view"` of the anchor with
        each other, `"full_graph"` of all views (CMC; Tian et al., 2020, which adds the pairs).
    """

    def __init__(
        self,
        temperature: float = 1.0,
        similarity: str = "dot",
        symmetric: bool = False,
        embedding_size: Optional[int] = None,
        own_negative_logit: float = 0.0,
        reduction: str = "mean",
        learn_temperature: bool = False,
        view_pairs: Optional[str] = None,
    ) -> None:
        super().__init__()
        self.temperature = numerics.above_zero("temperature", temperature)
        self.similarity = numerics.one_of("similarity", similarity, SIMILARITIES)
        self.symmetric = symmetric
        self.own_negative_logit = own_negative_logit
        self.reduction = numerics.scalar_reduction(reduction)
        self.view_pairs = view_pairs and numerics.one_of("view_pairs", view_pairs, PAIRS_OF_VIEWS)
        if (embedding_size is not None) != (similarity == "bilinear"):
            raise ConfigurationError(
                "embedding_size is needed with similarity 'bilinear' and has no meaning otherwise; "
                f"got similarity '{similarity}' and embedding_size {embedding_size}."
            )
        self.embedding_size = embedding_size
        self.weight = None if embedding_size is None else Parameter(torch.eye(embedding_size))
        log_scale = torch.tensor([-math.log(temperature)])  # torch shards no scalars
        self.log_scale = Parameter(log_scale) if learn_temperature else None
        if learn_temperature and temperature * LARGEST_SCALE < 1:
            raise ConfigurationError(
                f"A learnt temperature stays at {1 / LARGEST_SCALE} or above, got {temperature}."
            )

    @property
    def inputs(self) -> dict[str, bool]:
        """The names of the tensors that `forward` takes: positives as one view or as several."""
        return with_positives(super().inputs, several=self.view_pairs is not None)

    def forward(
        self,
        anchors: Tensor,
        positives: Tensor | None = None,
        negatives: Tensor | None = None,
        positive_views: Tensor | None = None,
    ) -> Tensor:
        temperature: float | Tensor = self.temperature
        if self.log_scale is not None:
            temperature = (-self.log_scale).exp()
            self.last_metrics = {"temperature": temperature.detach()}
        own = self.own_negative_logit if negatives is not None else 0.0
        settings = (self.similarity, temperature, self.symmetric, negatives, self.weight, own)
        if self.view_pairs is None:
            assert positives is not None
            return info_nce(anchors, positives, *settings, self.reduction)
        assert positive_views is not None
        views = [anchors, *positive_views.unbind(dim=1)]
        pairs = list(combinations(views, 2))
        pairs = pairs[: len(views) - 1] if self.view_pairs == "core_view" else pairs
        losses = [info_nce(x, y, *settings, self.reduction) for x, y in pairs]
        return torch.stack(losses).mean()

    def follow_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Keep a learnt temperature at `1 / LARGEST_SCALE` or above after updates."""
        if self.log_scale is not None:
            optimizer.register_step_post_hook(self._bound)

    @torch.no_grad()
    def _bound(self, *_: Any) -> None:
        assert self.log_scale is not None
        own_part(self.log_scale).clamp_(max=math.log(LARGEST_SCALE))


@Objective.register("n_pair")
class NPair(Objective):
    """The N-pair loss of two views; see `n_pair_loss`.

    # Parameters

    reduction : `"mean"` or `"sum"` over the rows.
    """

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = numerics.scalar_reduction(reduction)

    def forward(self, anchors: Tensor, positives: Tensor) -> Tensor:
        return n_pair_loss(anchors, positives, self.reduction)
