"""Compare the matching loss with a naive loop and with values computed by hand."""

import pytest
import torch
from torch.nn.functional import normalize

from declutr.task_models.image_text.matching import NEGATIVES, matching_loss


def embeddings(rows: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(rows, 5, generator=generator, dtype=torch.float64), dim=1)


def naive_loss(images, captions, ids, margin: float, negatives: str) -> float:
    total = 0.0
    for i in range(len(ids)):
        own = float(images[i] @ captions[i])
        others = [j for j in range(len(ids)) if ids[j] != ids[i]]
        costs = [
            [max(0.0, margin + float(images[i] @ captions[j]) - own) for j in others],
            [max(0.0, margin + float(images[j] @ captions[i]) - own) for j in others],
        ]
        pick = sum if negatives == "all" else lambda each: max(each, default=0.0)
        total += sum(pick(each) for each in costs)
    return total / len(ids)


@pytest.mark.parametrize("negatives", NEGATIVES)
@pytest.mark.parametrize("ids", [[0, 1, 2, 3, 4, 5], [0, 0, 1, 2, 2, 2], [7, 7, 7, 7, 7, 7]])
@pytest.mark.parametrize("margin", [0.0, 0.2, 1.5])
def test_equals_a_naive_loop(negatives: str, ids: list[int], margin: float) -> None:
    images, captions = embeddings(6, 0), embeddings(6, 1)
    loss = matching_loss(images, captions, torch.tensor(ids), margin, negatives)
    assert float(loss) == pytest.approx(naive_loss(images, captions, ids, margin, negatives))


def test_values_computed_by_hand() -> None:
    images = torch.eye(3, dtype=torch.float64)
    captions = torch.tensor([[0.6, 0.8, 0], [0, 1, 0], [0, 0, 1]], dtype=torch.float64)
    # For image 0, captions 1 and 2 cost nothing (0.2 + 0 - 0.6 < 0). For image 1, caption 0 costs
    # nothing (0.2 + 0.8 - 1 = 0). For caption 0, image 1 costs 0.2 + 0.8 - 0.6 = 0.4.
    ids = torch.arange(3)
    assert float(matching_loss(images, captions, ids)) == pytest.approx(0.4 / 3)
    # With a margin of 1: of images 0.4 + 0.4; 0.8, 0; 0, 0. Of captions: 1.2, 0.4; 0, 0; 0, 0.
    assert float(matching_loss(images, captions, ids, 1.0, "all")) == pytest.approx(3.2 / 3)
    assert float(matching_loss(images, captions, ids, 1.0)) == pytest.approx(2.4 / 3)


@pytest.mark.parametrize("negatives", NEGATIVES)
def test_gradcheck(negatives: str) -> None:
    images, captions = (embeddings(5, seed).requires_grad_() for seed in (2, 3))
    ids = torch.tensor([0, 0, 1, 2, 3])
    assert torch.autograd.gradcheck(
        lambda u, v: matching_loss(u, v, ids, 0.5, negatives), (images, captions)
    )


def test_one_pair_costs_nothing_and_has_a_gradient() -> None:
    image = embeddings(1, 0).requires_grad_()
    loss = matching_loss(image, embeddings(1, 1), torch.tensor([4]))
    loss.backward()
    assert loss.item() == 0
    assert image.grad is not None and image.grad.abs().max() == 0


def test_order_of_pairs_does_not_matter() -> None:
    images, captions, ids = embeddings(6, 0), embeddings(6, 1), torch.tensor([0, 1, 1, 2, 3, 4])
    order = torch.tensor([3, 1, 5, 0, 4, 2])
    loss = matching_loss(images, captions, ids, 0.5)
    assert torch.isclose(matching_loss(images[order], captions[order], ids[order], 0.5), loss)


def test_unknown_negatives_are_refused() -> None:
    with pytest.raises(ValueError, match="Unknown negatives 'some': expected one of hardest, all"):
        matching_loss(embeddings(2, 0), embeddings(2, 1), torch.arange(2), negatives="some")
