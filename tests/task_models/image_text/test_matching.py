"""Compare the matching loss and recall with naive loops, known values and COCO's evaluation."""

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from declutr.evaluation.tasks import caption_space
from declutr.objectives.memories.lipschitz_critic import Critic
from declutr.task_models.image_text.matching import (
    NEGATIVES,
    RANKS,
    Ranks,
    critic_scores,
    matching_loss,
    recalls,
    retrieval_ranks,
    score_loss,
    score_ranks,
)


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
def test_the_loss_equals_a_naive_loop(negatives: str, ids: list[int], margin: float) -> None:
    images, captions = embeddings(6, 0), embeddings(6, 1)
    loss = matching_loss(images, captions, torch.tensor(ids), margin, negatives)
    assert float(loss) == pytest.approx(naive_loss(images, captions, ids, margin, negatives))
    summed = score_loss(images @ captions.T, torch.tensor(ids), margin, negatives, "sum")
    assert float(summed) == pytest.approx(6 * float(loss))


def test_losses_computed_by_hand() -> None:
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


def rows(count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(count, 4, generator=generator), dim=1)


def naive_ranks(images, captions, image_of) -> tuple[list[float], list[float]]:
    scores = images @ captions.T
    of_images, of_captions = [], []
    for i in range(len(images)):
        own = [j for j in range(len(captions)) if image_of[j] == i]
        best = max(scores[i, j] for j in own)
        wrong = [scores[i, j] for j in range(len(captions)) if j not in own]
        of_images.append(sum(1.0 if w > best else 0.5 if w == best else 0.0 for w in wrong))
    for j in range(len(captions)):
        right = scores[image_of[j], j]
        wrong = [scores[i, j] for i in range(len(images)) if i != image_of[j]]
        of_captions.append(sum(1.0 if w > right else 0.5 if w == right else 0.0 for w in wrong))
    return of_images, of_captions


@pytest.mark.parametrize("block", [1, 3, 512])
def test_ranks_equal_a_naive_loop_for_any_block_size(block: int) -> None:
    image_of = torch.tensor([0, 2, 2, 1, 3, 4, 0, 3, 5, 6])
    images, captions = rows(7, 0), rows(10, 1)
    found = retrieval_ranks(images, captions, image_of, block)
    expected = naive_ranks(images, captions, image_of.tolist())
    assert (found.captions.tolist(), found.images.tolist()) == expected


def test_recall_equals_the_evaluation_of_coco() -> None:
    images, captions = rows(30, 0), rows(150, 1)
    found = retrieval_ranks(images, captions, torch.arange(30).repeat_interleave(5), 7)
    expected = caption_space.ranks(images, captions)
    assert not expected.captions.tied.any() and not expected.images.tied.any()
    assert found.captions.tolist() == expected.captions.before.tolist()
    assert found.images.tolist() == expected.images.before.reshape(-1).tolist()
    scores = {score.name: score.value for score in caption_space.recall_scores(expected)}
    ours = recalls(found)
    for name in set(ours) - {"rsum"}:
        assert ours[name] == pytest.approx(scores[name])


def test_recalls_computed_by_hand() -> None:
    ranks = Ranks(torch.tensor([0.0, 1, 7, 20]), torch.tensor([0.0, 0, 4.5, 10]))
    assert recalls(ranks) == {
        "image_to_text_r1": 25,
        "image_to_text_r5": 50,
        "image_to_text_r10": 75,
        "text_to_image_r1": 50,
        "text_to_image_r5": 75,
        "text_to_image_r10": 75,
        "rsum": 350,
    }


def test_an_image_is_found_by_any_of_its_captions() -> None:
    """An image is found by its best caption, and its other captions do not count as wrong."""
    images = torch.eye(2)
    captions = normalize(torch.tensor([[1.0, 0.1], [1, 0.2], [1, 0.3], [0.1, 1]]), dim=1)
    found = retrieval_ranks(images, captions, torch.tensor([0, 0, 0, 1]))
    assert found.captions.tolist() == [0, 0] and found.images.tolist() == [0, 0, 0, 0]


def test_equal_embeddings_get_the_ranks_of_chance() -> None:
    same = torch.ones(20, 4) / 2
    found = retrieval_ranks(same, same, torch.arange(20))
    assert set(found.captions.tolist() + found.images.tolist()) == {9.5}
    assert recalls(found)["image_to_text_r5"] == 0


def test_a_single_image_is_always_found() -> None:
    found = retrieval_ranks(rows(1, 0), rows(1, 1), torch.tensor([0]))
    assert recalls(found)["rsum"] == 100 * 2 * len(RANKS)


def scans_recalls(scores: np.ndarray) -> list[float]:
    """R@1, 5 and 10 both ways as in SCAN's `i2t` and `t2i`, by a reversed ascending order."""
    images = len(scores)
    ranks = [[], []]
    for image in range(images):
        order = np.argsort(scores[image], kind="stable")[::-1].tolist()
        ranks[0].append(min(order.index(5 * image + number) for number in range(5)))
        for number in range(5):
            column = scores[:, 5 * image + number]
            ranks[1].append(np.argsort(column, kind="stable")[::-1].tolist().index(image))
    return [100 * sum(rank < k for rank in each) / len(each) for each in ranks for k in RANKS]


@pytest.mark.parametrize("levels", [None, 2, 0.2])
@pytest.mark.parametrize("block", [3, 70])
def test_recalls_are_those_of_scans_code_with_ties_and_duplicates(
    levels: float | None, block: int
) -> None:
    """Scores in few levels, and all equal; an image that is there twice."""
    scores = np.random.default_rng(0).normal(size=(14, 70))
    scores[np.arange(14).repeat(5), np.arange(70)] += 1
    scores[3] = scores[9]
    if levels is not None:
        scores = np.round(scores * levels)
    blocks = torch.from_numpy(scores).split(block, dim=1)
    found = score_ranks(lambda: blocks, torch.arange(14).repeat_interleave(5), 14, "later")
    assert list(recalls(found).values())[:-1] == pytest.approx(scans_recalls(scores))


def test_scores_that_are_no_numbers_are_not_found() -> None:
    """A model that diverged has a recall of 0, and not of 100."""
    nothing = torch.full((20, 20), torch.nan)
    for ties in ("half", "later"):
        found = score_ranks(lambda: [nothing], torch.arange(20), 20, ties)
        assert recalls(found)["rsum"] == 0
    with pytest.raises(ValueError, match="Unknown ties 'first': expected one of half, later"):
        score_ranks(list, torch.arange(2), 2, "first")


def test_scores_of_a_critic_are_those_of_each_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("declutr.task_models.image_text.matching._PAIRS", 6)
    critic = Critic(5, 4, 8).eval()
    images, captions = rows(3, 0), embeddings(7, 1).float()
    found = critic_scores(critic, images, captions)
    for i, image in enumerate(images):
        for j, caption in enumerate(captions):
            assert float(found[i, j]) == pytest.approx(critic(caption, image).item(), abs=1e-6)
