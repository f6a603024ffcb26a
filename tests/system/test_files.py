"""Files are written completely, and damage to them is noticed."""

import errno
import os
import random
import resource
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from xxhash import xxh3_64_hexdigest

from declutr.archives.tar_members import put_member
from declutr.corpus.tokenized import open_corpus
from declutr.export.output_place import folder_beside
from declutr.search.stored_lines import write_lines
from declutr.system import files
from declutr.system.files import (
    CheckedFile,
    DamagedFile,
    damage_of,
    file_checksums,
    json_checksum,
    use_umask,
    write_whole,
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 8)


def test_each_block_has_a_checksum():
    data = bytes(range(30))
    blocks = [data[start : start + 8] for start in range(0, len(data), 8)]
    assert files.checksums_of(data) == "".join(map(xxh3_64_hexdigest, blocks))


def test_the_json_checksum_ignores_the_order_of_keys():
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
    def test_ranges_that_touch_a_damaged_block_are_damaged(self, path, begin):
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

    def test_each_block_is_verified_once(self, path):
        checked = CheckedFile(path, file_checksums(path))
        checked.require(3, 9)
        self.flip(path, 0)
        checked.require(0, 16)
        self.flip(path, 20)
        with pytest.raises(DamagedFile, match="after byte 16"):
            checked.require_all()

    @pytest.mark.parametrize("change", [lambda data: data[:-8], lambda data: data + b"\0" * 8])
    def test_another_size_is_damage(self, path, change):
        sums = file_checksums(path)
        path.write_bytes(change(path.read_bytes()))
        with pytest.raises(DamagedFile, match=r"it has [35] blocks, expected 4"):
            CheckedFile(path, sums)

    def test_an_empty_file_is_sound(self, tmp_path):
        (tmp_path / "empty").touch()
        assert file_checksums(tmp_path / "empty") == ""
        CheckedFile(tmp_path / "empty", "").require_all()


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


def test_a_sound_file_has_no_damage(file: Path) -> None:
    assert damage_of(file) is None
    assert damage_of(str(file)) is None


def test_a_flipped_bit_is_noticed_unless_it_changes_nothing(file: Path) -> None:
    """The bits are in tensors, their descriptions, headers, and the zip directory."""
    content = file.read_bytes()
    drawn = random.Random(0)
    outcomes = []
    # Most bits are drawn from the zip directory, of which not every bit has a checksum.
    listed = content.index(b"PK\x01\x02")
    places = [*drawn.sample(range(listed), 100), *drawn.sample(range(listed, len(content)), 150)]
    for place in places:
        broken = bytearray(content)
        broken[place] ^= 1 << drawn.randrange(8)
        file.write_bytes(broken)
        found = damage_of(file) is not None
        assert found or same(torch.load(file), STATE), place
        outcomes.append(found)
    assert sum(outcomes) > 100  # the other bits are in padding, times and the like


def test_an_entry_marked_as_a_folder_is_damage(file: Path) -> None:
    """For such an entry torch returns tensors of uninitialised memory."""
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
def test_a_truncated_file_is_damaged(file: Path, part: float) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * part)])
    assert str(damage_of(file)).startswith("it is cut off or overwritten")


def test_a_range_of_zeros_is_damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    place = content.index(STATE["weight"].numpy().tobytes())
    content[place : place + 16] = bytes(16)
    file.write_bytes(content)
    assert damage_of(file) == "its record state/data/0 is not what was written"


def test_missing_and_foreign_files_are_reported(tmp_path: Path) -> None:
    assert damage_of(tmp_path / "none.th") == "it cannot be read (No such file or directory)"
    (tmp_path / "text.th").write_text("text")
    assert str(damage_of(tmp_path / "text.th")).startswith("it is cut off or overwritten")


def test_a_sound_file_may_hold_objects_that_torch_refuses(tmp_path: Path) -> None:
    torch.save({"path": tmp_path}, tmp_path / "state.th")
    assert damage_of(tmp_path / "state.th") is None


@pytest.mark.parametrize("part", [0.1, 0.5, 0.99])
def test_a_file_in_the_format_before_torch_1_6_is_loaded(file: Path, part: float) -> None:
    torch.save(STATE, file, _use_new_zipfile_serialization=False)
    assert damage_of(file) is None
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * part)])
    assert str(damage_of(file)).startswith("it is cut off or overwritten")


@pytest.mark.skipif(
    not hasattr(torch.serialization, "set_crc32_options"), reason="this torch always writes them"
)
def test_a_file_written_without_checksums_is_accepted(file: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(STATE, file)
    finally:
        torch.serialization.set_crc32_options(True)
    assert damage_of(file) is None


@pytest.fixture(params=[0o022, 0o027, 0o002])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_permissions_follow_the_umask(tmp_path: Path, umask: int) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "file").touch()
    (tmp_path / "closed").mkdir(mode=0o700)
    (tmp_path / "closed" / "file").touch(mode=0o600)
    use_umask([tmp_path / "closed", tmp_path / "closed" / "file"])
    assert mode(tmp_path / "closed") == mode(tmp_path / "plain") == 0o777 & ~umask
    assert mode(tmp_path / "closed/file") == mode(tmp_path / "plain/file") == 0o666 & ~umask
    assert os.umask(umask) == umask  # as it was


@pytest.mark.parametrize(
    "said",
    [
        (errno.ENOSPC, "No space left on device"),
        (errno.EFBIG, "File too large"),
        ("99 requested and 9 written",),
    ],
)
def test_a_full_disk_is_told_with_the_file(tmp_path: Path, said: Any) -> None:
    """numpy says how many numbers it wrote, and neither why nor where."""

    def write(file: Any) -> None:
        raise OSError(*said)

    with pytest.raises(
        OSError, match=r"No space left|File too large|99 requested .* the disk full"
    ) as e:
        write_whole(tmp_path / "numbers.npy", write)
    assert str(tmp_path / "numbers.npy") in str(e.value)
    assert not list(tmp_path.iterdir())


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_is_told_of_files_of_torch(tmp_path: Path) -> None:
    """torch says that its file has an unexpected position."""
    file = tmp_path / "weights.th"
    write_whole(file, b"earlier")
    with pytest.raises(OSError, match=rf"File too large: '{file}'"), files_of_at_most(1 << 16):
        write_whole(file, lambda opened: torch.save(torch.ones(1 << 16), opened))
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"earlier"]


class Bytes:
    """A codec of a value for each byte."""

    dtype, fingerprint = np.dtype(np.uint8), "bytes"

    def encode(self, texts: list[str]) -> tuple[list[np.ndarray], list[int]]:
        values = [np.frombuffer(text.encode(), np.uint8) for text in texts]
        return values, [len(value) for value in values]


def exported(folder: Path) -> None:
    with folder_beside(folder) as beside:
        (beside / "README.md").write_text("ka" * 20_000)


def test_a_full_disk_is_told_with_a_place(
    tmp_path: Path, corpus_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of corpora, whose place in the cache nobody names, of indexes, archives and exports."""
    monkeypatch.setenv("DECLUTR_WORKERS", "1")
    cache, lines, archive = tmp_path / "cache", tmp_path / "lines", tmp_path / "model.tar.gz"
    lines.mkdir()
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(__file__, "config.json")
    writers: dict[Path, Callable[[], object]] = {
        cache: lambda: open_corpus(corpus_file, Bytes(), cache_dir=cache, progress=False),
        lines: lambda: write_lines(["ka lo"] * 20_000, lines),
        archive: lambda: put_member(archive, "a", os.urandom(1 << 17)),
        tmp_path / "export": lambda: exported(tmp_path / "export"),
    }
    for place, write in writers.items():
        with pytest.raises(OSError, match=rf"(?i)too large: '{place}"), files_of_at_most(1 << 14):
            write()


def test_errors_of_what_is_read_stay_as_they_are(tmp_path: Path) -> None:
    error = DamagedFile("'other' is damaged.")

    def write(file: Any) -> None:
        raise error

    with pytest.raises(DamagedFile) as caught:
        write_whole(tmp_path / "numbers.npy", write)
    assert caught.value is error
