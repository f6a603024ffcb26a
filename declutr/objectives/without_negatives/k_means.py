"""The clusters of DeepCluster: k-means of whitened principal components."""

import torch
from torch import Tensor

_BLOCK = 1 << 24  # numbers of the largest tensor between rows and centroids
_APART = 1 / 1024  # how far apart the halves of a split centroid are, relative to it
_FLOOR = 1e-8  # the smallest variance that counts, relative to the largest


def principal_components(rows: Tensor, dimension: int) -> Tensor:
    """Return the first principal components of rows, whitened and of length 1.

    Features are prepared like this for k-means in DeepCluster (Caron et al., 2018, section 4.1:
    256 dimensions).

    # Parameters

    rows : `(M, d)`.
    dimension : the number k of components; at most d are returned.

    # Returns

    `(M, k)`, in float32.
    """
    mean = rows.mean(dim=0, dtype=torch.float64)
    blocks = rows.split(max(1, _BLOCK // rows.size(1)))
    scatter = torch.zeros_like(mean.outer(mean))
    for block in blocks:
        centred = block.double() - mean
        scatter += centred.T @ centred
    variances, directions = torch.linalg.eigh(scatter / len(rows))  # rising
    kept = variances[-dimension:].clamp_min(_FLOOR * variances[-1].clamp_min(_FLOOR))
    matrix = directions[:, -dimension:] / kept.sqrt()
    projected = torch.cat([((block.double() - mean) @ matrix).float() for block in blocks])
    return torch.nn.functional.normalize(projected, dim=1)


def k_means(
    rows: Tensor, clusters: int, generator: torch.Generator, iterations: int = 20
) -> Tensor:
    """Return the cluster `(M,)` of each row, by Lloyd's iterations from random rows.

    A centroid that no row is nearest to moves beside that of another cluster, drawn by size, whose
    rows the two then share (Caron et al., 2018, section 3.3, "Empty clusters"). A cluster can still
    be empty at the end, as where fewer rows differ than there are clusters.

    # Parameters

    rows : `(M, d)`, M of at least `clusters`.
    clusters : K.
    generator : the source of random numbers, on the CPU.
    iterations : how often centroids move.

    # Raises

    `ValueError` : there are fewer rows than clusters.
    """
    if len(rows) < clusters:
        raise ValueError(f"There are {len(rows)} rows for {clusters} clusters: take fewer.")
    first = torch.randperm(len(rows), generator=generator)[:clusters]
    centroids = rows[first.to(rows.device)].clone()
    for _ in range(iterations):
        nearest = nearest_centroids(rows, centroids)
        sizes = nearest.bincount(minlength=clusters)
        sums = torch.zeros_like(centroids).index_add_(0, nearest, rows)
        centroids = sums / sizes.clamp_min(1).unsqueeze(1)
        split_for_empty(centroids, sizes.cpu(), generator)
    return nearest_centroids(rows, centroids)


def nearest_centroids(rows: Tensor, centroids: Tensor) -> Tensor:
    """Return the number `(M,)` of the nearest of K centroids `(K, d)` to each row `(M, d)`."""
    offsets = centroids.square().sum(dim=1) / 2
    blocks = rows.split(max(1, _BLOCK // len(centroids)))
    return torch.cat([(block @ centroids.T - offsets).argmax(dim=1) for block in blocks])


def split_for_empty(centroids: Tensor, sizes: Tensor, generator: torch.Generator) -> None:
    """Move the centroid of each empty cluster beside that of one with two rows or more, in place.

    # Parameters

    centroids : `(K, d)`.
    sizes : the rows `(K,)` of each cluster, on the CPU.
    generator : the source of random numbers.
    """
    left = sizes.double()
    signs = torch.ones_like(centroids[0])
    signs[1::2] = -1
    for empty in (sizes == 0).nonzero().flatten().tolist():
        chances = (left - 1).clamp_min(0)
        if not chances.sum() > 0:
            return
        split = int(torch.multinomial(chances, 1, generator=generator))
        centroids[empty] = centroids[split] * (1 + _APART * signs)
        centroids[split] *= 1 - _APART * signs
        left[empty] = left[split] = left[split] / 2
