"""SentEval's ten probing tasks: which surface and syntax features an embedding encodes.

Conneau et al. (2018), "What you can cram into a single vector". Each file has all three splits,
with lines `tr|va|te<tab>label<tab>sentence`.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

from declutr.corpus import normalize_whitespace
from declutr.evaluation.task import BrokenData, Protocol, Task
from declutr.evaluation.tasks.labelled_text import (
    ClassificationTask,
    LabelledText,
    Part,
    labelled_text,
)
from declutr.evaluation.text_files import fields_of, label_of, read_lines, require_all_labels

FILES = {
    "Length": "sentence_length",
    "WordContent": "word_content",
    "Depth": "tree_depth",
    "TopConstituents": "top_constituents",
    "BigramShift": "bigram_shift",
    "Tense": "past_present",
    "SubjNumber": "subj_number",
    "ObjNumber": "obj_number",
    "OddManOut": "odd_man_out",
    "CoordinationInversion": "coordination_inversion",
}
"""The names of the files by task, without their ending."""
ROWS = {"tr": 100_000, "va": 10_000, "te": 10_000}
"""The number of sentences of each split in every published file."""
SURROGATE = "surrogate:"
"""The prefix of the names of tasks that are made of other text in the same format."""


def tasks(data: Path, protocol: Protocol) -> list[Task]:
    """Return the ten tasks of `probing/`, then one for each file of `probing_surrogate/`.

    The latter are no part of SentEval: their names have a prefix, and their group is `extra`.
    """
    found: list[Task] = []
    for name, file in FILES.items():
        # SentEval always uses logistic regression for the 1,000 classes of WordContent.
        own = replace(protocol, hidden=0) if name == "WordContent" else protocol
        read = partial(_read, data / "probing" / f"{file}.txt", True)
        found.append(ClassificationTask(name, "probing", read, own))
    for path in sorted((data / "probing_surrogate").glob("*.txt")):
        read = partial(_read, path, False)
        found.append(ClassificationTask(SURROGATE + path.stem, "extra", read, protocol))
    return found


def _read(path: Path, published: bool) -> LabelledText:
    rows = read_lines(path, sum(ROWS.values()) if published else None, latin_1=False)
    lines = [fields_of(line.rstrip(), "\t", 3, path, number) for number, line in enumerate(rows, 1)]
    trained = sorted({line[1] for line in lines if line[0] == "tr"})
    known = {label: number for number, label in enumerate(trained)}
    parts = {split: Part(([],), []) for split in ROWS}
    for number, line in enumerate(lines, 1):
        if line[0] not in parts:
            raise BrokenData(
                f"{path}, line {number}: got the split {line[0][:40]!r}, expected one of "
                f"{sorted(parts)}."
            )
        parts[line[0]].columns[0].append(normalize_whitespace(line[-1]))
        parts[line[0]].labels.append(label_of(line[1], known, path, number))
    for split, part in parts.items():
        if not part:
            raise BrokenData(
                f"{path} has no line of the split {split!r}; it may have been cut off."
            )
    require_all_labels(path, parts["te"].labels, known)
    data = labelled_text("sentences of {}", len(known), parts, ROWS)
    if not published:
        data.notes = ["made of other text than the published task: comparable with no paper"]
    return data
