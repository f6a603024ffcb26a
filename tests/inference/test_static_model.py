"""Tests of static encoders through `Encoder`, the command that makes them, and their export."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allennlp.commands import main
from allennlp.commands.train import train_model
from allennlp.common import Params
from tokenizers import Tokenizer

from declutr.archives.static_folder import loaded_tokenizer, read_static, write_static
from declutr.archives.table_weights import DTYPES
from declutr.export import ExportError, export_model
from declutr.inference import EncoderError, static_model
from declutr.inference.encoder import Encoder
from declutr.inference.whitening import Whitening
from tests.archives.test_static_folder import TABLE, TOKENIZER, VECTORS
from tests.conftest import RECIPES

pytestmark = pytest.mark.slow  # together they take long

TEXTS = ["kalo mitu", "", "resa nove pidu " * 200, "  odd\u2003white space, 中文 \n"]


def naive(
    texts: list[str], vectors: np.ndarray = VECTORS, tokenizer: str = TOKENIZER
) -> np.ndarray:
    ids = [loaded_tokenizer(tokenizer).encode(text).ids for text in texts]
    return np.stack([vectors[i].mean(0) if i else 0 * vectors[0] for i in ids])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("static") / "table"
    write_static(TABLE, place)
    return place


def test_a_static_encoder_gives_means_of_whole_texts(folder: Path) -> None:
    encoder = Encoder(folder)
    assert np.allclose(encoder(TEXTS), naive(TEXTS), atol=1e-6)
    prompted = encoder(TEXTS, prompt="sano: ")
    assert np.allclose(prompted, naive(["sano: " + text for text in TEXTS]), atol=1e-6)
    described = encoder.describe()
    assert described["kind"] == "static encoder" and described["dtype"] == "float32"
    assert encoder.max_length is None and encoder.num_parameters == VECTORS.size


@pytest.mark.parametrize("dtype", DTYPES)
def test_tables_of_every_dtype_give_means_by_both_ways_of_adding(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_static(TABLE, tmp_path, dtype)
    encoder, many = Encoder(tmp_path), [*TEXTS, *(f"kalo mi{n} pidu" for n in range(2100))]
    expected = naive(many, read_static(tmp_path).vectors)
    by_numpy = encoder(many)
    monkeypatch.setattr(static_model, "_WORTH_IMPORTING", 0)
    assert np.allclose(by_numpy, expected, atol=1e-5)
    assert np.array_equal(encoder(many), by_numpy)
    assert np.array_equal(np.concatenate([encoder([text]) for text in many[:9]]), by_numpy[:9])


def test_settings_of_embeddings_apply(folder: Path) -> None:
    cut = Encoder(folder, truncate_dim=3, normalize=True)(TEXTS)
    expected = naive(TEXTS)[:, :3]
    lengths = np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1e-12)
    assert np.allclose(cut, expected / lengths, atol=1e-6)
    ids = loaded_tokenizer(TOKENIZER).encode(TEXTS[2]).ids
    short = Encoder(folder, max_length=5)
    assert np.allclose(short([TEXTS[2]])[0], VECTORS[ids[:5]].mean(0), atol=1e-6)
    assert short.truncated_texts == 1
    chunked = Encoder(folder, max_length=5, long_texts="chunk")(TEXTS)
    assert np.allclose(chunked, naive(TEXTS), atol=1e-5)


def test_as_many_dimensions_are_kept_as_the_folder_says(tmp_path: Path) -> None:
    write_static(TABLE, tmp_path)
    settings = tmp_path / "config_sentence_transformers.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "truncate_dim": 3}))
    assert np.allclose(Encoder(tmp_path)(TEXTS), naive(TEXTS)[:, :3], atol=1e-6)


def test_a_tokenizer_that_cuts_texts_is_told(tmp_path: Path, caplog: Any) -> None:
    write_static(TABLE, tmp_path)
    assert Encoder(tmp_path) and not caplog.records
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer.enable_truncation(5)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert np.allclose(Encoder(tmp_path)(TEXTS), naive(TEXTS), atol=1e-6)
    assert "cuts texts at 5 tokens, as sentence-transformers and model2vec do" in caplog.text
    package = pytest.importorskip("sentence_transformers")
    theirs = package.SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS)
    assert np.allclose(Encoder(tmp_path, max_length=5)(TEXTS), theirs, atol=1e-6)


def test_sentence_transformers_gives_the_same_embeddings(folder: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    assert np.allclose(Encoder(folder)(TEXTS), theirs, atol=1e-6)


def test_what_a_static_encoder_does_not_have_is_refused(folder: Path) -> None:
    with pytest.raises(EncoderError, match=r"pooling is for transformers; .* is a static encoder"):
        Encoder(folder, pooling="cls")
    with pytest.raises(EncoderError, match="no prompt named 'query'"):
        Encoder(folder, prompt_name="query")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, corpus_file: Path) -> Path:
    """The run of the recipe on a table that the command made."""
    place = tmp_path_factory.mktemp("trained")
    start, run = place / "start", place / "run"
    arguments = f"static-vectors {corpus_file} -o {start} --vocabulary 400 --dimension 16".split()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["allennlp", *arguments])
        main()
    recipe = RECIPES / "static" / "static_declutr.jsonnet"
    params = Params.from_file(recipe, ext_vars={"TRANSFORMER_MODEL": str(start)}).as_dict()
    params["train_data_path"] = str(corpus_file)
    params["model"]["text_field_embedder"]["token_weights"] = True
    params["dataset_reader"] |= {"max_span_len": 32, "min_span_len": 8}
    params["data_loader"] |= {"batch_size": 8, "num_workers": 0}
    params["trainer"] |= {"num_epochs": 2, "cuda_device": -1}
    train_model(Params(params), str(run))
    return run


def test_a_trained_table_is_exported_with_its_factors(trained: Path, tmp_path: Path) -> None:
    whitening = Whitening.fit([Encoder(trained)(TEXTS * 9 + ["ka lo re"] * 9)], 2)
    for whiten in (False, True):
        if whiten:
            whitening.save(trained)
        size = 1 if whiten else 9
        options: dict[str, Any] = {"normalize": whiten, "truncate_dim": size}
        exported = export_model(trained, tmp_path / str(whiten), **options)
        found = exported.comparison
        assert not found.failed and {"declutr.Encoder"} <= found.differences.keys()
        assert len(found.differences) + len(found.not_compared) == 3
        table = read_static(exported.folder)
        assert table.dimension == size and table.normalizes == whiten
        own = Encoder(exported.folder)(TEXTS)
        expected = Encoder(trained, normalize=whiten or None, truncate_dim=size)(TEXTS)
        assert np.allclose(own[[0, 2, 3]], expected[[0, 2, 3]], atol=1e-5)
        small = export_model(trained, tmp_path / f"{whiten} int8", dtype="int8", **options)
        assert any("rounded to int8" in note for note in small.notes)
        assert small.comparison.differences.keys() == {"declutr.Encoder"}
        assert np.allclose(read_static(small.folder).vectors, table.vectors, atol=0.05)
        card = (exported.folder / "README.md").read_text()
        assert "A static encoder" in card and "| train data path | documents.txt |" in card
    (trained / "whitening.safetensors").unlink()


def test_an_archive_needs_its_start_no_more(trained: Path, tmp_path: Path) -> None:
    """It carries the tokenizer; another run starts from an export of it."""
    expected = Encoder(trained)(TEXTS)
    start = trained.parent / "start"
    hidden = start.rename(trained.parent / "hidden")
    try:
        assert np.array_equal(Encoder(trained / "model.tar.gz")(TEXTS), expected)
    finally:
        hidden.rename(start)
    assert expected[1].tolist() == [0] * 16
    assert not np.allclose(expected, Encoder(start)(TEXTS), atol=1e-3)


COMMANDS: list[tuple[str, str]] = [
    ("nothing.txt -o {out}", "Found no documents at 'nothing.txt'"),
    ("{docs} -o {out} --dimension 0", "Expected a --dimension of at least 1, got 0"),
    ("{docs} -o {table}", "There is a static encoder at '.*'. Replace it with --overwrite"),
    ("{docs} -o {docs}", "that is no static encoder. Choose another --output"),
    ("{docs} {docs} -o {out} --method words", "--method words takes one SOURCE, got 2"),
    ("{docs} -o {out} --method words --vocabulary 9", "--vocabulary is for the methods texts and"),
    ("{docs} -o {out} --method random --window 2", "--window is for the method texts, got"),
    ("{docs} -o {out} --method distil --sif 0", "--sif is for the method texts, got --method d"),
    ("{docs} -o {out} --method words --components 1", "--components is for the method texts, got"),
    ("{docs} -o {out} --sif -1", "Expected --sif of 0 or more, got -1"),
    ("{docs} -o {out} --components -1", "Expected --components of 0 or more, got -1"),
    ("{docs} -o {out} --tokenizer {docs}", "There is no '.*tokenizer.json'. Expected the folder"),
]


@pytest.mark.parametrize(("arguments", "message"), COMMANDS)
def test_the_command_says_what_is_wrong(
    arguments: str, message: str, folder: Path, corpus_file: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from allennlp.common.checks import ConfigurationError

    places = {"docs": corpus_file, "table": folder, "out": tmp_path / "out"}
    monkeypatch.setattr(
        "sys.argv", ["allennlp", "static-vectors", *arguments.format(**places).split()]
    )
    with pytest.raises(ConfigurationError, match=message):
        main()
    assert not (tmp_path / "out").exists()


def test_the_command_replaces_nothing_but_what_it_wrote(
    folder: Path, corpus_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from allennlp.common.checks import ConfigurationError

    out = shutil.copytree(folder, tmp_path / "out")
    options = ["--method", "random", "--dimension", "2", "--overwrite"]
    arguments = ["allennlp", "static-vectors", str(corpus_file), "-o", str(out), *options]
    monkeypatch.setattr("sys.argv", arguments)
    main()
    assert read_static(out).dimension == 2
    (out / "notes.txt").touch()
    with pytest.raises(ConfigurationError, match=r"files that this .* not write: notes.txt. Move"):
        main()
    (out / "static_embedding.json").unlink()
    with pytest.raises(ConfigurationError, match=r"a static encoder at .* that another tool wrote"):
        main()
    assert (out / "notes.txt").is_file() and read_static(out).dimension == 2


@pytest.mark.parametrize("method", ["random", "words", "transformer", "distil"])
def test_the_command_makes_tables_of_other_sources(
    method: str, checkpoint: Path, corpus_file: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    words = tmp_path / "words.txt"
    words.write_text("the 1 2 3\ncat 3 2 1\n, 0 1 0\n")
    source = {"random": corpus_file, "words": words}.get(method, checkpoint)
    arguments = ["static-vectors", str(source), "-o", str(tmp_path / "out"), "--method", method]
    arguments += ["--dimension", "2", "--dtype", "float16"]
    monkeypatch.setattr("sys.argv", ["allennlp", *arguments])
    main()
    table = read_static(tmp_path / "out")
    assert table.dimension == 2 and np.isfinite(table.vectors).all() and table.vectors.any()
    if method in ("transformer", "distil"):
        own = json.loads((checkpoint / "tokenizer.json").read_text())["model"]["vocab"]
        assert len(table.vectors) == len(own)
    assert Encoder(tmp_path / "out")(["the cat", ""]).shape == (2, 2)


def test_a_pooler_that_no_table_has_is_not_exported(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from declutr.export import static_export
    from declutr.inference.open_text_model import open_text_model

    model: Any = open_text_model(str(trained), device=torch.device("cpu"))
    model.model._seq2vec_encoder = torch.nn.Identity()
    with pytest.raises(ExportError, match="pools token vectors by Identity"):
        static_export.static_table("run", model, normalize=False, whiten=True)
    with pytest.raises(ExportError, match="An ONNX model is of float32, got int8"):
        export_model("static", "out", dtype="int8", onnx=True)


def test_it_computes_on_the_cpu(folder: Path) -> None:
    from declutr.inference.static_model import StaticModel

    model = StaticModel(str(folder))
    assert model.device_type == "cpu"
    assert np.allclose(model.embed_texts(TEXTS, ""), naive(TEXTS), atol=1e-6)


def test_prompts_of_a_folder_are_used_and_written_back(folder: Path, tmp_path: Path) -> None:
    table = read_static(folder)
    table.prompts, table.default_prompt_name = {"query": "sano: "}, "query"
    write_static(table, tmp_path)
    expected = naive(["sano: " + text for text in TEXTS])
    assert np.allclose(Encoder(tmp_path)(TEXTS), expected, atol=1e-6)
    again = read_static(tmp_path)
    assert (again.prompts, again.default_prompt_name) == ({"query": "sano: "}, "query")


def test_evaluations_open_it_without_sentence_transformers(folder: Path) -> None:
    from declutr.inference.sources import open_encoder

    encoder = open_encoder(f"{folder}?normalize=true")
    assert encoder.settings()["kind"] == "static encoder"
    assert np.allclose(np.linalg.norm(encoder.embed(["kalo mitu"]), axis=1), 1)
    assert "averages of words" in str(encoder.not_stored)
