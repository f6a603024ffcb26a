"""Stacked cross attention, the similarity of images and captions by regions and words (SCAN)."""

from collections.abc import Callable
from functools import partial

import torch
from allennlp.common import FromParams
from torch import Tensor
from torch.nn.functional import leaky_relu, softmax
from torch.utils.checkpoint import checkpoint

from declutr.objectives.numerics import above_zero, full_precision, one_of

CROSS_ATTN = ("t2i", "i2t")
AGG_FUNCS = ("LogSumExp", "Mean", "Sum", "Max")
BLOCK = 2**25
"""The most attention weights that are computed at a time."""

_EPS = 1e-8
_TINY = 1e-24  # of squared lengths, below which a length counts as 0 and has no gradient


def _clipped(raw: Tensor) -> Tensor:
    return leaky_relu(raw, 0.1)


def _l1norm(raw: Tensor) -> Tensor:
    return raw / (raw.abs().sum(dim=-1, keepdim=True) + _EPS)


def _l2norm(raw: Tensor) -> Tensor:
    return raw / (torch.linalg.vector_norm(raw, dim=-1, keepdim=True) + _EPS)


_NORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "clipped_l2norm": lambda raw: _l2norm(_clipped(raw)),
    "l2norm": _l2norm,
    "clipped_l1norm": lambda raw: _l1norm(_clipped(raw)),
    "l1norm": _l1norm,
    "clipped": _clipped,
    "no_norm": lambda raw: raw,
}
RAW_FEATURE_NORMS = (*_NORMS, "softmax")


class StackedCrossAttention(FromParams):
    """The similarity of an image and a caption by stacked cross attention (Lee et al., 2018).

    With `cross_attn="t2i"`, each word attends to the regions of the image (equations 6 to 9 of the
    paper): the raw attention of word w and region r is their dot product, normalised over the words
    by `raw_feature_norm`; the softmax over regions of `lambda_softmax` times that gives the weights
    of the regions. The relevance of the word is its cosine with the weighted mean of the regions,
    and the similarity is the aggregate of the relevances of all words. With `"i2t"` the roles of
    regions and words are exchanged (equations 1 to 5). Parameters and their values are named as the
    options of the authors' code.

    The cosine is computed from dot products alone: the numerator is the weighted mean of the raw
    attention, and the length of the weighted mean comes from the dot products of the regions with
    each other. So no weighted mean is ever built, of which there are as many as words times images.

    # Parameters

    cross_attn : `"t2i"`, or `"i2t"`.
    raw_feature_norm : `"clipped_l2norm"`, `"l2norm"`, `"clipped_l1norm"`, `"l1norm"`, `"clipped"`
        (negative values times 0.1), `"softmax"` or `"no_norm"`.
    agg_func : `"LogSumExp"`, `"Mean"`, `"Sum"` or `"Max"` over words (or over regions).
    lambda_softmax : the inverse temperature of the attention, above 0.
    lambda_lse : the factor of the relevances in LogSumExp, above 0.

    # Raises

    `ConfigurationError` : a name is unknown, or a factor is not above 0.
    """

    def __init__(
        self,
        cross_attn: str = "t2i",
        raw_feature_norm: str = "clipped_l2norm",
        agg_func: str = "LogSumExp",
        lambda_softmax: float = 9.0,
        lambda_lse: float = 6.0,
    ) -> None:
        self.cross_attn = one_of("cross_attn", cross_attn, CROSS_ATTN)
        self.raw_feature_norm = one_of("raw_feature_norm", raw_feature_norm, RAW_FEATURE_NORMS)
        self.agg_func = one_of("agg_func", agg_func, AGG_FUNCS)
        self.lambda_softmax = above_zero("lambda_softmax", lambda_softmax)
        self.lambda_lse = above_zero("lambda_lse", lambda_lse)

    @full_precision
    def similarities(
        self, regions: Tensor, words: Tensor, mask: Tensor, block: int = BLOCK
    ) -> Tensor:
        """Return the similarities `(n, m)` of n images and m captions.

        Captions are compared in blocks, shorter ones with less padding. In training, the blocks of
        a batch that has several are computed again in the backward pass, so that memory grows
        neither with the number of images nor with that of captions.

        # Parameters

        regions : the regions of each image, `(n, r, d)`.
        words : the words of each caption, `(m, L, d)`.
        mask : `(m, L)` bool, false for padding, which is at the end.
        block : the most attention weights to compute at a time.
        """
        each = max(1, block // max(1, regions.size(0) * regions.size(1) * words.size(1)))
        if len(words) <= each:
            return self._of_block(regions, words, mask)
        lengths = mask.sum(dim=1)
        order = lengths.argsort()
        parts = []
        for rows in order.split(each):
            longest = max(1, int(lengths[rows[-1]]))
            some = regions, words[rows, :longest], mask[rows, :longest]
            if torch.is_grad_enabled():
                again = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
                parts.append(again(self._of_block, *some))
            else:
                parts.append(self._of_block(*some))
        return torch.cat(parts, dim=1)[:, order.argsort()]

    def _of_block(self, regions: Tensor, words: Tensor, mask: Tensor) -> Tensor:
        everything = mask.new_ones(regions.shape[:2])
        if self.cross_attn == "t2i":
            return self._attended(regions, everything, words, mask)
        return self._attended(words, mask, regions, everything).T

    def _attended(
        self, contexts: Tensor, context_mask: Tensor, queries: Tensor, query_mask: Tensor
    ) -> Tensor:
        """Return the similarities `(x, y)` of contexts `(x, s, d)` to queries `(y, q, d)`."""
        (x, s), (y, q) = contexts.shape[:2], queries.shape[:2]
        raw = (contexts.flatten(0, 1) @ queries.flatten(0, 1).T).view(x, s, y, q)
        logits = self.lambda_softmax * self._normalised(raw, query_mask)
        logits = logits.masked_fill(~context_mask[:, :, None, None], torch.finfo(raw.dtype).min)
        weights = softmax(logits, dim=1)  # over contexts
        flat = weights.flatten(2)  # (x, s, y * q)
        products = contexts @ contexts.mT  # (x, s, s)
        squares = ((products @ flat) * flat).sum(dim=1).view(x, y, q)
        lengths = squares.clamp_min(_TINY).sqrt() * torch.linalg.vector_norm(queries, dim=-1)
        relevances = (weights * raw).sum(dim=1) / lengths.clamp_min(_EPS)
        return self._aggregated(relevances, query_mask)

    def _normalised(self, raw: Tensor, mask: Tensor) -> Tensor:
        """Normalise raw attention `(x, s, y, q)` over the queries that `mask` `(y, q)` keeps."""
        if self.raw_feature_norm == "softmax":
            return softmax(raw.masked_fill(~mask, torch.finfo(raw.dtype).min), dim=-1)
        return _NORMS[self.raw_feature_norm](raw.masked_fill(~mask, 0))

    def _aggregated(self, relevances: Tensor, mask: Tensor) -> Tensor:
        """Aggregate relevances `(x, y, q)` over the queries that `mask` `(y, q)` keeps."""
        if self.agg_func in ("Sum", "Mean"):
            total = relevances.masked_fill(~mask, 0).sum(dim=-1)
            return total if self.agg_func == "Sum" else total / mask.sum(dim=-1).clamp_min(1)
        lowest = torch.finfo(relevances.dtype).min
        if self.agg_func == "Max":
            return relevances.masked_fill(~mask, lowest).amax(dim=-1)
        scaled = (self.lambda_lse * relevances).masked_fill(~mask, lowest)
        return scaled.logsumexp(dim=-1) / self.lambda_lse
