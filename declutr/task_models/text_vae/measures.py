"""Metrics of a text VAE over all texts of a data set, computed without keeping the texts."""

import math
from collections.abc import Callable
from typing import Any

import torch
from allennlp.training.metrics import Metric
from torch.distributions import MultivariateNormal

from declutr.system.distributed import all_reduced
from declutr.task_models.text_vae.posterior import Code

ACTIVE = 0.01
"""The variance of a dimension's mean above which the dimension is active (Burda et al., 2016)."""


@torch.no_grad()
def importance_weighted_nll(
    score: Callable[[torch.Tensor], torch.Tensor],
    mean: torch.Tensor,
    scale: torch.Tensor,
    noise: torch.Tensor,
) -> torch.Tensor:
    """Return an upper bound of the negative log-likelihood of each text, in nats, `(n,)`.

    It is `-log 1/S sum_s p(x|z_s) p(z_s) / r(z_s|x)` with S samples of a normal distribution r
    (Burda et al., 2016). It needs neither a density of q nor an estimate of its divergence, holds
    for any r, and comes closer as S rises.

    # Parameters

    score : returns `log p(x|z)` of each text, `(n,)`, for codes `(n, k)`.
    mean, scale : of r: `(n, k)`, and the Cholesky factor of its covariance, `(n, k, k)` or one for
        all texts, `(k, k)`.
    noise : standard normal numbers, `(S, n, k)`.
    """
    proposal = MultivariateNormal(mean, scale_tril=scale, validate_args=False)
    ratios = []
    for drawn in noise:
        code = mean + (scale @ drawn.unsqueeze(-1)).squeeze(-1)
        prior = -(code**2 + math.log(2 * math.pi)).sum(dim=-1) / 2
        ratios.append(score(code) + prior - proposal.log_prob(code))
    return math.log(len(noise)) - torch.stack(ratios).logsumexp(dim=0)


class VaeMeasures(Metric):
    """Metrics of a text VAE over all texts since the last `reset`, exact, from running sums.

    They are `reconstruction`, `kl` and their sum `negative_elbo`, in nats per text, and
    `perplexity`, the upper bound per token that follows from the sum. Outside training there are
    also `mutual_information`, averaged over batches weighted by their texts (it depends on the
    batch size, and is at most its logarithm; as in He et al., 2019), and `active_units`, the number
    of dimensions of the code whose mean has a variance of more than 0.01 over the texts. With
    `importance_weighted_nll` of texts there is its mean under this name, and the perplexity that
    follows from it, `importance_weighted_perplexity`.

    As a `Metric`, it is saved with checkpoints, and a run that is resumed within an epoch goes on.
    """

    def __init__(self) -> None:
        self._sums: torch.Tensor | None = None  # (5 + 2k,)
        self._weighted: torch.Tensor | None = None  # the sum of importance-weighted bounds

    @torch.no_grad()
    def __call__(  # type: ignore[override]
        self,
        code: Code,
        reconstruction: torch.Tensor,
        kl: torch.Tensor,
        tokens: torch.Tensor,
        information: torch.Tensor | None = None,
        weighted: torch.Tensor | None = None,
    ) -> None:
        """Add a batch of n texts.

        # Parameters

        code : the codes of the texts.
        reconstruction, kl : the negative log-likelihood and KL term of each text, `(n,)`.
        tokens : the number of predicted tokens of each text, `(n,)`.
        information : the mutual information in the batch; not needed in training.
        weighted : the `importance_weighted_nll` of each text, `(n,)`, if it was computed.
        """
        dtype = torch.float32 if kl.device.type == "mps" else torch.float64
        texts = torch.full((), len(kl), dtype=dtype, device=kl.device)
        shared = torch.zeros_like(texts) if information is None else information.to(dtype) * texts
        means = code.mean.to(dtype)
        sums = torch.cat(
            [
                torch.stack([texts, shared]),
                torch.stack([part.to(dtype).sum() for part in (reconstruction, kl, tokens)]),
                means.sum(dim=0),
                (means**2).sum(dim=0),
            ]
        )
        self._sums = sums if self._sums is None else self._sums + sums
        if weighted is not None:
            bound = weighted.to(dtype).sum()
            self._weighted = bound if self._weighted is None else self._weighted + bound

    def get_metric(self, reset: bool = False, training: bool = False) -> dict[str, Any]:
        """Return the metrics by name; without texts there are none.

        # Parameters

        reset : compute them over the texts of all processes, which must call this together, and
            discard all recorded batches.
        training : leave out the metrics that are measured outside training only.
        """
        if self._sums is None:
            return {}
        sums, weighted = self._sums, self._weighted
        if reset:
            sums = all_reduced(sums)
            weighted = None if weighted is None else all_reduced(weighted)
            self.reset()
        (texts, information, reconstruction, kl, tokens), per_dimension = sums[:5], sums[5:]
        elbo = reconstruction + kl
        found = {
            "negative_elbo": elbo / texts,
            "reconstruction": reconstruction / texts,
            "kl": kl / texts,
            "perplexity": (elbo / tokens).exp(),
        }
        if not training:
            mean, square = (per_dimension / texts).chunk(2)
            found["mutual_information"] = information / texts
            found["active_units"] = (square - mean**2 > ACTIVE).sum()
        if weighted is not None:
            found["importance_weighted_nll"] = weighted / texts
            found["importance_weighted_perplexity"] = (weighted / tokens).exp()
        values = torch.stack([value.to(sums.dtype) for value in found.values()]).tolist()
        return dict(zip(found, values, strict=True))

    def reset(self) -> None:
        """Discard all recorded batches."""
        self._sums = self._weighted = None
