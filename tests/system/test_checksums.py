"""Oracle: `xxhash` of the whole content, and flips of every kind."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_hexdigest

from declutr.system import checksums
from declutr.system.checksums import (
    BlockHasher,
    CheckedFile,
    DamagedFile,
    file_checksums,
    json_checksum,
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(checksums, "BLOCK", 8)


@given(st.binary(max_size=40), st.lists(st.integers(0, 40), max_size=4))
@settings(max_examples=50, deadline=None)
def test_a_checksum_for_each_block(data, cuts):
    cuts = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    hasher = BlockHasher()
    for start, end in itertools.pairwise(cuts):
        hasher.update(memoryview(data)[start:end])
    blocks = [data[start : start + 8] for start in range(0, len(data), 8)]
    assert hasher.checksums == "".join(map(xxh3_64_hexdigest, blocks))


def test_json_in_any_order():
    assert json_checksum({"a": 1, "b": [2]}) == json_checksum({"b": [2], "a": 1})
    assert json_checksum({"a": 1}) != json_checksum({"a": 2})


class TestCheckedFile:
    @pytest.fixture
    def path(self, tmp_path):
        path = tmp_path / "file"
        path.write_bytes(bytes(range(30)))
        return path

    def flip(self, path, at: int) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 4
        path.write_bytes(data)

    @pytest.mark.parametrize("begin", [0, 3])
    def test_parts_that_touch_a_damaged_block(self, path, begin):
        whole = path.read_bytes()[begin:]
        sums = "".join(xxh3_64_hexdigest(whole[at : at + 8]) for at in range(0, len(whole), 8))
        self.flip(path, begin + 17)  # in the third block
        for start in range(len(whole)):
            for end in range(start + 1, len(whole) + 1):
                checked = CheckedFile(path, sums, begin)
                if start < 24 and end > 16:
                    with pytest.raises(DamagedFile, match=f"8 bytes after byte {begin + 16}, some"):
                        checked.require(start, end)
                else:
                    checked.require(start, end)
                several, size = np.array([start, 0]), end - start
                touched = (several // 8 <= 2) & ((several + size - 1) // 8 >= 2)
                checked = CheckedFile(path, sums, begin)
                if touched.any():
                    with pytest.raises(DamagedFile):
                        checked.require_each(several, size)
                else:
                    checked.require_each(several, size)

    def test_each_block_is_read_once(self, path):
        checked = CheckedFile(path, file_checksums(path))
        checked.require(3, 9)
        self.flip(path, 0)
        checked.require(0, 16)
        self.flip(path, 20)
        with pytest.raises(DamagedFile, match="after byte 16"):
            checked.require_all()

    @pytest.mark.parametrize("change", [lambda data: data[:-8], lambda data: data + b"\0" * 8])
    def test_another_size(self, path, change):
        sums = file_checksums(path)
        path.write_bytes(change(path.read_bytes()))
        with pytest.raises(DamagedFile, match=r"it has [35] blocks, expected 4"):
            CheckedFile(path, sums)

    def test_an_empty_file(self, tmp_path):
        (tmp_path / "empty").touch()
        assert file_checksums(tmp_path / "empty") == ""
        CheckedFile(tmp_path / "empty", "").require_all()
