"""What the parts found as tables for `benchmarks.results` and `python -m benchmarks report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.results import Plot, Row, Run, new_run


class Table(NamedTuple):
    """The table of one part."""

    title: str
    columns: Sequence[str]
    note: str
    plots: Sequence[Plot] = ()


_REFERENCE = "reference bfloat16, fused AdamW"

TABLES = {
    "step": Table(
        "Training step on a GPU",
        (
            *("shape", "step", "s a step", "useful tokens/s", f"speed, {_REFERENCE} = 1"),
            *("share of matrix rate", "GPU busy", "launches", "waits", "peak memory, MB"),
        ),
        "Forward, backward, clipping and AdamW on batches of 16 documents of the paper's spans "
        "that lie on the device, random weights, dropout 0.1; the reference is the original recipe "
        "in the same autocast, padded. Time is the GPU's own. Useful tokens are those that are not "
        "padding. The share of the matrix rate counts only the arithmetic that they need, against "
        "large products in bfloat16 measured in between. Busy is the share of the time in which "
        "the GPU computes; launches are kernels a step, and waits are calls in which the host "
        "waits for the GPU.",
        [
            Plot(
                file="gpu_step",
                title="Useful tokens a second in a training step on a GPU",
                kind="bars",
                x="shape",
                y="useful tokens/s",
                series="step",
                baseline=_REFERENCE,
            )
        ],
    ),
    "train": Table(
        "Training from end to end on a GPU",
        (
            *("shape", "trainer", "s a step", "bare step, s", "rate of the bare step", "steps"),
            "peak memory, MB",
        ),
        "The recipe `declutr`, 16 documents a step, by AllenNLP's trainer and by this package's, "
        "against forward, backward, clipping and optimizer alone on the very same batches after "
        "the run.",
    ),
    "embed": Table(
        "Embedding texts on a GPU",
        (
            *("texts", "way", "texts/s", "speed, sentence-transformers float32 = 1"),
            *("mean cosine", "least cosine"),
        ),
        "4,000 texts from strings to arrays, the better of two passes, the same weights and the "
        "same longest length. Mixed lengths: 1 to 350 words, log-uniform; sentences: 5 to 30. "
        "Cosines are with what sentence-transformers gives in float32 for the same text.",
        [
            Plot(
                file="gpu_embed",
                title="Texts embedded a second on a GPU",
                kind="bars",
                x="texts",
                y="texts/s",
                series="way",
                baseline="sentence-transformers float32",
            )
        ],
    ),
    "chunks": Table(
        "Large contrastive batches on a GPU",
        (
            *("documents a step", "at a time", "s a step", "ms a document"),
            *("time a document, plain = 1", "peak memory, MB"),
        ),
        "The shape of DistilRoBERTa in bfloat16; the first row takes the batch at once, the others "
        "by `chunk_size`. Peak memory includes weights, gradients and optimizer.",
    ),
    "reclaim": Table(
        "RECLAIM beside a task on a GPU",
        (
            *("bank", "instances", "ms a step, task alone", "ms a step, with RECLAIM"),
            *("time, task alone = 1", "ms of the term by itself", "recall of the nearest"),
        ),
        "A step of a sentence-pair classifier of RoBERTa-base's shape, 32 pairs of 128 tokens, "
        "with the term against K = 100 of all instances in full banks and without it, in turns.",
    ),
    "correct": Table(
        "The same on a GPU as on a CPU",
        (
            *("check", "loss apart, relative", "gradient apart, relative"),
            *("CPU's loss apart", "CPU's gradient apart", "holds"),
        ),
        "Loss and gradient of all parameters as one vector, on the same masks and weights, against "
        "float32 on the CPU, padded; in bfloat16 beside how far the CPU's own bfloat16 is from it. "
        "It holds within 1e-4 and 1e-3 in float32, in bfloat16 within twice the CPU's distance.",
    ),
    "distributed": Table(
        "Several processes on a GPU",
        ("check", "loss apart, relative", "norm of weights apart", "holds"),
        "Losses of three updates, and the weights after them, against one process with all the "
        "documents.",
    ),
    "recipes": Table(
        "Recipes on a GPU",
        ("check", "training loss", "validation loss", "embedded", "holds"),
        "Four steps, a validation and an archive of each recipe by `allennlp train`, tiny. "
        "Embedded: whether the embeddings of the archive are those of the CPU.",
    ),
    "machine": Table(
        "What the GPU can do",
        ("check", "measured"),
        "Square products are of 8,192 rows, the others those of a packed step of RoBERTa's width.",
    ),
}
"""By part, in the order of the report."""

NAMES = {f"gpu_{part}": table.title for part, table in TABLES.items()}
"""Of the runs that they make, with their titles."""


def runs_of(found: Mapping[str, Any]) -> list[Run]:
    """The tables of the parts that found anything.

    Those of another checkout are named after its release, and stand beside this one's.
    """
    parts = found["parts"]
    machine: Mapping[str, Any] = {}
    release = "unknown"
    for part in parts.values():
        machine, release = part.get("machine", machine), part.get("release", release)
    other = found.get("settings", {}).get("repository", False)
    return [
        new_run(
            f"gpu_{part}" + (f"_{release}" if other else ""),
            table.title + (f", release {release}" if other else ""),
            rows,
            note=table.note,
            settings={"release": release},
            plots=() if other else table.plots,
            machine=machine,
        )
        for part, table in TABLES.items()
        if (rows := rows_of(table, parts.get(part, {}).get("checks", ())))
    ]


def rows_of(table: Table, checks: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The checks that belong into a table, and a last column for what became of the others."""
    known = set(table.columns) - {"check"}
    kept = [c for c in checks if known & set(c) or "failed" in c or "skipped" in c]
    rows: list[Row] = []
    for check in kept:
        row = {column: _shown(check.get(column)) for column in table.columns}
        if row[table.columns[0]] is None:  # of the whole part
            row[table.columns[0]] = check["check"]
        if any("failed" in c or "skipped" in c for c in kept):
            row["finding"] = _finding(check)
        rows.append(row)
    return rows


def _finding(check: Mapping[str, Any]) -> str:
    if "failed" in check:
        return f"failed: {check['failed'].splitlines()[0][:160]}"
    return check.get("skipped", "")


def _shown(value: Any) -> Any:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
