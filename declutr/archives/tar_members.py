"""Insertion of a file into a finished archive (`model.tar.gz`) without extracting it."""

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
from declutr.system.files import named_if_full


def put_member(archive: str | os.PathLike, name: str, content: bytes) -> None:
    """Add a member to a `model.tar.gz`, or replace the one of the same name.

    The archive is copied once, member by member, in constant memory and without extracting it. The
    copy replaces the archive when it is complete on disk; otherwise the archive stays unchanged.

    # Raises

    `FileNotFoundError` : if there is no such archive.
    `tarfile.ReadError` : if it is not a gzipped tar file, is damaged, or is truncated.
    """
    archive = Path(archive).resolve()  # Of a symbolic link, the target is to be replaced.
    beside = archive.with_name(f".{archive.name}.{os.getpid()}.new")
    try:
        with (
            named_if_full(archive),
            tarfile.open(archive, "r:gz") as old,
            open(beside, "wb") as file,
            # Weights hardly compress, so that higher levels would only take longer.
            gzip.GzipFile(archive.name, "wb", compresslevel=4, fileobj=file) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
        ):
            for member in old:
                if normpath(member.name) != name:
                    new.addfile(member, old.extractfile(member) if member.isreg() else None)
            # gzip verifies its checksum only at the end of the stream, which must be read so that
            # a damaged archive is not copied as a sound one.
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
