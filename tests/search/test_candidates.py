"""Candidates for negatives: BM25 against its formula, and an index against all cosines."""

import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from declutr.search import SearchError, SearchIndex, build_index
from declutr.search.candidates import BM25Candidates, IndexCandidates
from tests.search.fakes import FakeEncoder, PromptedEncoder, naive, some_lines

LINES = [*some_lines(200), " w1\tw2", "w1 w2", "w1  w2"]
TEXTS = ["the cat sat", "The dog, the dog!", "a cat and a dog", "nothing in common", "cat"]


def lucene(anchor: str, texts: list[list[str]]) -> list[float]:
    """Score texts for an anchor by BM25 as Lucene has it, with k1 = 1.5 and b = 0.75."""
    mean = sum(map(len, texts)) / len(texts)
    scores = []
    for text in texts:
        counts, total = Counter(text), 0.0
        for word in anchor.split():
            n = sum(word in other for other in texts)
            idf = math.log(1 + (len(texts) - n + 0.5) / (n + 0.5))
            weight = 1.5 * (1 - 0.75 + 0.75 * len(text) / mean)
            total += idf * counts[word] / (counts[word] + weight)
        scores.append(total)
    return scores


class TestBM25:
    @pytest.fixture(autouse=True)
    def library(self) -> None:
        pytest.importorskip("bm25s")

    def test_scores_are_those_of_the_formula(self) -> None:
        words = [text.lower().replace(",", "").replace("!", "").split() for text in TEXTS]
        for anchor in ("cat", "the dog", "dog dog cat"):
            (found,) = BM25Candidates(TEXTS).find([anchor], ["cat"], 10)
            scores = lucene(anchor, words)
            expected = sorted((row for row in range(5) if scores[row]), key=lambda r: -scores[r])
            assert found.texts == [TEXTS[row] for row in expected]
            assert found.scores == pytest.approx([scores[row] for row in expected], rel=1e-5)
            assert found.positive == pytest.approx(scores[4], rel=1e-5)
            assert found.complete

    def test_blank_and_repeated_texts_are_no_candidates(self) -> None:
        texts = ["a  cat", " a cat\t", "", "  ", "cats", "the cat"]
        (found,) = BM25Candidates(texts).find(["cat"], None, 10)
        assert sorted(found.texts) == ["a cat", "the cat"]

    def test_ties_keep_the_order_of_the_texts(self) -> None:
        texts = [f"cat {number}" for number in range(30)]
        (found,) = BM25Candidates(texts).find(["cat"], None, 7)
        assert found.texts == texts[:7] and not found.complete

    def test_positives_are_scored_but_not_found(self) -> None:
        candidates = BM25Candidates(["a dog", "a cat sat"], ["one cat", "a dog"])
        (found,) = candidates.find(["cat"], ["one cat"], 5)
        assert found.texts == ["a cat sat"] and found.positive > 0

    @pytest.mark.parametrize("anchor", ["unheard of", "?!", ""])
    def test_anchors_without_a_known_word(self, anchor: str) -> None:
        (found,) = BM25Candidates(["cat", "dog"]).find([anchor], ["cat"], 5)
        assert (found.texts, found.positive, found.complete) == ([], 0.0, True)

    @pytest.mark.parametrize("texts", [[], ["", "?!"]])
    def test_candidates_without_words_are_refused(self, texts: list[str]) -> None:
        with pytest.raises(SearchError, match="candidates has a word that BM25 could look for"):
            BM25Candidates(texts, ["a positive"])


def test_an_absent_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(ImportError, match=r"pip install 'declutr\[negatives\]'"):
        BM25Candidates(["cat"])


class TestIndex:
    def test_lines_are_those_of_a_plain_search(self, tmp_path: Path) -> None:
        build_index(FakeEncoder(), LINES, tmp_path, backend="numpy", shard_rows=70)
        candidates = IndexCandidates(SearchIndex(tmp_path, FakeEncoder()))
        for found, anchor in zip(
            candidates.find(["w1", "w3 w4"], ["w2", "w4"], 12), ("w1", "w3 w4"), strict=True
        ):
            expected: dict[str, float] = {}
            for row, score in naive(FakeEncoder(), LINES, anchor, 12):
                expected.setdefault(" ".join(LINES[row].split()), score)
            assert dict(zip(found.texts, found.scores.tolist(), strict=True)) == pytest.approx(
                expected, abs=2e-6
            )
            assert not found.complete
        ((_, score),) = naive(FakeEncoder(), ["w2"], "w1", 1)
        assert candidates.find(["w1"], ["w2"], 1)[0].positive == pytest.approx(score, abs=2e-6)

    def test_all_lines_are_complete(self, tmp_path: Path) -> None:
        build_index(FakeEncoder(), LINES, tmp_path, backend="numpy")
        (found,) = IndexCandidates(SearchIndex(tmp_path, FakeEncoder())).find(["w1"], None, 500)
        lines = {" ".join(line.split()) for line in LINES} - {"", "broken"}
        assert found.complete and set(found.texts) == lines and len(found.texts) == len(lines)
        assert found.positive == 0.0

    def test_anchors_are_queries_and_positives_are_lines(self, tmp_path: Path) -> None:
        named = {"document": "w9 ", "query": "w8 "}
        build_index(PromptedEncoder(named), ["w1", "w2 w3"], tmp_path, backend="numpy")
        encoder = PromptedEncoder(named)
        candidates = IndexCandidates(SearchIndex(tmp_path, encoder))
        (found,) = candidates.find(["w1"], ["w5"], 2)
        assert encoder.embedded == ["w8 w1", "w9 w5"]
        plain = FakeEncoder()
        query, line = plain(["w8 w1", "w9 w5"]).astype(float)
        cosine = query @ line / np.linalg.norm(query) / np.linalg.norm(line)
        assert found.positive == pytest.approx(cosine, abs=2e-6)
