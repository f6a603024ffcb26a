"""Tests of image features on disk."""

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from declutr.corpus.documents import SourceError
from declutr.task_models.image_text.stored_images import ImageField, StoredImages, stored_images


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.save(tmp_path / "images.npy", np.arange(12, dtype=np.float16).reshape(4, 3))
    return tmp_path / "images.npy"


def test_rows_are_read_as_float32(file: Path) -> None:
    images = stored_images(file)
    assert len(images) == 4
    assert images.row(2).dtype == torch.float32 and images.row(2).tolist() == [6, 7, 8]
    assert stored_images(file) is images


def test_a_row_is_a_copy(file: Path) -> None:
    stored_images(file).row(0).add_(1)
    assert stored_images(file).row(0).tolist() == [0, 1, 2]


def test_a_changed_file_is_opened_again(file: Path) -> None:
    assert len(stored_images(file)) == 4
    np.save(file, np.ones((5, 3)))
    assert len(stored_images(file)) == 5
    other = file.with_name("other.npy")
    np.save(other, np.full((5, 3), 2.0))
    shutil.copystat(file, other)  # of the same size and time, as `cp -p` and `rsync -t` keep times
    other.replace(file)
    assert stored_images(file).row(0).tolist() == [2, 2, 2]


def test_a_field_is_pickled_as_its_path(file: Path) -> None:
    written = pickle.dumps(ImageField(stored_images(file), 1))
    field = pickle.loads(written)
    assert len(written) < 1000
    assert field.as_tensor(field.get_padding_lengths()).tolist() == [3, 4, 5]
    assert field.images is stored_images(file)
    assert field.human_readable_repr() == {"file": str(file), "row": 1}


@pytest.mark.parametrize(
    "array, message",
    [
        (np.ones(3), r"holds an array \(3,\), expected image features \(n, d\)"),
        (np.ones((2, 2, 2, 2)), r"\(2, 2, 2, 2\), expected"),
        (np.ones((0, 3)), r"\(0, 3\), expected"),
        (np.array([["a"]]), "<U1, expected image features as numbers"),
    ],
    ids=["flat", "deep", "empty", "text"],
)
def test_wrong_arrays_are_refused(tmp_path: Path, array: np.ndarray, message: str) -> None:
    np.save(tmp_path / "images.npy", array)
    with pytest.raises(SourceError, match=message):
        StoredImages(str(tmp_path / "images.npy"))


def test_wrong_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"No image features at .*nowhere\.npy.*numpy\.save"):
        stored_images(tmp_path / "nowhere.npy")
    for name, content in {"text.npy": b"no array", "empty.npy": b""}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SourceError, match=rf"{name}' is no \.npy file of numbers"):
            stored_images(tmp_path / name)
    np.savez(tmp_path / "several.npz", a=np.ones((2, 2)))
    with pytest.raises(SourceError, match="holds several arrays"):
        stored_images(tmp_path / "several.npz")


def test_features_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", np.array([[1.0, 2.0], [1.0, np.nan]]))
    images = stored_images(tmp_path / "images.npy")
    assert images.row(0).tolist() == [1, 2]
    with pytest.raises(SourceError, match="row 1: image features that are not finite"):
        images.row(1)
