"""SentEval's classification of pairs of sentences: paraphrase and entailment."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from declutr.evaluation.classifiers.features import (
    both_product_and_difference,
    difference_and_product,
)
from declutr.evaluation.task import MissingData, Protocol, Task, require_rows
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
from declutr.evaluation.text_files import read_lines

MRPC_ROWS = {"msr_paraphrase_train.txt": 4_076, "msr_paraphrase_test.txt": 1_725}
SICK_ROWS = {"SICK_train.txt": 4_500, "SICK_trial.txt": 500, "SICK_test_annotated.txt": 4_927}
SNLI_ROWS = {"train": 549_367, "dev": 9_842, "test": 9_824}
YES_OR_NO = {"0": 0, "1": 1}
SICK_CLASSES = {"CONTRADICTION": 0, "NEUTRAL": 1, "ENTAILMENT": 2}
SNLI_CLASSES = {"entailment": 0, "neutral": 1, "contradiction": 2}


def tasks(data: Path, protocol: Protocol) -> list[Task]:
    """MRPC, SICK-E and SNLI."""
    downstream = data / "downstream"
    return [
        ClassificationTask(
            "MRPC",
            "downstream",
            partial(_mrpc, downstream / "MRPC"),
            protocol,
            combine=difference_and_product,
            sort_by=(0, 1),
            f1=True,
        ),
        ClassificationTask(
            "SICK-E",
            "downstream",
            partial(_sick, downstream / "SICK"),
            protocol,
            combine=difference_and_product,
            sort_by=(0, 1),
        ),
        ClassificationTask(
            "SNLI",
            "downstream",
            partial(_snli, downstream / "SNLI"),
            # With so much data, SentEval looks at the development set after every pass.
            replace(protocol, max_epoch=15, epoch_size=1),
            combine=both_product_and_difference,
            sort_by=(1, 0),
            penalised=False,
        ),
    ]


def _mrpc(folder: Path) -> LabelledText:
    """A heading, then `label<tab>id<tab>id<tab>sentence<tab>sentence` a line."""
    train, test = (
        _table(folder / file, rows, (3, 4), 0, YES_OR_NO) for file, rows in MRPC_ROWS.items()
    )
    notes = _sizes(MRPC_ROWS, train, test)
    return LabelledText(2, train, test=test, notes=notes)


def _sick(folder: Path) -> LabelledText:
    """A heading, then `id<tab>sentence<tab>sentence<tab>relatedness<tab>entailment` a line."""
    train, dev, test = (
        _table(folder / file, rows, (1, 2), 4, SICK_CLASSES) for file, rows in SICK_ROWS.items()
    )
    return LabelledText(3, train, dev, test, _sizes(SICK_ROWS, train, dev, test))


def _table(
    path: Path, published: int, columns: tuple[int, int], label: int, known: dict[str, int]
) -> Part:
    """A tab-separated file with a heading."""
    part = Part(([], []), [])
    for number, line in enumerate(read_lines(path, published + 1, latin_1=False), 1):
        if number == 1:
            continue
        fields = fields_of(line.strip(), "\t", 5, path, number)
        for texts, column in zip(part.columns, columns, strict=True):
            texts.append(spaced(fields[column]))
        part.labels.append(label_of(fields[label], known, path, number))
    require_all_labels(path, part.labels, known)
    return part


class _SnliPart(Part):
    """Pairs that SentEval sorts by the names of labels, before these become numbers."""

    def label_key(self, label: int) -> str:
        return next(name for name, number in SNLI_CLASSES.items() if number == label)


def _snli(folder: Path) -> LabelledText:
    """Files `s1.SPLIT`, `s2.SPLIT` and `labels.SPLIT`, row by row."""
    if not (folder / "s1.train").is_file():
        raise MissingData(
            f"{folder / 's1.train'} is not there. SNLI's classifier is trained on it, with "
            "s2.train and labels.train; without a train split there is no score."
        )

    def read(split: str) -> Part:
        rows = SNLI_ROWS[split]
        paths = [folder / f"{column}.{split}" for column in ("s1", "s2", "labels")]
        first, second, labels = (read_lines(path, rows) for path in paths)
        require_rows(paths[1], len(second), len(first))
        require_rows(paths[2], len(labels), len(first))
        numbers = [
            label_of(label.strip(), SNLI_CLASSES, paths[2], number)
            for number, label in enumerate(labels, 1)
        ]
        require_all_labels(paths[2], numbers, SNLI_CLASSES)
        return _SnliPart(([*map(spaced, first)], [*map(spaced, second)]), numbers)

    train, dev, test = (read(split) for split in SNLI_ROWS)
    return LabelledText(3, train, dev, test, _sizes(SNLI_ROWS, train, dev, test))


def _sizes(published: dict[str, int], *parts: Part) -> list[str]:
    return [
        note
        for (name, rows), part in zip(published.items(), parts, strict=True)
        for note in other_size(f"pairs in {name}", len(part.labels), rows)
    ]
