"""Reranking against loops, and golden numbers of MTEB and sentence-transformers."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from declutr.evaluation.result_keys import data_digest
from declutr.evaluation.task import Task
from declutr.evaluation.tasks.reranking import CandidateLists, Candidates
from tests.evaluation.tasks.data_files import values
from tests.evaluation.tasks.made_up_lists import SAMPLES, hashed, tied
from tests.evaluation.tasks.test_described_tasks import described, tasks_of


def reranking(folder: Path, samples: list[dict] = SAMPLES, **keys: object) -> Task:
    lines = [json.dumps(sample) for sample in samples]
    (task,) = tasks_of(
        described(folder, {"a.jsonl": lines}, type="reranking", file="a.jsonl", **keys)
    ).values()
    return task


@pytest.mark.parametrize(
    ("encode", "expected"),
    [
        # Of MTEB (commit a905523d0), which rounds the first and the last to 5 decimals, and of
        # sentence-transformers 6.2.0.
        (hashed, {"MAP": 49.124033, "MRR@10": 53.995310, "nDCG@10": 61.489801}),
        # Of MTEB alone, as sentence-transformers leaves ties to chance.
        (tied, {"MAP": 39.334, "MRR@10": 37.687590, "nDCG@10": 50.617}),
    ],
)
def test_scores_are_those_of_public_codes(
    tmp_path: Path, encode: Callable, expected: dict[str, float]
) -> None:
    task = reranking(tmp_path / "x")
    assert (task.group, task.main) == ("reranking", "MAP")
    assert values(task, encode) == pytest.approx(expected, abs=5e-4)
    kept = [sample for sample in SAMPLES if sample["positive"] and sample["negative"]]
    count = sum(len(sample["positive"]) for sample in kept)
    assert len(kept) == 22 and task.notes() == [
        f"22 queries, {count + sum(len(s['negative']) for s in kept)} candidates, {count} of which "
        "are relevant.",
        "8 queries left out, of whose candidates all or none are relevant.",
    ]
    assert all(score.count == 22 for score in task.scores(encode))


def in_loops(grades: list[float], cosines: list[float]) -> dict[str, float]:
    """Each candidate comes after all that are nearer, and less relevant ones that are as near."""
    order = sorted(range(len(grades)), key=lambda n: (-cosines[n], grades[n]))
    ranked = [(rank, grades[n]) for rank, n in enumerate(order, start=1) if grades[n] > 0]
    precisions = [number / rank for number, (rank, _) in enumerate(ranked, start=1)]
    gain = [grade / np.log2(rank + 1) for rank, grade in ranked if rank <= 10]
    ideal = sorted((grade for _, grade in ranked), reverse=True)[:10]
    best = [grade / np.log2(rank + 1) for rank, grade in enumerate(ideal, start=1)]
    return {
        "MAP": 100 * sum(precisions) / len(ranked),
        "MRR@10": 100 / ranked[0][0] if ranked[0][0] <= 10 else 0.0,
        "nDCG@10": 100 * sum(gain) / sum(best),
    }


@given(st.integers(2, 30), st.integers(1, 3), st.integers(1, 3), st.integers(0, 10**6))
@settings(max_examples=150, deadline=None)
def test_scores_equal_loops(n: int, queries: int, digits: int, seed: int) -> None:
    """With ties, grades, and several texts as a query, of which the nearest one counts."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-digits, digits + 1, size=(n + queries, 3)).astype(np.float32)
    grades = rng.integers(-1, 3, size=n).astype(float).tolist()
    grades[rng.integers(n)] = 1.0
    names = [str(number) for number in range(n + queries)]
    part = CandidateLists([Candidates(names[n:], names[:n], grades)])
    found = {
        score.name: score.value
        for score in part.scores(lambda texts: rows[[int(text) for text in texts]])
    }
    lengths = [float(np.linalg.norm(row.astype(float))) or 1.0 for row in rows]
    cosines = [
        max(
            round(float(rows[one] @ rows[query]) / (lengths[one] * lengths[query]), 7) + 0.0
            for query in range(n, n + queries)
        )
        for one in range(n)
    ]
    assert found == pytest.approx(in_loops(grades, cosines), abs=1e-9)


def test_a_single_text_needs_no_list_and_blank_candidates_count(tmp_path: Path) -> None:
    listed = [
        {"query": ["a", "b c"], "positive": ["d"], "negative": ["e", ""]},
        {"query": ["f"], "positive": ["g"], "negative": ["h"]},
    ]
    single = [listed[0], {"query": "f", "positive": "g", "negative": "h"}]
    one, other = (
        reranking(tmp_path / name / "x", samples)
        for name, samples in (("one", listed), ("other", single))
    )
    assert one.sentences() == other.sentences() == ["a", "b c", "d", "e", ".", "f", "g", "h"]
    assert values(one, hashed) == values(other, hashed) and data_digest(one) == data_digest(other)
    turned = reranking(tmp_path / "turned" / "x", [{**listed[0], "positive": ["e"]}, listed[1]])
    assert data_digest(turned) != data_digest(one)


def test_tables_of_documents_are_the_same_as_lists(tmp_path: Path) -> None:
    """What a table of relevance names is ranked, and nothing else of the documents."""
    texts = {
        text: f"d{len(text)}-{text.replace(' ', '-')}" for s in SAMPLES for text in s["negative"]
    }
    texts |= {text: text.replace(" ", "-") for s in SAMPLES for text in s["positive"]}
    documents = [f"{name},{text}" for text, name in texts.items()]
    relevance = [
        f"{n},{texts[text]},{grade}"
        for n, sample in enumerate(SAMPLES)
        for key, grade in (("positive", 1), ("negative", 0))
        for text in sample[key]
    ]
    files = {
        "d.csv": ["id,text", *documents, "other,more"],
        "q.csv": ["id,text", *(f"{n},{sample['query']}" for n, sample in enumerate(SAMPLES))],
        "r.csv": ["query,document,grade", *relevance],
    }
    keys = {"documents": "d.csv", "queries": "q.csv", "relevance": "r.csv"}
    both = {"type": ["retrieval", "reranking"], **keys}
    found = tasks_of(described(tmp_path / "x", files, **both))
    assert list(found) == ["x", "reranking:x"] and found["x"].main == "nDCG@10"
    lists = reranking(tmp_path / "lists")
    for encode in (hashed, tied):
        assert values(found["reranking:x"], encode) == values(lists, encode)
    assert found["reranking:x"].notes() == lists.notes()
    assert "more" not in found["reranking:x"].sentences()


def test_development_queries_have_scores_of_their_own(tmp_path: Path) -> None:
    lines = [json.dumps(sample) for sample in SAMPLES]
    files = {"a.jsonl": lines[:20], "b.jsonl": lines[20:]}
    keys = {"type": "reranking", "test": "a.jsonl", "dev": "b.jsonl"}
    (task,) = tasks_of(described(tmp_path / "x", files, **keys)).values()
    dev = values(reranking(tmp_path / "dev", SAMPLES[20:]), hashed)
    test = values(reranking(tmp_path / "test", SAMPLES[:20]), hashed)
    both = test | {f"{name} dev": value for name, value in dev.items()}
    assert values(task, hashed) == both and task.main == "MAP"
