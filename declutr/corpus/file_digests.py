"""An index of file digests, so that each file is hashed once and not at every start.

The index is the file `digests.json` in the cache folder. It holds, for each file, its appearance
(size, times, inode) and SHA-256 when it was read, with a checksum of both. A file is read again if
its appearance differs or its entry is damaged.
"""

import hashlib
import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from declutr.corpus import SourceError
from declutr.system.files import (
    Appearance,
    appearance,
    json_checksum,
    json_object,
    locked,
    write_whole,
)

logger = logging.getLogger(__name__)

INDEX_NAME = "digests.json"
_MOST = 1_000_000  # The number of files in the index, at most.
_BLOCK = 1 << 22
_SHOWN_FROM = 10**9  # Fewer bytes are read too fast for a progress bar.
_CLOCK_TICK = 0.05  # Seconds. Two changes within one tick of a file system leave equal times.


def file_digests(
    files: Sequence[Path], cache_dir: Path, progress: bool = True
) -> dict[Path, tuple[str, Appearance]]:
    """Return the SHA-256 of each file (hexadecimal), and the appearance it had when it was hashed.

    If several processes ask at once, one reads the files and the others wait for its index. An
    index that cannot be read is started anew; one that cannot be written is not kept.

    # Parameters

    files : the files to hash.
    cache_dir : the folder of the index, which must exist.
    progress : whether to show a progress bar while large files are read.

    # Raises

    `SourceError` : if a file changed while it was being read.
    """
    found = _known(files, cache_dir)
    if len(found) < len(set(files)):
        # The lock is for these files only, so that processes that read others need not wait.
        names = json.dumps(sorted(str(file.resolve()) for file in set(files)))
        name = f"digests-{hashlib.sha256(names.encode()).hexdigest()[:16]}.lock"
        with locked(cache_dir / name):
            found |= _known(files, cache_dir)
            missing = [file for file in dict.fromkeys(files) if file not in found]
            if missing:
                read = _read(missing, progress)
                _remember(read, cache_dir)
                found |= read
    return found


def check_unchanged(digests: dict[Path, tuple[str, Appearance]]) -> None:
    """Raise if the content of a file differs from its digest.

    A file whose appearance alone differs (it was touched, or moved and put back) is read again, and
    its new appearance is stored in `digests`.

    # Parameters

    digests : from `file_digests`.

    # Raises

    `SourceError` : if a file changed or is gone.
    """
    for file, (digest, before) in digests.items():
        try:
            now = appearance(file)
            same = now == before or (now[0] == before[0] and _digest(file)[0] == digest)
        except OSError as error:
            raise _changed(file) from error
        if not same:
            raise _changed(file)
        digests[file] = digest, now


def _changed(file: Path) -> SourceError:
    return SourceError(
        f"'{file}' changed while it was being read. Expected files that nothing writes to: wait "
        "until it is finished (or stop what writes it), then start again."
    )


def _known(files: Sequence[Path], cache_dir: Path) -> dict[Path, tuple[str, Appearance]]:
    """Return the digests that the index has for files of unchanged appearance."""
    index = json_object(cache_dir / INDEX_NAME)
    found = {}
    for file in files:
        now = appearance(file)
        entry = index.get(str(file.resolve()))
        # Version 1.5 wrote entries without a checksum.
        if not isinstance(entry, list) or entry[1:2] != [list(now)]:
            continue
        if entry[2:] in ([], [json_checksum(entry[:2])]):
            found[file] = str(entry[0]), now
    return found


def _remember(digests: dict[Path, tuple[str, Appearance]], cache_dir: Path) -> None:
    with locked(cache_dir / "digests.lock"):
        index = json_object(cache_dir / INDEX_NAME)
        for file, entry in digests.items():
            index.pop(str(file.resolve()), None)  # The newest entries are the last ones.
            index[str(file.resolve())] = [*entry, json_checksum(entry)]
        kept = dict(list(index.items())[-_MOST:])
        try:
            write_whole(cache_dir / INDEX_NAME, json.dumps(kept), shared=True)
        except OSError as error:
            logger.info("The digests of the corpus are not kept for the next start: %s", error)


def _read(files: Sequence[Path], progress: bool) -> dict[Path, tuple[str, Appearance]]:
    from tqdm.auto import tqdm  # not needed for files that are known

    total = sum(file.stat().st_size for file in files)
    hidden = not progress or total < _SHOWN_FROM
    about = "looking for changes in the corpus"
    with tqdm(total=total, unit="B", unit_scale=True, desc=about, disable=hidden) as bar:
        return {file: _digest(file, bar) for file in files}


def _digest(file: Path, bar: Any = None) -> tuple[str, Appearance]:
    before = appearance(file)
    # If the file was changed just now, another change within the same tick would leave its times
    # as they are. So wait until that tick is over.
    age = time.time() - max(before[1], before[2]) / 1e9
    if 0 <= age < _CLOCK_TICK:
        time.sleep(_CLOCK_TICK - age)
    digest = hashlib.sha256()
    with open(file, "rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
            if bar is not None:
                bar.update(len(block))
    if appearance(file) != before:
        raise _changed(file)
    return digest.hexdigest(), before
