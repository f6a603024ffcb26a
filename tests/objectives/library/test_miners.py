"""Tests of the pair margin miner against loops over pairs."""

from itertools import permutations

import pytest
import torch
from allennlp.common import Params

from declutr.objectives import Miner, PairMarginMiner

ROWS = torch.randn(8, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.arange(4).repeat(2)


def pairs(*indices: torch.Tensor) -> set[tuple[int, int]]:
    return set(zip(*(index.tolist() for index in indices), strict=True))


@pytest.mark.parametrize("pos_margin, neg_margin", [(0.3, 0.2), (0.9, -0.5), (-2, 2), (2, -2)])
@pytest.mark.parametrize("kind", ["cosine", "distance", "squared"])
def test_keeps_the_pairs_beyond_the_margins(
    kind: str, pos_margin: float, neg_margin: float
) -> None:
    miner = PairMarginMiner(pos_margin, neg_margin, kind == "cosine", kind == "squared")
    unit = ROWS / ROWS.norm(dim=1, keepdim=True)
    power, sign = {"cosine": (0, 1), "distance": (1, -1), "squared": (2, -1)}[kind]
    positives, negatives = set(), set()
    for i, j in permutations(range(8), 2):
        apart = float((unit[i] - unit[j]).norm() ** power if power else unit[i] @ unit[j])
        if LABELS[i] == LABELS[j] and sign * apart < sign * pos_margin:
            positives.add((i, j))
        if LABELS[i] != LABELS[j] and sign * apart > sign * neg_margin:
            negatives.add((i, j))
    a1, p, a2, n = miner(ROWS.clone().requires_grad_(), LABELS)
    assert pairs(a1, p) == positives
    assert pairs(a2, n) == negatives
    assert not any(index.requires_grad for index in (a1, p, a2, n))


def test_is_registered_and_the_default() -> None:
    built = Miner.from_params(Params({"pos_margin": 0.2, "neg_margin": 0.8}))
    assert isinstance(built, PairMarginMiner) and isinstance(built, torch.nn.Module)
    assert (built.pos_margin, built.neg_margin) == (0.2, 0.8)
    assert not list(built.parameters()) and not built.state_dict()
