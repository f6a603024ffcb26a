"""Files of mined triplets: what is written, and that an interrupted run goes on."""

import json
from pathlib import Path

import pytest
from filelock import FileLock

from declutr.corpus.text_pairs import TextPair
from declutr.data.pair_reader import TextPairReader
from declutr.search import SearchError, mining_run
from declutr.search.candidates import BM25Candidates
from declutr.search.hard_negatives import Choice, mine_negatives
from declutr.search.mining_run import write_triplets
from tests.search.test_hard_negatives import some_pairs

PAIRS = [TextPair("a cat", "the cat"), TextPair("a dog", "dog"), TextPair("birds", "the bird")]
OTHERS = ["cat and dog", "my cat"]


@pytest.fixture
def candidates() -> BM25Candidates:
    pytest.importorskip("bm25s")
    return BM25Candidates([*(pair.positive for pair in PAIRS), *OTHERS])


def test_triplets_have_a_row_for_each_negative(candidates, tmp_path: Path) -> None:
    output = tmp_path / "new" / "triplets.tsv"
    counts = write_triplets(PAIRS, candidates, Choice(2), output)
    rows = output.read_text().splitlines()
    assert rows[0] == "anchor\tpositive\tnegative"
    assert sorted(rows[1:]) == [
        *("a cat\tthe cat\tcat and dog", "a cat\tthe cat\tmy cat", "a dog\tdog\tcat and dog"),
    ]
    assert (counts.pairs, counts.rows, counts.fewer, counts.without) == (3, 3, 1, 1)
    assert [path.name for path in output.parent.iterdir()] == ["triplets.tsv"]
    read = TextPairReader(negative="negative").read_pairs(output)
    assert [pair.negatives for pair in read][2] == ("cat and dog",)


def test_lists_have_all_negatives_of_a_pair(candidates, tmp_path: Path) -> None:
    output = tmp_path / "triplets.jsonl"
    counts = write_triplets(PAIRS, candidates, Choice(2), output)
    (row,) = map(json.loads, output.read_text().splitlines())
    assert row.pop("negative") in (["cat and dog", "my cat"], ["my cat", "cat and dog"])
    assert row == {"anchor": "a cat", "positive": "the cat"}
    assert (counts.rows, counts.fewer, counts.without) == (1, 1, 1)
    (pair,) = TextPairReader(negative="negative").read_pairs(output)
    assert pair.anchor == "a cat" and len(pair.negatives) == 2


@pytest.mark.parametrize("torn", ["", '["w1', '["w1 w2"]'])
@pytest.mark.parametrize("after", [0, 5, 40])
def test_an_interrupted_run_goes_on(torn: str, after: int, tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("bm25s")
    pairs = some_pairs(60)
    candidates = BM25Candidates([pair.positive for pair in pairs])
    choice = Choice(2, random=True)
    write_triplets(pairs, candidates, choice, tmp_path / "whole.tsv")

    def killed(*arguments):
        for number, negatives in enumerate(mine_negatives(*arguments)):
            if number == after:
                raise KeyboardInterrupt
            yield negatives

    output = tmp_path / "triplets.tsv"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(mining_run, "mine_negatives", killed)
        write_triplets(pairs, candidates, choice, output)
    assert not output.exists()
    part = tmp_path / "triplets.tsv.part"
    with part.open("a") as file:
        file.write(torn)
    counts = write_triplets(pairs, candidates, choice, output)
    assert counts.resumed == after
    assert output.read_text() == (tmp_path / "whole.tsv").read_text() and not part.exists()


@pytest.mark.parametrize("change", ["choice", "pairs", "candidates"])
def test_another_run_starts_anew(change: str, candidates, tmp_path: Path) -> None:
    output = tmp_path / "triplets.tsv"
    part = tmp_path / "triplets.tsv.part"
    key = mining_run._key(PAIRS, candidates, Choice())
    part.write_bytes(key + b'["kept"]\n')
    pairs = [*PAIRS[:2], TextPair("my birds", "a bird")] if change == "pairs" else PAIRS
    others = BM25Candidates([*OTHERS, "a"]) if change == "candidates" else candidates
    choice = Choice(seed=1) if change == "choice" else Choice()
    assert write_triplets(pairs, others, choice, output).resumed == 0
    assert "kept" not in output.read_text()
    part.write_bytes(key + b'["kept"]\n')
    assert write_triplets(PAIRS, candidates, Choice(), output).resumed == 1
    assert "kept" in output.read_text()


def test_texts_that_utf8_cannot_hold(tmp_path: Path) -> None:
    pytest.importorskip("bm25s")
    pairs = [TextPair("a \ud800 cat", "the cat")]
    write_triplets(pairs, BM25Candidates(["my \ud800 cat"]), Choice(), tmp_path / "t.tsv")
    assert (tmp_path / "t.tsv").read_text().splitlines()[1] == "a ? cat\tthe cat\tmy ? cat"


class TestErrors:
    def test_no_negative_at_all(self, candidates, tmp_path: Path) -> None:
        with pytest.raises(SearchError, match="None of 1 pairs has a negative among the candid"):
            write_triplets(PAIRS[2:], candidates, Choice(), tmp_path / "triplets.tsv")
        with pytest.raises(SearchError, match="None of 3 pairs has as many negatives as asked"):
            write_triplets(PAIRS, candidates, Choice(4), tmp_path / "triplets.jsonl")
        assert not list(tmp_path.glob("*.tsv")) and not list(tmp_path.glob("*.jsonl"))

    def test_names(self, candidates, tmp_path: Path) -> None:
        with pytest.raises(SearchError, match=r"'t.csv' is no table of triplets. Expected a name"):
            write_triplets(PAIRS, candidates, Choice(), tmp_path / "t.csv")
        (tmp_path / "t.tsv").mkdir()
        with pytest.raises(SearchError, match="is a folder, expected the name of a file"):
            write_triplets(PAIRS, candidates, Choice(), tmp_path / "t.tsv")

    def test_two_runs_at_once(self, candidates, tmp_path: Path) -> None:
        with (
            FileLock(tmp_path / "t.tsv.part.lock"),
            pytest.raises(SearchError, match="Another run is writing to"),
        ):
            write_triplets(PAIRS, candidates, Choice(), tmp_path / "t.tsv")
