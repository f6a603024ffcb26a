"""Archives with unsafe members are refused before the first byte is written."""

import gzip
import io
import os
import shutil
import stat
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from declutr.archives.safety import BrokenArchive, UnsafeArchive, extract, extracted
from declutr.archives.safety import extraction as module
from declutr.archives.safety.extraction import inside_path
from tests import hostile_archives as hostile
from tests.hostile_archives import regular, special, tar_of


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which temporary folders are created; it must be empty in the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def tree(folder: Path) -> dict[str, bytes | None]:
    """Return the content of all files in a folder by name, and `None` for folders."""
    return {
        path.relative_to(folder).as_posix(): None if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    }


def refused(archive: Path, match: str) -> None:
    """Assert that an archive is refused with a message, and that no file has been written."""
    around = archive.parent
    (around / "target").mkdir()
    before = tree(around)
    with pytest.raises(UnsafeArchive, match=match), extracted(archive):
        pytest.fail("it was extracted")
    with pytest.raises(UnsafeArchive, match=r"model\.tar\.gz: .*Nothing was extracted\."):
        extract(archive, around / "target")
    assert tree(around) == before


HONEST = [
    special(".", tarfile.DIRTYPE),
    regular("./config.json", b"{}"),
    special("vocabulary", tarfile.DIRTYPE),
    special("vocabulary/", tarfile.DIRTYPE),
    regular("vocabulary/tokens.txt", "ä\n".encode()),
    regular("transformer/0/config.json", b""),
    regular("weights..th", b"w" * 3_000_000),
]


def test_a_safe_archive_is_extracted(tmp_path: Path, temporary: Path) -> None:
    archive = tar_of(tmp_path / "model.tar.gz", HONEST)
    with extracted(archive) as folder:
        assert folder.parent == temporary
        assert tree(folder) == {
            "config.json": b"{}",
            "vocabulary": None,
            "vocabulary/tokens.txt": "ä\n".encode(),
            "transformer": None,
            "transformer/0": None,
            "transformer/0/config.json": b"",
            "weights..th": b"w" * 3_000_000,
        }
    assert tree(temporary) == {}


def test_the_temporary_folder_is_deleted_after_an_error(tmp_path: Path, temporary: Path) -> None:
    archive = tar_of(tmp_path / "model.tar.gz", HONEST)
    with pytest.raises(KeyError), extracted(archive):
        raise KeyError
    assert tree(temporary) == {}


def test_permissions_are_not_restored(tmp_path: Path) -> None:
    file, content = regular("run.sh")
    file.mode = 0o6777
    closed, nothing = special("closed", tarfile.DIRTYPE)
    closed.mode = 0o000
    archive = tar_of(tmp_path / "model.tar.gz", [(closed, nothing), (file, content)])
    with extracted(archive) as folder:
        mode = (folder / "run.sh").stat().st_mode
        assert not mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IXUSR)
        assert (folder / "closed").stat().st_mode & stat.S_IRWXU == stat.S_IRWXU


OUTSIDE = {
    "../escaped": r"'\.\./escaped' climbs out of its folder with '\.\.'",
    "vocabulary/../../escaped": r"climbs out of its folder with '\.\.'",
    "..": r"'\.\.' climbs out",
    "/escaped": r"'/escaped' has an absolute path",
    "//escaped": r"absolute path",
    "C:/escaped": r"'C:/escaped' has an absolute path",
    "c:escaped": r"absolute path",
    "..\\escaped": r"has a backslash, which parts paths on Windows",
    "\\\\host\\escaped": r"backslash",
    "two\nlines": r"the name 'two\\nlines'; expected printable text",
}


@pytest.mark.parametrize("name", OUTSIDE, ids=repr)
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.DIRTYPE])
def test_names_that_lead_outside_are_refused(name: str, kind: bytes, tmp_path: Path) -> None:
    member = regular(name) if kind == tarfile.REGTYPE else special(name, kind)
    refused(tar_of(tmp_path / "model.tar.gz", [*HONEST, member]), OUTSIDE[name])


SPECIAL = {
    "symlink": (special("link", tarfile.SYMTYPE, "/etc"), r"'link' is a symbolic link to '/etc'"),
    "symlink inside": (special("a", tarfile.SYMTYPE, "b"), r"symbolic link to 'b'"),
    "hardlink": (special("w", tarfile.LNKTYPE, "/etc/hosts"), r"a hard link to '/etc/hosts'"),
    "character device": (special("d", tarfile.CHRTYPE), r"'d' is a device; expected files and"),
    "block device": (special("d", tarfile.BLKTYPE), r"'d' is a device"),
    "pipe": (special("p", tarfile.FIFOTYPE), r"'p' is a named pipe"),
    "unknown": (special("u", b"Z"), r"'u' is of the kind b'Z'"),
    "contiguous": (special("c", tarfile.CONTTYPE), r"'c' is of the kind b'7'"),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_members_that_are_neither_files_nor_folders_are_refused(name: str, tmp_path: Path) -> None:
    member, message = SPECIAL[name]
    refused(tar_of(tmp_path / "model.tar.gz", [*HONEST, member]), message)


def test_a_file_below_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    """The name of the file is harmless, but the file would be written through the link."""
    members = [special("vocabulary", tarfile.SYMTYPE, ".."), regular("vocabulary/escaped")]
    refused(tar_of(tmp_path / "model.tar.gz", members), "symbolic link")


DOUBLE = {
    "twice": ([regular("a"), regular("a", b"y")], "'a' is there twice"),
    "twice, written differently": ([regular("a"), regular("./a")], "'./a' is there twice"),
    "a folder, then a file": ([special("a", tarfile.DIRTYPE), regular("a")], "both a file and"),
    "a file, then a folder": ([regular("a"), special("a", tarfile.DIRTYPE)], "'a' is there twice"),
    "a file, then one in it": ([regular("a"), regular("a/b")], "'a/b' lies in 'a', a file"),
    "one in it, then a file": ([regular("a/b"), regular("a")], "both a file and a folder"),
    "the folder itself": ([regular(".")], "both a file and a folder"),
}


@pytest.mark.parametrize("name", DOUBLE)
def test_two_members_with_one_path_are_refused(name: str, tmp_path: Path) -> None:
    members, message = DOUBLE[name]
    if name == "the folder itself":
        members = [regular("b"), *members]
    refused(tar_of(tmp_path / "model.tar.gz", members), message)


def test_a_huge_declared_size_is_refused(tmp_path: Path) -> None:
    archive = hostile.declared(tmp_path / "model.tar.gz", 2**40)
    refused(
        archive, r"declare 1,099,511,627,776 bytes of files or more\. Expected at most 20 times"
    )


def test_sizes_of_all_files_are_added_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_UNQUESTIONED_BYTES", 2_999_999)
    zeros = [regular(f"{number}", bytes(1_000_000)) for number in range(3)]
    refused(tar_of(tmp_path / "model.tar.gz", zeros), r"declare 3,000,000 bytes of files")


def test_a_large_archive_with_a_low_compression_ratio_is_extracted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_UNQUESTIONED_BYTES", 1)
    noise = os.urandom(100_000)
    with extracted(tar_of(tmp_path / "model.tar.gz", [regular("weights.th", noise)])) as folder:
        assert (folder / "weights.th").read_bytes() == noise


def test_a_trusted_archive_may_compress_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the zeros of a memory bank that is mostly empty do."""
    monkeypatch.setattr(module, "MAX_UNQUESTIONED_BYTES", 1)
    bank = tar_of(tmp_path / "model.tar.gz", [regular("weights.th", bytes(1_000_000))])
    refused(bank, r"mostly empty shrinks more\. If you made it yourself, .*--trust")
    with extracted(bank, trust=True) as folder:
        assert (folder / "weights.th").stat().st_size == 1_000_000
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=9))
    with (
        pytest.raises(UnsafeArchive, match=r"has room for 9\. TMPDIR names another"),
        extracted(bank, trust=True),
    ):
        pytest.fail("it was extracted")


def test_an_archive_larger_than_the_free_disk_space_is_refused(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=9))
    archive = tar_of(tmp_path / "model.tar.gz", [regular("a", b"0123456789")])
    refused(
        archive, r"declares 10 bytes of files or more, but .* has room for 9\. TMPDIR names another"
    )


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MEMBERS", 3)
    members = [regular(f"{number}") for number in range(4)]
    with extracted(tar_of(tmp_path / "three.tar.gz", members[:3])) as folder:
        assert len(tree(folder)) == 3
    refused(tar_of(tmp_path / "model.tar.gz", members), "It has more than 3 members")


def test_a_huge_header_is_refused(tmp_path: Path) -> None:
    archive = hostile.long_header(tmp_path / "model.tar.gz", 2**36)
    refused(archive, "Its headers declare more than 32 MiB")


def test_deeply_nested_headers_are_refused(tmp_path: Path) -> None:
    refused(hostile.nested_headers(tmp_path / "model.tar.gz", 3_000), "nested too deeply")


def test_negative_sizes_are_refused(tmp_path: Path) -> None:
    """tarfile would move backwards and read the same header again."""
    refused(hostile.declared(tmp_path / "model.tar.gz", -512), r"'weights.th' declares -512 bytes")


def test_sparse_files_are_refused(tmp_path: Path) -> None:
    refused(hostile.sparse(tmp_path / "model.tar.gz", 2**40), "'weights.th' is a sparse file")


def test_a_member_shorter_than_declared_is_reported_as_truncation(
    tmp_path: Path, temporary: Path
) -> None:
    archive = hostile.declared(tmp_path / "model.tar.gz", 5_000)
    expected = r"cannot be read as a model\.tar\.gz: .*it may be cut off: get it anew"
    with pytest.raises(tarfile.ReadError, match=expected), extracted(archive):
        pytest.fail("it was extracted")
    assert tree(temporary) == {}


@pytest.mark.parametrize("content", [b"", b"just text", gzip.compress(b"no tar", mtime=0)])
def test_a_file_that_is_not_an_archive_is_reported(
    content: bytes, tmp_path: Path, temporary: Path
) -> None:
    file = tmp_path / "model.tar.gz"
    file.write_bytes(content)
    expected = r"model\.tar\.gz' cannot be read as .*Expected a tar compressed with gzip"
    with pytest.raises(tarfile.ReadError, match=expected), extracted(file):
        pytest.fail("it was extracted")
    assert tree(temporary) == {}


def test_a_truncated_archive_is_reported(tmp_path: Path, temporary: Path) -> None:
    whole = tar_of(tmp_path / "whole.tar.gz", [regular("weights.th", os.urandom(20_000))])
    data = whole.read_bytes()
    file = tmp_path / "model.tar.gz"
    for end in range(0, len(data) - 200, 997):
        file.write_bytes(data[:end])
        with (
            pytest.raises(tarfile.ReadError, match=r"it (is damaged or|may be) cut off"),
            extracted(file),
        ):
            pytest.fail("it was extracted")
    assert tree(temporary) == {}


def test_a_flipped_bit_is_reported_as_damage(tmp_path: Path, temporary: Path) -> None:
    """Only the time and the file name in the header of gzip are not covered by a checksum."""
    content = [regular("config.json", b"{}"), regular("weights.th", os.urandom(3_000))]
    sound = tar_of(tmp_path / "model.tar.gz", content).read_bytes()
    file = tmp_path / "model.tar.gz"
    header = 10 + len("model.tar") + 1
    for number in range(24, 8 * len(sound), 97):
        damaged = bytearray(sound)
        damaged[number // 8] ^= 1 << number % 8
        file.write_bytes(damaged)
        try:
            with extracted(file) as folder:
                assert tree(folder) == {member.name: data for member, data in content}
            assert number // 8 < header
        except BrokenArchive as error:
            assert "it is damaged or cut off (" in str(error)
            assert "archive_model('FOLDER')" in str(error)
    assert tree(temporary) == {}


@pytest.mark.parametrize("name", ["../escaped", "config.json"])
def test_damage_takes_precedence_over_a_refusal(name: str, tmp_path: Path) -> None:
    archive = tar_of(tmp_path / "model.tar.gz", [regular("config.json"), regular(name)])
    with pytest.raises(UnsafeArchive):
        extract(archive, tmp_path)
    damaged = bytearray(archive.read_bytes())
    damaged[-5] ^= 1  # in the checksum
    archive.write_bytes(damaged)
    with pytest.raises(BrokenArchive, match=r"damaged or cut off \(CRC check failed"):
        extract(archive, tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["model.tar.gz"]


def test_a_bomb_after_the_last_member_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_UNQUESTIONED_BYTES", 1)
    monkeypatch.setattr(module, "MAX_HEADER_BYTES", 20_000)
    archive = tar_of(tmp_path / "model.tar.gz", [regular("weights.th", os.urandom(100))])
    with archive.open("ab") as file:
        file.write(gzip.compress(bytes(5_000_000)))
    refused(archive, r"It unpacks to more than [\d,]+ bytes")


@given(st.text(st.sampled_from("./\\:aC~\0\n é")) | st.text())
def test_any_name_is_refused_or_leads_inside(name: str) -> None:
    try:
        path = inside_path(name)
    except UnsafeArchive:
        return
    assert not path.is_absolute() and ".." not in path.parts
    base = "/base/folder"
    joined = os.path.normpath(os.path.join(base, path))
    assert joined == base or joined.startswith(base + "/")


@given(st.lists(st.from_regex(r"(\.?\.?/?[ab]){1,3}", fullmatch=True), max_size=4))
def test_any_set_of_names_is_refused_or_extracted_completely(names: list[str]) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name in names:
            tar.addfile(regular(name)[0], io.BytesIO(b"x"))
    with tempfile.TemporaryDirectory() as around:
        archive, folder = Path(around) / "model.tar.gz", Path(around) / "inside"
        archive.write_bytes(stream.getvalue())
        folder.mkdir()
        try:
            extract(archive, folder)
        except UnsafeArchive:
            assert tree(folder) == {}
        else:
            held = {PurePosixPath(name) for name, content in tree(folder).items() if content}
            assert held == {PurePosixPath(name) for name in names}
        assert set(os.listdir(around)) == {"model.tar.gz", "inside"}
