"""A file put into a finished archive (`model.tar.gz`), without unpacking it."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tarfile
import time
import zlib
from pathlib import Path
from posixpath import normpath

from declutr.archives import GET_ANEW


def put_member(archive: str | os.PathLike, name: str, content: bytes) -> None:
    """Let `archive` hold `content` as `name`, in place of a member of that name if there is one.

    The archive is read and written once, member by member: nothing of it is extracted, and memory
    stays flat. It is replaced when the new one is on the disk, or stays as it was.

    # Raises

    `FileNotFoundError` : there is no such file.
    `tarfile.ReadError` : it is no tar.gz, is damaged, or is cut off.
    """
    archive = Path(archive).resolve()  # behind a link, the file is replaced and not the link
    beside = archive.with_name(f".{archive.name}.{os.getpid()}.new")
    try:
        with (
            tarfile.open(archive, "r:gz") as old,
            open(beside, "wb") as file,
            # Weights do not compress: higher levels take longer for nothing.
            gzip.GzipFile(archive.name, "wb", compresslevel=4, fileobj=file) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
        ):
            for member in old:
                if normpath(member.name) != name:
                    new.addfile(member, old.extractfile(member) if member.isreg() else None)
            # gzip compares its checksum at the end alone: damage must not come out as sound.
            while old.fileobj.read(1 << 20):  # type: ignore[union-attr]
                pass
            added = tarfile.TarInfo(name)
            added.size, added.mtime = len(content), int(time.time())
            new.addfile(added, io.BytesIO(content))
            new.close()
            packed.close()
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(archive, beside)
        os.replace(beside, archive)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise tarfile.ReadError(
            f"'{archive}' is damaged or cut off ({error}), and stays as it was. {GET_ANEW}"
        ) from error
    finally:
        beside.unlink(missing_ok=True)
