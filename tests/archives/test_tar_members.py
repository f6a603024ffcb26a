"""A member is added to an archive, and all other members stay as they were."""

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest

from declutr.archives.tar_members import put_member


def write(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(content), 12345, 0o640
            archive.addfile(info, io.BytesIO(content))
    return path


def held(path: Path) -> dict[str, bytes]:
    with tarfile.open(path, "r:gz") as archive:
        return {
            member.name: archive.extractfile(member).read()  # type: ignore[union-attr]
            for member in archive
            if member.isreg()
        }


MEMBERS = {"config.json": b"{}", "weights.th": os.urandom(3_000_000), "vocabulary/a.txt": b"x\n"}


@pytest.mark.parametrize("before", [{}, {"new.bin": b"old"}, {"./new.bin": b"old"}])
def test_a_member_is_added_or_replaced(tmp_path: Path, before: dict[str, bytes]) -> None:
    path = write(tmp_path / "model.tar.gz", {**before, **MEMBERS, "a/new.bin": b"another"})
    put_member(path, "new.bin", b"content")
    assert held(path) == {**MEMBERS, "a/new.bin": b"another", "new.bin": b"content"}
    assert [file.name for file in tmp_path.iterdir()] == ["model.tar.gz"]


def test_headers_of_other_members_are_kept(tmp_path: Path) -> None:
    source = tmp_path / "folder"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "file").write_text("x")
    (source / "link").symlink_to("deep/file")
    (source / ("long" * 40)).write_text("a name that old tar formats cannot hold")
    path = tmp_path / "model.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(source, arcname=".")
    with tarfile.open(path) as archive:
        before = [member.get_info() for member in archive]
    put_member(path, "new.bin", b"content")
    with tarfile.open(path) as archive:
        after = [member.get_info() for member in archive]
    assert after[:-1] == before and after[-1]["name"] == "new.bin"


def test_permissions_and_symbolic_links_are_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "real.tar.gz", MEMBERS)
    path.chmod(0o640)
    link = tmp_path / "model.tar.gz"
    link.symlink_to(path)
    put_member(link, "new.bin", b"content")
    assert link.is_symlink() and path.stat().st_mode & 0o777 == 0o640
    assert held(path)["new.bin"] == b"content"


@pytest.mark.parametrize("damage", ["cut off", "checksum", "no archive", "nothing"])
def test_a_damaged_archive_stays_unchanged(tmp_path: Path, damage: str) -> None:
    path = write(tmp_path / "model.tar.gz", MEMBERS)
    content = path.read_bytes()
    broken = {
        "cut off": content[: len(content) // 2],
        "checksum": content[:-8] + bytes(4) + content[-4:],
        "no archive": gzip.compress(b"no tar"),
        "nothing": b"",
    }[damage]
    path.write_bytes(broken)
    with pytest.raises(tarfile.ReadError, match=r"is damaged or cut off .* stays as it was"):
        put_member(path, "new.bin", b"content")
    assert path.read_bytes() == broken
    assert [file.name for file in tmp_path.iterdir()] == ["model.tar.gz"]


def test_a_missing_archive_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        put_member(tmp_path / "model.tar.gz", "new.bin", b"content")
    assert list(tmp_path.iterdir()) == []
