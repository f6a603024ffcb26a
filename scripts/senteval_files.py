"""Completes a folder of SentEval's data, so that its engine can be run on every task.

    python scripts/senteval_files.py DATA complete

links what DATA has, and writes the tasks whose published files are missing: in their layout and
their size, of sentences that DATA has. Their scores mean nothing. They have blank lines, equal
pairs and equal sentences with different labels where the layout admits them. DATA needs MR, SUBJ,
SNLI (without its train split) and STS12; STS-B and the probing tasks are `STSBenchmark-2012subset`
and `probing_surrogate`, if they are there.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from declutr.evaluation.tasks.scored_pairs import STS_SUBSETS, read_sts_subset
from tests.evaluation.published_layout import (
    BINARY,
    SNLI_LABELS,
    write_binary,
    write_coco,
    write_snli,
    write_sts,
    write_task,
)

IMAGES, WIDTH = {"train": 400, "valid": 5000, "test": 5000}, 64
SIZES = {"CR": (2407, 1368), "MPQA": (3312, 7294), "MRPC": (4076, 1725)}


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def linked(source: Path, target: Path) -> None:
    """Link every file of a folder, and those of `STSBenchmark-2012subset` as STS-B's."""
    for path in sorted(source.rglob("*")):
        place = str(path.relative_to(source)).replace("STSBenchmark-2012subset", "STSBenchmark")
        there = target / place.replace("probing_surrogate", "probing")
        if path.is_file() and "/SNLI/" not in str(path):
            there.parent.mkdir(parents=True, exist_ok=True)
            there.symlink_to(path.resolve())


def write_missing(source: Path, target: Path) -> None:
    """Write CR, MPQA, MRPC, STS13 to STS16, SNLI and COCO."""
    rng = np.random.default_rng(0)
    texts = [line for file in BINARY["MR"] for line in lines_of(source / "downstream/MR" / file)]
    write_binary(target, "CR", *_classes(rng, texts, SIZES["CR"]))
    short = [" ".join(text.split()[:4]) for text in texts]
    write_binary(target, "MPQA", *_classes(rng, short, SIZES["MPQA"]))
    snli = {split: _snli(source / "downstream/SNLI", split) for split in ("dev", "test")}
    half = len(snli["test"]) // 2
    write_snli(target, snli["dev"], snli["test"][:half], snli["test"][half:])
    pairs = [(int(label == 0), *both) for label, *both in snli["dev"]]
    picked = [pairs[number] for number in rng.permutation(len(pairs))[: sum(SIZES["MRPC"])]]
    picked[:20] = [(label, text, text) for label, text, _ in picked[:20]]
    write_task(target, "MRPC", picked[: SIZES["MRPC"][0]], picked[SIZES["MRPC"][0] :])
    _write_similarities(rng, source, target)
    captions = [text for rows in snli.values() for _, *both in rows for text in both]
    _write_captions(rng, captions, target)


def _classes(rng: np.random.Generator, texts: list[str], sizes: Sequence[int]) -> list[list[str]]:
    """Draw lines for both classes, some of them in both, and some blank."""
    found = [[texts[n] for n in rng.integers(0, len(texts), size)] for size in sizes]
    for lines in found:
        for place in rng.integers(0, len(lines), 5):
            lines[place] = ""
    return found


def _snli(folder: Path, split: str) -> list[tuple]:
    columns = [lines_of(folder / f"{column}.{split}") for column in ("labels", "s1", "s2")]
    return [
        (SNLI_LABELS.index(label.strip()), *both) for label, *both in zip(*columns, strict=True)
    ]


def _write_similarities(rng: np.random.Generator, source: Path, target: Path) -> None:
    """Write STS13 to STS16, of pairs of STS12; each has a pair without score, and an equal pair."""
    folder = source / "downstream/STS/STS12-en-test"
    subsets = [read_sts_subset(folder, subset) for subset in STS_SUBSETS["STS12"]]
    rows = [row for one in subsets for row in zip(one.gold, one.first, one.second, strict=True)]
    for task, sizes in list(STS_SUBSETS.items())[1:]:
        for subset, size in sizes.items():
            some = [rows[number] for number in rng.choice(len(rows), size, replace=False)]
            some[0] = (5.0, some[0][1], some[0][1])
            write_sts(target, task, subset, [*some, ("", "not scored", "at all")])


def _write_captions(rng: np.random.Generator, captions: list[str], target: Path) -> None:
    """Write COCO; an image is made of the words of its captions, and of noise."""
    words: dict[str, np.ndarray] = {}
    captions = list({text.strip(): None for text in captions})  # equal ones have ranks by chance
    parts = []
    for images in IMAGES.values():
        texts = [captions[number] for number in rng.permutation(len(captions))[: 5 * images]]
        features = rng.normal(size=(images, WIDTH))
        for number, text in enumerate(texts):
            for word in text.split():
                if word not in words:
                    words[word] = rng.normal(size=WIDTH)
                features[number // 5] += words[word] / 10
        parts.append((features.astype(np.float32), texts))
    write_coco(target, *parts)


if __name__ == "__main__":
    linked(Path(sys.argv[1]), Path(sys.argv[2]))
    write_missing(Path(sys.argv[1]), Path(sys.argv[2]))
