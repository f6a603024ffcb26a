"""Tests of DeepCluster's loss against loops, and of its clusters by properties."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from allennlp.common.checks import ConfigurationError

from declutr.objectives import DeepCluster, cluster_weights, deep_cluster_loss
from declutr.objectives.without_negatives.k_means import (
    k_means,
    nearest_centroids,
    principal_components,
    split_for_empty,
)
from tests.objectives.oracles import assert_reductions, doubles, log_sum_exp, normal


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_equals_loops() -> None:
    """Three clusters of 1, 4 and 0 of five texts: 5 / (2 * 1) and 5 / (2 * 4)."""
    clusters = torch.tensor([1, 0, 1, 1, 1])
    weights = cluster_weights(clusters, 3)
    assert weights.tolist() == [2.5, 0.625, 0.0]
    logits = normal(5, 3)
    terms = [
        weights[c].item() * (log_sum_exp(row) - row[c])
        for row, c in zip(logits.tolist(), clusters.tolist(), strict=True)
    ]
    assert_reductions(lambda kind: deep_cluster_loss(logits, clusters, weights, kind), terms)


def test_the_mean_loss_is_that_of_uniform_draws_over_clusters() -> None:
    clusters, logits = torch.tensor([1, 0, 1, 3, 1, 3]), normal(6, 4)
    plain = deep_cluster_loss(logits, clusters, torch.ones(4), "none").tolist()
    sizes = Counter(clusters.tolist())
    of_draws = sum(
        loss / sizes[c] / len(sizes) for loss, c in zip(plain, clusters.tolist(), strict=True)
    )
    found = deep_cluster_loss(logits, clusters, cluster_weights(clusters, 4))
    assert found.item() == pytest.approx(of_draws, rel=1e-6)


def test_new_clusters_come_with_a_new_classifier() -> None:
    objective = DeepCluster(instances=6, embedding_size=3, clusters=2)
    rows, clusters = torch.tensor([0, 2, 5]), torch.tensor([1, 1, 0])
    objective.assign(rows, clusters, seeded(4))
    assert objective.assignments[rows].tolist() == [1, 1, 0]
    expected = torch.randn(2, 3, generator=seeded(4)) * 0.01
    assert torch.equal(objective.classifier.weight, expected)
    assert objective.classifier.bias.tolist() == [0, 0]
    assert objective.weights.tolist() == pytest.approx([1.5, 0.75])
    x, ids = normal(2, 3).float(), torch.tensor([5, 0])
    logits = x @ expected.T
    terms = [
        w * (log_sum_exp(row) - row[c])
        for w, row, c in zip([1.5, 0.75], logits.tolist(), [0, 1], strict=True)
    ]
    assert objective(x, ids).item() == pytest.approx(sum(terms) / 2, rel=1e-6)


def test_what_is_refused() -> None:
    objective = DeepCluster(instances=6, embedding_size=3, clusters=2)
    with pytest.raises(ValueError, match=r"ids from 0 to 5 \(instances is 6\), got 0 to 6"):
        objective(normal(2, 3), torch.tensor([0, 6]))
    with pytest.raises(ValueError, match=r"Expected rows of width 3 \(embedding_size\), got"):
        objective(normal(2, 4), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"Expected ids \(2,\), got \(3,\)"):
        objective(normal(2, 3), torch.tensor([0, 1, 2]))
    with pytest.raises(ConfigurationError, match="clusters must be above 0, got 0"):
        DeepCluster(instances=6, embedding_size=3, clusters=0)
    with pytest.raises(ValueError, match="There are 3 rows for 4 clusters: take fewer"):
        k_means(normal(3, 2), 4, seeded())


class TestClusters:
    def test_components_are_those_of_numpy(self) -> None:
        rows = (normal(40, 5) @ normal(5, 5, seed=1) + 3).float()
        found = principal_components(rows, 3)
        centred = rows.double().numpy() - rows.double().numpy().mean(axis=0)
        _, _, directions = np.linalg.svd(centred, full_matrices=False)
        projected = centred @ directions[:3].T
        projected /= projected.std(axis=0)
        projected /= np.linalg.norm(projected, axis=1, keepdims=True)
        assert found.dtype == torch.float32 and found.shape == (40, 3)
        np.testing.assert_allclose(abs(found.numpy()[:, ::-1]), abs(projected), atol=1e-4)

    def test_iterations_equal_loops(self) -> None:
        rows = normal(30, 3)
        centroids = [rows[i].tolist() for i in torch.randperm(30, generator=seeded(1))[:4]]
        for _ in range(5):
            nearest = [
                min(range(4), key=lambda c: math.dist(centroids[c], row)) for row in rows.tolist()
            ]
            groups = [
                [row for row, n in zip(rows.tolist(), nearest, strict=True) if n == c]
                for c in range(4)
            ]
            centroids = [np.mean(group, axis=0).tolist() for group in groups]
        expected = nearest_centroids(rows, doubles(centroids))
        assert torch.equal(k_means(rows, 4, seeded(1), 5), expected)

    def test_groups_far_apart_are_found_without_an_empty_cluster(self) -> None:
        centres = 10 * torch.eye(4)
        rows = (centres.repeat_interleave(25, dim=0).double() + 0.1 * normal(100, 4)).float()
        for seed in range(5):
            clusters = k_means(rows, 8, seeded(seed))
            assert torch.equal(clusters, k_means(rows, 8, seeded(seed)))
            assert len(set(clusters.tolist())) == 8
            for cluster in range(8):  # none is of two groups
                assert len({int(row) // 25 for row in (clusters == cluster).nonzero()}) == 1

    def test_an_empty_cluster_takes_a_part_of_another(self) -> None:
        centroids = torch.tensor([[1.0, 1.0], [5.0, 5.0], [2.0, 4.0]])
        split_for_empty(centroids, torch.tensor([1, 0, 6]), seeded())
        step = 1 / 1024
        assert centroids[0].tolist() == [1, 1]  # a single row cannot be shared
        assert centroids[1].tolist() == pytest.approx([2 * (1 + step), 4 * (1 - step)])
        assert centroids[2].tolist() == pytest.approx([2 * (1 - step), 4 * (1 + step)])

    def test_rows_that_are_all_equal_leave_clusters_empty(self) -> None:
        rows = principal_components(torch.ones(9, 3), 2)
        clusters = k_means(rows, 3, seeded())
        assert rows.isfinite().all() and len(set(clusters.tolist())) == 1
        assert cluster_weights(clusters, 3).sum() == 1
