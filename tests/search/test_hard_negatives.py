"""Hard negatives: which candidates are chosen, and that nothing but the settings decides it."""

import random
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from declutr.corpus.text_pairs import TextPair
from declutr.search import SearchError, SearchIndex, build_index, hard_negatives
from declutr.search.candidates import BM25Candidates, Found, IndexCandidates
from declutr.search.hard_negatives import Choice, known_positives, mine_negatives
from declutr.system.worker_processes import WORKERS_VARIABLE
from tests.search.fakes import FakeEncoder

FOUND = Found(list("abcdef"), np.array([9.0, 7.0, 5.0, 3.0, 1.0, -1.0]), 6.0, True)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "b"),
        ({"num_negatives": 3}, "bde"),
        ({"skip": 1}, "d"),
        ({"skip": 1, "num_negatives": 2, "pool": 2}, "de"),
        ({"margin": 0.0, "num_negatives": 6}, "def"),
        ({"margin": 0.5, "num_negatives": 6}, "def"),
        ({"margin": 0.6, "num_negatives": 6}, "ef"),
        ({"margin": 0.05, "pool": 1}, ""),
        ({"max_score": 1, "num_negatives": 6}, "ef"),
        ({"max_score": 8, "margin": 0.1}, "d"),
        ({"skip": 4, "num_negatives": 2}, ""),
    ],
)
def test_ranks_and_scores(settings: dict, expected: str) -> None:
    """The anchor and a positive are a and c; ranks do not count them."""
    assert Choice(**settings).negatives(FOUND, {"a", "c"}, 0) == list(expected)


def test_a_margin_of_a_negative_score() -> None:
    """The margin lies below the positive's score, not above it."""
    found = Found(list("ab"), np.array([-0.1, -0.3]), -0.2, True)
    assert Choice(margin=0.05, num_negatives=2).negatives(found, set(), 0) == ["b"]
    assert Choice(margin=0.6, num_negatives=2).negatives(found, set(), 0) == []


def test_random_draws() -> None:
    choice = Choice(num_negatives=2, pool=4, random=True)
    drawn = [choice.negatives(FOUND, {"a"}, number) for number in range(300)]
    assert {text for pair in drawn for text in pair} == set("bcde")
    assert all(pair == sorted(pair) and len(set(pair)) == 2 for pair in drawn)
    assert len(set(map(tuple, drawn))) == 6  # every pair of four
    assert drawn == [choice.negatives(FOUND, {"a"}, number) for number in range(300)]
    other = Choice(num_negatives=2, pool=4, random=True, seed=1)
    assert drawn != [other.negatives(FOUND, {"a"}, number) for number in range(300)]
    assert choice.negatives(FOUND, set("abcdf"), 0) == ["e"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_negatives": 0}, "Expected num_negatives of at least 1, got 0"),
        ({"skip": -1}, "Expected skip of at least 0, got -1"),
        ({"seed": -1}, "Expected seed of at least 0, got -1"),
        ({"num_negatives": 3, "pool": 2}, "A pool of 2 candidates cannot give 3 negatives"),
        ({"margin": 1.5}, "margin is a share of the positive's score, got 1.5"),
        ({"margin": float("nan")}, "margin is a share of the positive's score, got nan"),
        ({"max_score": float("nan")}, "Expected a number as max_score, got NaN"),
    ],
)
def test_settings_that_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(SearchError, match=message):
        Choice(**settings)


def some_pairs(count: int) -> list[TextPair]:
    rng = random.Random(0)

    def text() -> str:
        return " ".join(f"w{min(rng.randrange(20), rng.randrange(20))}" for _ in range(3))

    return [TextPair(text(), text()) for _ in range(count)]


class TestMining:
    @pytest.fixture(autouse=True)
    def library(self) -> None:
        pytest.importorskip("bm25s")

    def test_negatives_are_those_of_a_plain_loop(self) -> None:
        pairs = some_pairs(120)
        candidates = BM25Candidates([pair.positive for pair in pairs])
        mined = list(mine_negatives(pairs, candidates, Choice(2, skip=1, pool=4)))
        for pair, negatives in zip(pairs, mined, strict=True):
            (found,) = candidates.find([pair.anchor], None, 1000)
            known = {pair.anchor}
            known |= {other.positive for other in pairs if other.anchor == pair.anchor}
            known |= {other.anchor for other in pairs if other.positive == pair.anchor}
            assert negatives == [text for text in found.texts if text not in known][1:3]
        assert sum(map(len, mined)) > 200

    def test_many_known_positives_leave_room_for_negatives(self) -> None:
        pairs = [TextPair("cat", f"cat {number}") for number in range(80)]
        candidates = BM25Candidates([*(pair.positive for pair in pairs), "cat of the neighbours"])
        mined = mine_negatives(pairs, candidates, Choice(pool=1))
        assert list(mined) == [["cat of the neighbours"]] * 80

    @pytest.mark.slow
    def test_blocks_processes_and_starts_do_not_matter(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pairs = some_pairs(60)
        candidates = BM25Candidates([pair.positive for pair in pairs])
        choice = Choice(2, pool=8, random=True, margin=0.2)
        whole = list(mine_negatives(pairs, candidates, choice))
        monkeypatch.setattr(hard_negatives, "_BLOCK", 7)
        for workers in ("1", "3"):
            monkeypatch.setenv(WORKERS_VARIABLE, workers)
            assert list(mine_negatives(pairs, candidates, choice)) == whole
            assert list(mine_negatives(pairs, candidates, choice, start=23)) == whole[23:]


def test_equal_lines_of_an_index_count_once(tmp_path: Path) -> None:
    """More lines are looked for until there are as many different ones as the pool takes."""
    lines = [*["w1"] * 50, *["w1  w2", "w1 w2"] * 50, "w1 w3 w4", "w1 w2 w5 w6"]
    build_index(FakeEncoder(), lines, tmp_path, backend="numpy")
    candidates = IndexCandidates(SearchIndex(tmp_path, FakeEncoder()))
    mined = list(mine_negatives([TextPair("w1", "w1 w2")], candidates, Choice(2, pool=2)))
    assert sorted(mined[0]) == ["w1 w2 w5 w6", "w1 w3 w4"]


def test_a_graph_of_several_components_loses_no_candidates(tmp_path: Path) -> None:
    """Many equal lines part a graph, of which a search then sees only one component."""

    class Lost:
        approximate = True

        def nearest(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
            found = np.full((len(queries), count), -1)
            found[:, 0] = 3
            return found, np.where(found < 0, -np.inf, 0.5).astype(np.float32)

    pairs = [TextPair(f"w{n}", f"w{n + 1}") for n in range(20)]
    build_index(FakeEncoder(), [pair.positive for pair in pairs], tmp_path, backend="numpy")
    index = SearchIndex(tmp_path, FakeEncoder())
    expected = list(mine_negatives(pairs, IndexCandidates(index), Choice(5)))
    index.__dict__["searcher"] = Lost()
    assert list(mine_negatives(pairs, IndexCandidates(index), Choice(5))) == expected
    assert [len(negatives) for negatives in expected] == [5] * len(pairs)


def test_a_resumed_run_finds_the_same_in_an_approximate_index(tmp_path: Path) -> None:
    """What inverted lists find follows from how much is looked for: not from other anchors."""
    pytest.importorskip("faiss")
    rng = random.Random(0)
    lines = [" ".join(f"w{rng.randrange(500)}" for _ in range(3)) for _ in range(1500)]
    pairs = [TextPair(f"w{rng.randrange(500)} w{rng.randrange(500)}", line) for line in lines[:40]]
    pairs[9] = TextPair("w1 w2 w3", lines[9])  # for which all of the equal lines are not enough
    build_index(FakeEncoder(), [*lines, *["w1 w2"] * 200], tmp_path, backend="faiss", exact_rows=99)
    index = SearchIndex(tmp_path, FakeEncoder())
    index.searcher.effort = 1
    candidates, choice = IndexCandidates(index), Choice(5, pool=10)
    whole = list(mine_negatives(pairs, candidates, choice))
    for start in (1, 10, 39):
        assert list(mine_negatives(pairs, candidates, choice, start=start)) == whole[start:]


def test_known_positives_go_both_ways() -> None:
    known = known_positives([TextPair("a", "b"), TextPair("b", "c"), TextPair("a", "d")])
    assert known == {"a": {"a", "b", "d"}, "b": {"b", "c", "a"}}


def test_known_positives_in_another_case_are_no_negatives(tmp_path: Path) -> None:
    """An uncased model takes them for the positive, or for the anchor itself."""
    lines = ["Cook Rice", "COOK rice", "how to cook rice", "rice"]
    build_index(FakeEncoder(), lines, tmp_path, backend="numpy")
    candidates = IndexCandidates(SearchIndex(tmp_path, FakeEncoder()))
    pairs = [TextPair("How to cook rice", "cook rice"), TextPair("HOW TO COOK RICE", "rice")]
    assert list(mine_negatives(pairs, candidates, Choice(pool=1))) == [[], []]
    assert list(mine_negatives(pairs[:1], candidates, Choice(pool=1))) == [["rice"]]


def test_known_positives_in_another_form_of_unicode_are_no_negatives(tmp_path: Path) -> None:
    """An accent is a part of its letter, or a character of its own; both look the same."""
    lines = [unicodedata.normalize("NFD", "caf\xe9 w1"), "CAF\xc9 w1", "w1 w2"]
    build_index(FakeEncoder(), lines, tmp_path, backend="numpy")
    candidates = IndexCandidates(SearchIndex(tmp_path, FakeEncoder()))
    for positive in (lines[0], unicodedata.normalize("NFC", lines[0])):
        mined = mine_negatives([TextPair("w1", positive)], candidates, Choice(3))
        assert list(mined) == [["w1 w2"]]
