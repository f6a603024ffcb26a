"""COCO's file format, ranks against naive loops, and encoders with known answers."""

import pickle
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from declutr.evaluation.task import PUBLISHED, BrokenData, MissingData
from declutr.evaluation.tasks import caption_space as module
from declutr.evaluation.tasks.caption_retrieval import SPLITS, read_captions, tasks
from declutr.evaluation.tasks.caption_space import (
    CommonSpace,
    Ranks,
    contrasts,
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
@pytest.mark.parametrize(("encode", "most"), [(constant, 8), (known_encoders.random, 30)])
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


def naive_ranks(images: np.ndarray, captions: np.ndarray) -> Ranks:
    of_captions, of_images = [], []
    for i, image in enumerate(images):
        best = max(float(captions[5 * i + c] @ image) for c in range(5))
        others = [float(captions[n] @ image) for n in range(len(captions)) if n // 5 != i]
        of_captions.append(sum((o > best) + (o == best) / 2 for o in others))
        row = []
        for c in range(5):
            own = float(captions[5 * i + c] @ image)
            rest = [float(captions[5 * i + c] @ images[n]) for n in range(len(images)) if n != i]
            row.append(sum((o > own) + (o == own) / 2 for o in rest))
        of_images.append(row)
    return Ranks(np.array(of_captions), np.array(of_images))


@pytest.mark.parametrize("ties", [False, True])
def test_ranks_equal_those_of_naive_loops(ties: bool) -> None:
    rng = np.random.default_rng(0)
    images, captions = rng.standard_normal((12, 4)), rng.standard_normal((60, 4))
    if ties:
        images, captions = images.round(), captions.round()
    got = ranks(torch.from_numpy(images), torch.from_numpy(captions))
    expected = naive_ranks(images, captions)
    np.testing.assert_array_equal(got.captions, expected.captions)
    np.testing.assert_array_equal(got.images, expected.images)
    assert ties == bool((expected.images % 1).any())


def test_the_mean_recall_is_the_mean_of_the_six() -> None:
    rng = np.random.default_rng(0)
    found = Ranks(rng.integers(0, 20, 50) / 2, rng.integers(0, 30, (50, 5)) / 2)
    mean, *six = recall_scores(found)
    assert [score.name for score in six] == RECALLS
    for score, k in zip(six, (1, 5, 10) * 2, strict=True):
        of = found.captions if "image_to" in score.name else found.images
        assert score.value == pytest.approx(100 * np.mean(of < k))
    assert mean.value == pytest.approx(np.mean([score.value for score in six]))
    assert len(mean.items["value"]) == 50


def test_images_are_searched_among_a_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IMAGES", 7)
    space = CommonSpace(6, 4, torch.Generator().manual_seed(0))
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.standard_normal((16, 6)).astype(np.float32))
    captions = torch.from_numpy(rng.standard_normal((80, 4)).astype(np.float32))
    got = module._ranked(space, (images, captions))
    with torch.no_grad():
        for start, stop in ((0, 7), (7, 14), (14, 16)):
            own = space.sentence(captions[5 * start : 5 * stop])
            part = ranks(space.image(images[start:stop]), own)
            np.testing.assert_array_equal(got.captions[start:stop], part.captions)
            np.testing.assert_array_equal(got.images[start:stop], part.images)


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


def test_wrong_captions_are_drawn_as_senteval_draws_them() -> None:
    order = np.random.default_rng(0).permutation(300)
    for start in (0, 128, 256):
        got = contrasts(order, start, np.random.RandomState(3))
        batch = order[start : start + 128]
        others = [*order[:start], *order[start + 128 :]]
        expected = np.random.RandomState(3).choice(others, 30 * len(batch))
        np.testing.assert_array_equal(got, expected.reshape(len(batch), 30))
        assert not set(got.reshape(-1)) & set(batch)


def test_the_initial_weights_are_those_that_torch_draws() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1111)
        layers = [nn.Linear(6, 1000), nn.Linear(4, 1000)]
    space = CommonSpace(6, 4, torch.Generator().manual_seed(1111))
    expected = [parameter for layer in layers for parameter in layer.parameters()]
    for got, parameter in zip(space.parameters(), expected, strict=True):
        torch.testing.assert_close(got, parameter)
    assert space.image(torch.randn(2, 6)).norm(dim=1).tolist() == pytest.approx([1, 1])


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
