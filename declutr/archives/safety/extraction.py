"""Safe extraction of a `model.tar.gz` into a folder.

The extraction filters of Python (PEP 706) came with 3.12 and are the default since 3.14. They
follow links inside the folder and do not limit sizes. The archive of a model needs regular files
and folders only, so everything else is refused here, and all headers are checked before the first
byte is written. Before that, the compressed stream is read to its end, where gzip verifies its
checksum: a damaged archive is reported as damaged, and not as unsafe because of a damaged header.
"""

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

from declutr.archives import GET_ANEW, TRUST, BrokenArchive, UnsafeArchive, is_gzip
from declutr.archives.safety.building import MAX_RATIO, MAX_UNQUESTIONED_BYTES

MAX_MEMBERS = 10_000
"""The maximum number of members; archives have about twenty."""
# tarfile reads extended headers into memory as a whole, whatever size they declare.
MAX_HEADER_BYTES = 2**25
"""The maximum size of all headers together."""

Members = list[tuple[tarfile.TarInfo, PurePosixPath]]
"""The headers of an archive, each with the path of its member relative to the folder."""

_CHUNK = 2**20
_DRIVE = re.compile(r"[A-Za-z]:")
_KINDS = {
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a named pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


@contextmanager
def extracted(archive: Path, trust: bool = False) -> Iterator[Path]:
    """Return a context with a temporary folder of extracted files; it raises as `extract` does."""
    with tempfile.TemporaryDirectory(prefix="declutr-", ignore_cleanup_errors=True) as folder:
        extract(archive, Path(folder), trust)
        yield Path(folder)


def extract(archive: Path, folder: Path, trust: bool = False) -> None:
    """Extract a gzipped tar file.

    Permissions, owners and times are not restored.

    # Parameters

    archive : the path of the archive.
    folder : an empty folder.
    trust : whether files may be as large as the disk has room for, however well they compress, as
        an empty memory bank does.

    # Raises

    `UnsafeArchive` : if a member is neither a regular file nor a folder or would be outside
        `folder`, if two members have the same path, or if sizes are larger than those of a model.
        Nothing has been written in this case.
    `BrokenArchive` : if it is not a gzipped tar file, is damaged, or is truncated.
    """
    limit = _SizeLimit(archive, folder, trust)
    with _HeaderReader(archive) as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r:") as tar:
                members = _checked_members(tar, limit)
                stream.read_to_the_end(limit.most)
                stream.headers_only = False
                _write(tar, members, folder)
                # The file may have changed since the first pass, so its checksum is verified again.
                stream.read_to_the_end(limit.most)
        # For damaged headers, tarfile raises more kinds of errors than it documents.
        except Exception as error:
            if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
                raise
            raise _refusal(archive, limit.most, error) from error


def _refusal(archive: Path, most: int, error: Exception) -> Exception:
    """Return the error to raise for an archive that could not be extracted.

    Damage takes precedence, as it may have caused the error.
    """
    damage = _damage(archive, most)
    if damage is not None:
        return BrokenArchive(
            f"'{archive}' cannot be read as a model.tar.gz: it is damaged or cut off ({damage}). "
            f"{GET_ANEW}"
        )
    if isinstance(error, RecursionError):  # tarfile recurses into each header that extends another
        error = UnsafeArchive("Its headers are nested too deeply.")
    if isinstance(error, UnsafeArchive):
        return UnsafeArchive(f"{archive}: {error} Nothing was extracted.")
    return BrokenArchive(
        f"'{archive}' cannot be read as a model.tar.gz: {error}. Expected a tar compressed with "
        "gzip; it may be cut off: get it anew."
    )


def _damage(archive: Path, most: int) -> Exception | None:
    """Return the error that gzip raises on the first `most` bytes; `None` if there is none."""
    if not is_gzip(archive):
        return None
    try:
        with _HeaderReader(archive) as stream:
            stream.read_to_the_end(most)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        return error
    except UnsafeArchive:  # A bomb is not unpacked to its end, and counts as undamaged.
        pass
    return None


def inside_path(name: str) -> PurePosixPath:
    """Return the path of a member relative to the folder of extraction.

    # Raises

    `UnsafeArchive` : if the name is empty, not printable or absolute, contains "..", or has another
        meaning on Windows.
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
    """A gzip file that limits how much is read while only headers are needed.

    Between headers tarfile seeks and does not read, so reads are those of headers.
    """

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
        """Move to an offset as in any file, forwards in larger steps than gzip takes."""
        while whence == io.SEEK_SET and offset - self.tell() > _CHUNK and super().read(_CHUNK):
            pass
        return super().seek(offset, whence)

    def read_to_the_end(self, most: int) -> None:
        """Read the rest of the stream, so that gzip verifies its checksum and length at the end.

        # Raises

        `gzip.BadGzipFile`, `EOFError`, `zlib.error` : if the file is damaged or truncated.
        `UnsafeArchive` : if it unpacks to more than `most` bytes.
        """
        while super().read(_CHUNK):
            if self.tell() > most:
                raise UnsafeArchive(f"It unpacks to more than {most:,} bytes.")


class _SizeLimit:
    """The number of bytes that the members of an archive may still declare.

    They are counted header by header, because even skipping the content of a bomb takes long.
    """

    def __init__(self, archive: Path, folder: Path, trust: bool) -> None:
        self._compressed, self._trust = archive.stat().st_size, trust
        self._folder, self._free = folder, shutil.disk_usage(folder).free
        proportionate = max(MAX_UNQUESTIONED_BYTES, MAX_RATIO * self._compressed)
        self._allowed = self._free if trust else proportionate
        self._declared = 0
        self.most = self._allowed + 2 * MAX_HEADER_BYTES
        """The most bytes that a safe archive unpacks to, including headers and padding."""

    def take(self, size: int) -> None:
        """Count a member of `size` bytes; raise `UnsafeArchive` if that is too much."""
        self._declared += size
        if self._declared > self._allowed and not self._trust:
            raise UnsafeArchive(
                f"Its {self._compressed:,} bytes declare {self._declared:,} bytes of files or "
                f"more. Expected at most {MAX_RATIO} times as much, as weights barely shrink; a "
                f"memory bank that is mostly empty shrinks more. {TRUST}"
            )
        if self._declared > self._free:
            raise UnsafeArchive(
                f"It declares {self._declared:,} bytes of files or more, but {self._folder} has "
                f"room for {self._free:,}. TMPDIR names another place for temporary files."
            )


def _checked_members(tar: tarfile.TarFile, limit: _SizeLimit) -> Members:
    """Return all members with their paths after checking each header."""
    members: Members = []
    files: set[PurePosixPath] = set()
    folders: set[PurePosixPath] = set()
    for member in tar:
        if len(members) == MAX_MEMBERS:
            raise UnsafeArchive(f"It has more than {MAX_MEMBERS:,} members.")
        path = inside_path(member.name)
        _require_file_or_folder(member)
        limit.take(member.size)
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
        # "x" refuses to overwrite, as "A" would overwrite "a" where case does not matter.
        with target.open("xb") as file:
            shutil.copyfileobj(source, file, _CHUNK)  # tarfile raises if the member is truncated
