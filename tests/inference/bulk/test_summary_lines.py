"""Tests of the summary that is printed at the end of a run."""

from pathlib import Path

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
