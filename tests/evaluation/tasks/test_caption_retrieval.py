"""COCO's file format, ranks against naive loops, and encoders with known answers."""

import pickle
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from declutr.evaluation.task import PUBLISHED, BrokenData, MissingData
from declutr.evaluation.tasks import caption_space as module
from declutr.evaluation.tasks.caption_retrieval import SPLITS, read_captions, tasks
from declutr.evaluation.tasks.caption_space import (
    CommonSpace,
    ranking_loss,
    ranks,
    recall_scores,
)
from tests.evaluation import known_encoders

IMAGES = 40
RECALLS = [f"{way}_r{k}" for way in ("image_to_text", "text_to_image") for k in (1, 5, 10)]


def held(images: int = IMAGES, width: int = IMAGES) -> dict:
    """Make the content of a file with one-hot images and six captions each, of which five count."""
    ids = {image: [f"{image}-{c}" for c in range(6)] for image in range(images)}
    captions = {
        key: {"cleaned_caption": f"caption {c} of image{image}"}
        for image, keys in ids.items()
        for c, key in enumerate(keys)
    }
    features = 5 * np.eye(images, width, dtype=np.float32)
    return {"features": features, "image_to_caption_ids": ids, "captions": captions}


def write(folder: Path, **changed: dict) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        (folder / f"{split}.pkl").write_bytes(pickle.dumps(changed.get(split, held())))
    return folder


def revealing(sentences: list[str]) -> np.ndarray:
    numbers = [int(re.search(r"image(\d+)", text).group(1)) for text in sentences]
    return 5 * np.eye(IMAGES, dtype=np.float32)[numbers]


def constant(sentences: list[str]) -> np.ndarray:
    return np.ones((len(sentences), 4), np.float32)


def test_the_task_exists_without_data(tmp_path: Path) -> None:
    [task] = tasks(tmp_path, PUBLISHED)
    assert (task.name, task.group, task.main) == ("COCO", "downstream", "mean_recall")
    with pytest.raises(MissingData, match=r"COCO/train.pkl is not there"):
        task.sentences()


@pytest.mark.slow
def test_an_encoder_that_knows_the_image_finds_it(tmp_path: Path) -> None:
    write(tmp_path / "downstream" / "COCO")
    [task] = tasks(tmp_path, PUBLISHED)
    sentences = task.sentences()
    assert len(sentences) == 3 * 5 * IMAGES
    assert sentences[:5] == [f"caption {c} of image0 ." for c in range(5)]
    assert sentences[5] == "caption 0 of image1 ."
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    scores = task.scores(revealing)
    assert torch.equal(before[0], torch.get_rng_state())
    np.testing.assert_array_equal(before[1], np.random.get_state()[1])
    names = {"mean_recall", "dev_mean_recall", *RECALLS}
    assert {score.name: score.value for score in scores} == dict.fromkeys(names, 100)
    assert task.notes() == ["40 test images where the published data has 5,000: compare with care"]


@pytest.mark.slow
@pytest.mark.parametrize(("encode", "most"), [(constant, 13.4), (known_encoders.random, 30)])
def test_an_encoder_that_does_not_know_the_image_guesses(
    encode: Callable[[list[str]], np.ndarray], most: float, tmp_path: Path
) -> None:
    """Captions differ from those of training, so that none can be memorised."""
    other = held()
    for caption in other["captions"].values():
        caption["cleaned_caption"] = "another " + caption["cleaned_caption"]
    write(tmp_path / "downstream" / "COCO", valid=other, test=other)
    first, second = (tasks(tmp_path, PUBLISHED)[0].scores(encode) for _ in range(2))
    values = {score.name: score.value for score in first}
    assert values["text_to_image_r1"] <= 10
    assert values["mean_recall"] <= most
    assert values == {score.name: score.value for score in second}


def naive_hits(likeness: np.ndarray, right: np.ndarray, k: int) -> float:
    """Return the share of orders of equal answers in which a right one is among the first k."""
    drawn = np.random.default_rng(0).random((4000, len(right)))
    first = np.lexsort([drawn, np.broadcast_to(-likeness, drawn.shape)], axis=1)[:, :k]
    return float(right[first].any(axis=1).mean())


@pytest.mark.parametrize("ties", [False, True])
def test_recalls_equal_those_over_all_orders_of_equal_answers(ties: bool) -> None:
    rng = np.random.default_rng(0)
    images, captions = rng.standard_normal((7, 3)), rng.standard_normal((35, 3))
    if ties:
        images, captions = images.round(), captions.round()
        captions[3] = captions[2]  # of the same image
    scores = recall_scores(ranks(torch.from_numpy(images), torch.from_numpy(captions)))
    mean, *six = scores
    likeness, number = images @ captions.T, np.arange(35)
    expected = [
        [naive_hits(row, number // 5 == i, k) for i, row in enumerate(likeness)] for k in (1, 5, 10)
    ] + [
        [naive_hits(row, np.arange(7) == i // 5, k) for i, row in enumerate(likeness.T)]
        for k in (1, 5, 10)
    ]
    assert [score.name for score in six] == RECALLS
    for score, hits in zip(six, expected, strict=True):
        np.testing.assert_allclose(score.items["value"], hits, atol=0.04 if ties else 0)
    assert mean.value == pytest.approx(np.mean([score.value for score in six]))
    assert len(mean.items["value"]) == 7
    assert ties == any((score.items["value"] % 1).any() for score in six)


def test_images_are_searched_among_a_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IMAGES", 7)
    space = CommonSpace(6, 4, torch.Generator().manual_seed(0))
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.standard_normal((16, 6)).astype(np.float32))
    captions = torch.from_numpy(rng.standard_normal((80, 4)).astype(np.float32))
    got = module._ranked(space, (images, captions))
    with torch.no_grad():
        for start, stop in ((0, 7), (7, 14), (14, 16)):
            theirs = space.sentence(captions[5 * start : 5 * stop])
            part = ranks(space.image(images[start:stop]), theirs)
            for own, whole in zip(part.captions, got.captions, strict=True):
                np.testing.assert_array_equal(whole[start:stop], own)
            for own, whole in zip(part.images, got.images, strict=True):
                np.testing.assert_array_equal(whole[5 * start : 5 * stop], own)


def test_the_loss_is_a_sum_of_hinges() -> None:
    torch.manual_seed(0)
    images, captions = torch.randn(3, 4), torch.randn(3, 4)
    wrong_images, wrong_captions = torch.randn(3, 2, 4), torch.randn(3, 2, 4)
    expected = 0.0
    for i in range(3):
        right = float(images[i] @ captions[i])
        for m in range(2):
            expected += max(0.0, 0.2 - right + float(images[i] @ wrong_captions[i, m]))
            expected += max(0.0, 0.2 - right + float(captions[i] @ wrong_images[i, m]))
    got = ranking_loss(images, captions, wrong_images, wrong_captions)
    assert float(got) == pytest.approx(expected, rel=1e-5)


def test_lists_are_accepted_in_place_of_dictionaries(tmp_path: Path) -> None:
    plain = held()
    plain["features"] = [row.tolist() for row in plain["features"]]
    plain["image_to_caption_ids"] = [list(range(6 * i, 6 * i + 6)) for i in range(IMAGES)]
    plain["captions"] = list(plain["captions"].values())
    write(tmp_path, train=plain, valid=held())
    first, second = (read_captions(tmp_path / f"{split}.pkl") for split in ("train", "valid"))
    assert first.captions == second.captions
    np.testing.assert_array_equal(first.images, second.images)
    assert first.images.dtype == np.float32


def without(key: str) -> dict:
    return {name: value for name, value in held().items() if name != key}


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (without("captions"), r"train.pkl: expected a dictionary with .*, got \['features'"),
        ([1, 2], r"train.pkl: expected a dictionary with .*, got list"),
        ({**held(), "features": [[1.0], [1.0, 2.0]]}, r"features are not of one width"),
        ({**held(), "features": np.ones(4)}, r"expected image features \(n, width\), got \(4,\)"),
        ({**held(), "image_to_caption_ids": {}}, r"train.pkl, image 0: no caption KeyError\(0\)"),
        (
            {**held(), "image_to_caption_ids": {0: ["0-0"] * 4}},
            r"image 0: expected 5 captions or more, got 4",
        ),
        ({**held(), "captions": {}}, r"train.pkl, image 0: no caption KeyError\('0-0'\)"),
        (held(20), r"train.pkl has 100 captions, expected more than the 128"),
        (held(40, 7), r"expected image features of one width, got {'train': 7, 'valid': 40"),
    ],
)
def test_broken_files_are_named(broken: object, message: str, tmp_path: Path) -> None:
    write(tmp_path / "downstream" / "COCO", train=broken)
    with pytest.raises(BrokenData, match=message):
        tasks(tmp_path, PUBLISHED)[0].sentences()
