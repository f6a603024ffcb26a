"""A progress bar in rows."""

from __future__ import annotations

from tqdm.auto import tqdm

from declutr.inference.bulk.input_rows import InputRows


class RowBar:
    """Shows how many rows are done; of how many is guessed from bytes, if those are known."""

    def __init__(self, rows: InputRows, total_bytes: int | None, shown: bool) -> None:
        self._rows = rows
        self._total_bytes = total_bytes
        # None: only on a terminal, so that logs hold no bars.
        self._bar = tqdm(unit=" rows", unit_scale=True, disable=None if shown else True)

    def __enter__(self) -> RowBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar.total:
            self._bar.total = self._rows.read
        self._bar.close()

    def show(self) -> None:
        rows = self._rows
        if self._total_bytes and rows.bytes:
            self._bar.total = max(rows.read, round(rows.read * self._total_bytes / rows.bytes))
        self._bar.set_postfix_str(f"{rows.bytes / 1e6:,.1f} MB of text", refresh=False)
        self._bar.update(rows.read - self._bar.n)
