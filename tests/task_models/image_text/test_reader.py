"""Tests of the reader "image_text"."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Vocabulary
from allennlp.data.data_loaders import MultiProcessDataLoader

import declutr.plugin  # noqa: F401
from declutr.task_models.image_text import ImageTextReader
from tests.task_models.image_text.pairs import WIDTH, write_pairs


def values(reader: ImageTextReader, path: Any) -> list[tuple[str, int]]:
    """Return the text and image id of each instance, after a check of its features."""
    images, _ = reader.captions(path)
    found = []
    for instance in reader.read(path):
        row = instance["image_ids"].label
        assert instance["image"].as_tensor({}).tolist() == images.row(row).tolist()
        found.append((" ".join(map(str, instance["tokens"].tokens)), row))
    return found


def test_json_lines_are_read(tmp_path: Path) -> None:
    reader = DatasetReader.from_params(Params({"type": "image_text", "with_ids": True}))
    file = write_pairs(tmp_path, images=2)
    assert isinstance(reader, ImageTextReader)
    expected = [("red thing 0", 0), ("red thing 1", 0), ("green thing 0", 1), ("green thing 1", 1)]
    assert values(reader, str(file)) == expected
    assert [instance["ids"].label for instance in reader.read(str(file))] == [0, 1, 2, 3]


def test_every_layout_reads_the_same(tmp_path: Path) -> None:
    expected = values(ImageTextReader(), write_pairs(tmp_path, images=3))
    features = str(tmp_path / "captions.npy")
    (tmp_path / "a.tsv").write_text(
        "n\tpicture\ttext\n" + "".join(f"x\t{row}\t{text}\n" for text, row in expected)
    )
    (tmp_path / "b.csv").write_text("".join(f'{row},"{text}"\n' for text, row in expected))
    (tmp_path / "c.txt").write_text("".join(f"{text}\n" for text, _ in expected))
    for file, settings in {
        "a.tsv": {"caption": "text", "image": "picture"},
        "b.csv": {"caption": 1, "image": 0, "header": False},
        "c.txt": {"captions_per_image": 2},
    }.items():
        reader = ImageTextReader(images=features, **settings)
        assert values(reader, str(tmp_path / file)) == expected
        both = {"captions": str(tmp_path / file), "images": features}
        assert values(ImageTextReader(**settings), both) == expected


def test_blank_captions_are_left_out_and_ids_stay(tmp_path: Path) -> None:
    write_pairs(tmp_path, images=2)
    (tmp_path / "c.txt").write_text("one\n\n \nfour\n")
    reader = ImageTextReader(
        images=str(tmp_path / "captions.npy"), captions_per_image=2, with_ids=True
    )
    found = [(i["ids"].label, i["image_ids"].label) for i in reader.read(tmp_path / "c.txt")]
    assert found == [(0, 0), (3, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_images_are_batched(tmp_path: Path, workers: int) -> None:
    file = write_pairs(tmp_path, images=4, regions=3)
    loader = MultiProcessDataLoader(
        ImageTextReader(with_ids=True), str(file), batch_size=8, num_workers=workers
    )
    loader.index_with(Vocabulary.from_instances(loader.iter_instances()))
    (batch,) = loader
    assert batch["image"].shape == (8, 3, WIDTH)
    assert sorted(batch["ids"].tolist()) == list(range(8))
    assert (batch["image_ids"] == batch["ids"] // 2).all()
    stored = np.load(tmp_path / "captions.npy")
    assert np.array_equal(batch["image"].numpy(), stored[batch["image_ids"].numpy()])


def test_captions_or_images_give_instances_alone() -> None:
    reader = ImageTextReader(with_ids=True)
    assert set(reader.text_to_instance("a  caption").fields) == {"tokens"}
    assert set(reader.text_to_instance(image=[1, 2.5]).fields) == {"image"}
    both = reader.text_to_instance("a", np.ones((2, 3)), 4, 7)
    assert set(both.fields) == {"tokens", "image", "image_ids", "ids"}


@pytest.mark.parametrize(
    "row, message",
    [
        ({"image": 2, "caption": "a"}, r"line 2: the image is 2, expected a row of .* 0 to 1"),
        ({"image": -1, "caption": "a"}, "the image is -1"),
        ({"image": "x", "caption": "a"}, "the image is 'x'"),
        ({"image": True, "caption": "a"}, "the image is True"),
        ({"caption": "a"}, r"no column 'image', found \['caption'\]"),
        ({"image": 0}, r"no column 'caption', found \['image'\]"),
        ({"image": 0, "caption": 3}, "column 'caption' holds int, expected a string"),
    ],
)
def test_wrong_rows_are_refused(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    file = write_pairs(tmp_path, images=2)
    file.write_text(json.dumps({"image": 0, "caption": "fine"}) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(ConfigurationError, match=message):
        list(ImageTextReader().read(str(file)))


def test_wrong_data_are_refused(tmp_path: Path) -> None:
    file = write_pairs(tmp_path, images=2)
    with pytest.raises(ConfigurationError, match=r"4 line\(s\), expected 6: 3 \(captions_per_ima"):
        list(ImageTextReader(captions_per_image=3).read(str(file)))
    with pytest.raises(ConfigurationError, match="captions_per_image must be at least 1, got 0"):
        ImageTextReader(captions_per_image=0)
    with pytest.raises(ConfigurationError, match=r"data path of \['image'\], expected 'captions'"):
        list(ImageTextReader().read({"image": str(file)}))
    with pytest.raises(ConfigurationError, match=r"no file of image features\. Set 'images'"):
        list(ImageTextReader().read([str(file)]))
    with pytest.raises(ConfigurationError, match=r"No image features at .*nowhere\.npy"):
        list(ImageTextReader(images=str(tmp_path / "nowhere.npy")).read(str(file)))
    file.write_text(json.dumps({"image": 0, "caption": " "}) + "\n")
    with pytest.raises(ConfigurationError, match=r"no captions among 1 row\(s\)"):
        list(ImageTextReader().read(str(file)))
