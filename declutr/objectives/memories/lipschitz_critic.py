"""The critic of RECLAIM: whether two features are of the same thing, 1-Lipschitz in both."""

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor, nn
from torch.nn.functional import relu
from torch.nn.utils.parametrizations import spectral_norm

_POWER_ITERATIONS = 1  # a training step


class Critic(nn.Module):
    """A logit for a pair of features of two levels (RECLAIM).

    It is the logit that is 1-Lipschitz: noise contrastive estimation with a Lipschitz critic, and
    no Wasserstein distance.

    "Two different MLP layers" map u and v to the same width, each with a ReLU; they are
    concatenated and go through an MLP of three layers. The five weights are divided by their
    largest singular values, which makes each layer 1-Lipschitz, and so the whole, for a
    concatenation of 1-Lipschitz maps of two things is one of both. The paper leaves open the
    activation and the widths inside: ReLU and `width` are ours. Biases are free; the last is what
    reaches the logit -log K of a pair that nothing is known about.

    Singular values are estimated by power iteration, once each time a layer is used in training:
    compare all pairs of a step in one call. The estimate lags behind the optimizer; `sigmas` are
    the true ones.

    # Parameters

    u_width, v_width : d_u and d_v.
    width : of everything inside.
    lipschitz : False leaves the weights as they are (an ablation of the paper).
    """

    def __init__(self, u_width: int, v_width: int, width: int = 64, lipschitz: bool = True) -> None:
        super().__init__()
        sizes = {"u_width": u_width, "v_width": v_width, "width": width}
        for name, size in sizes.items():
            if size < 1:
                raise ConfigurationError(f"{name} must be at least 1, got {size}.")
        self.u_width, self.v_width, self.width = u_width, v_width, width
        self.u_map = nn.Linear(u_width, width)
        self.v_map = nn.Linear(v_width, width)
        self.joint = nn.ModuleList(
            [nn.Linear(2 * width, width), nn.Linear(width, width), nn.Linear(width, 1)]
        )
        if lipschitz:
            for layer in self._layers():
                spectral_norm(layer, n_power_iterations=_POWER_ITERATIONS)

    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        """Logits `(...)` of pairs u `(..., d_u)` and v `(..., d_v)`."""
        return self._judged(relu(self.u_map(u)), relu(self.v_map(v)))

    def against(
        self, u: Tensor, v: Tensor, v_negatives: Tensor, u_negatives: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The logits of pairs, and those of each half with negatives for the other.

        What `forward` gives for the n(1 + K_v + K_u) pairs, in one call of each layer, and without
        a copy of u and v for each of their negatives.

        # Parameters

        u, v : `(n, d_u)` and `(n, d_v)`.
        v_negatives : for u, `(n, K_v, d_v)`, or `(1, K_v, d_v)`, the same for all.
        u_negatives : for v, `(n, K_u, d_u)` or `(1, K_u, d_u)`.

        # Returns

        T(u, v) `(n,)`, T(u, v') `(n, K_v)` and T(u', v) `(n, K_u)`.
        """
        of_v, of_u = v_negatives.size(1), u_negatives.size(1)
        us = _mapped(self.u_map, u, u_negatives)  # (n, 1 + K_u, w)
        vs = _mapped(self.v_map, v, v_negatives)  # (n, 1 + K_v, w)
        first = torch.cat([us[:, :1].expand(-1, 1 + of_v, -1), us[:, 1:]], dim=1)
        second = torch.cat([vs, vs[:, :1].expand(-1, of_u, -1)], dim=1)
        positive, v_logits, u_logits = self._judged(first, second).split([1, of_v, of_u], dim=1)
        return positive.squeeze(1), v_logits, u_logits

    @property
    def last_bias(self) -> Tensor:
        """What is added to all logits, `(1,)`."""
        bias = self.joint[-1].bias
        assert isinstance(bias, Tensor)
        return bias

    def in_use(self) -> list[Tensor]:
        """The weights that layers multiply by, and their biases."""
        layers = self._layers()
        return [layer.weight for layer in layers] + [layer.bias for layer in layers]

    @torch.no_grad()
    def sigmas(self) -> Tensor:
        """The largest singular values `(5,)` of the weights in use: of u's map, v's, and the MLP.

        By a full decomposition, and without a power iteration.
        """
        training = self.training
        self.eval()
        try:
            weights = [layer.weight for layer in self._layers()]
            return torch.stack([torch.linalg.matrix_norm(weight, ord=2) for weight in weights])
        finally:
            self.train(training)

    def _layers(self) -> list[nn.Linear]:
        return [self.u_map, self.v_map, *self.joint]  # type: ignore[list-item]

    def _judged(self, u: Tensor, v: Tensor) -> Tensor:
        """Logits `(...)` of mapped features `(..., width)`."""
        first, second, last = self.joint
        joined = torch.cat([u, v], dim=-1)  # (..., 2 width)
        return last(relu(second(relu(first(joined))))).squeeze(-1)


def _mapped(layer: nn.Linear, own: Tensor, others: Tensor) -> Tensor:
    """One call of a layer for features `(n, d)` and others `(n, K, d)` beside each, or
    `(1, K, d)` beside all: `(n, 1 + K, w)`."""
    if len(others) == len(own):
        return relu(layer(torch.cat([own.unsqueeze(1), others], dim=1)))
    mapped = relu(layer(torch.cat([own, others[0]])))
    mine, shared = mapped.split([len(own), others.size(1)])
    return torch.cat([mine.unsqueeze(1), shared.expand(len(own), -1, -1)], dim=1)
