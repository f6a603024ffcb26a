"""Files of `torch.save` are whole, or said to be damaged: no byte is silently another."""

import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from declutr.system.torch_files import damage_of

STATE = {
    "weight": torch.linspace(-1, 1, 15).view(5, 3),
    "half": torch.ones(3).half(),
    "step": torch.tensor(3),
    "optimizer": {"lr": 1e-3, "steps": 7, "name": "adam", "betas": [0.9, 0.99, None]},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    torch.save(STATE, tmp_path / "state.th")
    return tmp_path / "state.th"


def same(one: Any, other: Any) -> bool:
    if torch.is_tensor(one):
        return torch.is_tensor(other) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return one == other


def test_a_whole_file(file: Path) -> None:
    assert damage_of(file) is None
    assert damage_of(str(file)) is None


def test_no_flipped_bit_passes_unless_it_changes_nothing(file: Path) -> None:
    """Everywhere: in tensors, in what says what they are, in headers and in the list of records."""
    content = file.read_bytes()
    drawn = random.Random(0)
    outcomes = []
    # The list of records, where not every bit has a checksum, is looked at more closely.
    listed = content.index(b"PK\x01\x02")
    places = [*drawn.sample(range(listed), 100), *drawn.sample(range(listed, len(content)), 150)]
    for place in places:
        broken = bytearray(content)
        broken[place] ^= 1 << drawn.randrange(8)
        file.write_bytes(broken)
        found = damage_of(file) is not None
        assert found or same(torch.load(file), STATE), place
        outcomes.append(found)
    assert sum(outcomes) > 100  # the others are in padding, times and the like


def test_tensors_that_torch_would_not_read_at_all(file: Path) -> None:
    """One bit says that a record is a folder: torch then gives what lies in memory."""
    content = bytearray(file.read_bytes())
    with zipfile.ZipFile(file) as opened:
        count = len(opened.infolist())
    place, found = -1, 0
    while (place := content.find(b"PK\x01\x02", place + 1)) >= 0:
        broken = bytearray(content)
        broken[place + 38] ^= 0x10
        file.write_bytes(broken)
        assert "is not what was written" in str(damage_of(file))
        found += 1
    assert found == count


@pytest.mark.parametrize("part", [0, 0.3, 0.99])
def test_files_that_are_cut_off(file: Path, part: float) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * part)])
    assert str(damage_of(file)).startswith("it is cut off or overwritten")


def test_a_block_of_zeros(file: Path) -> None:
    content = bytearray(file.read_bytes())
    place = content.index(STATE["weight"].numpy().tobytes())
    content[place : place + 16] = bytes(16)
    file.write_bytes(content)
    assert damage_of(file) == "its record state/data/0 is not what was written"


def test_files_that_are_not_there_or_not_of_torch(tmp_path: Path) -> None:
    assert damage_of(tmp_path / "none.th") == "it cannot be read (No such file or directory)"
    (tmp_path / "text.th").write_text("text")
    assert str(damage_of(tmp_path / "text.th")).startswith("it is cut off or overwritten")


def test_whole_files_with_objects_that_torch_does_not_load_unasked(tmp_path: Path) -> None:
    torch.save({"path": tmp_path}, tmp_path / "state.th")
    assert damage_of(tmp_path / "state.th") is None


@pytest.mark.skipif(
    not hasattr(torch.serialization, "set_crc32_options"), reason="this torch always writes them"
)
def test_a_file_that_was_written_without_checksums(file: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(STATE, file)
    finally:
        torch.serialization.set_crc32_options(True)
    assert damage_of(file) is None
