"""The summary that is printed at the end of a run that embedded rows into a folder."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from declutr.inference.bulk import Summary


def summary_lines(summary: Summary, format: str, dtype: str) -> list[str]:
    """Return the lines that report rows, unusual rows, speed, and how to read the embeddings."""
    folder, counts = summary.folder, summary.counts
    always = {
        "blank": counts.blank_rows,
        "cut to the length the model takes": counts.truncated_rows,
        "without a finite embedding (NaN)": counts.not_finite_rows,
    }
    if_any = {
        "with U+FFFD, mostly for bytes that are not UTF-8": counts.replaced_rows,
        "that could not be read (blank)": counts.unreadable_rows,
    }
    lines = [f"{summary.rows:,} rows in {summary.shards:,} files: {folder}"]
    if summary.rows:
        lines.append(f"  computed in {dtype}")
    told = always | {what: rows for what, rows in if_any.items() if rows}
    lines += [f"  {rows:,} {what}" for what, rows in told.items()]
    kept = summary.rows - summary.embedded_rows
    if not summary.embedded_rows and kept:
        lines.append(f"  Nothing to do: all were embedded before ({summary.seconds:,.1f} s).")
    else:
        rate = summary.embedded_rows / max(summary.seconds, 1e-9)
        before = f", {kept:,} were there" if kept else ""
        lines.append(
            f"  {summary.embedded_rows:,} embedded in {summary.seconds:,.1f} s "
            f"({rate:,.0f} a second){before}"
        )
    if not summary.rows:
        return lines
    lines.append("To read them:")
    if format == "npy":
        pattern = str(Path(glob.escape(str(folder)), "embeddings-*.npy"))
        lines += [
            "  import glob, numpy as np",
            "  embeddings = np.concatenate([np.load(file) for file in sorted(glob.glob("
            f"{pattern!r}))])",
        ]
    else:
        lines += [
            "  from declutr.inference.bulk import StoredEmbeddings",
            f"  embeddings = StoredEmbeddings({str(folder)!r})[:]",
        ]
    return lines
