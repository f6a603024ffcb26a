"""An index is built once, resumed after an interruption, and never confused with another."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from declutr.inference.bulk import StoredEmbeddings, embed_rows
from declutr.search import SearchError, SearchIndex, backends, build_index, building
from declutr.search.backends import BACKENDS, chosen_backend
from declutr.search.index_files import OtherIndex, structure_file, structure_files
from tests.search.fakes import FakeEncoder, KilledEncoder, some_lines

LINES = some_lines(60)


def build(folder: Path, lines=LINES, encoder=None, **settings):
    """Build an index that is searched with numpy, unless told otherwise."""
    settings = {"backend": "numpy", **settings}
    return build_index(encoder or FakeEncoder(), lines, folder, **settings)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != ".lock"
    }


class TestBuilding:
    def test_an_index_stores_unit_embeddings_of_all_lines(self, tmp_path: Path) -> None:
        encoder = FakeEncoder()
        summary = build(tmp_path / "index", iter(LINES), encoder)
        stored = StoredEmbeddings(tmp_path / "index" / "embeddings")
        expected = encoder(LINES)
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(stored[:], expected, atol=1e-6)  # nan where it is nan
        assert summary.description.rows == 60 and not summary.kept
        assert summary.embedding.embedded_rows == 60
        names = [".lock", "embeddings", "index.json", "left_out.npy", "lines.offsets", "lines.utf8"]
        assert sorted(file.name for file in (tmp_path / "index").iterdir()) == names

    def test_a_repeated_build_changes_nothing(self, tmp_path: Path) -> None:
        build(tmp_path)
        before = files(tmp_path)
        encoder = FakeEncoder()
        summary = build(tmp_path, LINES, encoder)
        assert summary.kept and not encoder.embedded and files(tmp_path) == before

    def test_an_interrupted_build_is_resumed(self, tmp_path: Path) -> None:
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path / "index", LINES, KilledEncoder(20), shard_rows=10)
        with pytest.raises(SearchError, match=r"is not finished\. Repeat the command"):
            SearchIndex(tmp_path / "index")
        encoder = FakeEncoder()
        build(tmp_path / "index", LINES, encoder, shard_rows=10)
        assert encoder.embedded == LINES[20:]
        build(tmp_path / "whole", LINES, shard_rows=10)
        assert files(tmp_path / "index") == files(tmp_path / "whole")

    def test_a_change_of_backend_reuses_the_embeddings(self, tmp_path: Path) -> None:
        pytest.importorskip("faiss")
        lines = some_lines(500)
        build(tmp_path, lines, backend="faiss", exact_rows=100)
        assert (tmp_path / "search.faiss").is_file()
        encoder = FakeEncoder()
        summary = build(tmp_path, lines, encoder, exact_rows=100)
        assert not summary.kept and not encoder.embedded
        assert summary.description.backend == "numpy" and not summary.description.approximate
        assert not (tmp_path / "search.faiss").exists()

    def test_longer_steps_are_reported(self, tmp_path: Path) -> None:
        pytest.importorskip("faiss")
        said: list[str] = []
        build(tmp_path, backend="faiss", exact_rows=10, say=said.append)
        assert "search structure of 55 vectors with faiss" in said[0] and "exact" in said[1]

    @pytest.mark.parametrize(
        "lines, encoder, message",
        [
            (["another", *LINES[1:]], FakeEncoder(), "The input has changed: rows 0 to"),
            (LINES[:-1], FakeEncoder(), "The input has changed"),
            ([*LINES, "more"], FakeEncoder(), "The input has changed"),
            (LINES, FakeEncoder(content="b"), 'encoder.content: "a" there, "b" now.*--overwrite'),
        ],
    )
    def test_other_lines_or_another_model_need_overwrite(
        self, tmp_path: Path, lines, encoder, message
    ) -> None:
        build(tmp_path, shard_rows=20)
        before = files(tmp_path)
        with pytest.raises(SearchError, match=message):
            build(tmp_path, lines, encoder, shard_rows=20)
        assert files(tmp_path) == before and not encoder.embedded
        assert SearchIndex(tmp_path, FakeEncoder()).search("w1")
        build(tmp_path, lines, encoder, overwrite=True)
        assert len(SearchIndex(tmp_path)) == len(lines)

    def test_an_unreadable_input_does_not_overwrite(self, tmp_path: Path) -> None:
        build(tmp_path)
        before = files(tmp_path)

        def broken():
            yield "w1"
            raise OSError("the disk is gone")

        with pytest.raises(OSError, match="the disk is gone"):
            build(tmp_path, broken(), overwrite=True)
        assert files(tmp_path) == before

    def test_an_interrupted_overwrite_leaves_an_unfinished_index(self, tmp_path: Path) -> None:
        build(tmp_path)
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path, ["w1", "w2"], KilledEncoder(0), overwrite=True)
        with pytest.raises(SearchError, match="is not finished"):
            SearchIndex(tmp_path)
        build(tmp_path, ["w1", "w2"])
        assert len(SearchIndex(tmp_path)) == 2

    def test_a_second_process_is_refused(self, tmp_path: Path) -> None:
        said = "Another run is writing to"
        with FileLock(tmp_path / ".lock"), pytest.raises(SearchError, match=said):
            build(tmp_path)

    def test_a_file_in_place_of_the_folder_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        with pytest.raises(SearchError, match="is a file, expected a folder"):
            build(tmp_path / "file")


class TestForeignFilesAreKept:
    """Earlier releases mistook files of these names for their own."""

    NAMES = ("search.py", "unfinished/thesis.txt", "lines.utf8", "embeddings/notes.txt")

    @pytest.mark.parametrize("overwrite", [False, True])
    @pytest.mark.parametrize("name", [*NAMES, "index.json", "embeddings/manifest.json"])
    def test_a_folder_of_other_files_is_refused(
        self, tmp_path: Path, name: str, overwrite: bool
    ) -> None:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"name": "an app"}')
        message = rf"is not empty and holds no index of ours \(it has {name.split('/')[0]}\): noth"
        with pytest.raises(SearchError, match=message):
            build(tmp_path, overwrite=overwrite)
        left = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert left == [tmp_path / name] and left[0].read_text() == '{"name": "an app"}'

    @pytest.mark.parametrize("overwrite", [False, True])
    def test_a_folder_of_plain_embeddings_is_refused(self, tmp_path: Path, overwrite) -> None:
        """The output of `declutr embed -o project/embeddings` is not an unfinished index."""
        embed_rows(FakeEncoder(), LINES, tmp_path / "embeddings", dimension=16, describe={"a": 1})
        before = files(tmp_path)
        with pytest.raises(SearchError, match="holds no index of ours"):
            build(tmp_path, overwrite=overwrite)
        assert files(tmp_path) == before

    def test_foreign_files_in_an_index_are_kept(self, tmp_path: Path) -> None:
        build(tmp_path)
        theirs = [tmp_path / name for name in ("search.py", "unfinished/thesis.txt", "notes.txt")]
        for file in theirs:
            file.parent.mkdir(exist_ok=True)
            file.write_text("mine")
        build(tmp_path, ["w1"], overwrite=True)
        assert [file.read_text() for file in theirs] == ["mine"] * 3
        assert len(SearchIndex(tmp_path)) == 1

    def test_an_index_of_another_release_can_be_overwritten(self, tmp_path: Path) -> None:
        build(tmp_path)
        about = json.loads((tmp_path / "index.json").read_text())
        (tmp_path / "index.json").write_text(json.dumps({**about, "format": 9}))
        with pytest.raises(OtherIndex, match=r"was written by declutr .*--overwrite"):
            SearchIndex(tmp_path)
        build(tmp_path, ["w1"], overwrite=True)
        assert len(SearchIndex(tmp_path)) == 1

    def test_files_of_a_killed_build_are_overwritten(self, tmp_path: Path) -> None:
        (tmp_path / ".lock").touch()
        (tmp_path / ".declutr-lines").mkdir()
        (tmp_path / ".declutr-lines" / "lines.utf8.7.new").write_text("w1")
        build(tmp_path)
        assert not (tmp_path / ".declutr-lines").exists()


class TestInputsThatAreNoTexts:
    @pytest.mark.parametrize("lines", ["w1 w2", {"w1": "w2"}, {"w1"}])
    def test_a_string_or_collection_as_lines_is_refused(self, tmp_path: Path, lines) -> None:
        with pytest.raises(TypeError, match=r"Expected texts: .*; got"):
            build_index(FakeEncoder(), lines, tmp_path / "index")

    def test_lines_and_queries_must_be_strings(self, tmp_path: Path) -> None:
        with pytest.raises(TypeError, match="Expected strings, got NoneType at position 1"):
            build_index(FakeEncoder(), ["w1", None], tmp_path / "index", backend="numpy")  # type: ignore[list-item]
        build(tmp_path / "index", ["w1"])
        index = SearchIndex(tmp_path / "index", FakeEncoder())
        for query in (["w1"], b"w1", None):
            with pytest.raises(TypeError, match="Expected a query, one string, got"):
                index.search(query)  # type: ignore[arg-type]


class TestNothingToSearchIn:
    @pytest.mark.parametrize(
        "lines, message",
        [([], "the input has no lines"), (["", " \t"], "all of the 2 lines are blank")],
    )
    def test_an_input_without_text_is_refused(self, tmp_path: Path, lines, message) -> None:
        encoder = FakeEncoder()
        with pytest.raises(SearchError, match=f"There is nothing to search in: {message}"):
            build(tmp_path / "index", lines, encoder)
        assert not encoder.embedded and not files(tmp_path)
        build(tmp_path / "index", LINES, encoder)
        before = files(tmp_path)
        with pytest.raises(SearchError, match=message):
            build(tmp_path / "index", lines, encoder, overwrite=True)
        assert files(tmp_path) == before


class TestBackends:
    def test_an_unknown_backend_is_refused(self) -> None:
        with pytest.raises(SearchError, match="backend 'annoy', expected one of auto, numpy, fai"):
            chosen_backend("annoy")

    @pytest.mark.parametrize("backend", ["faiss", "hnswlib"])
    def test_the_error_for_a_missing_backend_names_the_extra(
        self, monkeypatch, tmp_path, backend
    ) -> None:
        monkeypatch.setitem(sys.modules, backend, None)
        monkeypatch.setattr(backends.importlib.util, "find_spec", lambda name: None)
        encoder = FakeEncoder()
        message = r"needs the package faiss-cpu.*pip install 'declutr\[search\]'"
        with pytest.raises(ImportError, match=message):
            build(tmp_path / "index", LINES, encoder, backend=backend)
        assert not encoder.embedded

    def test_structure_files_lists_the_files_of_all_backends(self, tmp_path: Path) -> None:
        approximate = [name for name in BACKENDS if name not in ("auto", "numpy")]
        expected = [structure_file(tmp_path, name) for name in approximate]
        assert structure_files(tmp_path) == expected

    @pytest.mark.slow
    def test_importing_faiss_logs_nothing(self, caplog, tmp_path: Path) -> None:
        pytest.importorskip("faiss")
        code = (
            "import logging; logging.basicConfig(level=logging.INFO)\n"
            "from declutr.system.vectors import loaded_faiss\nloaded_faiss().IndexFlatIP(3)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0 and done.stderr == ""

    @pytest.mark.parametrize("there, expected", [({"faiss"}, "faiss"), (set(), "numpy")])
    def test_auto_selects_an_installed_backend(self, monkeypatch, there, expected) -> None:
        monkeypatch.setattr(
            backends.importlib.util, "find_spec", lambda name: name if name in there else None
        )
        assert chosen_backend("auto") == expected

    def test_numpy_searches_an_index_whose_backend_is_missing(
        self, monkeypatch, tmp_path, caplog
    ) -> None:
        pytest.importorskip("faiss")
        build(tmp_path, backend="faiss")
        expected = SearchIndex(tmp_path, FakeEncoder()).search("w1")
        monkeypatch.setattr(backends.importlib.util, "find_spec", lambda name: None)
        with caplog.at_level(logging.WARNING):
            assert SearchIndex(tmp_path, FakeEncoder()).search("w1") == expected
        assert "built with faiss, which is not installed here" in caplog.text


class TestOpening:
    @pytest.fixture
    def index(self, tmp_path: Path) -> Path:
        build(tmp_path / "index", shard_rows=20)
        return tmp_path / "index"

    def test_a_missing_index_is_reported(self, tmp_path: Path) -> None:
        with pytest.raises(SearchError, match=r"There is no index at .*declutr index MODEL LINES"):
            SearchIndex(tmp_path)

    @pytest.mark.parametrize("content", ["[]", "no JSON", '{"format": 9}', '{"format": 1}'])
    def test_an_invalid_description_is_refused(self, index: Path, content: str) -> None:
        (index / "index.json").write_text(content)
        with pytest.raises(SearchError, match="does not describe an index"):
            SearchIndex(index)

    @pytest.mark.parametrize("part", ["embeddings/embeddings-00001.npy", "left_out.npy"])
    def test_missing_files_are_reported(self, index: Path, part: str) -> None:
        (index / part).unlink()
        with pytest.raises(SearchError, match=r"Parts of the index .* are missing"):
            SearchIndex(index)

    def test_files_that_do_not_belong_together_are_refused(self, index: Path) -> None:
        about = json.loads((index / "index.json").read_text())
        del about["checksum"]
        (index / "index.json").write_text(json.dumps({**about, "rows": 7}))
        with pytest.raises(SearchError, match="60 lines and 60 vectors, expected 7"):
            SearchIndex(index)

    def test_a_changed_model_is_refused(self, index: Path) -> None:
        with pytest.raises(SearchError, match=r'not as it was.*content: "a" there, "b" now\. Buil'):
            SearchIndex(index, FakeEncoder(content="b")).search("w1")

    def test_a_moved_model_is_accepted(self, index: Path) -> None:
        assert SearchIndex(index, FakeEncoder(place="elsewhere")).search("w1")

    def test_an_index_of_release_15_may_have_another_truncation_side(
        self, index: Path, monkeypatch
    ) -> None:
        """Release 1.5 truncated on the right, even if the tokenizer truncates on the left."""
        encoder = FakeEncoder()
        said = {**encoder.describe(), "truncation_side": "left"}
        monkeypatch.setattr(encoder, "describe", lambda: said)
        assert SearchIndex(index, encoder).search("w1")

    def test_opens_the_model_with_its_options(self, tmp_path: Path, monkeypatch) -> None:
        opened = []

        def encoder(place, **settings):
            opened.append((place, settings))
            return FakeEncoder(place=place)

        import declutr.inference.encoder

        monkeypatch.setattr(declutr.inference.encoder, "Encoder", encoder)
        options = {"max_length": 64}
        (tmp_path / "model").mkdir()
        monkeypatch.chdir(tmp_path)
        build_index(FakeEncoder(place="model"), LINES, "index", options=options, backend="numpy")
        index = SearchIndex("index", device="cpu")
        assert not opened  # the model is opened at the first query
        assert index.search("w1") and index.search("w2")
        settings = {"device": "cpu", "trust": False, "max_length": 64}
        assert opened == [(str(tmp_path / "model"), settings)]
        assert SearchIndex("index", model="moved", trust=True).search("w1")
        assert opened[1] == ("moved", {"device": None, "trust": True, "max_length": 64})

    def test_a_missing_model_is_reported(self, index: Path) -> None:
        with pytest.raises(SearchError, match=r"is not where it was.*--model"):
            SearchIndex(index, model=index / "nowhere.tar.gz").search("w1")


def test_embeddings_are_scaled_to_length_one() -> None:
    vectors = np.array([[3.0, 4.0], [0.0, 0.0], [np.inf, 1.0]], dtype=np.float32)
    found = building.normalized(vectors)
    np.testing.assert_allclose(found[:2], [[0.6, 0.8], [0, 0]], atol=1e-6)
    assert np.isnan(found[2, 0])
