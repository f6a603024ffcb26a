"""Tests of the summary that is printed at the end of a run."""

import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from declutr.inference.bulk import Summary
from declutr.inference.bulk.manifest import Counts
from declutr.inference.bulk.summary_lines import summary_lines


def test_the_summary_of_a_resumed_run(tmp_path: Path) -> None:
    counts = Counts(blank_rows=3, truncated_rows=2, not_finite_rows=1)
    summary = Summary(tmp_path, 1_000_000, 31, counts, 600_000, 300.0)
    lines = summary_lines(summary, "jsonl", "bfloat16")
    assert lines[0] == f"1,000,000 rows in 31 files: {tmp_path}"
    assert lines[1:6] == [
        "  computed in bfloat16",
        "  3 blank",
        "  2 cut to the length the model takes",
        "  1 without a finite embedding (NaN)",
        "  600,000 embedded in 300.0 s (2,000 a second), 400,000 were there",
    ]


def test_the_lines_that_read_the_embeddings_do(tmp_path: Path) -> None:
    """Also in a folder whose name would be a pattern."""
    folder = tmp_path / "run[1] of 'mine'"
    folder.mkdir()
    np.save(folder / "embeddings-00000.npy", np.ones((2, 3)))
    printed = summary_lines(Summary(folder, 2, 1, Counts(), 2, 1.0), "npy", "float32")
    names: dict[str, Any] = {}
    exec(textwrap.dedent("\n".join(printed[printed.index("To read them:") + 1 :])), names)
    assert names["embeddings"].shape == (2, 3)
