"""The encoder: rows in order, independent of their neighbours, the same as `allennlp predict`."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from allennlp.commands import main
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.predictors import Predictor

import declutr
from declutr.encoder import Encoder
from tests.conftest import run_config


@pytest.fixture(scope="module")
def encoder(trained: Path) -> Encoder:
    return Encoder(trained, cuda_device=-1)


@pytest.fixture(scope="module")
def texts(documents: list[str]) -> list[str]:
    """Of very different lengths, some of them blank, one longer than the transformer."""
    cut = [document[: 7 * i + 1] for i, document in enumerate(documents[:16])]
    return [*cut, "", documents[20], "   \t", "one", documents[21][:90], "one"]


def test_one_row_a_text(encoder: Encoder, texts: list[str]) -> None:
    embeddings = encoder(texts)
    assert embeddings.shape == (len(texts), 32) == (len(texts), encoder.dimension)
    assert embeddings.dtype == np.float32 and np.isfinite(embeddings).all()
    assert np.allclose(embeddings[-1], embeddings[texts.index("one")], atol=1e-6)
    assert np.array_equal(encoder(texts), embeddings)


def test_rows_keep_their_order(encoder: Encoder, texts: list[str]) -> None:
    embeddings = encoder(texts)
    order = np.random.default_rng(0).permutation(len(texts))
    shuffled = encoder([texts[i] for i in order], batch_size=5)
    assert np.allclose(shuffled, embeddings[order], atol=1e-6)
    apart = np.linalg.norm(embeddings[:, None] - embeddings[None], axis=-1)
    assert (apart[np.triu_indices(10, 1)] > 1e-3).all()  # rows can be told from each other


@pytest.mark.parametrize("batch_size", [1, 2, 7, 1000, None])
def test_batches_do_not_matter(encoder: Encoder, texts: list[str], batch_size: int | None) -> None:
    alone = np.concatenate([encoder([text]) for text in texts])
    assert np.allclose(encoder(texts, batch_size=batch_size), alone, atol=1e-6)


def test_texts_are_sorted_by_length(
    encoder: Encoder, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So padding is small: the longest batch comes first, and lengths only fall."""
    lengths: list[int] = []
    embed = encoder._embed

    def spy(instances: list) -> np.ndarray:
        lengths.extend(len(instance["anchors"]) for instance in instances)
        return embed(instances)

    monkeypatch.setattr(encoder, "_embed", spy)
    encoder(texts, batch_size=4)
    assert lengths == sorted(lengths, reverse=True) and len(lengths) == len(texts)


def test_blank_texts_have_an_embedding(encoder: Encoder) -> None:
    blank = encoder(["", " ", "\n\t", "a word"])
    assert np.isfinite(blank).all()
    assert np.allclose(blank[0], blank[1:3], atol=1e-6)
    assert not np.allclose(blank[0], blank[3], atol=1e-3)


def test_white_space_is_normalised(encoder: Encoder) -> None:
    one, other = encoder(["ka lo  mi\n tu ", "ka lo mi tu"])
    assert np.allclose(one, other, atol=1e-6)


def test_kinds_of_input(encoder: Encoder, texts: list[str]) -> None:
    expected = encoder(texts[:3])
    assert encoder(texts[0]).shape == (1, 32)
    assert np.allclose(encoder(texts[0]), expected[:1], atol=1e-6)
    assert np.array_equal(encoder(tuple(texts[:3])), expected)
    assert np.array_equal(encoder(np.array(texts[:3])), expected)
    assert encoder([]).shape == (0, 32) and encoder([]).dtype == np.float32


@pytest.mark.parametrize("wrong", [None, 3, b"bytes", ["nested"]])
def test_inputs_that_are_not_strings(encoder: Encoder, wrong: object) -> None:
    with pytest.raises(TypeError, match=rf"got {type(wrong).__name__} at position 1"):
        encoder(["right", wrong])  # type: ignore[list-item]


@pytest.mark.parametrize("batch_size", [0, -1])
def test_batch_sizes_that_are_none(encoder: Encoder, batch_size: int) -> None:
    with pytest.raises(ValueError, match=f"batch_size must be at least 1.*got {batch_size}"):
        encoder(["text"], batch_size=batch_size)


def test_progress_bar(encoder: Encoder, capsys: pytest.CaptureFixture) -> None:
    encoder(["one", "two"], show_progress=True)
    assert "2/2" in capsys.readouterr().err
    encoder(["one", "two"])
    assert not capsys.readouterr().err


def test_sphereize(trained: Path, encoder: Encoder, texts: list[str]) -> None:
    sphereized = Encoder(trained, sphereize=True, cuda_device=-1)
    rows, plain = sphereized(texts), encoder(texts)
    centred = plain - plain.mean(axis=0)
    expected = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    assert rows.dtype == np.float32
    assert np.allclose(rows, expected, atol=1e-5)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    assert np.isfinite(sphereized(["same", "same"])).all()
    with pytest.warns(UserWarning, match="needs more than one text"):
        assert np.array_equal(sphereized("one"), encoder("one"))


def test_missing_places(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"No model at .*nothing.*model\.tar\.gz"):
        Encoder(tmp_path / "nothing")


def test_folder_archive_and_another_place(
    trained: Path, encoder: Encoder, texts: list[str], tmp_path: Path
) -> None:
    """The transformer's own folder is gone already; here the run's folder moves as well."""
    expected = encoder(texts)
    shutil.copy(trained / "model.tar.gz", tmp_path / "elsewhere.tar.gz")
    for place in (trained / "model.tar.gz", str(tmp_path / "elsewhere.tar.gz")):
        assert np.array_equal(Encoder(place, cuda_device=-1)(texts), expected)


def test_the_package_offers_it() -> None:
    assert declutr.Encoder is Encoder


def test_the_head_is_not_run_and_nothing_is_recorded(encoder: Encoder) -> None:
    model = encoder._model
    assert not model.training
    embedder = model._text_field_embedder.token_embedder
    inside = {id(module) for module in embedder.encoder.modules()}
    calls: list[str] = []
    handles = [
        module.register_forward_hook(lambda *_, name=name: calls.append(name))
        for name, module in embedder.transformer_model.named_modules()
        if id(module) not in inside
    ]
    assert len(handles) > 3
    before = torch.get_rng_state()
    encoder(["a text", "another"])
    for handle in handles:
        handle.remove()
    assert not calls and not model.get_metrics()
    assert torch.equal(torch.get_rng_state(), before)


# --------------------------------------------------------------------- the same by other routes


def test_equals_the_predictor(trained: Path, encoder: Encoder, texts: list[str]) -> None:
    predictor = Predictor.from_path(str(trained / "model.tar.gz"), "declutr")
    rows = [predictor.predict(text=text) for text in texts[:4]]
    rows += predictor.predict_batch_json([{"text": text} for text in texts[4:]])
    assert np.allclose([row["embeddings"] for row in rows], encoder(texts), atol=1e-6)
    assert all(len(row["projections"]) == 6 for row in rows)


@pytest.mark.parametrize("lines_of_text", [True, False])
def test_equals_the_command_predict(
    lines_of_text: bool,
    trained: Path,
    encoder: Encoder,
    texts: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many rows as lines, blank ones included, whether the lines are text or JSON."""
    rows = [text.replace("\t", " ") for text in texts]
    lines = rows if lines_of_text else [json.dumps({"text": row}) for row in rows]
    if not lines_of_text:
        lines[16] = ""  # a blank line stands for a blank text
    (tmp_path / "input").write_text("\n".join(lines) + "\n")
    command = ["allennlp", "predict", str(trained / "model.tar.gz"), str(tmp_path / "input")]
    command += ["--output-file", str(tmp_path / "output"), "--batch-size", "4", "--silent"]
    monkeypatch.setattr(sys, "argv", command + ["--use-dataset-reader"] * lines_of_text)
    main()
    output = [json.loads(line) for line in (tmp_path / "output").read_text().splitlines()]
    assert np.allclose([row["embeddings"] for row in output], encoder(rows), atol=1e-6)


def test_lines_that_are_no_json_objects(trained: Path) -> None:
    predictor = Predictor.from_path(str(trained), "declutr")
    assert predictor.load_line("\n") == {"text": ""}
    with pytest.raises(ValueError, match=r"Expected JSON lines.*--use-dataset-reader"):
        predictor.load_line("plain text\n")
    for line in ('["text"]', '{"txt": "a"}', '{"text": 3}'):
        with pytest.raises(ValueError, match='a string under "text"'):
            predictor.load_line(line)


def test_models_over_words(
    checkpoint: Path, corpus_file: Path, documents: list[str], tmp_path: Path
) -> None:
    """White-space tokens and trained vectors: no transformer anywhere."""
    config = run_config(checkpoint, corpus_file)
    for key in ("tokenizer", "token_indexers"):
        del config["dataset_reader"][key]
    words = {"type": "embedding", "embedding_dim": 12}
    config["model"] = {
        "type": "declutr",
        "text_field_embedder": {"token_embedders": {"tokens": words}},
        "loss": {"type": "nt_xent"},
    }
    del config["vocabulary"]
    train_model(Params(config), str(tmp_path / "run"))
    assert not (tmp_path / "run" / "transformer").exists()
    encoder = Encoder(tmp_path / "run" / "model.tar.gz", cuda_device=-1)
    texts = [documents[0][:50], "", "a word", documents[1]]
    embeddings = encoder(texts)
    assert embeddings.shape == (4, 12) and np.isfinite(embeddings).all()
    predictor = Predictor.from_path(str(tmp_path / "run"), "declutr")
    expected = [predictor.predict(text=text)["embeddings"] for text in texts]
    assert np.allclose(embeddings, expected, atol=1e-6)


def test_what_is_not_an_archive_is_named(tmp_path, checkpoint):
    with pytest.raises(FileNotFoundError, match=r"holds no config\.json"):
        Encoder(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(FileNotFoundError, match=r"notes.txt' is not an archive. Expected"):
        Encoder(tmp_path / "notes.txt")
    with pytest.raises(FileNotFoundError, match=r"is a transformer, .*transformer_mean.jsonnet"):
        Encoder(checkpoint)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match="its training has not finished"):
        Encoder(tmp_path)


def test_texts_that_are_too_long_are_counted(trained, caplog):
    encoder = Encoder(trained)
    texts = ["ka lo mi", "ka " * 500, "tu", "re " * 300]
    with caplog.at_level("WARNING"):
        embeddings = encoder(texts)
    assert encoder.truncated_texts == 2
    assert "2 of 4 texts were too long and lost their tail" in caplog.text
    assert np.isfinite(embeddings).all()
