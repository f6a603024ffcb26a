"""Where STS12-16, STS-B and SICK-R lie in SentEval's data, and how many pairs they have."""

from __future__ import annotations

from pathlib import Path

from declutr.evaluation.tasks.scored_pairs import Read, read_benchmark, read_other_benchmark

STS_SUBSETS = {
    "STS12": {
        "MSRpar": 750,
        "MSRvid": 750,
        "SMTeuroparl": 459,
        "surprise.OnWN": 750,
        "surprise.SMTnews": 399,
    },
    # Without its subset SMT, whose licence keeps it from SentEval's data.
    "STS13": {"FNWN": 189, "headlines": 750, "OnWN": 561},
    "STS14": {
        "deft-forum": 450,
        "deft-news": 300,
        "headlines": 750,
        "images": 750,
        "OnWN": 750,
        "tweet-news": 750,
    },
    "STS15": {
        "answers-forums": 375,
        "answers-students": 750,
        "belief": 375,
        "headlines": 750,
        "images": 750,
    },
    "STS16": {
        "answer-answer": 254,
        "headlines": 249,
        "plagiarism": 230,
        "postediting": 244,
        "question-question": 209,
    },
}
"""Subsets of each task and how many pairs of them have a gold score."""

STS_BENCHMARK = {"train": "sts-train.csv", "dev": "sts-dev.csv", "test": "sts-test.csv"}
SICK = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
STS_B_PAIRS = {"train": 5749, "dev": 1500, "test": 1379}
SICK_PAIRS = {"train": 4500, "dev": 500, "test": 4927}


def benchmark_folders(data: Path) -> list[Path]:
    """`STSBenchmark`, there or not, and other folders beside it that hold its test file."""
    folder = data / "downstream" / "STS"
    main = folder / "STSBenchmark"
    found = (file.parent for file in folder.glob(f"*/{STS_BENCHMARK['test']}"))
    return [main, *sorted(path for path in found if path != main)]


def benchmark_name(folder: Path) -> str:
    """`STS-B` for the published one; another goes by its own name, so that nobody confuses them."""
    return "STS-B" if folder.name == "STSBenchmark" else folder.name


def reader_of(folder: Path) -> Read:
    """What reads the splits of such a folder."""
    return read_benchmark if folder.name == "STSBenchmark" else read_other_benchmark
