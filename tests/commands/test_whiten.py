"""Tests of `declutr whiten`: the texts it is fitted on, and where the whitening is stored."""

import hashlib
import json
import shutil
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from allennlp.commands import main
from allennlp.common.checks import ConfigurationError

from declutr.archives.fitted_weights import digest_of_model
from declutr.commands import whiten
from declutr.inference.flow import Flow
from declutr.inference.whitening import FILE, Whitening
from tests.conftest import make_documents

pytestmark = pytest.mark.slow


class FakeEncoder:
    """An encoder that embeds a text by the numbers in it, and records its arguments and texts."""

    dimension = 3
    truncated_texts = 0

    def __init__(self, place, **settings) -> None:
        self.place, self.settings = place, settings
        self.calls: list[list[str]] = []
        opened.append(self)

    def __call__(self, texts: list[str]) -> np.ndarray:
        self.calls.append(list(texts))
        numbers = np.array([int(text.split()[-1]) for text in texts])
        return np.stack([np.sin(numbers), np.cos(3 * numbers), numbers % 7], 1).astype(np.float32)

    def describe(self) -> dict:
        return {"place": self.place}

    def embedded(self) -> list[str]:
        return [text for call in self.calls for text in call]


opened: list[FakeEncoder] = []


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    file = tmp_path / "texts.txt"
    file.write_text("".join(f"text {n}\n\n \n" for n in range(50)))
    return file


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Make a folder that looks like the serialization directory of a finished run."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model": {"type": "declutr"}}))
    (folder / "weights.th").write_bytes(b"weights")
    with tarfile.open(folder / "model.tar.gz", "w:gz") as archive:
        archive.add(folder / "config.json", "config.json")
        archive.add(folder / "weights.th", "weights.th")
    return folder


@pytest.fixture
def run(monkeypatch, capsys):
    """Return a function that runs `declutr whiten` with the fake encoder and returns its output."""
    import declutr.commands.whiten
    import declutr.inference.encoder

    monkeypatch.setattr(declutr.inference.encoder, "Encoder", FakeEncoder)
    opened.clear()

    def run(*arguments) -> str:
        monkeypatch.setattr(sys, "argv", ["allennlp", "whiten", *map(str, arguments)])
        capsys.readouterr()
        main()
        return capsys.readouterr().out

    return run


def archived(path: Path, to: Path) -> Whitening:
    with tarfile.open(path) as archive:
        archive.extract(FILE, to, filter="data")
    return Whitening.load(to)


def expected(numbers=range(50)) -> Whitening:
    return Whitening.fit([FakeEncoder("")([f"text {n}" for n in numbers])])


class TestWhatIsFitted:
    def test_all_texts_that_are_not_blank_are_used(self, run, model, texts) -> None:
        output = run(model, texts)
        assert opened[0].embedded() == [f"text {n}" for n in range(50)]  # no blank ones
        assert opened[0].place == str(model)
        assert opened[0].settings == {
            "whiten": False,
            "normalize": False,
            "device": None,
            "trust": False,
        }
        found = Whitening.load(model)
        np.testing.assert_array_equal(found.matrix, expected().matrix)
        assert found.texts == 50 and found.digest.startswith("sha256:")
        assert "Fitted on 50 texts.\n3 dimensions to 3, which hold 100.0 % of the var" in output

    def test_the_number_of_dimensions_can_be_reduced(self, run, model, texts) -> None:
        output = run(model, texts, "--dimension", "1")
        share = 100 * expected().truncated(1).kept_variance
        assert f"3 dimensions to 1, which hold {share:.1f} % of the variance" in output
        np.testing.assert_array_equal(Whitening.load(model).matrix, expected().matrix[:, :1])

    def test_a_sample_is_random_and_repeatable(self, run, model, texts) -> None:
        run(model, texts, "--max-texts", "20")
        first = opened[0].embedded()
        numbers = [int(text.split()[1]) for text in first]
        assert len(set(numbers)) == 20 and numbers == sorted(numbers) and max(numbers) > 30
        digest = Whitening.load(model).digest
        run(model, texts, "--max-texts", "20")
        assert opened[-1].embedded() == first and Whitening.load(model).digest == digest

    def test_a_sample_may_be_larger_than_the_text(self, run, model, texts) -> None:
        run(model, texts, "--max-texts", "99")
        assert len(opened[0].embedded()) == 50

    def test_several_json_files_are_read(self, run, model, tmp_path) -> None:
        for part in range(2):
            rows = [json.dumps({"body": f"text {n + 20 * part}"}) for n in range(20)]
            (tmp_path / f"{part}.jsonl").write_text("\n".join(rows))
        run(model, tmp_path / "0.jsonl", tmp_path / "1.jsonl", "--text-key", "body")
        assert opened[0].embedded() == [f"text {n}" for n in range(40)]

    def test_texts_are_embedded_in_blocks(self, run, model, texts, monkeypatch) -> None:
        monkeypatch.setattr(whiten, "_BLOCK_TEXTS", 8)
        run(model, texts)
        assert [len(call) for call in opened[0].calls] == [8] * 6 + [2]
        np.testing.assert_allclose(Whitening.load(model).mean, expected().mean, atol=1e-12)

    def test_long_texts_are_embedded_in_smaller_blocks(
        self, run, model, texts, monkeypatch
    ) -> None:
        monkeypatch.setattr(whiten, "_BLOCK_CHARACTERS", 12)
        run(model, texts)
        assert max(len(call) for call in opened[0].calls) == 2
        assert len(opened[0].embedded()) == 50

    def test_too_few_texts_are_reported(self, run, model, texts, tmp_path) -> None:
        assert "fewer than" not in run(model, texts)
        (tmp_path / "short.txt").write_text("".join(f"text {n}\n" for n in range(29)))
        assert "fewer than 10 texts for each of the 3" in run(model, tmp_path / "short.txt")

    def test_truncated_texts_are_reported(self, run, model, texts, monkeypatch) -> None:
        assert "longer than" not in run(model, texts)
        monkeypatch.setattr(FakeEncoder, "truncated_texts", 7)
        assert "\n7 are longer than the model takes, and count with" in run(model, texts)


class TestWhereItIsStored:
    def test_the_whitening_is_stored_in_the_folder_and_its_archive(
        self, run, model, texts, tmp_path
    ) -> None:
        output = run(model, texts)
        assert f"Stored in {model / 'model.tar.gz'}\nStored in {model}/{FILE}\n" in output
        assert archived(model / "model.tar.gz", tmp_path).to_bytes() == (
            (model / FILE).read_bytes()
        )
        with tarfile.open(model / "model.tar.gz") as archive:
            assert archive.getnames() == ["config.json", "weights.th", FILE]
        of_the_fixture = f"sha256:{hashlib.sha256(b'weights').hexdigest()}"
        assert Whitening.load(model).weights == of_the_fixture

    def test_a_second_run_replaces_the_whitening(self, run, model, texts, tmp_path) -> None:
        run(model, texts)
        run(model, texts, "--dimension", "2")
        assert Whitening.load(model).dimension == 2
        assert archived(model / "model.tar.gz", tmp_path).dimension == 2
        with tarfile.open(model / "model.tar.gz") as archive:
            assert archive.getnames().count(FILE) == 1

    def test_a_folder_may_have_no_archive(self, run, model, texts) -> None:
        (model / "model.tar.gz").unlink()
        run(model, texts)
        assert sorted(file.name for file in model.iterdir()) == ["config.json", "weights.th", FILE]

    def test_the_archive_in_a_folder_is_the_same_model(self, run, model, texts, tmp_path) -> None:
        output = run(model / "model.tar.gz", texts)
        assert f"Stored in {model / 'model.tar.gz'}\nStored in {model}/{FILE}\n" in output
        assert archived(model / "model.tar.gz", tmp_path).to_bytes() == (
            (model / FILE).read_bytes()
        )

    def test_a_folder_with_other_weights_stays_as_it_is(self, run, model, texts, tmp_path) -> None:
        (model / "weights.th").write_bytes(b"trained on")
        run(model / "model.tar.gz", texts)
        assert archived(model / "model.tar.gz", tmp_path).texts == 50
        assert not Whitening.stored_in(model)

    def test_an_archive_alone_is_changed(self, run, model, texts, tmp_path) -> None:
        alone = tmp_path / "other.tar.gz"
        shutil.copy(model / "model.tar.gz", alone)
        before = (model / "model.tar.gz").read_bytes()
        run(alone, texts)
        assert archived(alone, tmp_path).texts == 50
        assert archived(alone, tmp_path).weights == digest_of_model(alone)
        assert (model / "model.tar.gz").read_bytes() == before and not Whitening.stored_in(model)

    def test_the_whitening_can_be_stored_in_another_folder(
        self, run, model, texts, tmp_path
    ) -> None:
        before = (model / "model.tar.gz").read_bytes()
        run(model, texts, "-o", tmp_path / "own")
        assert Whitening.load(tmp_path / "own").texts == 50
        assert (model / "model.tar.gz").read_bytes() == before and not Whitening.stored_in(model)

    def test_a_hub_name_with_a_folder_of_its_own(self, run, texts, tmp_path) -> None:
        run("some/model", texts, "-o", tmp_path / "own")
        assert opened[0].place == "some/model" and Whitening.stored_in(tmp_path / "own")


class TestErrors:
    @pytest.mark.parametrize("file", ["modules.json", "config.json"])
    def test_exported_folders_are_refused(self, run, texts, tmp_path, file) -> None:
        (tmp_path / "exported").mkdir()
        (tmp_path / "exported" / file).write_text(json.dumps({"model_type": "bert"}))
        with pytest.raises(ConfigurationError, match=r"exported model.*Whiten the archive.*export"):
            run(tmp_path / "exported", texts)
        assert not opened

    @pytest.mark.parametrize(
        "arguments, message",
        [
            (["--dimension", "0"], "--dimension of at least 1, got 0"),
            (["--dimension", "5", "--max-texts", "5"], "to 5 dimensions needs more.*at least 6"),
            (["--max-texts", "1"], "--max-texts 1; expected at least 2"),
            (["--dimension", "4"], "Embeddings have 3 dimensions, got --dimension 4"),
            (["--text-key", "x", "--output", __file__], "is a file, expected a folder"),
            (
                ["--method", "flow", "--dimension", "2"],
                "--dimension 2 is not for --method flow",
            ),
            (["--epochs", "2"], "--epochs 2 is not for --method linear: one pass fits"),
            (["--method", "flow", "--epochs", "0"], "--epochs of at least 1, got 0"),
            (
                ["--method", "flow", "--max-texts", "63"],
                "A flow needs.*63; expected at least 64",
            ),
        ],
    )
    def test_wrong_options_are_refused(self, run, model, texts, arguments, message) -> None:
        with pytest.raises(ConfigurationError, match=message):
            run(model, texts, *arguments)
        assert not any(encoder.calls for encoder in opened)

    def test_a_missing_model_is_reported(self, run, texts, tmp_path) -> None:
        with pytest.raises(ConfigurationError, match=r"no 'some/model' on this machine.*--output"):
            run("some/model", texts)
        (tmp_path / "empty").mkdir()
        with pytest.raises(ConfigurationError, match=r"holds no config\.json"):
            run(tmp_path / "empty", texts)
        with pytest.raises(ConfigurationError, match="is not an archive"):
            run(texts, texts)

    def test_missing_texts_are_reported(self, run, model, tmp_path) -> None:
        with pytest.raises(ConfigurationError, match=r"Found no documents at 'nowhere\.txt'"):
            run(model, "nowhere.txt")
        assert not opened
        (tmp_path / "blank.txt").write_text("\n\n")
        with pytest.raises(ConfigurationError, match="Got no texts"):
            run(model, tmp_path / "blank.txt")

    def test_too_little_text_changes_nothing(self, run, model, tmp_path) -> None:
        (tmp_path / "few.txt").write_text("text 1\ntext 2\ntext 3\n")
        before = (model / "model.tar.gz").read_bytes()
        with pytest.raises(ConfigurationError, match="to 3 dimensions needs more than 3 texts"):
            run(model, tmp_path / "few.txt")
        assert (model / "model.tar.gz").read_bytes() == before and not Whitening.stored_in(model)


def test_a_trained_model_takes_a_flow_from_then_on(
    monkeypatch, capsys, trained: Path, tmp_path: Path
) -> None:
    """The same files, keys and refusals as for a linear whitening; no other tool can hold it."""
    from declutr.export import ExportError, export_model
    from declutr.inference.encoder import Encoder

    model = shutil.copytree(trained, tmp_path / "run")
    texts = make_documents(100, 8, seed=5)
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    plain, before = Encoder(model, device="cpu")(texts), Encoder(model).describe()
    arguments = ["allennlp", "whiten", str(model), str(tmp_path / "texts.txt"), "--method", "flow"]
    monkeypatch.setattr(sys, "argv", [*arguments, "--epochs", "2", "--device", "cpu", "--quiet"])
    main()
    assert "A flow of 3 levels of 3 steps: " in capsys.readouterr().out
    opened = Encoder(model / "model.tar.gz", device="cpu")
    flow = Flow.load(model)
    assert opened.dimension == 32 and opened.describe()["whitening"] == ["flow", 32]
    assert opened.describe()["content"] != before["content"]
    np.testing.assert_allclose(opened(texts), flow.transform(plain), atol=1e-4)
    assert flow.texts == 100 and str(flow.digest).startswith("sha256:")
    np.testing.assert_array_equal(Encoder(model, device="cpu", whiten=False)(texts), plain)
    with pytest.raises(ExportError, match=r"has a flow, which no layer .*--no-whitening"):
        export_model(model, tmp_path / "out", onnx=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", ["folder", "archive"])
def test_a_trained_model_whitens_from_then_on(
    monkeypatch, trained: Path, corpus_file: Path, documents, tmp_path: Path, place: str
) -> None:
    """With a real model, the encoder whitens from then on, and its archive still loads."""
    from allennlp.models.archival import load_archive

    from declutr.inference.encoder import Encoder

    model = tmp_path / "run"
    shutil.copytree(trained, model)
    plain = Encoder(model, device="cpu")(documents)
    arguments = ["allennlp", "whiten", str(model), str(corpus_file), "--dimension", "7"]
    monkeypatch.setattr(sys, "argv", [*arguments, "--device", "cpu", "--quiet"])
    main()
    opened = Encoder(model if place == "folder" else model / "model.tar.gz", device="cpu")
    white = opened(documents)
    assert opened.dimension == 7
    np.testing.assert_allclose(np.cov(white.T), np.eye(7), atol=1e-2)  # of what it was fitted on
    np.testing.assert_allclose(Whitening.load(model).transform(plain), white, atol=1e-4)
    without = Encoder(model, device="cpu", whiten=False)(documents)
    np.testing.assert_array_equal(without, plain)
    assert load_archive(model / "model.tar.gz").model
