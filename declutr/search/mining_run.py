"""Files of triplets: mining that goes on where it was interrupted, and what it writes."""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout
from tqdm.auto import tqdm

from declutr._version import __version__
from declutr.corpus.text_pairs import TextPair
from declutr.search.candidates import Candidates
from declutr.search.hard_negatives import Choice, mine_negatives
from declutr.search.index_files import SearchError
from declutr.system.files import write_whole

FORMATS = (".tsv", ".jsonl")
"""Triplets with one negative a row, or pairs with a list of all their negatives."""

_FLUSHED = 256  # pairs


@dataclass
class MiningCounts:
    """The numbers of pairs and texts that a run of mining searched, found and wrote."""

    pairs: int = 0
    """Pairs that were searched for."""
    resumed: int = 0
    """Pairs whose negatives an earlier, interrupted run had found."""
    rows: int = 0
    """Rows written."""
    fewer: int = 0
    """Pairs with some negatives, but fewer than were asked for."""
    without: int = 0
    """Pairs without a negative, which are not written."""


def check_output(output: Path, overwrite: bool = True) -> None:
    """Raise `SearchError` unless triplets can be written to a file, which `overwrite` replaces."""
    if output.suffix.lower() not in FORMATS:
        raise SearchError(
            f"'{output.name}' is no table of triplets. Expected a name in .tsv (a triplet a row) "
            "or .jsonl (a pair a row, with a list of its negatives)."
        )
    if output.is_dir():
        raise SearchError(f"'{output}' is a folder, expected the name of a file.")
    if output.exists() and not overwrite:
        raise SearchError(
            f"'{output}' is there. Expected another file; --overwrite replaces what it holds."
        )


def write_triplets(
    pairs: Sequence[TextPair],
    candidates: Candidates,
    choice: Choice,
    output: Path,
    progress: bool = True,
) -> MiningCounts:
    """Mine hard negatives and write them to a table for the reader "text_pairs".

    A `.tsv` has the columns anchor, positive and negative, and a row for each negative. A `.jsonl`
    has the same names, and a list of negatives in each row; as the reader wants equally many,
    pairs with fewer than `num_negatives` are left out there.

    The file appears whole or not at all. A file beside it (`.part`) keeps what was found: the same
    call goes on from there, and another one starts anew.

    # Parameters

    pairs, candidates, choice : as in `declutr.search.hard_negatives.mine_negatives`.
    output : the table to write; an existing one is replaced.
    progress : whether to show a progress bar, on a terminal.

    # Raises

    `SearchError` : if the name is not that of a table, another run writes to it, or no pair has a
        negative.
    """
    check_output(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    part = output.with_name(f"{output.name}.part")
    lock = FileLock(f"{part}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise SearchError(
            f"Another run is writing to '{output}'. Wait for it, or choose another name."
        ) from error
    try:
        counts = MiningCounts(len(pairs), _resumed(part, _key(pairs, candidates, choice)))
        _mine(pairs, candidates, choice, part, counts.resumed, progress)
        _write(pairs, part, choice, output, counts)
        part.unlink()
    finally:
        lock.release()
        Path(lock.lock_file).unlink(missing_ok=True)
    return counts


def _key(pairs: Sequence[TextPair], candidates: Candidates, choice: Choice) -> bytes:
    """Return a line that tells runs apart whose negatives may differ."""
    digest = hashlib.sha256(repr((__version__, candidates.identity, astuple(choice))).encode())
    for pair in pairs:
        digest.update(repr((pair.anchor, pair.positive)).encode())
    return f"{digest.hexdigest()}\n".encode()


def _resumed(part: Path, key: bytes) -> int:
    """Return how many pairs the file holds, after making it one that can be appended to."""
    count, end = 0, len(key)
    try:
        with part.open("rb") as file:
            if file.readline() != key:
                raise FileNotFoundError
            for line in file:
                if not line.endswith(b"]\n"):  # The run was killed while it wrote this.
                    break
                count, end = count + 1, end + len(line)
        os.truncate(part, end)
    except FileNotFoundError:
        write_whole(part, key)
    return count


def _mine(
    pairs: Sequence[TextPair],
    candidates: Candidates,
    choice: Choice,
    part: Path,
    start: int,
    progress: bool,
) -> None:
    # With `disable=None`, tqdm shows a bar on terminals only, so that logs hold none.
    shown = None if progress else True
    bar = tqdm(total=len(pairs), initial=start, unit=" pairs", unit_scale=True, disable=shown)
    with bar, part.open("ab") as file:
        for number, negatives in enumerate(mine_negatives(pairs, candidates, choice, start), 1):
            file.write(json.dumps(negatives).encode() + b"\n")
            bar.update()
            if number % _FLUSHED == 0:
                file.flush()


def _write(
    pairs: Sequence[TextPair], part: Path, choice: Choice, output: Path, counts: MiningCounts
) -> None:
    rows = _rows_of_lists if output.suffix.lower() == ".jsonl" else _rows_of_triplets

    def write(file: BinaryIO) -> None:
        with part.open("rb") as found:
            next(found)
            file.writelines(rows(pairs, map(json.loads, found), choice.num_negatives, counts))
        if not counts.rows:
            what = "as many negatives as asked for" if counts.fewer else "a negative"
            raise SearchError(
                f"None of {counts.pairs:,} pairs has {what} among the candidates. Expected texts "
                "near to the anchors that are no known positives: give more or other candidates, "
                "or allow higher scores."
            )

    write_whole(output, write)


def _rows_of_triplets(
    pairs: Sequence[TextPair], found: Iterator[list[str]], most: int, counts: MiningCounts
) -> Iterator[bytes]:
    yield b"anchor\tpositive\tnegative\n"
    for pair, negatives in _counted(pairs, found, most, counts):
        for negative in negatives:
            counts.rows += 1
            row = "\t".join((pair.anchor, pair.positive, negative))
            yield f"{row}\n".encode("utf-8", "replace")


def _rows_of_lists(
    pairs: Sequence[TextPair], found: Iterator[list[str]], most: int, counts: MiningCounts
) -> Iterator[bytes]:
    for pair, negatives in _counted(pairs, found, most, counts):
        if len(negatives) == most:
            counts.rows += 1
            row = {"anchor": pair.anchor, "positive": pair.positive, "negative": negatives}
            yield f"{json.dumps(row, ensure_ascii=False)}\n".encode("utf-8", "replace")


def _counted(
    pairs: Sequence[TextPair], found: Iterator[list[str]], most: int, counts: MiningCounts
) -> Iterator[tuple[TextPair, list[str]]]:
    for pair, negatives in zip(pairs, found, strict=True):
        counts.without += not negatives
        counts.fewer += 0 < len(negatives) < most
        yield pair, negatives
