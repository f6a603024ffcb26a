"""Tests of `declutr index` and `declutr search`, from files to printed output."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from allennlp.common.checks import ConfigurationError

import declutr.commands.index
import declutr.commands.search
import declutr.commands.whiten
import declutr.inference.encoder
from declutr.commands.errors import TRACEBACK
from declutr.commands.search import clipped, table
from declutr.search import BACKENDS, Hit, SearchIndex
from tests.search.fakes import FakeEncoder, naive

pytestmark = pytest.mark.slow  # together they take long

LINES = ["w1 w2", "", "w2 w3", "w1\tw3", "  ", "w4", "w2 w1"]


@pytest.fixture
def opened(monkeypatch) -> list[dict]:
    """Replace `Encoder` by a fake one, and return a list of the arguments of its calls."""
    settings: list[dict] = []

    def encoder(place, **arguments):
        settings.append({"place": place, **arguments})
        return FakeEncoder(place=place)

    monkeypatch.setattr(declutr.inference.encoder, "Encoder", encoder)
    return settings


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(LINES) + "\n")
    return file


@pytest.fixture
def index(command, opened, lines, tmp_path) -> Path:
    command("index", "some/model", lines, "-o", tmp_path / "index", "--backend", "numpy")
    opened.clear()
    return tmp_path / "index"


class TestIndex:
    def test_prints_a_summary(self, command, opened, lines, tmp_path) -> None:
        words = ("index", "some/model", lines, "-o", tmp_path / "index", "--backend", "numpy")
        output = command(*words)
        assert re.search(r"Indexed 7 lines in \d+ seconds; 7 were embedded now\.", output)
        assert "2 are blank, or without an embedding, and are never found." in output
        assert "Search with numpy is exact." in output
        assert f'declutr search {tmp_path / "index"} "a question"' in output
        assert "holds these 7 lines already; nothing was to be done" in command(*words)

    def test_an_approximate_index_reports_its_recall(
        self, command, opened, tmp_path, monkeypatch
    ) -> None:
        pytest.importorskip("faiss")
        import declutr.search.building as building

        defaults = dict(building.build_index.__kwdefaults__, exact_rows=50)
        monkeypatch.setattr(building.build_index, "__kwdefaults__", defaults)
        (tmp_path / "many.txt").write_text("\n".join(f"w{n} w{n % 7}" for n in range(300)))
        output = command("index", "some/model", tmp_path / "many.txt", "-o", tmp_path / "index")
        assert re.search(r"with faiss is approximate: recall@10 is [01]\.\d{3} ", output)

    def test_options_are_passed_to_the_encoder_and_kept(
        self, command, opened, lines, tmp_path
    ) -> None:
        words = "--max-length 9 --truncate-dim 4 --no-whitening --pooling cls --long-texts chunk"
        command(
            "index", "some/model", lines, "-o", tmp_path / "index", *words.split(),
            *["--device", "cpu", "cpu", "--batch-tokens", "99"],
            *["--trust", "--backend", "numpy", "--quiet"],
        )  # fmt: skip
        for_queries = {
            "max_length": 9,
            "truncate_dim": 4,
            "whiten": False,
            "pooling": "cls",
            "long_texts": "chunk",
        }
        assert opened == [
            {
                "place": "some/model",
                "device": ["cpu", "cpu"],
                "batch_tokens": 99,
                "trust": True,
                "prompt_name": None,
                "prompt": None,
                **for_queries,
            }
        ]
        assert SearchIndex(tmp_path / "index").description.options == for_queries

    def test_standard_input_is_indexed(self, command, opened, tmp_path) -> None:
        target = tmp_path / "index"
        words = ("index", "some/model", "-", "-o", target, "--backend", "numpy")
        command(*words, stdin=b"w1\n\nw2 \xff\n")
        assert list(SearchIndex(target).lines) == ["w1", "", "w2 \ufffd"]

    def test_several_files_are_indexed_in_order(self, command, opened, lines, tmp_path) -> None:
        (tmp_path / "more.jsonl").write_text(json.dumps({"body": "w9\nw8"}) + "\n")
        files = (lines, tmp_path / "more.jsonl")
        command(
            "index", "m", *files, "-o", tmp_path / "i", "--text-key", "body", "--backend", "numpy"
        )
        assert list(SearchIndex(tmp_path / "i").lines) == [*LINES, "w9\nw8"]

    def test_backends_are_those_of_the_package(self) -> None:
        assert declutr.commands.index._BACKENDS == BACKENDS

    @pytest.mark.parametrize(
        "words, message",
        [
            (["nowhere.txt"], r"Found no documents at 'nowhere\.txt'"),
            (["-", "nowhere.txt"], r"Standard input \(-\) cannot be combined"),
        ],
    )
    def test_wrong_inputs_are_refused(self, command, opened, tmp_path, words, message) -> None:
        with pytest.raises(ConfigurationError, match=message):
            command("index", "some/model", *words, "-o", tmp_path / "index")
        assert not opened

    def test_a_missing_backend_is_reported(
        self, command, opened, lines, tmp_path, monkeypatch
    ) -> None:
        from declutr.search import backends

        monkeypatch.setattr(backends.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(ConfigurationError, match=r"pip install 'declutr\[search\]'"):
            command("index", "m", lines, "-o", tmp_path / "index", "--backend", "faiss")
        assert not opened and not (tmp_path / "index").exists()

    def test_an_index_of_other_lines_is_refused(self, command, index, lines) -> None:
        lines.write_text("others\n")
        with pytest.raises(ConfigurationError, match=r"input has changed.*--overwrite"):
            command("index", "some/model", lines, "-o", index, "--backend", "numpy")
        command("index", "some/model", lines, "-o", index, "--backend", "numpy", "--overwrite")
        assert list(SearchIndex(index).lines) == ["others"]

    def test_a_folder_that_is_not_an_index_is_refused(
        self, command, opened, lines, tmp_path
    ) -> None:
        """The folder is refused before the model is opened, which takes long."""
        (tmp_path / "project").mkdir()
        (tmp_path / "project" / "search.py").write_text("mine")
        with pytest.raises(ConfigurationError, match=r"holds no index of ours \(it has search.py"):
            command("index", "m", lines, "-o", tmp_path / "project", "--overwrite")
        assert not opened and (tmp_path / "project" / "search.py").read_text() == "mine"

    def test_input_and_output_inside_each_other_are_refused(
        self, command, opened, lines, index
    ) -> None:
        with pytest.raises(
            ConfigurationError, match=r"lies in the input folder .*another --output"
        ):
            command("index", "m", lines.parent, "-o", lines.parent / "new")
        with pytest.raises(ConfigurationError, match=r"lines.utf8' lies in the output"):
            command("index", "m", index / "lines.utf8", "-o", index, "--overwrite")
        assert not opened and list(SearchIndex(index).lines) == LINES


class TestSearch:
    def test_prints_rank_cosine_number_and_line(self, command, index) -> None:
        rows = command("search", index, "w2 w1", "-k", "3", "--width", "100").splitlines()
        expected = naive(FakeEncoder(), LINES, "w2 w1", 3)
        assert [row for row, _ in expected[:2]] == [0, 6]  # equally near
        assert rows == [
            f"{rank}  {cosine:6.3f}  {row + 1}  {LINES[row]}".replace("\t", " ")
            for rank, (row, cosine) in enumerate(expected, start=1)
        ]

    def test_json_has_whole_lines(self, command, index) -> None:
        found = json.loads(command("search", index, "w1 w3", "--json", "-k", "1"))
        (hit,) = found["hits"]
        assert found["query"] == "w1 w3" and hit.pop("score") == pytest.approx(1, abs=1e-6)
        assert hit == {"rank": 1, "line": 4, "text": "w1\tw3"}

    def test_queries_are_read_from_standard_input(self, command, index, opened) -> None:
        output = command("search", index, "--json", "-k", "1", stdin=b"w4\n\n  \nw2 w3\r\n")
        answers = [json.loads(line) for line in output.splitlines()]
        assert [answer["query"] for answer in answers] == ["w4", "w2 w3"]
        assert [answer["hits"][0]["line"] for answer in answers] == [6, 3]
        assert len(opened) == 1  # the model, once
        output = command("search", index, "-k", "1", stdin=b"w4\nw2 w3\n")
        assert re.fullmatch(
            r"search: w4\n1 +1\.000  6  w4\n\nsearch: w2 w3\n1 +1\.000  3  w2 w3\n\n", output
        )

    def test_unusual_line_ends_do_not_split_rows(self, command, opened, tmp_path) -> None:
        """Characters that some tools treat as line ends split neither a query nor a printed row."""
        (tmp_path / "odd.jsonl").write_text(
            json.dumps({"text": "w1\r\x85\u2028\u2029\x0bw2"}) + "\n"
        )
        place = tmp_path / "index"
        command("index", "m", tmp_path / "odd.jsonl", "-o", place, "--backend", "numpy")
        output = command("search", place, "--json", stdin="w1\rw2\u2028\nw2\n".encode())
        first, second = map(json.loads, output.splitlines())
        assert first["query"] == "w1\rw2\u2028" and second["query"] == "w2"
        assert second["hits"][0]["text"] == "w1\r\x85\u2028\u2029\x0bw2"

    def test_a_terminal_is_prompted_for_queries(self, command, index, monkeypatch) -> None:
        answers = iter(["w4", " ", "w2 w3"])
        asked = []

        def ask(prompt: str) -> str:
            asked.append(prompt)
            try:
                return next(answers)
            except StopIteration:
                raise EOFError from None

        monkeypatch.setattr("builtins.input", ask)
        output = command("search", index, "-k", "1", terminal=True)
        assert asked == ["search: "] * 4
        assert [line.split("  ")[-1] for line in output.splitlines() if line] == ["w4", "w2 w3"]

    @pytest.mark.parametrize("words", [["w1"], []])
    def test_an_interrupted_search_exits_as_other_commands_do(
        self, command, index, monkeypatch, words
    ) -> None:
        """At the prompt alone, Ctrl-C is how a user ends the command."""

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.delenv(TRACEBACK)
        monkeypatch.setattr(SearchIndex, "search", interrupted)
        for terminal in [False, True] if words else [False]:
            with pytest.raises(SystemExit) as caught:
                command("search", index, *words, stdin=b"w1\n", terminal=terminal)
            assert caught.value.code == 130
        monkeypatch.setattr("builtins.input", interrupted)
        assert command("search", index, terminal=True) == "\n"

    def test_the_model_can_be_moved(self, command, index, opened) -> None:
        command("search", index, "w1", "--model", "moved", "--device", "cpu", "--trust", "--exact")
        assert opened == [{"place": "moved", "device": "cpu", "trust": True}]

    def test_a_query_that_names_a_file(self, command, index, lines, caplog) -> None:
        command("search", index, lines)
        assert "lines.txt' names a file, and is embedded as the text it is" in caplog.text

    def test_an_index_of_blank_lines_gives_no_hits(self, command, opened, tmp_path) -> None:
        (tmp_path / "lines.txt").write_text("broken\n\n")
        command("index", "m", tmp_path / "lines.txt", "-o", tmp_path / "i", "--backend", "numpy")
        assert "No line of the index can be found." in command("search", tmp_path / "i", "w1")

    @pytest.mark.parametrize(
        "words, message",
        [
            (["", "-k", "3"], "Got an empty query"),
            (["w1", "-k", "0"], "-k of at least 1, got 0"),
            (["w1", "--width", "0"], "--width of at least 1, got 0"),
        ],
    )
    def test_wrong_arguments_are_refused(self, command, index, words, message) -> None:
        with pytest.raises(ConfigurationError, match=message):
            command("search", index, *words)


class TestOutput:
    @pytest.mark.parametrize(
        "text, width, expected",
        [
            ("short", 5, "short"),
            ("longer", 5, "long…"),
            ("a line  cut", 8, "a line…"),
            ("日本語", 6, "日本語"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
            ("e\u0301e\u0301", 2, "e\u0301e\u0301"),
            ("e\u0301" * 3, 2, "e\u0301…"),
            ("a\tb\nc\u2028d", 9, "a b c d"),
            ("\x1b[31mred\x07", 20, "\ufffd[31mred\ufffd"),
            ("\u202eabc", 20, "\ufffdabc"),
            ("x" * 10_000_000, 3, "xx…"),
            ("", 3, ""),
        ],
    )
    def test_a_line_fits(self, text, width, expected) -> None:
        assert clipped(text, width) == expected

    def test_columns_stand_below_each_other(self) -> None:
        hits = [Hit(row, score, "text") for row, score in ((9, 1.0), (12_345, -0.25))]
        assert list(table(hits, 80)) == ["1   1.000      10  text", "2  -0.250  12,346  text"]


def test_lines_find_themselves_with_a_trained_model(
    command, trained: Path, documents, tmp_path: Path
) -> None:
    """With a real model, lines find themselves, and a change of the model is noticed."""
    texts = [" ".join(document.split()[:20]) for document in documents]
    (tmp_path / "lines.txt").write_text("\n".join(texts))
    model = tmp_path / "model.tar.gz"
    shutil.copy(trained / "model.tar.gz", model)
    command("index", model, tmp_path / "lines.txt", "-o", tmp_path / "index", "--device", "cpu")
    index = SearchIndex(tmp_path / "index", device="cpu")
    for row, text in enumerate(texts[:5]):
        best = index.search(text, 3)[0]
        assert best.row == row and best.score == pytest.approx(1, abs=1e-5)
    command("whiten", model, tmp_path / "lines.txt", "--dimension", "5")
    with pytest.raises(ConfigurationError, match=r"is not as it was.*content.*Build the index"):
        command("search", tmp_path / "index", "ka lo")


def test_prompts_of_the_model_are_used(command, prompted: Path, tmp_path: Path) -> None:
    encoder = declutr.inference.encoder.Encoder(prompted, device="cpu")

    def cosine(line_prompt: str, query_prompt: str) -> float:
        line, query = (
            encoder(["ka lo"], prompt=line_prompt),
            encoder(["mi tu"], prompt=query_prompt),
        )
        return float((line @ query.T)[0, 0] / np.linalg.norm(line) / np.linalg.norm(query))

    def score(folder: str, *options: str) -> float:
        words = ("search", tmp_path / folder, "mi tu", "--json", "--device", "cpu", *options)
        return json.loads(command(*words))["hits"][0]["score"]

    (tmp_path / "lines.txt").write_text("ka lo\n")
    index = ("index", prompted, tmp_path / "lines.txt", "--device", "cpu", "--backend", "numpy")
    command(*index, "-o", tmp_path / "own")
    assert score("own") == pytest.approx(cosine("mi: ", "ka lo: "), abs=1e-5)
    assert score("own", "--prompt", "") == pytest.approx(cosine("mi: ", ""), abs=1e-5)
    assert score("own", "--prompt-name", "passage") == pytest.approx(
        cosine("mi: ", "mi: "), abs=1e-5
    )
    command(*index, "-o", tmp_path / "bare", "--prompt", "")
    assert score("bare", "--prompt", "sa ") == pytest.approx(cosine("", "sa "), abs=1e-5)
    with pytest.raises(ConfigurationError, match=r'encoder.prompt: "" there, "ka lo: " now'):
        command(*index, "-o", tmp_path / "bare", "--prompt-name", "query")
    with pytest.raises(ConfigurationError, match="no prompt named 'none'; it has 'query', 'passa"):
        command(*index, "-o", tmp_path / "other", "--prompt-name", "none")
    with pytest.raises(ConfigurationError, match="no prompt named 'none'; it has 'query', 'passa"):
        score("own", "--prompt-name", "none")
