"""Tests of the command `embed` on a tiny model.

The expected embeddings come from `Encoder`; a killed run is compared with an uninterrupted one.
"""

import gzip
import json
import os
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from allennlp.commands import main
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import SigTermReceived

import declutr.plugin  # noqa: F401
from declutr.inference.bulk import StoredEmbeddings
from declutr.inference.bulk.manifest import Manifest
from declutr.inference.encoder import Encoder
from tests.conftest import make_documents
from tests.forked_commands import ForkedCommand

pytestmark = pytest.mark.slow

ROWS = ["ka lo mi", "", "tu re", "  \t", "sa no ve pi du", "mi " * 300, "naïve 文", "ka lo mi"]
LINES = "\n".join(ROWS) + "\n"
RECORDS = "".join(json.dumps({"n": n, "text": row}) + "\n" for n, row in enumerate(ROWS))


@pytest.fixture(scope="module")
def expected(trained: Path) -> np.ndarray:
    """Return the embeddings of the rows, `(8, 32)`."""
    return Encoder(trained, device="cpu")(ROWS)


@pytest.fixture
def write(tmp_path):
    def write(name: str, content: str | bytes) -> str:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(file)

    return write


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def embed(monkeypatch, capsys, trained, out):
    """Return a function that runs `declutr embed` into `out` and returns its output."""

    def embed(*arguments: str, model: Path | str = trained) -> str:
        command = ["declutr", "embed", str(model), *arguments, "--device", "cpu"]
        if "-o" not in arguments:
            command += ["-o", str(out)]
        monkeypatch.setattr(sys, "argv", command)
        capsys.readouterr()
        main(prog="declutr")
        printed = capsys.readouterr()
        assert "rows/s" not in printed.err  # no bar without a terminal
        return printed.out

    return embed


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


class TestInputs:
    def test_a_row_for_each_row(self, embed, write, out, expected):
        output = embed(write("a.txt", LINES), "--shard-rows", "3")
        assert np.allclose(StoredEmbeddings(out)[:], expected, atol=1e-6)
        assert f"8 rows in 3 files: {out}" in output
        assert "2 blank" in output and "1 cut to" in output and "0 without a finite" in output
        assert "8 embedded in" in output

    def test_several_inputs_of_different_formats_are_read_in_order(
        self, embed, write, out, expected, tmp_path
    ):
        write("folder/b.csv", f"text,n\n{ROWS[2]},2\n{ROWS[3]},3\n")
        write("folder/a.txt.gz", gzip.compress("\n".join(ROWS[:2]).encode() + b"\n", mtime=0))
        records = "".join(json.dumps({"text": row}) + "\n" for row in ROWS[4:])
        embed(str(tmp_path / "folder"), write("rest.jsonl", records))
        assert np.allclose(StoredEmbeddings(out)[:], expected, atol=1e-6)

    @pytest.mark.parametrize(("kind", "content"), [("text", LINES), ("jsonl", RECORDS)])
    def test_standard_input_is_read(self, embed, write, out, expected, monkeypatch, kind, content):
        for _ in range(2):  # the same stream again: a finished run
            with open(write("stream", content)) as stream:
                monkeypatch.setattr("sys.stdin", stream)
                output = embed("-", "--stdin-format", kind)
        assert np.allclose(StoredEmbeddings(out)[:], expected, atol=1e-6)
        assert "Nothing to do: all were embedded before" in output

    def test_rows_that_cannot_be_decoded_are_embedded_with_replacements(
        self, embed, write, out, trained
    ):
        records = b'{"text": "ka \\ud83d"}\n{"text": "mi"}\n'
        output = embed(write("a.txt", b"ka \xff lo\nmi\n"), write("b.jsonl", records))
        assert len(StoredEmbeddings(out)) == 4 and "2 with U+FFFD" in output
        clean = Encoder(trained, device="cpu")(["ka \ufffd lo", "mi", "ka \ufffd", "mi"])
        assert np.allclose(StoredEmbeddings(out)[:], clean, atol=1e-6)

    def test_unreadable_records_stop_or_are_embedded_as_blank(self, embed, write, out, trained):
        file = write("a.jsonl", '{"text": "ka"}\n{"text": "mi\n{"body": "lo"}\n{"text": "tu"}\n')
        with pytest.raises(ConfigurationError, match="row 2 is not JSON"):
            embed(file)
        output = embed(file, "--bad-rows", "blank")
        assert "2 that could not be read (blank)" in output
        rows = Encoder(trained, device="cpu")(["ka", "", "", "tu"])
        assert np.allclose(StoredEmbeddings(out)[:], rows, atol=1e-6)

    def test_empty_inputs_give_no_rows(self, embed, write, out, caplog, monkeypatch):
        file = write("a.txt", "")
        assert "0 rows in 0 files" in embed(file)
        assert f"The input has no rows: {file}" in caplog.text
        assert StoredEmbeddings(out).shape == (0, 32)
        caplog.clear()
        with open(os.devnull) as stream:
            monkeypatch.setattr("sys.stdin", stream)
            embed("-", "--quiet")
        assert "The input has no rows: -" in caplog.text


class TestTables:
    def test_the_column_of_the_text_can_be_named(self, embed, write, out):
        file = write("a.csv", "id,body\n1,ka\n2,lo\n")
        with pytest.raises(ConfigurationError, match=r"Found \['id', 'body'\]; .*--text-key"):
            embed(file)
        embed(file, "--text-key", "body")
        assert len(StoredEmbeddings(out)) == 2

    @pytest.mark.parametrize(
        ("name", "content", "rows"),
        [
            ("a.csv", "id,text\n1,ka\n2,lo\n", ["id,text", "1,ka", "2,lo"]),
            ("a.txt", "ka\rlo\nmi\n", ["ka", "lo", "mi"]),
        ],
    )
    @pytest.mark.parametrize("finished", [True, False])
    def test_a_run_of_release_1_5_is_not_resumed(
        self, embed, write, out, name, content, rows, finished
    ):
        """The folder is as release 1.5 left it; that release read other rows from these files."""
        embed(write("then.txt", "\n".join(rows) + "\n"), "--shard-rows", "1")
        if not finished:
            (out / "embeddings-00002.npy").unlink()
            manifest = json.loads((out / "manifest.json").read_text())
            manifest |= {"finished": False, "shards": manifest["shards"][:2]}
            del manifest["checksum"]  # 1.5.0 wrote none
            (out / "manifest.json").write_text(json.dumps(manifest))
        before = contents(out)
        file = write(name, content)
        with pytest.raises(
            ConfigurationError, match=r"(?s)has changed.*Release 1.5.0 took lines of"
        ):
            embed(file)
        assert contents(out) == before
        if name == "a.csv":
            os.rename(file, file + ".txt")
            embed(file + ".txt")  # by lines, as then
            assert len(StoredEmbeddings(out)) == 3

    def test_a_run_that_kept_beginnings_of_texts_is_not_resumed(
        self, embed, write, out, trained, tmp_path
    ):
        """Release 1.5.0 cut the ends of texts even if the tokenizer's truncation side is left."""
        model = tmp_path / "left"
        shutil.copytree(trained, model)
        (file,) = model.rglob("tokenizer_config.json")
        file.write_text(json.dumps({**json.loads(file.read_text()), "truncation_side": "left"}))
        embed(write("a.txt", LINES), model=model)
        manifest = json.loads((out / "manifest.json").read_text())
        assert manifest["settings"]["encoder"].pop("truncation_side") == "left"
        del manifest["checksum"]  # 1.5.0 wrote none
        (out / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(
            ConfigurationError, match=r'encoder.truncation_side: none there, "left" now'
        ):
            embed(write("a.txt", LINES), model=model)


class TestOutputs:
    @pytest.mark.parametrize("format", ["npy", "parquet", "jsonl"])
    def test_formats_hold_the_same_numbers(self, embed, write, out, expected, format):
        if format == "parquet":
            pytest.importorskip("pyarrow")
        output = embed(write("a.txt", LINES), "--format", format)
        assert (out / f"embeddings-00000.{format}").exists()
        assert np.allclose(StoredEmbeddings(out)[:], expected, atol=1e-6)
        scope: dict = {}
        reading = [line.strip() for line in output.splitlines()]
        exec("\n".join(reading[reading.index("To read them:") + 1 :]), scope)
        assert np.array_equal(scope["embeddings"], StoredEmbeddings(out)[:])

    def test_options_are_passed_to_the_encoder(self, embed, write, out, trained):
        options = {"normalize": True, "truncate_dim": 5, "max_length": 20, "long_texts": "chunk"}
        embed(write("a.txt", LINES), "--normalize", "--truncate-dim", "5", "--max-length", "20",
              "--long-texts", "chunk", "--batch-tokens", "64",
              "--output-dtype", "float16")  # fmt: skip
        rows = Encoder(trained, device="cpu", **options)(ROWS)
        assert np.load(out / "embeddings-00000.npy").dtype == np.float16
        assert rows.shape == (8, 5)
        assert np.allclose(StoredEmbeddings(out)[:], rows, atol=1e-3)
        settings = StoredEmbeddings(out).manifest.settings
        assert options.items() <= settings["encoder"].items() and settings["dimension"] == 5

    def test_the_manifest_describes_the_run(self, embed, write, out, trained):
        file = write("a.txt", LINES)
        embed(file)
        content = json.loads((out / "manifest.json").read_text())
        assert content["rows"] == 8 and content["finished"]
        assert content["counts"]["blank_rows"] == 2 and content["counts"]["truncated_rows"] == 1
        assert content["about"]["model"] == str(trained) and content["about"]["inputs"] == [file]
        assert {"declutr", "torch"} <= set(content["about"]["versions"])
        assert "place" not in content["settings"]["encoder"]

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
    def test_the_dtype_of_the_computation_is_printed(self, embed, write, dtype):
        lines = embed(write("a.txt", LINES), "--dtype", dtype).splitlines()
        assert lines[1] == f"  computed in {dtype}"

    def test_quiet_prints_nothing(self, embed, write, out):
        assert embed(write("a.txt", LINES), "--quiet") == ""
        assert len(StoredEmbeddings(out)) == 8


class TestRefused:
    def test_other_settings_or_rows_are_refused_unless_overwritten(self, embed, write, out):
        file = write("a.txt", LINES)
        embed(file)
        with pytest.raises(ConfigurationError, match=r"encoder.normalize: false there, true now"):
            embed(file, "--normalize")
        file = write("a.txt", "other\n" + LINES)
        with pytest.raises(ConfigurationError, match=r"The input has changed.*--overwrite"):
            embed(file)
        embed(file, "--overwrite")
        assert len(StoredEmbeddings(out)) == 9

    def test_another_prompt_is_refused(self, embed, write, out, prompted, caplog):
        file = write("a.txt", LINES)
        embed(file, model=prompted)
        assert "The model has prompts (query, passage), none of them its default" in caplog.text
        assert "prompt" not in Manifest.load(out).settings["encoder"]
        with pytest.raises(ConfigurationError, match=r'encoder.prompt: none there, "mi: " now'):
            embed(file, "--prompt", "mi: ", model=prompted)
        caplog.clear()
        embed(file, "--prompt-name", "passage", "--overwrite", model=prompted)
        assert Manifest.load(out).settings["encoder"]["prompt"] == "mi: "
        expected = Encoder(prompted, device="cpu")(ROWS, prompt="mi: ")
        assert np.abs(StoredEmbeddings(out)[:] - expected).max() < 1e-5
        assert "prompts" not in caplog.text
        with pytest.raises(ConfigurationError, match="no prompt named 'x'; it has 'query', 'pas"):
            embed(file, "--prompt-name", "x", model=prompted)

    def test_overwriting_by_a_model_that_is_not_there_removes_nothing(
        self, embed, write, out, tmp_path
    ):
        embed(write("a.txt", LINES))
        before = contents(out)
        with pytest.raises(ConfigurationError, match="nowhere"):
            embed(write("b.txt", "ka\n"), "--overwrite", model=tmp_path / "nowhere.tar.gz")
        assert contents(out) == before

    def test_a_moved_model_is_the_same_and_another_is_not(self, embed, write, checkpoint, trained):
        file = write("a.txt", LINES)
        embed(file, model=trained / "model.tar.gz")
        moved = Path(file).with_name("model.tar.gz")
        moved.write_bytes((trained / "model.tar.gz").read_bytes())
        assert "Nothing to do" in embed(file, model=moved)
        with pytest.raises(ConfigurationError, match=r"made otherwise. .*content: .* there"):
            embed(file, model=checkpoint)

    @pytest.mark.parametrize("place", ["inputs", "inputs/below"])
    def test_an_output_inside_an_input_is_refused(self, embed, write, out, tmp_path, place):
        write("inputs/a.txt", LINES)
        with pytest.raises(
            ConfigurationError, match=r"lies in the input folder .*another --output"
        ):
            embed(str(tmp_path / "inputs"), "-o", str(tmp_path / place))

    def test_an_input_inside_the_output_is_refused(self, embed, write, out):
        file = write("out/a.txt", LINES)
        with pytest.raises(ConfigurationError, match=r"a.txt' lies in the output"):
            embed(file)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["-", "-"], "can be read once"),
            (["FILE", "--shard-rows", "0"], "Expected a --shard-rows of at least 1, got 0"),
            (["FILE", "--batch-tokens", "-1"], "Expected a --batch-tokens of at least 1, got -1"),
            (["FILE", "--truncate-dim", "33"], "truncate_dim must lie in 1 to 32, got 33"),
            (["RECORDS", "--text-key", "body"], r"no key 'body'. Found .*--text-key"),
        ],
    )
    def test_wrong_arguments_are_refused(self, embed, write, out, arguments, message):
        places = {"FILE": write("a.txt", LINES), "RECORDS": write("a.jsonl", RECORDS)}
        with pytest.raises(ConfigurationError, match=message):
            embed(*(places.get(argument, argument) for argument in arguments))

    def test_a_missing_pyarrow_is_reported_before_anything_is_loaded(
        self, embed, write, monkeypatch
    ):
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        monkeypatch.setattr("declutr.commands.embed._encoder", lambda _: pytest.fail("too late"))
        with pytest.raises(ConfigurationError, match="Parquet needs pyarrow"):
            embed(write("a.txt", LINES), "--format", "parquet")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SigTermReceived])
def test_a_run_that_is_stopped_is_resumed(embed, write, out, monkeypatch, capsys, error):
    def stop(*_):
        raise error

    with monkeypatch.context() as patch, pytest.raises(error):
        patch.setattr(Encoder, "__call__", stop)
        embed(write("a.txt", LINES))
    assert "the same command goes on there" in capsys.readouterr().err
    embed(write("a.txt", LINES))
    assert len(StoredEmbeddings(out)) == 8


def test_a_run_killed_twice_is_resumed(embed, trained, write, out, tmp_path):
    """Kill two runs when their second file appears, and compare the folder with a whole run's."""
    rows = make_documents(240, 30, seed=3)
    rows[10:12] = ["", "ka " * 400]
    file = write("a.txt", "\n".join(rows) + "\n")
    arguments = [file, "--shard-rows", "4"]
    environment = {**os.environ, "ALLENNLP_LOG_LEVEL": "WARNING"}

    finished: dict[Path, int] = {}
    for _ in range(2):
        words = ["embed", str(trained), *arguments, "-o", str(out), "--device", "cpu"]
        process = ForkedCommand(*words, environment=environment, program="declutr")
        deadline = time.monotonic() + 120
        while len(set(out.glob("embeddings-*.npy")) - set(finished)) < 2:
            if process.has_ended() or time.monotonic() > deadline:
                break
            time.sleep(0.001)
        process.kill()
        listed = json.loads((out / "manifest.json").read_text())["shards"]
        assert len(finished) < len(listed) < 60
        files = [out / shard["file"] for shard in listed]
        kept = {path: path.stat().st_ino for path in files}
        assert finished.items() <= kept.items()  # not written again
        finished = kept
    output = embed(*arguments)
    assert f"240 rows in 60 files: {out}" in output and "1 blank" in output and "1 cut" in output
    assert f"{240 - 4 * len(finished)} embedded in" in output
    assert f"{4 * len(finished)} were there" in output
    assert {path: path.stat().st_ino for path in finished} == finished

    embed(*arguments, "-o", str(tmp_path / "whole"))
    assert contents(out) == contents(tmp_path / "whole")
