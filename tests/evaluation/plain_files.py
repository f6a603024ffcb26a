"""SentEval's reading and sorting of its files, written anew; see `plain_senteval`."""

import pickle
from pathlib import Path

import numpy as np

Rows = list[tuple]
"""Items `(label, words)` or `(label, words, words)`."""


def lines_of(path: Path, encoding: str = "utf-8") -> list[str]:
    return path.read_text(encoding).splitlines()


def by_length(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: (*map(len, row[1:]), row[0]))


def read_binary(folder: Path, positive: str, negative: str) -> Rows:
    both = (lines_of(folder / file, "latin-1") for file in (positive, negative))
    return [
        (label, line.split()) for label, lines in zip((1, 0), both, strict=True) for line in lines
    ]


def read_columns(path: Path, *columns: int, heading: bool = False) -> Rows:
    """Read a table: the column of the label, then those of sentences."""
    rows = [line.strip().split("\t") for line in lines_of(path)[heading:]]
    label, *texts = columns
    return [(row[label], *(row[text].split() for text in texts)) for row in rows]


def read_sst5(path: Path) -> Rows:
    rows = [line.strip().split(" ", 1) for line in lines_of(path)]
    return [(int(label), text.split()) for label, text in rows]


def read_trec(path: Path) -> Rows:
    rows = [line.strip().split(":", 1) for line in lines_of(path, "latin-1")]
    names = ["ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"]
    return [(names.index(label), text.split(" ", 1)[1].split()) for label, text in rows]


def read_snli(folder: Path, split: str) -> Rows:
    """Read items in order: by the second sentence, the first, and the name of the label."""
    first, second = (
        [line.split() for line in lines_of(folder / f"{column}.{split}", "latin-1")]
        for column in ("s1", "s2")
    )
    rows = zip(second, first, lines_of(folder / f"labels.{split}"), strict=True)
    rows = sorted(rows, key=lambda row: (len(row[0]), len(row[1]), row[2]))
    names = ["entailment", "neutral", "contradiction"]
    return [(names.index(label), one, two) for two, one, label in rows]


def read_probing(path: Path) -> list[Rows]:
    rows = [line.rstrip().split("\t") for line in lines_of(path)]
    names = sorted({row[1] for row in rows if row[0] == "tr"})
    return [
        by_length([(names.index(row[1]), row[-1].split()) for row in rows if row[0] == part])
        for part in ("tr", "va", "te")
    ]


def read_subset(folder: Path, name: str) -> Rows:
    pairs = [line.split("\t") for line in lines_of(folder / f"STS.input.{name}.txt")]
    golds = lines_of(folder / f"STS.gs.{name}.txt")
    rows = zip(golds, pairs, strict=True)
    return by_length([(float(gold), *map(str.split, both)) for gold, both in rows if gold != ""])


def read_captions(path: Path) -> tuple[np.ndarray, list[list[str]]]:
    """Return five rows of features an image, and the words of as many captions."""
    with path.open("rb") as file:
        held = pickle.load(file, encoding="latin1")
    images, captions = [], []
    for image, features in enumerate(held["features"]):
        for key in held["image_to_caption_ids"][image][:5]:
            captions.append((held["captions"][key]["cleaned_caption"] + " .").split())
            images.append(features)
    return np.array(images).astype("float32"), captions
