"""All backends find the lines that a plain loop finds, in the same order."""

import copy
import itertools
import json
import logging
import os
import pickle
import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from declutr.inference.bulk import EmbeddingFolderError, StoredEmbeddings, embed_rows
from declutr.inference.whitening import Whitening
from declutr.search import Hit, SearchError, SearchIndex, build_index, searcher
from declutr.search.backends import exact_searcher
from declutr.search.index_files import IndexDescription
from declutr.search.searcher import ExactNumpy, SearchableRows, ranked, tune
from declutr.system.files import file_checksums
from tests.search.fakes import FakeEncoder, naive, some_lines

EXACT = ("numpy", "faiss", "hnswlib")
APPROXIMATE = ("faiss", "hnswlib")
LINES = some_lines(300)
MANY = some_lines(3000, words=3000)


def built(folder: Path, backend: str, lines=LINES, **settings) -> SearchIndex:
    if backend != "numpy":
        pytest.importorskip("faiss")
    build_index(FakeEncoder(), lines, folder, backend=backend, **settings)
    return SearchIndex(folder, FakeEncoder())


def as_pairs(hits: list[Hit]) -> list[tuple]:
    return [(hit.row, pytest.approx(hit.score, abs=2e-6)) for hit in hits]


@pytest.mark.parametrize("backend", EXACT)
class TestExact:
    @pytest.mark.parametrize("k", [1, 10, 1000])
    def test_hits_equal_those_of_a_plain_loop(self, tmp_path: Path, backend: str, k: int) -> None:
        index = built(tmp_path, backend, shard_rows=70)
        for query in ("w1 w2", "w3", "something else"):
            hits = index.search(query, k)
            expected = naive(FakeEncoder(), LINES, query, k)
            assert as_pairs(hits) == expected
            assert [hit.text for hit in hits] == [LINES[row] for row, _ in expected]

    def test_blank_and_broken_lines_are_never_hits(self, tmp_path: Path, backend: str) -> None:
        index = built(tmp_path, backend)
        assert len(index.search("w1")) == 10
        hits = index.search("w1", k=len(LINES))
        searchable = {row for row, line in enumerate(LINES) if line.strip() and line != "broken"}
        assert {hit.row for hit in hits} == searchable and len(hits) == len(searchable)
        assert len(index) == 300 == index.description.rows
        assert index.description.left_out == 300 - len(searchable)

    def test_equal_lines_come_in_their_order(self, tmp_path: Path, backend: str) -> None:
        """There are more equal lines than first candidates, and no library keeps their order."""
        lines = ["w1", "w2", "w2 w1"] * 100
        index = built(tmp_path, backend, lines)
        assert [hit.row for hit in index.search("w2", 40)] == list(range(1, 120, 3))
        hits = index.search("w2", 300)
        assert [hit.row for hit in hits[:100]] == list(range(1, 300, 3))
        rest = [[hit.row for hit in hits[start : start + 100]] for start in (100, 200)]
        assert sorted(rest) == [list(range(0, 300, 3)), list(range(2, 300, 3))]

    def test_an_index_without_searchable_lines_has_no_hits(
        self, tmp_path: Path, backend: str
    ) -> None:
        assert built(tmp_path, backend, ["broken", " "]).search("w1") == []

    def test_scores_are_at_most_one(self, tmp_path: Path, backend: str) -> None:
        for hit in built(tmp_path, backend, ["w1", "w2"] * 20).search("w1", 20):
            assert hit.score == pytest.approx(1, abs=1e-6) and hit.score <= 1


@pytest.fixture(scope="module", params=APPROXIMATE)
def graph(request, tmp_path_factory) -> tuple[str, Path]:
    """Build an approximate index of `MANY` once, and return its backend and folder."""
    folder = tmp_path_factory.mktemp(request.param)
    built(folder, request.param, MANY, exact_rows=1000)
    return request.param, folder


@pytest.fixture
def copy_of_graph(graph, tmp_path) -> tuple[str, Path]:
    return graph[0], shutil.copytree(graph[1], tmp_path / "copy")


def opened(folder: Path, **settings) -> SearchIndex:
    return SearchIndex(folder, FakeEncoder(), **settings)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_copies_and_pickles(graph: tuple[str, Path], copied: Any) -> None:
    index = opened(graph[1])
    expected = index.search("w1", 3)
    assert copied(index).search("w1", 3) == expected


class TestApproximate:
    def test_most_nearest_lines_are_found_and_recall_is_reported(self, graph) -> None:
        backend, folder = graph
        index, exact = opened(folder), opened(folder, exact=True)
        about = index.description
        assert about.approximate and about.backend == backend
        assert searcher.TARGET <= about.recall <= 1 and about.effort >= 1
        queries = [line for line in MANY if line.strip() and line != "broken"][::60]
        assert as_pairs(exact.search(queries[0])) == naive(FakeEncoder(), MANY, queries[0], 10)
        shares = []
        for query in queries:
            lowest = exact.search(query)[-1].score - 1e-6
            shares.append(np.mean([hit.score >= lowest for hit in index.search(query)]))
        assert np.mean(shares) > 0.9

    @pytest.mark.parametrize("k", [100, 400, 2500, 5000])
    def test_as_many_hits_as_asked_for_are_found(self, graph, k) -> None:
        index, exact = opened(graph[1]), opened(graph[1], exact=True)
        shares = []
        for query in ("w1 w2 w3", "w7", "something else"):
            hits, best = index.search(query, k), exact.search(query, k)
            assert len(hits) == len({hit.row for hit in hits}) == len(best)
            shares.append(np.mean([hit.score >= best[-1].score - 1e-6 for hit in hits]))
        assert np.mean(shares) > (0.9 if k < 2500 else 0.9999)

    def test_blank_lines_are_never_hits(self, graph) -> None:
        for query in ("broken w", "w1"):
            hits = opened(graph[1]).search(query, 50)
            assert all(hit.text.strip() not in ("", "broken") for hit in hits)

    def test_a_reopened_index_gives_the_same_hits(self, graph) -> None:
        assert opened(graph[1]).search("w1 w2", 20) == opened(graph[1]).search("w1 w2", 20)

    @pytest.mark.parametrize("damage", ["missing", "damaged"])
    def test_a_search_structure_that_cannot_be_read_is_reported_and_rebuilt(
        self, copy_of_graph, damage
    ) -> None:
        backend, folder = copy_of_graph
        file = folder / f"search.{backend}"
        flipped(file, 8 * 5000) if damage == "damaged" else file.unlink()
        with pytest.raises(SearchError, match=rf"search.{backend}' is {damage}.* Repeat"):
            opened(folder).search("w1")
        again = build_index(FakeEncoder(), MANY, folder, backend=backend, exact_rows=1000)
        assert not again.kept and opened(folder).search("w1")

    @pytest.mark.parametrize("graph", ["hnswlib"], indirect=True)
    @pytest.mark.parametrize("writable", [True, False])
    def test_a_graph_written_by_hnswlib_is_rebuilt(self, copy_of_graph, writable, caplog) -> None:
        """Releases up to 1.8 wrote such graphs, with matching checksums and description."""
        _, folder = copy_of_graph
        expected = opened(folder).search("w1 w2", 20)
        file = folder / "search.hnswlib"
        file.write_bytes(bytes(8) + (3000).to_bytes(8, "little") + bytes(5000))
        about = IndexDescription.load(folder)
        sums = {**about.checksums, file.name: file_checksums(file)}
        replace(about, effort=99, checksums=sums).save(folder)
        if not writable:
            (folder / ".lock").unlink(missing_ok=True)
            (folder / ".lock").mkdir()
        with caplog.at_level(logging.WARNING):
            found = opened(folder).search("w1 w2", 20)
        assert "of an earlier release, which wrote it with hnswlib" in caplog.text
        assert [hit.score for hit in found] == pytest.approx([hit.score for hit in expected])
        caplog.clear()
        again = opened(folder)
        assert again.search("w1 w2", 20) == found
        assert (again.description.effort != 99) == writable == (not caplog.text)

    @pytest.mark.parametrize("backend", APPROXIMATE)
    def test_lines_that_are_all_equal_are_found(self, tmp_path, backend) -> None:
        index = built(tmp_path, backend, ["w1"] * 1000, exact_rows=500)
        assert index.description.recall == 1
        for k in (10, 700):
            hits = index.search("w1", k)
            assert len(hits) == k and {hit.text for hit in hits} == {"w1"}


def test_too_few_hits_lead_to_an_exact_search(tmp_path: Path) -> None:
    """A graph of several components finds too few hits."""

    class Lost:
        approximate = True

        def nearest(self, queries, count):
            found = np.full((1, count), -1)
            found[0, 0] = 3
            return found, np.where(found < 0, -np.inf, 0.5)

    index = built(tmp_path, "numpy")
    expected = index.search("w1", 10)
    index.__dict__["searcher"] = Lost()
    assert index.search("w1", 10) == expected
    assert [hit.row for hit in index.search("w1", 1)] == [3]


@pytest.mark.parametrize("searched", [True, False])
def test_an_open_index_that_is_built_anew_is_told(tmp_path: Path, searched: bool) -> None:
    """Its offsets, which are mapped, would cut other lines out of the new text."""
    index = built(tmp_path, "numpy")
    if searched:
        assert index.search("w1", 1)
    built(tmp_path, "numpy")  # nothing is to be done, and the open index is as good as before
    assert index.search("w1", 1)
    built(tmp_path, "numpy", [f"{line} more" for line in LINES], overwrite=True)
    with pytest.raises((SearchError, EmbeddingFolderError), match=r"Open .* again"):
        index.search("w1", 1)
    with pytest.raises(SearchError, match="was replaced after it was opened"):
        index.lines[0]
    with pytest.raises(SearchError, match="was replaced after it was opened"):
        next(iter(index.lines))


class FewRows:
    """A substitute for stored embeddings."""

    def __init__(self, vectors: np.ndarray, block: int = 7) -> None:
        self.vectors, self.block, self.dimension = vectors, block, vectors.shape[1]

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        return self.vectors[rows]

    def blocks(self):
        for start in range(0, len(self), self.block):
            yield start, self.vectors[start : start + self.block]


def unit_rows(n: int, d: int, seed: int = 0) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(n, d))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


class TestRanking:
    def test_more_candidates_are_requested_while_rounding_decides(self, monkeypatch) -> None:
        """The cosines of these rows differ by less than the rounding of a float32 product."""
        query = np.zeros(512, dtype=np.float32)
        query[0] = 1
        vectors = np.zeros((500, 512), dtype=np.float32)
        vectors[:, 0] = np.linspace(0.9999, 1, 500)  # the best come last
        rows = SearchableRows(FewRows(vectors), np.array([], dtype=np.int64))
        asked = []

        class Coarse:
            """A searcher that prefers low row numbers among nearly equal rows."""

            approximate = False

            def nearest(self, queries, count):
                asked.append(count)
                scores = (queries @ vectors.T).round(4)[0]
                order = np.lexsort((np.arange(500), -scores))[:count]
                return order[None], scores[order][None]

        monkeypatch.setattr(searcher, "_MORE", 2)
        found, cosines = ranked(Coarse(), rows, query, 3)
        assert found.tolist() == [499, 498, 497] and (np.diff(cosines) < 0).all()
        assert asked == [5, 20, 80, 320, 500]

    def test_equally_near_rows_are_not_in_memory_together(self) -> None:
        """A query of zeros has all rows as candidates, which need not fit into memory."""
        count, width = 20_000, 256
        vectors = np.broadcast_to(unit_rows(1, width), (count, width))
        rows = SearchableRows(FewRows(vectors, 4096), np.array([], dtype=np.int64))
        tracemalloc.start()
        try:
            found, cosines = ranked(ExactNumpy(rows), rows, np.zeros(width, np.float32), 3)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert found.tolist() == [0, 1, 2] and not cosines.any()
        assert most < 8 * count * width  # the bytes of all rows in float64

    def test_left_out_rows_are_skipped(self) -> None:
        left_out = np.array([0, 3, 4, 6, 7, 8, 13, 19])
        rows = SearchableRows(FewRows(unit_rows(20, 3)), left_out)
        kept = sorted(set(range(20)) - set(left_out.tolist()))
        assert len(rows) == 12
        numbers = [number for block, _ in rows.blocks() for number in block.tolist()]
        assert numbers == kept
        for numbers, block in rows.blocks():
            np.testing.assert_array_equal(block, rows.embeddings.vectors[numbers])
        assert rows.sample(99).tolist() == kept
        samples = [rows.sample(4, seed).tolist() for seed in range(60)]
        assert all(sample == sorted(set(sample)) for sample in samples)
        assert set(itertools.chain(*samples)) == set(kept)


class TestRecall:
    @pytest.mark.parametrize("effort, expected", [(1, 0.1), (5, 0.5), (10, 1.0)])
    def test_recall_is_the_share_of_the_ten_nearest_other_rows(
        self, monkeypatch, effort, expected
    ) -> None:
        """The searcher finds the query itself and as many other rows as its effort."""
        monkeypatch.setattr(searcher, "TARGET", expected)
        rows = SearchableRows(FewRows(unit_rows(60, 5)), np.array([], dtype=np.int64))
        exact = exact_searcher("numpy", rows)

        class Partial:
            approximate = True
            effort = 0
            most_effort = 10

            def nearest(self, queries, count):
                found, scores = exact.nearest(queries, count)
                found[:, self.effort + 1 :], scores[:, self.effort + 1 :] = -1, -np.inf
                return found, scores

        partial = Partial()
        reached = tune(partial, exact, rows, sample=30)
        assert reached == pytest.approx(min(partial.effort, 10) / 10)
        assert reached >= expected and partial.effort == {1: 1, 5: 8, 10: 10}[effort]

    def test_any_of_equal_rows_counts_as_found(self) -> None:
        rows = SearchableRows(
            FewRows(np.repeat(unit_rows(2, 5), 20, axis=0)), np.array([], dtype=np.int64)
        )
        exact = exact_searcher("numpy", rows)

        class Others(type(exact)):  # type: ignore[misc]
            effort, most_effort = 1, 1

            def nearest(self, queries, count):
                found, scores = super().nearest(queries, 20)
                return found[:, -count:], scores[:, -count:]

        assert tune(Others(rows), exact, rows) == 1

    def test_the_recall_of_a_single_row_is_one(self) -> None:
        rows = SearchableRows(FewRows(unit_rows(1, 5)), np.array([], dtype=np.int64))
        assert tune(None, exact_searcher("numpy", rows), rows) == 1  # type: ignore[arg-type]


class TestQueries:
    @pytest.fixture
    def index(self, tmp_path: Path) -> SearchIndex:
        return built(tmp_path, "numpy", LINES[:30])

    @pytest.mark.parametrize(
        ("query", "k", "message"),
        [
            ("", 10, "Got an empty query, expected some text"),
            ("  \n", 10, "Got an empty query, expected some text"),
            ("w1", 0, "at least 1 line to be looked for, got k = 0"),
            ("broken", 10, "embedding of this query is not finite"),
        ],
    )
    def test_a_wrong_query_is_refused(self, index: SearchIndex, query, k, message) -> None:
        with pytest.raises(SearchError, match=message):
            index.search(query, k)

    def test_an_embedding_can_be_the_query(self, index: SearchIndex) -> None:
        vector = FakeEncoder()(["w1 w2"])[0]
        assert index.nearest(vector / np.linalg.norm(vector), 5) == index.search("w1 w2", 5)
        with pytest.raises(SearchError, match=r"of shape \(16,\), got \(3,\)"):
            index.nearest(np.zeros(3))
        for k in (0, -3):
            with pytest.raises(SearchError, match=f"at least 1 line .* got k = {k}"):
                index.nearest(vector, k)

    @pytest.mark.parametrize("length", [0.05, 30.0, 1e-13, 1e-30, 1e25, 1e60])
    def test_an_embedding_of_any_length_has_the_same_cosines(
        self, index: SearchIndex, length: float
    ) -> None:
        vector = length * FakeEncoder()(["w1 w2"])[0].astype(np.float64)
        assert as_pairs(index.nearest(vector, 5)) == naive(FakeEncoder(), LINES[:30], "w1 w2", 5)
        assert {hit.score for hit in index.nearest(0 * vector, 5)} == {0}


def flipped(path: Path, position: int) -> bytes:
    """Flip a bit of a file, and return the original content."""
    sound = path.read_bytes()
    damaged = bytearray(sound)
    damaged[position // 8] ^= 1 << position % 8
    path.write_bytes(damaged)
    return sound


class TestDamaged:
    FILES = ("lines.utf8", "lines.offsets", "left_out.npy", "embeddings/embeddings-00000.npy")

    @pytest.mark.parametrize("name", [*FILES, "index.json", "embeddings/manifest.json"])
    def test_a_flipped_bit_never_changes_the_hits(self, tmp_path: Path, name: str) -> None:
        index = built(tmp_path, "numpy", LINES[:40])
        expected = index.search("w1 w2", 40)
        path = tmp_path / name
        size, refused, tried = 8 * path.stat().st_size, 0, 0
        for position in range(3, size, size // 40):
            sound = flipped(path, position)
            tried += 1
            try:
                assert SearchIndex(tmp_path, FakeEncoder()).search("w1 w2", 40) == expected
            except (SearchError, EmbeddingFolderError) as error:
                refused += 1
                assert name.endswith("json") or "is damaged" in str(error)
            path.write_bytes(sound)
        assert refused >= 0.6 * tried if name.endswith("json") else refused == tried

    @pytest.mark.parametrize("name", FILES)
    def test_a_repeated_build_repairs_damage(self, tmp_path: Path, name: str) -> None:
        expected = built(tmp_path, "numpy").search("w1 w2")
        flipped(tmp_path / name, 8 * 150 + 3)
        assert built(tmp_path, "numpy").search("w1 w2") == expected

    def test_an_index_of_release_1_5_without_checksums_is_searched(self, tmp_path: Path) -> None:
        expected = built(tmp_path, "numpy").search("w1 w2")
        path = tmp_path / "index.json"
        content = json.loads(path.read_text())
        del content["checksum"], content["checksums"]
        path.write_text(json.dumps(content))
        assert SearchIndex(tmp_path, FakeEncoder()).search("w1 w2") == expected

    def test_lines_that_differ_where_their_digests_do_not(self, tmp_path: Path) -> None:
        """A lone surrogate has the digest of U+FFFD, but is stored differently."""
        built(tmp_path, "numpy", ["w1 \ud800", "w2"])
        built(tmp_path, "numpy", ["w1 \ufffd", "w2"])
        assert len(SearchIndex(tmp_path, FakeEncoder()).search("w1")) == 2

    def test_an_unfinished_damaged_index_can_be_overwritten(self, tmp_path: Path) -> None:
        built(tmp_path, "numpy")
        (tmp_path / "index.json").unlink()
        manifest = tmp_path / "embeddings" / "manifest.json"
        content = manifest.read_text()
        manifest.write_text(content.replace('"rows"', '"rows" ', 1).replace("16", "17", 1))
        with pytest.raises(SearchError, match=r"is damaged.*--overwrite"):
            built(tmp_path, "numpy")
        built(tmp_path, "numpy", overwrite=True)
        assert SearchIndex(tmp_path, FakeEncoder()).search("w1")


def test_a_tilde_is_the_home_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    folder = built(Path("~/index"), "numpy").folder
    assert folder == tmp_path / "home" / "index"
    assert len(StoredEmbeddings("~/index/embeddings")) == len(LINES)
    embed_rows(FakeEncoder(), LINES, "~/rows", dimension=16, describe={})
    Whitening.fit([np.random.default_rng(0).normal(size=(300, 4))]).save("~/fitted")
    assert Whitening.load("~/fitted").texts == len(LINES)
    assert sorted(os.listdir(tmp_path)) == ["home"]
    assert sorted(os.listdir(tmp_path / "home")) == ["fitted", "index", "rows"]


def test_the_path_of_the_model_may_be_invalid_utf8(tmp_path: Path) -> None:
    wanted = IndexDescription(
        rows=1, left_out=0, model="/m\udce9del", options={}, encoder={}, backend="numpy",
        approximate=False,
    )  # fmt: skip
    wanted.save(tmp_path)
    assert IndexDescription.load(tmp_path) == wanted


def test_a_query_of_which_the_model_knows_nothing(tmp_path: Path, caplog: Any) -> None:
    """A static encoder has the vector 0 for it, and any lines would be as good."""
    caplog.set_level("WARNING", "declutr.search.index")
    index = built(tmp_path, "numpy")
    index.search("w1", 2)
    assert "knows nothing" not in caplog.text
    index.encode_queries = lambda texts: np.zeros((len(texts), 16), np.float32)  # type: ignore[method-assign]
    assert [hit.score for hit in index.search("where?", 2)] == [0, 0]
    assert "The embedding of 'where?' is 0, as the model knows nothing in it" in caplog.text
