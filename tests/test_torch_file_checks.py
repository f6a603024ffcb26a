"""Oracle: what torch loads from each damaged file."""

import pytest
import torch

from declutr.torch_file_checks import damage_in_torch_file

TENSORS = {"a": torch.arange(300.0), "b": torch.ones(2, 3, dtype=torch.int64)}


@pytest.fixture
def file(tmp_path):
    torch.save(TENSORS, tmp_path / "weights.th")
    return tmp_path / "weights.th"


def test_no_flipped_bit_changes_tensors_unnoticed(file):
    sound, noticed = file.read_bytes(), 0
    for number in range(0, 8 * len(sound), 41):
        damaged = bytearray(sound)
        damaged[number // 8] ^= 1 << number % 8
        file.write_bytes(damaged)
        if damage_in_torch_file(file) is not None:
            noticed += 1
            continue
        try:
            loaded = torch.load(file, weights_only=True)
        except Exception:  # noticed by torch
            continue
        assert loaded.keys() == TENSORS.keys()
        assert all(torch.equal(loaded[name], TENSORS[name]) for name in TENSORS)
    assert noticed > 0.3 * 8 * len(sound) / 41  # the rest is padding, and times of files


def test_cut_off(file):
    file.write_bytes(file.read_bytes()[:-100])
    assert "not a zip file" in damage_in_torch_file(file)


def test_the_record_is_named(file):
    content = bytearray(file.read_bytes())
    content[content.index(TENSORS["a"].numpy().tobytes()) + 7] ^= 64
    file.write_bytes(content)
    assert damage_in_torch_file(file) == "the record 'weights/data/0' is not what its checksum says"


@pytest.mark.skipif(
    not hasattr(torch.serialization, "set_crc32_options"), reason="this torch always writes them"
)
def test_written_without_checksums(file):
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(TENSORS, file)
    finally:
        torch.serialization.set_crc32_options(True)
    assert damage_in_torch_file(file) is None
