"""The critic of RECLAIM, a 1-Lipschitz network that judges whether two features belong together."""

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor, nn
from torch.nn.functional import linear, relu
from torch.nn.utils.parametrizations import spectral_norm

_POWER_ITERATIONS = 1  # the number of iterations in each training step


class Critic(nn.Module):
    """A network that returns a logit for a pair of features u and v of two levels (RECLAIM).

    The logit itself is 1-Lipschitz in both features: the loss is noise contrastive estimation with
    a Lipschitz critic, not a Wasserstein distance.

    "Two different MLP layers", each with a ReLU, map u and v to the same width. Their results are
    concatenated and go through an MLP of three layers. The five weights are divided by their
    largest singular values, which makes each layer 1-Lipschitz. The whole network is then
    1-Lipschitz too, because the concatenation of a 1-Lipschitz function of u and one of v is
    1-Lipschitz in both. The paper does not give the activation and the inner widths; ReLU and
    `width` are choices of this class. Biases are not constrained. Only the last bias can bring the
    logit to -log K, the best value for pairs that nothing is known about.

    Singular values are estimated by power iteration, with one iteration each time that a layer is
    called in training. Judge all pairs of a step in one call, therefore. The estimates lag behind
    the optimizer; `sigmas` returns the true values.

    # Parameters

    u_width, v_width : the widths d_u and d_v of the features.
    width : the width of all inner layers.
    lipschitz : whether to constrain the weights. `False` is an ablation of the paper.

    # Raises

    `ConfigurationError` : if a width is below 1.
    """

    reads_weights = True
    """Whether weights of inner layers are read without a call of the layer, for sharding."""

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
        """Return the logits `(...)` of pairs of features u `(..., d_u)` and v `(..., d_v)`."""
        joined = torch.cat([relu(self.u_map(u)), relu(self.v_map(v))], dim=-1)  # (..., 2 width)
        return self._judged(self.joint[0](joined))

    def against(
        self, u: Tensor, v: Tensor, v_negatives: Tensor, u_negatives: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the logits of pairs, and of each feature of a pair with negatives of the other.

        They are equal to those of `forward` for the n (1 + K_v + K_u) pairs, but each layer is
        called once, and u and v are not copied for each of their negatives.

        # Parameters

        u, v : features `(n, d_u)` and `(n, d_v)`, of which row i of both is a pair.
        v_negatives : the negatives v' of u, `(n, K_v, d_v)`, or `(1, K_v, d_v)` if all rows share
            them.
        u_negatives : the negatives u' of v, `(n, K_u, d_u)` or `(1, K_u, d_u)`.

        # Returns

        The logits T(u, v) `(n,)`, T(u, v') `(n, K_v)` and T(u', v) `(n, K_u)`.
        """
        own_u, other_u, own_v, other_v = self._joined(u, v, u_negatives, v_negatives)
        hidden = [own_u + own_v, own_u + other_v, other_u + own_v]  # (n, 1, w), (n, K_v, w), ...
        logits = self._judged(torch.cat(hidden, dim=1))
        of_v, of_u = v_negatives.size(1), u_negatives.size(1)
        positive, v_logits, u_logits = logits.split([1, of_v, of_u], dim=1)
        return positive.squeeze(1), v_logits, u_logits

    @property
    def last_bias(self) -> Tensor:
        """The bias `(1,)` of the last layer, which is added to all logits."""
        bias = self.joint[-1].bias
        assert isinstance(bias, Tensor)
        return bias

    def in_use(self) -> list[Tensor]:
        """Return the weights that the layers multiply by, constrained or not, and their biases."""
        layers = self._layers()
        return [layer.weight for layer in layers] + [layer.bias for layer in layers]

    @torch.no_grad()
    def sigmas(self) -> Tensor:
        """Return the largest singular values `(5,)` of the weights in use.

        They are those of the layer of u, the layer of v and the three layers of the MLP, computed
        by a full decomposition and without a power iteration.
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

    def _joined(self, u: Tensor, v: Tensor, *negatives: Tensor) -> tuple[Tensor, ...]:
        """Return what features and their negatives add to the first layer of the joint MLP.

        A linear map of a concatenation is the sum of two maps. So each feature is mapped once, and
        not again in each of its pairs, which takes less than half of the time.

        # Returns

        Of u `(n, 1, w)`, of its negatives `(n, K_u, w)` or `(1, K_u, w)`, and the same of v.
        """
        first = self._layers()[2]
        weight, parts = first.weight, []  # read once: in training, reading estimates sigma anew
        of_u, of_v = weight[:, : self.width], weight[:, self.width :]
        sides = (self.u_map, u, of_u, first.bias), (self.v_map, v, of_v, None)
        for (layer, own, half, bias), others in zip(sides, negatives, strict=True):
            rows = relu(layer(torch.cat([own, others.flatten(0, 1)])))
            added = linear(rows, half, bias)
            mine, theirs = added[: len(own)], added[len(own) :]
            parts += [mine.unsqueeze(1), theirs.unflatten(0, others.shape[:2])]
        return tuple(parts)

    def _judged(self, hidden: Tensor) -> Tensor:
        """Return the logits `(...)` of what the first layer of the joint MLP gives, `(..., w)`."""
        _, second, last = self.joint
        return last(relu(second(relu(hidden)))).squeeze(-1)
