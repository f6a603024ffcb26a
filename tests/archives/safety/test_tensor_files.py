"""Pickles may hold tensors. Whatever else they would do is not done."""

import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from declutr.archives.safety import BrokenArchive, UnsafeArchive
from declutr.archives.safety.tensor_files import check_no_pickle
from tests.hostile_archives import Payload, with_pickle, with_torch_pickle


def refused(file: Path, match: str, marker: Path) -> None:
    with pytest.raises(UnsafeArchive, match=match):
        check_no_pickle(file, f"inside/{file.name}")
    assert not marker.exists(), "the payload has run"


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("name", ["weights.th", "model.bin", "model.pt", "notes.txt"])
def test_payloads_beside_tensors(name: str, zipped: bool, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    with_torch_pickle(name, marker, zipped)(tmp_path)
    message = rf"inside/{name} should hold tensors only, but names \w+\.mkdir: a pickle could run"
    refused(tmp_path / name, message, marker)


@pytest.mark.parametrize("protocol", range(6))
def test_bare_pickles(protocol: int, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    with_pickle("weights.th", marker, protocol)(tmp_path)
    refused(tmp_path / "weights.th", r"inside/weights\.th (should hold|cannot be read)", marker)
    with_pickle("data.pkl", marker, protocol)(tmp_path)
    refused(tmp_path / "data.pkl", r"data\.pkl is a pickle, which could run anything", marker)
    if protocol >= 2:  # older ones start like any text, and nothing reads them
        with_pickle("notes.txt", marker, protocol)(tmp_path)
        refused(tmp_path / "notes.txt", r"notes\.txt (should hold tensors|cannot be)", marker)


def test_the_payload_works(tmp_path: Path) -> None:
    """Or the other tests would show nothing."""
    with_torch_pickle("weights.th", tmp_path / "marker")(tmp_path)
    torch.load(tmp_path / "weights.th", weights_only=False)
    assert (tmp_path / "marker").is_dir()


def test_torchscript_is_a_program(tmp_path: Path) -> None:
    """torch tells it by a record of this name, and would run it."""
    torch.save({"a": torch.zeros(1)}, tmp_path / "weights.th")
    with zipfile.ZipFile(tmp_path / "weights.th", "a") as opened:
        opened.writestr("weights/constants.pkl", b"")
    refused(tmp_path / "weights.th", r"cannot be read as tensors: .*TorchScript", tmp_path / "none")


def test_compressed_records(tmp_path: Path) -> None:
    """They would unfold in memory to whatever size."""
    torch.save({"a": torch.zeros(100_000)}, tmp_path / "stored.th")
    with (
        zipfile.ZipFile(tmp_path / "stored.th") as stored,
        zipfile.ZipFile(tmp_path / "weights.th", "w", zipfile.ZIP_DEFLATED) as deflated,
    ):
        for entry in stored.namelist():
            deflated.writestr(entry, stored.read(entry))
    check_no_pickle(tmp_path / "stored.th", "stored.th")
    refused(tmp_path / "weights.th", "holds compressed records", tmp_path / "none")


def test_other_zips(tmp_path: Path) -> None:
    np.savez(tmp_path / "arrays.npz", a=np.zeros(2))
    refused(tmp_path / "arrays.npz", r"arrays\.npz cannot be read as tensors", tmp_path / "none")


def test_a_broken_file(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(1000)}, tmp_path / "weights.th")
    whole = (tmp_path / "weights.th").read_bytes()
    (tmp_path / "weights.th").write_bytes(whole[:-700])
    refused(tmp_path / "weights.th", r"cannot be read as tensors: .*Get it anew", tmp_path / "none")


def test_a_flipped_bit_in_a_tensor(tmp_path: Path) -> None:
    """torch itself would load another number."""
    torch.save({"a": torch.ones(1000)}, tmp_path / "weights.th")
    content = bytearray((tmp_path / "weights.th").read_bytes())
    content[content.index(torch.ones(9).numpy().tobytes())] ^= 1
    (tmp_path / "weights.th").write_bytes(content)
    assert not torch.load(tmp_path / "weights.th")["a"].equal(torch.ones(1000))
    with pytest.raises(BrokenArchive, match=r"inside/weights\.th is damaged: .* Get it anew"):
        check_no_pickle(tmp_path / "weights.th", "inside/weights.th")


def test_arrays_of_objects_are_pickles(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    np.save(tmp_path / "objects.npy", np.array([Payload(marker)], dtype=object))
    refused(tmp_path / "objects.npy", r"objects\.npy is no plain array: Array can't be", marker)
    np.save(tmp_path / "numbers.npy", np.zeros((2, 2)))
    check_no_pickle(tmp_path / "numbers.npy", "numbers.npy")


@pytest.mark.parametrize("zipped", [True, False])
def test_state_dicts(zipped: bool, tmp_path: Path) -> None:
    state = {"a": torch.zeros(3), "b": torch.ones(2, dtype=torch.bfloat16), "n": 1, "s": "text"}
    torch.save(state, tmp_path / "weights.th", _use_new_zipfile_serialization=zipped)
    check_no_pickle(tmp_path / "weights.th", "weights.th")


def test_safetensors_whose_length_looks_like_a_pickle(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_file({"a": torch.zeros(1)}, file, metadata={"x": "y" * 560})
    assert file.read_bytes()[:2] == pickle.PROTO + b"\x02", "the test is about this length"
    check_no_pickle(file, "model.safetensors")
