"""Files of SentEval's tasks in their published layout, of rows that tests or scripts give."""

import pickle
import struct
from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

THREE = ("train", "dev", "test")
SNLI_LABELS = ("entailment", "neutral", "contradiction")
LAYOUTS = {
    "SST2": ("downstream/SST/binary/sentiment-{}", THREE, "", "{1}\t{0}"),
    "SST5": ("downstream/SST/fine/sentiment-{}", THREE, "", "{0} {1}"),
    "TREC": ("downstream/TREC/{}.label", ("train_5500", "TREC_10"), "", "{0}:fine {1}"),
    "MRPC": (
        "downstream/MRPC/msr_paraphrase_{}.txt",
        ("train", "test"),
        "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
        "{0}\t7\t8\t{1}\t{2}",
    ),
    "SICK": (
        "downstream/SICK/SICK_{}.txt",
        ("train", "trial", "test_annotated"),
        "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment",
        "1\t{1}\t{2}\t{3}\t{0}",
    ),
    "STS-B": (
        "downstream/STS/STSBenchmark/sts-{}.csv",
        THREE,
        "",
        "news\tMSRpar\t2012\t7\t{0}\t{1}\t{2}",
    ),
}
"""The files of a task, its splits, the first line and the form of the others."""
BINARY = {
    "MR": ("rt-polarity.pos", "rt-polarity.neg"),
    "CR": ("custrev.pos", "custrev.neg"),
    "MPQA": ("mpqa.pos", "mpqa.neg"),
    "SUBJ": ("subj.objective", "subj.subjective"),
}
"""The files of class 1 and of class 0."""


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_task(data: Path, task: str, *splits: Sequence[tuple]) -> None:
    """Write a task of `LAYOUTS` with rows `(label, text, ...)` in each split."""
    place, names, heading, form = LAYOUTS[task]
    for name, rows in zip(names, splits, strict=True):
        lines = [form.format(*row) for row in rows]
        write_lines(data / place.format(name), [heading, *lines] if heading else lines)


def write_binary(data: Path, task: str, positive: Sequence[str], negative: Sequence[str]) -> None:
    for file, lines in zip(BINARY[task], (positive, negative), strict=True):
        write_lines(data / "downstream" / task / file, lines)


def write_snli(data: Path, *splits: Sequence[tuple]) -> None:
    """Write rows `(label, first, second)`; a label is a number."""
    for split, rows in zip(THREE, splits, strict=True):
        labels, *columns = zip(*rows, strict=True)
        names = [SNLI_LABELS[label] for label in labels]
        for column, lines in zip(("labels", "s1", "s2"), (names, *columns), strict=True):
            write_lines(data / "downstream" / "SNLI" / f"{column}.{split}", lines)


def write_sts(data: Path, task: str, subset: str, rows: Sequence[tuple]) -> None:
    """Write pairs `(score, first, second)`; a blank score is that of a pair without any."""
    folder = data / "downstream" / "STS" / f"{task}-en-test"
    write_lines(folder / f"STS.input.{subset}.txt", [f"{a}\t{b}" for _, a, b in rows])
    write_lines(folder / f"STS.gs.{subset}.txt", [str(score) for score, *_ in rows])


def write_probing(data: Path, file: str, *splits: Sequence[tuple]) -> None:
    parts = zip(("tr", "va", "te"), splits, strict=True)
    lines = [f"{part}\t{label}\t{text}" for part, rows in parts for label, text in rows]
    write_lines(data / "probing" / f"{file}.txt", lines)


def write_coco(data: Path, *splits: tuple[np.ndarray, Sequence[str]]) -> None:
    """Write image features `(n, width)` and 5n captions a split, as Python 2 pickled them."""
    folder = data / "downstream" / "COCO"
    folder.mkdir(parents=True, exist_ok=True)
    for split, (features, captions) in zip(("train", "valid", "test"), splits, strict=True):
        ids = {i: list(range(5 * i, 5 * i + 5)) for i in range(len(features))}
        held = {
            "features": list(features),
            "image_to_caption_ids": ids,
            "captions": {n: {"cleaned_caption": text} for n, text in enumerate(captions)},
        }
        (folder / f"{split}.pkl").write_bytes(python_2_pickle(held))


class _Python2Pickler(pickle._Pickler):  # type: ignore[name-defined]
    """A pickler that writes texts and bytes as Python 2 wrote its `str`: 8 bits a character."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def save_str(self, text: str | bytes) -> None:
        raw = text.encode() if isinstance(text, str) else text
        short = len(raw) < 256
        size = struct.pack("<B" if short else "<i", len(raw))
        self.write((pickle.SHORT_BINSTRING if short else pickle.BINSTRING) + size + raw)
        self.memoize(text)

    dispatch[str] = dispatch[bytes] = save_str


def python_2_pickle(value: Any) -> bytes:
    """Return what `pickle.dumps(value, 2)` gave in Python 2 with the numpy of its time."""
    file = BytesIO()
    _Python2Pickler(file, 2).dump(value)
    return file.getvalue().replace(b"cnumpy._core.", b"cnumpy.core.")
