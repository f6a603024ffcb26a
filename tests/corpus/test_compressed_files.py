"""Tests of compressed files; the oracle is what was compressed."""

import bz2
import gc
import gzip
import io
import lzma
import random
import sys
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec.compression
import lz4.frame
import pytest
import zstandard

from declutr.corpus import SourceError
from declutr.corpus.compressed_files import COMPRESSIONS, is_compressed, open_bytes
from declutr.corpus.documents import file_format, read_documents
from declutr.corpus.source_files import source_files

ROWS = [str(number) for number in random.Random(0).choices(range(10**9), k=20_000)]
TEXT = "\n".join(ROWS).encode()


def zipped(data: bytes, *names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names or ("docs.txt",):
            archive.writestr(name, data)
    return file.getvalue()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
    ".zst": zstandard.compress,
    ".lz4": lz4.frame.compress,
    ".zip": zipped,
}


def read(file: Path) -> list[str]:
    return list(read_documents(source_files(file)))


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_the_name_tells_the_compression_and_the_format(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"docs.txt{suffix.upper()}"
    file.write_bytes(PACKERS[suffix](TEXT))
    assert read(file) == ROWS and is_compressed(file)
    name = f"docs.jsonl{suffix}"
    lines = b'{"text": "first"}\n{"text": "second"}\n'
    packed = zipped(lines, "a/b.jsonl") if suffix == ".zip" else PACKERS[suffix](lines)
    (tmp_path / name).write_bytes(packed)
    assert read(tmp_path / name) == ["first", "second"]


@pytest.mark.parametrize("suffix", COMPRESSIONS)
@pytest.mark.parametrize("share", [0.5, 0.999])
def test_a_file_that_is_cut_off_is_refused(suffix: str, share: float, tmp_path: Path) -> None:
    whole = PACKERS[suffix](TEXT)
    file = tmp_path / f"docs.txt{suffix}"
    file.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(SourceError, match=f"docs.txt{suffix}' could not be read"):
        read(file)


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_the_file_is_closed_with_its_stream(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / f"docs.txt{suffix}"
    file.write_bytes(PACKERS[suffix](TEXT))
    untold: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", untold.append)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with open_bytes(file) as stream:
            assert stream.read() == TEXT
        del stream
        gc.collect()
    assert [repr(each.exc_value) for each in untold] == []


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".lz4"])
def test_a_file_is_not_decompressed_to_find_its_end(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"docs.txt{suffix}"
    file.write_bytes(PACKERS[suffix](TEXT)[:-8])
    assert next(read_documents(source_files(file))) == ROWS[0]


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst", ".lz4"])
def test_compressed_parts_can_be_joined(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"docs.txt{suffix}"
    file.write_bytes(b"".join(map(PACKERS[suffix], (TEXT, b"", b"\nlast"))))
    assert read(file) == [*ROWS, "last"]


@pytest.mark.parametrize("suffix", [".bz2", ".xz", ".lzma"])
def test_parts_after_others_are_read_or_refused(suffix: str, tmp_path: Path) -> None:
    """Python's own streams end without an error where a part does not follow at once."""
    file, part = tmp_path / f"docs.txt{suffix}", PACKERS[suffix](TEXT)
    file.write_bytes(part + bytes(4) + PACKERS[suffix](b"\nlast") + bytes(8))  # as xz may pad
    assert read(file) == [*ROWS, "last"]
    file.write_bytes(part + b"\1" + part[1:])
    with pytest.raises(SourceError, match="could not be read as text"):
        read(file)
    file.write_bytes(b"")
    with pytest.raises(SourceError, match="cut off"):
        read(file)


def test_frames_with_a_long_window(tmp_path: Path) -> None:
    """As `zstd --long=31` makes them of dumps, which say so in their first bytes."""
    settings = zstandard.ZstdCompressionParameters.from_level(1, window_log=31)
    packer = zstandard.ZstdCompressor(compression_params=settings).compressobj()
    file = tmp_path / "docs.txt.zst"
    file.write_bytes(packer.compress(b"a\nb\n") + packer.flush())
    assert read(file) == ["a", "b"]


def test_the_file_in_a_zip_archive_tells_the_format(tmp_path: Path) -> None:
    file = tmp_path / "table.zip"
    names = "folder/docs.csv", "__MACOSX/folder/._docs.csv", "folder/.DS_Store"
    file.write_bytes(zipped(b"id,text\n1,first\n", *names))
    assert file_format(file) == "csv" and read(file) == ["first"]


def test_a_zip_archive_of_several_files_or_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "docs.txt.zip"
    for names, count in ((("a.txt", "b.txt"), 2), (("folder/",), 0)):
        file.write_bytes(zipped(b"", *names))
        with pytest.raises(SourceError, match=f"zip archive of {count} files, expected one. Unp"):
            read(file)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setattr(fsspec.compression, "compr", {})
    monkeypatch.setattr("fsspec.utils.compressions", {})
    for name, package in (("docs.zst", "zstandard"), ("docs.lz4", "lz4")):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(SourceError, match=rf"needs the package {package}.*\[compression\]"):
            read(tmp_path / name)


def test_a_tar_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    with tarfile.open(tmp_path / "docs.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "a.txt", "a.txt")
    with pytest.raises(SourceError, match=r"tar archive. Unpack it"):
        read(tmp_path / "docs.tar.gz")
