"""SentEval's classification of single sentences: sentiment, opinion, subjectivity, questions.

File formats are those its download script makes, under `downstream/`. AG's news is no task of
SentEval; it is cross-validated like the others, on the 7,600 items of its test file.
"""

from __future__ import annotations

import csv
import io
from functools import partial
from pathlib import Path

from declutr.evaluation.task import BrokenData, Protocol, Task
from declutr.evaluation.tasks.labelled_text import (
    ClassificationTask,
    LabelledText,
    Part,
    fields_of,
    label_of,
    other_size,
    require_all_labels,
    spaced,
)
from declutr.evaluation.text_files import read_lines, read_text

BINARY = {
    # name: file of class 1, of class 0, and how many items there are published
    "MR": ("rt-polarity.pos", "rt-polarity.neg", 10_662),
    "CR": ("custrev.pos", "custrev.neg", 3_775),
    "MPQA": ("mpqa.pos", "mpqa.neg", 10_606),
    "SUBJ": ("subj.objective", "subj.subjective", 10_000),
}
FILE_ROWS = {
    "rt-polarity.pos": 5_331,
    "rt-polarity.neg": 5_331,
    "custrev.pos": 2_407,
    "custrev.neg": 1_368,
    "mpqa.pos": 3_312,
    "mpqa.neg": 7_294,
    "subj.objective": 5_000,
    "subj.subjective": 5_000,
}
"""Lines that each of these files was published with, blank ones among them."""
SST2_ROWS = {"train": 67_349, "dev": 872, "test": 1_821}
SST5_ROWS = {"train": 8_544, "dev": 1_101, "test": 2_210}
TREC_ROWS = {"train_5500.label": 5_452, "TREC_10.label": 500}
TREC_CLASSES = {"ABBR": 0, "DESC": 1, "ENTY": 2, "HUM": 3, "LOC": 4, "NUM": 5}
AG_NEWS_ROWS, AG_NEWS_CLASSES = 7_600, {"1": 0, "2": 1, "3": 2, "4": 3}


def tasks(data: Path, protocol: Protocol) -> list[Task]:
    """MR, CR, MPQA, SUBJ, SST2, SST5, TREC and AGNews."""
    downstream = data / "downstream"
    readers = {name: partial(_binary, downstream / name, name) for name in BINARY}
    readers["SST2"] = partial(_sst2, downstream / "SST" / "binary")
    readers["SST5"] = partial(_sst5, downstream / "SST" / "fine")
    readers["TREC"] = partial(_trec, downstream / "TREC")
    found: list[Task] = [
        ClassificationTask(name, "downstream", read, protocol) for name, read in readers.items()
    ]
    news = partial(_ag_news, data / "extra" / "ag_news_test" / "test.csv")
    return [*found, ClassificationTask("AGNews", "extra", news, protocol)]


def _binary(folder: Path, name: str) -> LabelledText:
    """One file a class, one sentence a line."""
    positive, negative, published = BINARY[name]
    texts: list[str] = []
    labels: list[int] = []
    for file, label in ((positive, 1), (negative, 0)):
        lines = read_lines(folder / file, FILE_ROWS[file])
        texts += map(spaced, lines)
        labels += [label] * len(lines)
    return LabelledText(
        2, Part((texts,), labels), notes=other_size("sentences", len(texts), published)
    )


def _sst2(folder: Path) -> LabelledText:
    """`sentence<tab>label` a line."""

    def read(split: str) -> Part:
        path = folder / f"sentiment-{split}"
        part = Part(([],), [])
        for number, line in enumerate(read_lines(path, SST2_ROWS[split], latin_1=False), 1):
            text, label = fields_of(line.strip(), "\t", 2, path, number)[:2]
            part.columns[0].append(spaced(text))
            part.labels.append(label_of(label, {"0": 0, "1": 1}, path, number))
        require_all_labels(path, part.labels, {"0": 0, "1": 1})
        return part

    return _three_parts(2, {split: read(split) for split in SST2_ROWS}, SST2_ROWS)


def _sst5(folder: Path) -> LabelledText:
    """`label sentence` a line, labels 0 to 4."""
    known = {str(label): label for label in range(5)}

    def read(split: str) -> Part:
        path = folder / f"sentiment-{split}"
        part = Part(([],), [])
        for number, line in enumerate(read_lines(path, SST5_ROWS[split], latin_1=False), 1):
            label, _, text = line.strip().partition(" ")
            part.columns[0].append(spaced(text))
            part.labels.append(label_of(label, known, path, number))
        require_all_labels(path, part.labels, known)
        return part

    return _three_parts(5, {split: read(split) for split in SST5_ROWS}, SST5_ROWS)


def _three_parts(classes: int, parts: dict[str, Part], rows: dict[str, int]) -> LabelledText:
    notes = [
        note
        for split, part in parts.items()
        for note in other_size(f"{split} sentences", len(part.labels), rows[split])
    ]
    return LabelledText(classes, parts["train"], parts["dev"], parts["test"], notes)


def _trec(folder: Path) -> LabelledText:
    """`COARSE:fine question` a line; the six coarse classes are told apart."""

    def read(file: str) -> Part:
        path = folder / file
        part = Part(([],), [])
        for number, line in enumerate(read_lines(path, TREC_ROWS[file]), 1):
            label, rest = fields_of(line.strip(), ":", 2, path, number)[0], line.partition(":")[2]
            part.columns[0].append(spaced(rest.strip().partition(" ")[2]))
            part.labels.append(label_of(label, TREC_CLASSES, path, number))
        return part

    train, test = (read(file) for file in TREC_ROWS)
    require_all_labels(folder / "train_5500.label", train.labels, TREC_CLASSES)
    notes = [
        note
        for (file, rows), part in zip(TREC_ROWS.items(), (train, test), strict=True)
        for note in other_size(f"questions in {file}", len(part.labels), rows)
    ]
    return LabelledText(len(TREC_CLASSES), train, test=test, notes=notes)


def _ag_news(path: Path) -> LabelledText:
    """`"class","title","description"` a line, classes 1 to 4; a backslash was a line break."""
    part = Part(([],), [])
    # Strict: a file that ends within quotes is an error, not a field.
    reader = csv.reader(io.StringIO(read_text(path, latin_1=False), newline=""), strict=True)
    try:
        for row in reader:
            if len(row) != 3:
                raise BrokenData(
                    f"{path}, line {reader.line_num}: expected 3 fields (class, title, "
                    f"description), got {len(row)}."
                )
            label, title, description = row
            part.columns[0].append(spaced(f"{title} {description}".replace("\\", " ")))
            part.labels.append(label_of(label, AG_NEWS_CLASSES, path, reader.line_num))
    except csv.Error as error:
        raise BrokenData(f"{path}, line {reader.line_num}: {error}.") from error
    require_all_labels(path, part.labels, AG_NEWS_CLASSES)
    notes = other_size("news items", len(part.labels), AG_NEWS_ROWS)
    return LabelledText(len(AG_NEWS_CLASSES), part, notes=notes)
