"""Measures of retrieval by hand and against scikit-learn and naive loops; tasks on tiny sets."""

import lzma
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, ndcg_score

from declutr.evaluation.task import PUBLISHED, BrokenData, MissingData, TaskError
from declutr.evaluation.tasks.geometry import unit
from declutr.evaluation.tasks.retrieval import (
    SpanRetrieval,
    average_precision,
    gains,
    ndcg,
    nearest,
    recall,
    reciprocal_rank,
    tasks,
)
from declutr.evaluation.tasks.span_retrieval import span_ranks, span_retrieval_accuracy
from tests.conftest import make_documents
from tests.evaluation.tasks.data_files import values
from tests.evaluation.tasks.test_relevance_sets import write_beir, write_trec


def test_measures_by_hand() -> None:
    # Two queries; the first finds grades 3, 0, 2 at ranks 1 to 3 and misses a 1.
    ranked = np.array([[4, 9, 5], [7, 8, 9]])
    relevant = [{4: 3.0, 5: 2.0, 6: 1.0}, {9: 1.0}]
    found = gains(ranked, relevant)
    assert found.tolist() == [[3, 0, 2], [0, 0, 1]]
    ideal = 3 + 2 / math.log2(3) + 1 / 2
    assert ndcg(found, relevant, 10) == pytest.approx([(3 + 2 / 2) / ideal, 1 / 2])
    assert ndcg(found, relevant, 2) == pytest.approx([3 / (3 + 2 / math.log2(3)), 0])
    assert recall(found, relevant, 10) == pytest.approx([2 / 3, 1])
    assert recall(found, relevant, 1) == pytest.approx([1 / 3, 0])
    assert average_precision(found, relevant, 10) == pytest.approx([(1 + 2 / 3) / 3, 1 / 3])
    assert reciprocal_rank(found, 10) == pytest.approx([1, 1 / 3])
    assert reciprocal_rank(found, 2) == pytest.approx([1, 0])


@given(st.integers(2, 30), st.integers(1, 12), st.integers(0, 10**6))
def test_measures_equal_those_of_scikit_learn(n: int, depth: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    grades = rng.integers(0, 4, size=n).astype(float)
    grades[rng.integers(n)] = 2.0
    cosines = rng.permutation(n) / n  # no ties
    relevant = [{place: grade for place, grade in enumerate(grades) if grade > 0}]
    found = gains(np.argsort(-cosines)[None], relevant)
    expected = ndcg_score(grades[None], cosines[None], k=depth)
    assert ndcg(found, relevant, depth)[0] == pytest.approx(expected)
    expected = average_precision_score(grades > 0, cosines)
    assert average_precision(found, relevant, n)[0] == pytest.approx(expected)


@given(st.integers(1, 25), st.integers(1, 12), st.integers(1, 30), st.integers(1, 200))
def test_the_nearest_equal_those_of_a_full_sort(n: int, q: int, depth: int, numbers: int) -> None:
    rng = np.random.default_rng(n * 31 + q)
    queries = rng.integers(-2, 3, size=(q, 2)).astype(float)  # many ties
    documents = rng.integers(-2, 3, size=(n, 2)).astype(float)
    got = nearest(queries, documents, depth, numbers=numbers)
    assert got.shape == (q, min(depth, n))
    lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(documents, axis=1)
    cosines = queries @ documents.T / np.where(lengths > 0, lengths, 1)
    best = -np.sort(-cosines, axis=1)[:, :depth]
    np.testing.assert_allclose(np.take_along_axis(cosines, got, axis=1), best, atol=1e-12)
    assert all(len(set(row)) == len(row) for row in got.tolist())


def test_equally_similar_documents_keep_their_order() -> None:
    documents = np.ones((50, 1))
    assert nearest(np.ones((2, 1)), documents, depth=3).tolist() == [[0, 1, 2]] * 2
    assert nearest(np.ones((1, 1)), documents, depth=50).tolist() == [list(range(50))]


@pytest.mark.parametrize("n", [5, 7, 50, 203])
def test_equal_vectors_are_equally_similar(n: int) -> None:
    """Matrix products round differently at the borders of their blocks."""
    rng = np.random.default_rng(n)
    for width in (3, 16, 37, 64, 384):
        for count in (1, 2, 9):
            queries = rng.normal(size=(count, width)).astype(np.float32)
            documents = np.repeat(rng.normal(size=(2, width)).astype(np.float32), n, axis=0)
            first = queries @ (unit(documents[:1]) - unit(documents[-1:]))[0] > 0
            for row, of_first in zip(nearest(queries, documents, 2 * n), first, strict=True):
                own = np.arange(2 * n)
                assert row.tolist() == (own if of_first else np.roll(own, n)).tolist()


def test_a_query_that_is_a_document_comes_last() -> None:
    x = np.eye(3)
    assert nearest(x, x, depth=1)[:, 0].tolist() == [0, 1, 2]
    for numbers in (1, 100):
        got = nearest(x, x, depth=3, itself={0: 0, 2: 2}, numbers=numbers)
        assert got[:, -1].tolist()[::2] == [0, 2]
        assert got[1].tolist()[0] == 1


DOCUMENTS = {"1": ("wings", "they fly"), "2": ("heat", "in slabs"), "3": ("rods", "they bend")}
WORDS = ["wings", "fly", "heat", "slabs", "rods", "bend"]


def bag_of_words(texts: list[str]) -> np.ndarray:
    return np.array([[float(word in text.split()) for word in WORDS] for text in texts]) + 1e-3


def test_cranfield_is_a_task_with_or_without_data(tmp_path: Path) -> None:
    (task,) = tasks(tmp_path, PUBLISHED)
    assert (task.name, task.group, task.main) == ("Cranfield", "retrieval", "nDCG@10")
    with pytest.raises(MissingData, match=r"cranfield/cran.all.1400.xml is not there"):
        task.sentences()
    topics = {"1": "what can fly", "5": "slabs and heat", "7": "heat that does bend"}
    judgements = [("1", "1", "1"), ("2", "2", "1"), ("3", "3", "1")]
    write_trec(tmp_path / "extra/cranfield", DOCUMENTS, topics, judgements)
    (task,) = tasks(tmp_path, PUBLISHED)
    got = values(task, bag_of_words)
    # The third query has equal cosines with heat and rods. Heat comes first, so rods have rank 2.
    expected = {"nDCG@10": 100 * (2 + 1 / math.log2(3)) / 3, "MAP@10": 250 / 3, "MRR@10": 250 / 3}
    assert got == pytest.approx({**expected, "recall@10": 100, "recall@100": 100})
    assert task.notes()[0] == "3 queries, 3 documents."
    assert "counts topics from 1" in task.notes()[1]


def test_folders_in_the_layout_of_beir_are_tasks(tmp_path: Path) -> None:
    queries = {"q1": "what can fly", "d2": "heat in slabs"}
    documents = {"d1": ("", "wings fly"), "d2": ("", "heat in slabs"), "d3": ("", "heat")}
    judgements = [("q1", "d1", 1), ("d2", "d3", 1)]
    for name in ("scifact", "arguana"):
        write_beir(tmp_path / "retrieval" / name, documents, queries, judgements)
    (tmp_path / "retrieval" / "else").mkdir()
    found = {task.name: task for task in tasks(tmp_path, PUBLISHED)}
    assert list(found) == ["Cranfield", "arguana", "scifact"]
    # Query d2 does not find document d2.
    assert values(found["arguana"], bag_of_words)["nDCG@10"] == pytest.approx(100)


def test_folders_of_folders_in_the_layout_of_beir_are_tasks(tmp_path: Path) -> None:
    """As CQADupStack is laid out by BEIR, whose score of it is the mean over its forums."""
    documents, queries = {"d1": ("wings", "fly"), "d2": ("", "heat")}, {"q1": "what can fly"}
    for place in ("cqadupstack/unix", "cqadupstack/android", "cqa", "scifact", "scifact/earlier"):
        write_beir(tmp_path / "retrieval" / place, documents, queries, [("q1", "d1", 1)])
    _, *found = tasks(tmp_path, PUBLISHED)
    names = ["cqa", "cqadupstack-android", "cqadupstack-unix", "scifact"]
    assert [task.name for task in found] == names
    assert all(values(task, bag_of_words)["nDCG@10"] == pytest.approx(100) for task in found)
    write_beir(tmp_path / "retrieval" / "cqadupstack-unix", documents, queries, [("q1", "d1", 1)])
    with pytest.raises(TaskError, match="are both called cqadupstack-unix"):
        tasks(tmp_path, PUBLISHED)


def test_relevant_documents_that_are_not_there_are_never_found(tmp_path: Path) -> None:
    """As ArguAna, whose published judgements name a document that its corpus lacks.

    The numbers are those of `EvaluateRetrieval.evaluate` and `evaluate_custom` (beir-cellar/beir,
    beir/retrieval/evaluation.py, commit ef83d29307) and of pytrec_eval-terrier 0.5.11, which it
    calls, unrounded, for these judgements and cosines.
    """
    documents = {f"d{n}": ("", f"document {n}") for n in range(100)}
    queries = {f"q{n}": f"query {n}" for n in range(100)}
    judgements = [
        (f"q{n}", f"d{n * factor % 100}", grade)
        for n in range(100)
        for factor, grade in ((1, 2), (2, 1), (7, 1))
        if n != 8
    ]
    judgements += [("q7", "gone", 2), ("q8", "lost", 1)]  # all that is relevant to query 8
    write_beir(tmp_path / "retrieval/x", documents, queries, judgements)
    _, task = tasks(tmp_path, PUBLISHED)

    def on_a_circle(texts: list[str]) -> np.ndarray:
        kinds = [text.split() for text in texts]
        angles = [0.05 * int(number) + 0.012 * (kind == "query") for kind, number in kinds]
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)

    expected = {
        "nDCG@10": 66.31452898683389,
        "recall@10": 41.08333333333332,
        "recall@100": 98.75,
        "MAP@10": 37.121560846560847,
        "MRR@10": 99.0,
    }
    assert values(task, on_a_circle) == pytest.approx(expected, abs=1e-9)
    assert task.notes() == [
        "100 queries, 100 documents.",
        "2 relevant documents are not there, and count as not found.",
    ]


def test_random_embeddings_score_at_chance_and_one_hot_ones_are_perfect(tmp_path: Path) -> None:
    documents = {f"d{n}": ("", f"document {n}") for n in range(200)}
    queries = {f"q{n}": f"query {n}" for n in range(200)}
    judgements = [(f"q{n}", f"d{n}", 1) for n in range(200)]
    write_beir(tmp_path / "retrieval/x", documents, queries, judgements)
    _, task = tasks(tmp_path, PUBLISHED)
    one_hot = values(task, lambda texts: np.eye(200)[[int(text.split()[1]) for text in texts]])
    assert set(one_hot.values()) == {100.0}
    rng = np.random.default_rng(0)
    chance = values(task, lambda texts: rng.normal(size=(len(texts), 20)))
    assert chance["recall@100"] == pytest.approx(50, abs=8)
    assert chance["recall@10"] == pytest.approx(5, abs=4)


def test_span_ranks_equal_those_of_a_naive_loop() -> None:
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(30, 4))
    targets = queries + rng.normal(size=(30, 4))
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (queries, targets)]
    ranks = [1 + sum(q @ t > q @ unit[1][n] for t in unit[1]) for n, q in enumerate(unit[0])]
    for block in (1, 7, 100):
        got = span_ranks(queries, targets, block)
        assert got.found.tolist() == [float(rank == 1) for rank in ranks]
        np.testing.assert_allclose(got.reciprocal, [1 / rank for rank in ranks])
    assert max(ranks) > 1 and 0 < got.found.mean() < 1


def test_ties_share_their_ranks() -> None:
    """Of four targets the first three are equal, so that their queries have ranks 1 to 3."""
    queries = np.array([[1, 0], [1, 0], [1, 0], [1, 0.1]], float)
    targets = np.array([[1, 0], [1, 0], [1, 0], [0, 1]], float)
    got = span_ranks(queries, targets)
    np.testing.assert_allclose(got.found, [1 / 3, 1 / 3, 1 / 3, 0])
    third = (1 + 1 / 2 + 1 / 3) / 3
    np.testing.assert_allclose(got.reciprocal, [third, third, third, 1 / 4])
    same = np.full((40, 7), 0.1)  # their sums round differently at the borders of blocks
    assert span_ranks(same, same, block=9).found.tolist() == [1 / 40] * 40


def write_corpus(file: Path, documents: list[str]) -> Path:
    text = "".join(f"{document}\n" for document in documents).encode()
    file.write_bytes(lzma.compress(text) if file.suffix == ".xz" else text)
    return file


@pytest.mark.parametrize("name", ["corpus.txt", "corpus.txt.xz"])
def test_span_retrieval_reads_a_corpus(tmp_path: Path, name: str) -> None:
    documents = make_documents(20, 150, seed=3)
    vocabulary = sorted({word for document in documents for word in document.split()})

    def counts(texts: list[str]) -> np.ndarray:
        return np.array([[text.split().count(word) for word in vocabulary] for text in texts])

    file = write_corpus(tmp_path / name, ["too short", *documents, ""])
    task = SpanRetrieval(file)
    assert (task.name, task.group, task.main) == ("span retrieval", "retrieval", "accuracy")
    assert len(task.sentences()) == 40
    got = values(task, counts)
    assert got["accuracy"] == pytest.approx(100 * span_retrieval_accuracy(counts, task._pairs))
    assert 80 < got["accuracy"] <= got["MRR"] <= 100
    constant = values(task, lambda texts: np.ones((len(texts), 3)))
    assert constant["accuracy"] == pytest.approx(5)
    assert task.notes() == [f"20 documents of {name} with 128 words or more; chance is 5.00 %."]
    few = SpanRetrieval(file, documents=5)
    assert few.sentences()[:5] == task.sentences()[:5]
    assert len(few.sentences()) == 10


def test_an_unusable_corpus_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"corpus.txt is not there"):
        SpanRetrieval(tmp_path / "corpus.txt").sentences()
    file = write_corpus(tmp_path / "corpus.txt", ["too short", "this as well"])
    with pytest.raises(BrokenData, match=r"corpus.txt has 0 documents .* 128 words"):
        SpanRetrieval(file).sentences()
    file.write_bytes(b"\xff broken\n")
    with pytest.raises(BrokenData, match=r"corpus.txt.*UTF-8"):
        SpanRetrieval(file).sentences()
