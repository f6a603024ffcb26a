"""Compare recall in a collection with a naive loop, and with the evaluation of COCO."""

import pytest
import torch
from torch.nn.functional import normalize

from declutr.evaluation.tasks import caption_retrieval, caption_space
from declutr.task_models.image_text.matching import RANKS, Ranks, recalls, retrieval_ranks


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
def test_equals_a_naive_loop_for_any_block_size(block: int) -> None:
    image_of = torch.tensor([0, 2, 2, 1, 3, 4, 0, 3, 5, 6])
    images, captions = rows(7, 0), rows(10, 1)
    found = retrieval_ranks(images, captions, image_of, block)
    expected = naive_ranks(images, captions, image_of.tolist())
    assert (found.captions.tolist(), found.images.tolist()) == expected


def test_equals_the_evaluation_of_coco() -> None:
    images, captions = rows(30, 0), rows(150, 1)
    found = retrieval_ranks(images, captions, torch.arange(30).repeat_interleave(5), 7)
    expected = caption_space.ranks(images, captions)
    assert found.captions.tolist() == expected.captions.tolist()
    assert found.images.tolist() == expected.images.reshape(-1).tolist()
    scores = {score.name: score.value for score in caption_retrieval.recall_scores(expected)}
    ours = recalls(found)
    for name in set(ours) - {"rsum"}:
        assert ours[name] == pytest.approx(scores[name])


def test_values_computed_by_hand() -> None:
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
