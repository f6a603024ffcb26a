"""Classification tasks: SentEval's on sentences and on pairs of sentences, and AG News.

The file formats are those of SentEval's download script, under `downstream/`. AG News is no task of
SentEval; it is cross-validated like the tasks without a split, on the 7,600 items of its test file.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from declutr.corpus import normalize_whitespace
from declutr.evaluation.classifiers import features
from declutr.evaluation.task import BrokenData, MissingData, Protocol, Task, require_rows
from declutr.evaluation.tasks.labelled_text import (
    ClassificationTask,
    LabelledText,
    Parse,
    Part,
    columns_parser,
    labelled_part,
    labelled_text,
    read_labelled_text,
)
from declutr.evaluation.text_files import fields_of, other_size, read_lines, read_text

BINARY = {
    "MR": ("rt-polarity.pos", "rt-polarity.neg", 10_662),
    "CR": ("custrev.pos", "custrev.neg", 3_775),
    "MPQA": ("mpqa.pos", "mpqa.neg", 10_606),
    "SUBJ": ("subj.objective", "subj.subjective", 10_000),
}
"""The file of class 1, the file of class 0 and the published number of items, by task."""
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
"""The published number of lines of each of these files, blank ones included."""
SST2_ROWS = {"train": 67_349, "dev": 872, "test": 1_821}
"""The published number of sentences in each split of SST2."""
SST5_ROWS = {"train": 8_544, "dev": 1_101, "test": 2_210}
"""The published number of sentences in each split of SST5."""
TREC_ROWS = {"train_5500.label": 5_452, "TREC_10.label": 500}
"""The published number of questions in each file of TREC."""
TREC_CLASSES = {"ABBR": 0, "DESC": 1, "ENTY": 2, "HUM": 3, "LOC": 4, "NUM": 5}
"""The numbers of the coarse classes of questions."""
AG_NEWS_ROWS, AG_NEWS_CLASSES = 7_600, {"1": 0, "2": 1, "3": 2, "4": 3}
MRPC_ROWS = {"msr_paraphrase_train.txt": 4_076, "msr_paraphrase_test.txt": 1_725}
"""The published number of pairs in each file of MRPC."""
SICK_ROWS = {"SICK_train.txt": 4_500, "SICK_trial.txt": 500, "SICK_test_annotated.txt": 4_927}
"""The published number of pairs in each file of SICK."""
SNLI_ROWS = {"train": 549_367, "dev": 9_842, "test": 9_824}
"""The published number of pairs in each split of SNLI."""
YES_OR_NO = {"0": 0, "1": 1}
SICK_CLASSES = {"CONTRADICTION": 0, "NEUTRAL": 1, "ENTAILMENT": 2}
SNLI_CLASSES = {"entailment": 0, "neutral": 1, "contradiction": 2}


def tasks(data: Path, protocol: Protocol) -> list[Task]:
    """Return the tasks on sentences, MR to AGNews, and then on pairs: MRPC, SICK-E and SNLI."""
    downstream = data / "downstream"
    readers = {name: partial(_binary, downstream / name, name) for name in BINARY}
    sst2, sst5 = downstream / "SST" / "binary", downstream / "SST" / "fine"
    readers["SST2"] = partial(_sst, sst2, 2, SST2_ROWS, columns_parser("\t", 2, 1, 0))
    readers["SST5"] = partial(_sst, sst5, 5, SST5_ROWS, _label_first)
    readers["TREC"] = partial(_trec, downstream / "TREC")
    found: list[Task] = [
        ClassificationTask(name, "downstream", read, protocol) for name, read in readers.items()
    ]
    news = partial(_ag_news, data / "extra" / "ag_news_test" / "test.csv")
    # MRPC's columns are label, id, id, sentence, sentence; SICK's are id, sentence, sentence,
    # relatedness, entailment.
    mrpc, sick = columns_parser("\t", 5, 0, 3, 4), columns_parser("\t", 5, 4, 1, 2)
    mrpc_read = partial(_tables, downstream / "MRPC", MRPC_ROWS, YES_OR_NO, mrpc)
    sick_read = partial(_tables, downstream / "SICK", SICK_ROWS, SICK_CLASSES, sick)
    snli_read = partial(_snli, downstream / "SNLI")
    # There is so much data that SentEval evaluates on the development set after every epoch.
    looking_often = replace(protocol, max_epoch=15, epoch_size=1)
    settings = looking_often, features.both_product_and_difference, (1, 0)
    combine = features.difference_and_product
    return [
        *found,
        ClassificationTask("AGNews", "extra", news, protocol),
        ClassificationTask("MRPC", "downstream", mrpc_read, protocol, combine, (0, 1), f1=True),
        ClassificationTask("SICK-E", "downstream", sick_read, protocol, combine, (0, 1)),
        ClassificationTask("SNLI", "downstream", snli_read, *settings, penalised=False),
    ]


def _binary(folder: Path, name: str) -> LabelledText:
    """Read a data set with a file for each of two classes and a sentence on each line."""
    positive, negative, published = BINARY[name]
    texts: list[str] = []
    labels: list[int] = []
    for file, label in ((positive, 1), (negative, 0)):
        lines = read_lines(folder / file, FILE_ROWS[file])
        texts += map(normalize_whitespace, lines)
        labels += [label] * len(lines)
    notes = other_size("sentences", len(texts), published)
    return LabelledText(2, Part((texts,), labels), notes=notes)


def _sst(folder: Path, classes: int, published: dict[str, int], parse: Parse) -> LabelledText:
    """Read a data set with a file for each split and labels from 0 up."""
    known = {str(label): label for label in range(classes)}
    paths = {split: folder / f"sentiment-{split}" for split in published}
    return read_labelled_text("{} sentences", paths, published, known, parse)


def _label_first(line: str, path: Path, number: int) -> tuple[str, str]:
    """Parse a line of the form `label sentence`."""
    label, _, text = line.strip().partition(" ")
    return label, text


def _trec(folder: Path) -> LabelledText:
    """Read TREC's lines `COARSE:fine question`; the six coarse labels are the classes."""

    def rows(path: Path) -> Iterator[tuple[int, str, str]]:
        for number, line in enumerate(read_lines(path, TREC_ROWS[path.name]), 1):
            label, rest = fields_of(line.strip(), ":", 2, path, number)[0], line.partition(":")[2]
            yield number, label, rest.strip().partition(" ")[2]

    parts = {
        file: labelled_part(folder / file, TREC_CLASSES, rows(folder / file), "train" in file)
        for file in TREC_ROWS
    }
    return labelled_text("questions in {}", len(TREC_CLASSES), parts, TREC_ROWS)


def _ag_news(path: Path) -> LabelledText:
    """Read lines `"class","title","description"`, where a backslash stands for a line break."""
    part = labelled_part(path, AG_NEWS_CLASSES, _ag_news_rows(path))
    notes = other_size("news items", len(part), AG_NEWS_ROWS)
    return LabelledText(len(AG_NEWS_CLASSES), part, notes=notes)


def _ag_news_rows(path: Path) -> Iterator[tuple[int, str, str]]:
    # A strict reader raises if the file ends within quotes, instead of yielding a truncated field.
    reader = csv.reader(io.StringIO(read_text(path, latin_1=False), newline=""), strict=True)
    try:
        for row in reader:
            if len(row) != 3:
                raise BrokenData(
                    f"{path}, line {reader.line_num}: expected 3 fields (class, title, "
                    f"description), got {len(row)}."
                )
            label, title, description = row
            yield reader.line_num, label, f"{title} {description}".replace("\\", " ")
    except csv.Error as error:
        raise BrokenData(f"{path}, line {reader.line_num}: {error}.") from error


def _tables(
    folder: Path, published: dict[str, int], known: dict[str, int], parse: Parse
) -> LabelledText:
    """Read tab-separated files, each of which has a header."""
    paths = {file: folder / file for file in published}
    return read_labelled_text("pairs in {}", paths, published, known, parse, heading=True)


class _SnliPart(Part):
    """A part of SNLI, which SentEval sorts by the names of labels instead of their numbers."""

    def label_key(self, label: int) -> str:
        return next(name for name, number in SNLI_CLASSES.items() if number == label)


def _snli(folder: Path) -> LabelledText:
    """Read the files `s1.SPLIT`, `s2.SPLIT` and `labels.SPLIT`, which correspond line by line."""
    if not (folder / "s1.train").is_file():
        raise MissingData(
            f"{folder / 's1.train'} is not there. SNLI's classifier is trained on it, with "
            "s2.train and labels.train; without a train split there is no score."
        )

    def read(split: str) -> Part:
        paths = [folder / f"{column}.{split}" for column in ("s1", "s2", "labels")]
        first, second, labels = (read_lines(path, SNLI_ROWS[split]) for path in paths)
        require_rows(paths[1], len(second), len(first))
        require_rows(paths[2], len(labels), len(first))
        items = enumerate(zip(map(str.strip, labels), first, second, strict=True), 1)
        rows = ((number, *item) for number, item in items)
        part = labelled_part(paths[2], SNLI_CLASSES, rows)
        return _SnliPart(part.columns, part.labels)

    return labelled_text("pairs in {}", 3, {split: read(split) for split in SNLI_ROWS}, SNLI_ROWS)
