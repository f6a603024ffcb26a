"""Clusters of all embeddings as pseudo-labels (DeepCluster; Caron et al., 2018)."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from declutr.objectives import numerics
from declutr.objectives.memories.instance_vectors import require_ids
from declutr.objectives.objective import Objective

_DEVIATION = 0.01  # of the classifier's first weights, as in the public code


@numerics.full_precision
def deep_cluster_loss(
    logits: Tensor, clusters: Tensor, weights: Tensor, reduction: str = "mean"
) -> Tensor:
    """Compute the weighted cross entropy of finding the cluster of each row.

    The loss of a row in cluster c is `-w_c log softmax_c(logits)` (Caron et al., 2018, equation 1).
    With `cluster_weights`, its expectation is that of rows that are drawn uniformly over clusters
    (section 3.3, "Trivial parametrization").

    # Parameters

    logits : `(N, K)`.
    clusters : the cluster `(N,)` of each row.
    weights : the weight `(K,)` of each cluster.
    reduction : `"mean"` or `"sum"` over the N rows, or `"none"` for the losses `(N,)`.

    # Raises

    `ValueError` : if the reduction is unknown.
    """
    terms = cross_entropy(logits, clusters, reduction="none") * weights.to(logits)[clusters]
    return numerics.reduced(terms, reduction, logits)


@numerics.full_precision
def _logits(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return linear(rows.to(weight.dtype), weight, bias)


def cluster_weights(clusters: Tensor, count: int) -> Tensor:
    """Return the weight `(K,)` of each cluster, inverse to its size; 0 for an empty one.

    It is `M / (K' n_c)` for a cluster of n_c of M rows, with K' clusters that are not empty, so
    that the mean weight of rows is 1.

    # Parameters

    clusters : the clusters `(M,)` of all rows.
    count : K.
    """
    sizes = clusters.bincount(minlength=count)
    used = (sizes > 0).sum()
    return torch.where(sizes > 0, len(clusters) / (used * sizes).clamp_min(1), 0.0)


@Objective.register("deep_cluster")
class DeepCluster(Objective):
    """The loss of classifying each text as of its cluster among all texts; see `deep_cluster_loss`.

    `forward(anchors (N, d), ids (N,))` takes ids instead of a second view. The TrainerCallback
    "refresh_clusters" embeds all texts and clusters them before the first epoch and after each, and
    begins with a new classifier each time, as clusters of two epochs have nothing to do with each
    other. Clusters and classifier are saved in checkpoints.

    # Parameters

    instances : the number M of instances in the training data.
    embedding_size : the width d of the views.
    clusters : the number K of clusters.
    reduction : `"mean"` or `"sum"` over the rows.
    """

    min_pairs = 1  # There are no negatives.
    needs_clusters = True
    """That a callback has to assign clusters, without which the loss learns nothing."""

    assignments: Tensor
    weights: Tensor

    def __init__(
        self, instances: int, embedding_size: int, clusters: int = 10000, reduction: str = "mean"
    ) -> None:
        super().__init__()
        self.instances = numerics.above_zero("instances", instances)
        self.embedding_size = numerics.above_zero("embedding_size", embedding_size)
        self.clusters = numerics.above_zero("clusters", clusters)
        self.reduction = numerics.scalar_reduction(reduction)
        self.classifier = torch.nn.Linear(embedding_size, clusters)
        # Until there are clusters, any.
        self.register_buffer("assignments", torch.arange(instances) % clusters)  # (M,)
        self.register_buffer("weights", torch.ones(clusters))  # (K,)

    def forward(self, anchors: Tensor, ids: Tensor) -> Tensor:  # type: ignore[override]
        numerics.check_width(anchors, self.classifier.weight)
        if ids.shape != anchors.shape[:1]:
            raise ValueError(f"Expected ids ({len(anchors)},), got {tuple(ids.shape)}.")
        require_ids(ids, self.instances)
        logits = _logits(anchors, self.classifier.weight, self.classifier.bias)
        return deep_cluster_loss(logits, self.assignments[ids], self.weights, self.reduction)

    @torch.no_grad()
    def assign(self, rows: Tensor, clusters: Tensor, generator: torch.Generator) -> None:
        """Take new clusters, and begin with a new classifier.

        # Parameters

        rows : the ids `(m,)` of the instances that are trained on.
        clusters : their clusters `(m,)`.
        generator : the source of the new weights, on the CPU.
        """
        self.assignments[rows.to(self.assignments.device)] = clusters.to(self.assignments)
        self.weights.copy_(cluster_weights(clusters, self.clusters))
        weight = self.classifier.weight
        weight.copy_(torch.randn(weight.shape, generator=generator) * _DEVIATION)
        self.classifier.bias.zero_()
