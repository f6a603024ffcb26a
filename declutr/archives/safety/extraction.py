"""Takes a `model.tar.gz` apart into a folder, if nothing in it reaches outside.

Python's own filters (PEP 706) came with 3.12 and tarfile's default changed with 3.14; they follow
links inside the folder and have no limits. An archive of a model needs regular files and folders
only, so everything else is refused, and all headers are looked at before the first byte is written.
By then the compressed stream has been read to its end, where gzip compares its checksum: nothing of
a damaged archive is believed, not even what it would be refused for.
"""

from __future__ import annotations

import gzip
import io
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from declutr.archives import GET_ANEW, BrokenArchive, UnsafeArchive, is_gzip

MAX_MEMBERS = 10_000  # archives have about twenty
# All headers together. tarfile reads extended ones into memory whole, whatever size they declare.
MAX_HEADER_BYTES = 2**25
# An archive of up to a GiB is extracted however well it was compressed. Beyond that, weights say
# what is honest: float32 shrinks by a tenth, by two thirds if it was made of bfloat16, text by ten;
# gzip itself reaches a thousand, with nothing but zeros.
MAX_UNQUESTIONED_BYTES = 2**30
MAX_RATIO = 20

Members = list[tuple[tarfile.TarInfo, PurePosixPath]]
"""Headers, and where below a folder what follows them belongs."""

_CHUNK = 2**20
_DRIVE = re.compile(r"[A-Za-z]:")
_KINDS = {
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a named pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


@contextmanager
def extracted(archive: Path) -> Iterator[Path]:
    """Return a context with a temporary folder of what is in an archive; it raises as `extract`."""
    with tempfile.TemporaryDirectory(prefix="declutr-", ignore_cleanup_errors=True) as folder:
        extract(archive, Path(folder))
        yield Path(folder)


def extract(archive: Path, folder: Path) -> None:
    """Write the files and folders of `archive`, a gzipped tar, into an empty `folder`.

    Permissions, owners and times are not taken over.

    # Raises

    `UnsafeArchive` : a member that is no regular file or folder or would lie outside, two for the
        same place, or sizes that no model has. Nothing has been written then.
    `BrokenArchive` : it is no gzipped tar, damaged, or cut off.
    """
    room = _Room(archive, folder)
    with _HeaderReader(archive) as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r:") as tar:
                members = _checked_members(tar, room)
                stream.read_to_the_end(room.most)
                stream.headers_only = False
                _write(tar, members, folder)
                stream.read_to_the_end(room.most)  # it has been read once more
        except Exception as error:  # of damaged headers, tarfile raises more than it says
            if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
                raise
            raise _refusal(archive, room.most, error) from error


def _refusal(archive: Path, most: int, error: Exception) -> Exception:
    """Return what is wrong with an archive that could not be extracted: damage first."""
    damage = _damage(archive, most)
    if damage is not None:
        return BrokenArchive(
            f"'{archive}' cannot be read as a model.tar.gz: it is damaged or cut off ({damage}). "
            f"{GET_ANEW}"
        )
    if isinstance(error, RecursionError):  # tarfile calls itself for a header that extends a header
        error = UnsafeArchive("Its headers are nested too deeply.")
    if isinstance(error, UnsafeArchive):
        return UnsafeArchive(f"{archive}: {error} Nothing was extracted.")
    return BrokenArchive(
        f"'{archive}' cannot be read as a model.tar.gz: {error}. Expected a tar compressed with "
        "gzip; it may be cut off: get it anew."
    )


def _damage(archive: Path, most: int) -> Exception | None:
    """Return what gzip says of its stream up to so many bytes; nothing of what is no gzip."""
    if not is_gzip(archive):
        return None
    try:
        with _HeaderReader(archive) as stream:
            stream.read_to_the_end(most)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        return error
    except UnsafeArchive:  # a bomb is not unpacked to see whether it is whole
        pass
    return None


def inside_path(name: str) -> PurePosixPath:
    """Return where a member of this name belongs, relative to the folder, which is ".".

    # Raises

    `UnsafeArchive` : a name that is absolute, climbs with "..", or means something else elsewhere.
    """
    if not name or not name.isprintable():
        raise UnsafeArchive(f"A member has the name {name!r}; expected printable text.")
    if name.startswith("/") or _DRIVE.match(name):
        raise UnsafeArchive(f"The member '{name}' has an absolute path.")
    if "\\" in name:
        raise UnsafeArchive(f"The member '{name}' has a backslash, which parts paths on Windows.")
    path = PurePosixPath(name)
    if ".." in path.parts:
        raise UnsafeArchive(f"The member '{name}' climbs out of its folder with '..'.")
    return path


class _HeaderReader(gzip.GzipFile):
    """Gzip that hands out so much for headers; between them, tarfile skips and does not read."""

    def __init__(self, archive: Path) -> None:
        super().__init__(archive, "rb")
        self.headers_only = True
        self._handed_out = 0

    def read(self, size: int | None = -1) -> bytes:
        if self.headers_only:
            allowed = MAX_HEADER_BYTES - self._handed_out
            if size is None or not 0 <= size <= allowed:
                raise UnsafeArchive(
                    f"Its headers declare more than {MAX_HEADER_BYTES // 2**20} MiB of headers."
                )
            self._handed_out += size
        return super().read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place as in any file; forwards in larger steps than gzip would take."""
        while whence == io.SEEK_SET and offset - self.tell() > _CHUNK and super().read(_CHUNK):
            pass
        return super().seek(offset, whence)

    def read_to_the_end(self, most: int) -> None:
        """Read what is left, as gzip compares its checksum and length at the end.

        # Raises

        `gzip.BadGzipFile`, `EOFError`, `zlib.error` : the file is damaged, or cut off.
        `UnsafeArchive` : more than `most` bytes in all.
        """
        while super().read(_CHUNK):
            if self.tell() > most:
                raise UnsafeArchive(f"It unpacks to more than {most:,} bytes.")


class _Room:
    """How many bytes an archive may declare. Counted header by header: skipping takes time too."""

    def __init__(self, archive: Path, folder: Path) -> None:
        self._compressed = archive.stat().st_size
        self._allowed = max(MAX_UNQUESTIONED_BYTES, MAX_RATIO * self._compressed)
        self._folder, self._free = folder, shutil.disk_usage(folder).free
        self._declared = 0
        self.most = self._allowed + 2 * MAX_HEADER_BYTES
        """Bytes that an honest archive unpacks to at most, headers and padding included."""

    def take(self, size: int) -> None:
        self._declared += size
        if self._declared > self._allowed:
            raise UnsafeArchive(
                f"Its {self._compressed:,} bytes declare {self._declared:,} bytes of files or "
                f"more. Expected at most {MAX_RATIO} times as much, as weights barely shrink."
            )
        if self._declared > self._free:
            raise UnsafeArchive(
                f"It declares {self._declared:,} bytes of files or more, but {self._folder} has "
                f"room for {self._free:,}. TMPDIR names another place for temporary files."
            )


def _checked_members(tar: tarfile.TarFile, room: _Room) -> Members:
    """Return all members with their places, after a look at each header."""
    members: Members = []
    files: set[PurePosixPath] = set()
    folders: set[PurePosixPath] = set()
    for member in tar:
        if len(members) == MAX_MEMBERS:
            raise UnsafeArchive(f"It has more than {MAX_MEMBERS:,} members.")
        path = inside_path(member.name)
        _require_file_or_folder(member)
        room.take(member.size)
        if path in files:
            raise UnsafeArchive(f"The member '{member.name}' is there twice.")
        if member.isdir():
            folders.add(path)
        elif path in folders:
            raise UnsafeArchive(f"The member '{member.name}' is both a file and a folder.")
        else:
            files.add(path)
        for parent in path.parents:
            if parent in files:
                raise UnsafeArchive(f"The member '{member.name}' lies in '{parent}', a file.")
            folders.add(parent)
        members.append((member, path))
    return members


def _require_file_or_folder(member: tarfile.TarInfo) -> None:
    if member.issym() or member.islnk():
        kind = "a symbolic link" if member.issym() else "a hard link"
        raise UnsafeArchive(f"The member '{member.name}' is {kind} to '{member.linkname}'.")
    if member.sparse is not None:
        raise UnsafeArchive(f"The member '{member.name}' is a sparse file.")
    if not member.isdir() and member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        kind = _KINDS.get(member.type, f"of the kind {member.type!r}")
        raise UnsafeArchive(
            f"The member '{member.name}' is {kind}; expected files and folders only."
        )
    if member.size < 0:
        raise UnsafeArchive(f"The member '{member.name}' declares {member.size} bytes.")


def _write(tar: tarfile.TarFile, members: Members, folder: Path) -> None:
    for member, path in members:
        target = folder / path
        if member.isdir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        source = tar.extractfile(member)
        assert source is not None, "a regular file"
        with target.open("xb") as file:  # never over another one, not even "A" over "a"
            shutil.copyfileobj(source, file, _CHUNK)  # tarfile raises if it ends early
