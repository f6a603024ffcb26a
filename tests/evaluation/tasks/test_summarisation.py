"""Summarisation against scipy and golden numbers of MTEB."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from declutr.evaluation.bootstrap import same_items
from declutr.evaluation.task import BadEmbeddings, Task
from tests.evaluation.tasks.data_files import values
from tests.evaluation.tasks.made_up_lists import SUMMARIES, hashed, tied
from tests.evaluation.tasks.test_described_tasks import described, tasks_of


def summarised(folder: Path, kind: str = "summarisation", rows: list[dict] = SUMMARIES) -> Task:
    lines = [json.dumps(row) for row in rows]
    (task,) = tasks_of(described(folder, {"a.jsonl": lines}, type=kind, file="a.jsonl")).values()
    return task


@pytest.mark.parametrize(
    ("encode", "expected"),
    [
        # Of MTEB, commit a905523d0.
        (hashed, {"cosine Spearman": 7.968191, "cosine Pearson": 12.174656}),
        (tied, {"cosine Spearman": 4.470563, "cosine Pearson": 4.014818}),
    ],
)
def test_scores_are_those_of_mteb(tmp_path: Path, encode: Callable, expected: dict) -> None:
    task = summarised(tmp_path / "x", "summarization")
    assert values(task, encode) == pytest.approx(expected, abs=5e-6)
    assert (task.group, task.main) == ("summarisation", "cosine Spearman")
    assert task.notes() == [
        "9 texts, 54 summaries to be scored.",
        "3 texts left out, whose summaries are all equally relevant.",
    ]


@pytest.mark.parametrize("seed", range(5))
def test_scores_equal_loops(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [
        {
            "human_summaries": [f"h {seed} {n} {i}" for i in range(rng.integers(1, 4))],
            "machine_summaries": [f"m {seed} {n} {i}" for i in range(count)],
            "relevance": (rng.permutation(count) // 2).tolist(),
        }
        for n in range(10)
        for count in [int(rng.integers(3, 8))]
    ]
    each = []
    for row in rows:
        human, machine = (hashed(row[key]).astype(float) for key in list(row)[:2])
        cosines = [
            max(a @ b / np.sqrt((a @ a) * (b @ b)) for b in human)  # type: ignore[type-var]
            for a in machine
        ]
        each.append([of(row["relevance"], cosines)[0] for of in (spearmanr, pearsonr)])
    spearman, pearson = 100 * np.mean(each, axis=0)
    found = values(summarised(tmp_path / "x", rows=rows), hashed)
    expected = {"cosine Spearman": spearman, "cosine Pearson": pearson}
    assert found == pytest.approx(expected, abs=1e-4)


def test_texts_whose_summaries_are_all_alike_do_not_count(tmp_path: Path) -> None:
    """MTEB leaves them out, too. Encoders with other texts left out are not compared."""
    task = summarised(tmp_path / "x")

    def without(name: str) -> Callable:
        return lambda texts: np.where([[name in text] for text in texts], 1.0, hashed(texts))

    first, second = (task.scores(without(name))[0] for name in ("machine 1 ", "machine 2 "))
    assert first.count == second.count == 8 and not same_items(first, second)
    assert same_items(first, task.scores(without("machine 1 "))[0])
    every = task.scores(hashed)[0].items["value"]  # the first one is of text 1
    assert first.value == pytest.approx(100 * np.mean(every[1:]))
    with pytest.raises(BadEmbeddings, match="are all equally similar to those of people"):
        task.scores(lambda texts: np.ones((len(texts), 3), dtype=np.float32))
