"""Tests of the pair margin miner against loops over pairs."""

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
    miner = PairMarginMiner(
        pos_margin,
        neg_margin,
        use_similarity=kind == "cosine",
        squared_distances=kind == "squared",
    )
    unit = ROWS / ROWS.norm(dim=1, keepdim=True)
    positives, negatives = set(), set()
    for i in range(8):
        for j in range(8):
            if i == j:
                continue
            if kind == "cosine":
                nearness, pos, neg = float(unit[i] @ unit[j]), pos_margin, neg_margin
            else:  # compare with the sign turned: larger is nearer
                power = 2 if kind == "squared" else 1
                nearness = -float((unit[i] - unit[j]).norm() ** power)
                pos, neg = -pos_margin, -neg_margin
            if LABELS[i] == LABELS[j] and nearness < pos:
                positives.add((i, j))
            if LABELS[i] != LABELS[j] and nearness > neg:
                negatives.add((i, j))
    a1, p, a2, n = miner(ROWS, LABELS)
    assert pairs(a1, p) == positives
    assert pairs(a2, n) == negatives


def test_is_registered_and_the_default() -> None:
    built = Miner.from_params(Params({"pos_margin": 0.2, "neg_margin": 0.8}))
    assert isinstance(built, PairMarginMiner) and isinstance(built, torch.nn.Module)
    assert (built.pos_margin, built.neg_margin) == (0.2, 0.8)
    assert not list(built.parameters()) and not built.state_dict()


def test_mining_has_no_gradient() -> None:
    rows = ROWS.clone().requires_grad_()
    assert not any(index.requires_grad for index in PairMarginMiner(0.5, 0.5)(rows, LABELS))
