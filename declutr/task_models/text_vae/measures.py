"""Metrics of a text VAE over all texts of a data set, computed without keeping the texts."""

import math
from typing import Any

import torch
from allennlp.training.metrics import Metric

from declutr.system.distributed import all_reduced
from declutr.task_models.text_vae.layers import Code, log_densities

ACTIVE = 0.01
"""The variance of a dimension's mean above which the dimension is active (Burda et al., 2016)."""
_ROWS = 64  # rows of an (n, n, k) comparison that are computed at a time


@torch.no_grad()
def mutual_information(code: Code) -> torch.Tensor:
    """Return an estimate of the mutual information of texts and codes under q, in nats, a scalar.

    It is `I(x, z) = E_x KL(q(z|x) || p(z)) - KL(q(z) || p(z))`, where q(z) is the mean of q(z|x)
    over this batch (Hoffman & Johnson, 2016). Both terms are estimated by the same samples, so p(z)
    cancels. The result is the mean of `log q(z_i|x_i) - log 1/n sum_j q(z_i|x_j)`, which is at most
    log n.
    """
    parts = code.sample.split(_ROWS)
    densities = torch.cat([log_densities(part, code.mean, code.log_variance) for part in parts])
    aggregate = densities.logsumexp(dim=1) - math.log(len(densities))
    return (densities.diagonal() - aggregate).mean()


class VaeMeasures(Metric):
    """Metrics of a text VAE over all texts since the last `reset`, exact, from running sums.

    They are `reconstruction`, `kl` and their sum `negative_elbo`, in nats per text, and
    `perplexity`, the upper bound per token that follows from the sum. Outside training there are
    also `mutual_information`, averaged over batches weighted by their texts (it depends on the
    batch size, and is at most its logarithm; as in He et al., 2019), and `active_units`, the number
    of dimensions of the code whose mean has a variance of more than 0.01 over the texts.

    As a `Metric`, it is saved with checkpoints, and a run that is resumed within an epoch goes on.
    """

    def __init__(self) -> None:
        self._sums: torch.Tensor | None = None  # (5 + 2k,)

    @torch.no_grad()
    def __call__(  # type: ignore[override]
        self,
        code: Code,
        reconstruction: torch.Tensor,
        kl: torch.Tensor,
        tokens: torch.Tensor,
        information: torch.Tensor | None = None,
    ) -> None:
        """Add a batch of n texts.

        # Parameters

        code : the codes of the texts.
        reconstruction, kl : the negative log-likelihood and KL term of each text, `(n,)`.
        tokens : the number of predicted tokens of each text, `(n,)`.
        information : `mutual_information` of the batch; not needed in training.
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

    def get_metric(self, reset: bool = False, training: bool = False) -> dict[str, Any]:
        """Return the metrics by name; without texts there are none.

        # Parameters

        reset : compute them over the texts of all processes, which must call this together, and
            discard all recorded batches.
        training : leave out the metrics that are measured outside training only.
        """
        if self._sums is None:
            return {}
        sums = all_reduced(self._sums) if reset else self._sums
        if reset:
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
        values = torch.stack([value.to(sums.dtype) for value in found.values()]).tolist()
        return dict(zip(found, values, strict=True))

    def reset(self) -> None:
        """Discard all recorded batches."""
        self._sums = None
