"""Tests of transformers, trained archives and sentence-transformers models, tiny and local."""

import itertools
import shutil
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    FNetConfig,
    FNetModel,
)

from declutr.evaluation.metered_encoder import store_fingerprint
from declutr.inference.encoder import Encoder
from declutr.inference.sources import EncoderError, NamedEncoder, open_encoder, trained_models
from declutr.inference.whitening import Whitening
from declutr.models.declutr import DeCLUTR
from declutr.transformer.pooling import LAYERS, POOLINGS
from tests.families import FNET_TAKES_A_MASK, wordpiece
from tests.hostile_archives import with_json

pytestmark = pytest.mark.slow  # together they take long

PLAIN = [pooling for pooling in POOLINGS if pooling != "pooler"]


@pytest.fixture(scope="module")
def texts(documents: list[str]) -> list[str]:
    """Return texts of very different lengths, some blank, none too long for the transformer."""
    cut = [document[: 7 * i + 1] for i, document in enumerate(documents[:16])]
    return [*cut, "", "   \t", "one", documents[21][:90], "one"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a BERT with the weights of its pooler, and with a tokenizer that has no length limit."""
    folder = tmp_path_factory.mktemp("bert")
    tokenizer = wordpiece()
    tokenizer.model_max_length = int(1e30)
    tokenizer.save_pretrained(folder)
    _bert(len(tokenizer), BertModel).save_pretrained(folder)
    return folder


def _bert(vocab_size: int, kind: type) -> torch.nn.Module:
    torch.manual_seed(0)
    size = {"num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=vocab_size, hidden_size=16, max_position_embeddings=24, **size)
    model = kind(config)
    for weight in model.parameters():  # large weights, so that poolings differ visibly
        if weight.dim() == 2:
            torch.nn.init.normal_(weight, std=0.3)
    return model


def fingerprint(spec: object, **settings: int) -> str:
    return open_encoder(str(spec), device="cpu", **settings).describe()["fingerprint"]


@lru_cache
def loaded(folder: Path) -> tuple[Any, Any]:
    return AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()


def plainly(folder: Path, text: str, pooling: str) -> np.ndarray:
    """Return the embedding of one text, computed from the definition of a pooling."""
    tokenizer, model = loaded(folder)
    with torch.no_grad():
        output = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True)
    tokens = output.last_hidden_state[0].double().numpy()  # (length, d)
    layers = [layer[0].double().numpy() for layer in output.hidden_states]
    # Hidden state 0 is what the embedding layer returns.
    assert len(layers) == model.config.num_hidden_layers + 1
    return {
        "mean": lambda: tokens.mean(axis=0),
        "cls": lambda: tokens[0],
        "max": lambda: tokens.max(axis=0),
        "mean-sqrt-length": lambda: tokens.sum(axis=0) / np.sqrt(len(tokens)),
        "last": lambda: tokens[-1],
        "first-last": lambda: ((layers[1] + layers[-1]) / 2).mean(axis=0),
        "embedding-last": lambda: ((layers[0] + layers[-1]) / 2).mean(axis=0),
        "last-two": lambda: ((layers[-2] + layers[-1]) / 2).mean(axis=0),
        "pooler": lambda: output.pooler_output[0].numpy(),
    }[pooling]()


@pytest.mark.parametrize("pooling", PLAIN)
def test_pooling_is_the_plain_formula(checkpoint: Path, texts: list[str], pooling: str) -> None:
    encoder = open_encoder(f"hf:{checkpoint}?pooling={pooling}", batch_size=4, device="cpu")
    expected = np.stack([plainly(checkpoint, text, pooling) for text in texts])
    assert np.abs(encoder(texts) - expected).max() < 2e-6
    assert encoder.dimension == 32 and encoder.counts() == {"truncated_texts": 0}


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_bert_with_token_types_and_a_pooler(bert: Path, pooling: str) -> None:
    texts = ["the old house", "good trains run late when snow falls", "why", ""]
    encoder = open_encoder(f"{bert}?pooling={pooling}", device="cpu")
    expected = np.stack([plainly(bert, text, pooling) for text in texts])
    assert np.allclose(encoder(texts), expected, atol=2e-6)


def test_poolings_differ(bert: Path) -> None:
    """The test above would notice if one were taken for another."""
    rows = {name: plainly(bert, "good trains run late", name) for name in POOLINGS}
    for one, other in itertools.combinations(rows, 2):
        assert np.abs(rows[one] - rows[other]).max() > 1e-2, (one, other)


@pytest.mark.parametrize("pooling", ["mean", "last", "first-last"])
def test_neighbours_and_order_do_not_matter(
    checkpoint: Path, texts: list[str], pooling: str
) -> None:
    spec = f"hf:{checkpoint}?pooling={pooling}"
    alone = open_encoder(spec, device="cpu", batch_size=1)
    expected = np.concatenate([alone([text]) for text in texts])
    order = np.random.default_rng(0).permutation(len(texts))
    for batch_size in (2, 7, 1000):
        together = open_encoder(spec, device="cpu", batch_size=batch_size)
        assert np.abs(together(texts) - expected).max() < 1e-5
        assert np.abs(together([texts[i] for i in order]) - expected[order]).max() < 1e-5


@FNET_TAKES_A_MASK
@pytest.mark.parametrize("pooling", ["mean", "pooler"])
def test_padding_that_a_transformer_sees_does_not_matter(tmp_path: Path, pooling: str) -> None:
    """FNet mixes all positions, padding included: texts of other lengths must not go with it."""
    tokenizer = wordpiece()
    tokenizer.save_pretrained(tmp_path)
    torch.manual_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 32}
    FNetModel(FNetConfig(vocab_size=len(tokenizer), **size)).save_pretrained(tmp_path)
    loaded_tokenizer, model = loaded(tmp_path)
    texts = ["the old house", "good trains run late when snow falls", "why"]
    expected = []
    for text in texts:
        with torch.no_grad():
            output = model(**loaded_tokenizer(text, return_tensors="pt"))
        pooled = output.pooler_output if pooling == "pooler" else output.last_hidden_state.mean(1)
        expected.append(pooled[0].numpy())
    encoder = open_encoder(f"{tmp_path}?pooling={pooling}", device="cpu")
    assert np.allclose(encoder(texts), np.stack(expected), atol=1e-5)


def test_long_texts_are_cut_and_counted(checkpoint: Path, documents: list[str]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    encoder = open_encoder(f"hf:{checkpoint}", device="cpu")
    rows = encoder([documents[0], "short", documents[1]])
    assert encoder.counts() == {"truncated_texts": 2}
    assert encoder.describe()["max_length"] == 128
    # The special token at the end is kept.
    ids = tokenizer(documents[0], truncation=True, max_length=128)["input_ids"]
    assert len(ids) == 128 and ids[-1] == tokenizer.sep_token_id
    model = AutoModel.from_pretrained(checkpoint).eval()
    with torch.no_grad():
        expected = model(torch.tensor([ids])).last_hidden_state[0].mean(dim=0)
    assert np.abs(rows[0] - expected.numpy()).max() < 1e-6


def test_max_length_shortens_and_never_lengthens(checkpoint: Path) -> None:
    for asked, got in ((16, 16), (1000, 128)):
        encoder = open_encoder(f"hf:{checkpoint}", device="cpu", max_length=asked)
        assert encoder.describe()["max_length"] == got
        encoder(["ka lo mi " * 100])
        encoder(["ka"])
        assert encoder.counts() == {"truncated_texts": 1}


def test_bf16_is_close_and_float32_the_default(checkpoint: Path, texts: list[str]) -> None:
    exact = open_encoder(f"hf:{checkpoint}", device="cpu")(texts)
    rough = open_encoder(f"hf:{checkpoint}?precision=bf16", device="cpu")(texts)
    difference = np.abs(exact - rough).max()
    assert 1e-6 < difference < 0.1 and rough.dtype == np.float32


def test_weights_in_half_precision_are_computed_with_in_float32(
    checkpoint: Path, tmp_path: Path
) -> None:
    model = AutoModel.from_pretrained(checkpoint).to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(checkpoint).save_pretrained(tmp_path)
    rows = open_encoder(str(tmp_path), device="cpu")(["ka lo mi"])
    assert not np.array_equal(rows, torch.tensor(rows).bfloat16().float().numpy())


def test_a_pooler_that_was_never_trained_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=r"lacks 2 weights that pooler pooling needs.*another"):
        open_encoder(f"hf:{checkpoint}?pooling=pooler", device="cpu")
    tokenizer = wordpiece()
    tokenizer.save_pretrained(tmp_path)
    _bert(len(tokenizer), BertForMaskedLM).save_pretrained(tmp_path)
    assert np.isfinite(open_encoder(str(tmp_path), device="cpu")(["why"])).all()


def test_a_checkpoint_without_a_layer_is_refused(bert: Path, tmp_path: Path) -> None:
    shutil.copytree(bert, tmp_path, dirs_exist_ok=True)
    with_json("config.json", num_hidden_layers=4)(tmp_path)
    with pytest.raises(EncoderError, match=r"lacks 16 weights that mean pooling needs.*layer\.3"):
        open_encoder(f"hf:{tmp_path}", device="cpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("pooling=average", "Expected pooling to be one of mean, cls, .* got 'average'"),
        ("precision=half", "Expected precision to be one of float32, bf16, int8, got 'half'"),
        ("dim=0", "truncate_dim must lie in 1 to 32, got 0"),
        ("dim=many", "Expected dim to be a whole number, got 'many'"),
        ("normalize=1", "Expected normalize to be true or false, got '1'"),
        ("whiten=true", "There is no whitening stored with .*declutr whiten"),
    ],
)
def test_invalid_options_are_refused(checkpoint: Path, options: str, message: str) -> None:
    with pytest.raises(EncoderError, match=message):
        open_encoder(f"hf:{checkpoint}?{options}")


def test_fingerprints_notice_another_checkpoint(bert: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(bert, moved)
    before, spec = fingerprint(f"hf:{bert}"), f"hf:{moved}"
    assert fingerprint(spec) == before != fingerprint(f"{spec}?pooling=cls")
    (moved / "README.md").write_text("not of the model")
    (moved / "checkpoint-5").mkdir()
    (moved / "checkpoint-5" / "model.safetensors").write_text("another one's")
    assert fingerprint(spec) == before
    model = AutoModel.from_pretrained(moved)
    with torch.no_grad():
        next(model.parameters()).add_(1e-3)
    model.save_pretrained(moved)
    assert fingerprint(spec) != before


def test_every_option_is_part_of_the_fingerprint(checkpoint: Path) -> None:
    options = ["", *(f"?pooling={name}" for name in ("cls", "max", "last", *LAYERS))]
    options += ["?precision=bf16", "?dim=5", "?normalize=true", "?long_texts=chunk"]
    found = [fingerprint(f"hf:{checkpoint}{each}") for each in options]
    found.append(fingerprint(f"hf:{checkpoint}", max_length=9))
    assert len(set(found)) == len(found)


def stored_by(encoder: str | NamedEncoder, **options: Any) -> str:
    """What embeddings of an encoder are stored under."""
    if isinstance(encoder, str):
        encoder = open_encoder(encoder, device="cpu", **options)
    assert encoder.not_stored is None
    return store_fingerprint(encoder.describe()["fingerprint"], encoder.computed_with())


def test_all_that_changes_embeddings_changes_where_they_are_stored(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, tokenizer, settings, releases, and how float32 is computed."""
    moved = shutil.copytree(checkpoint, tmp_path / "moved")
    spec = f"hf:{moved}"
    base = stored_by(f"hf:{checkpoint}")
    assert stored_by(spec) == base == stored_by(spec, batch_size=3), "rounding alone"
    monkeypatch.setenv("DECLUTR_KEEP_DTYPE", "1")
    options = ("pooling=cls", "normalize=true", "dim=5", "long_texts=chunk")
    found = [
        base,
        *(stored_by(f"{spec}?{each}") for each in options),
        stored_by(spec, max_length=9),
    ]
    found += [stored_by(f"{spec}?precision={name}") for name in ("bf16", "int8")]
    tokenizer = moved / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace("\n", " \n", 1) + " ")
    found.append(stored_by(spec))
    model = AutoModel.from_pretrained(moved)
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] += 1e-3
    model.save_pretrained(moved)
    found.append(stored_by(spec))
    encoder = open_encoder(spec, device="cpu")
    assert stored_by(encoder) == found[-1]
    for name in ("ONEDNN_DEFAULT_FPMATH_MODE", "DECLUTR_KERNELS"):
        monkeypatch.setenv(name, "any")
        found.append(stored_by(encoder))
    for name in ("torch", "transformers", "tokenizers"):
        other = {"torch": "2", "transformers": "5", "tokenizers": "1"} | {name: "another"}
        monkeypatch.setattr(trained_models, "installed_versions", lambda *names, it=other: it)
        found.append(stored_by(encoder))
    monkeypatch.setattr("declutr.inference.sources.source.__version__", "another")
    found.append(stored_by(encoder))
    monkeypatch.setattr(encoder, "_device", "cuda")
    found.append(stored_by(encoder))
    assert len(set(found)) == len(found)


def test_a_name_on_the_hub(
    checkpoint: Path, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open a name in a folder laid out like the cache of the hub; the commit is its fingerprint."""
    repository = tmp_path / "models--org--tiny"
    commit = "0123456789abcdef0123456789abcdef01234567"
    shutil.copytree(checkpoint, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    # transformers 4 has its own constant for the folder of the cache.
    monkeypatch.setattr("transformers.utils.hub.TRANSFORMERS_CACHE", str(tmp_path), raising=False)
    encoder = open_encoder("hf:org/tiny", device="cpu")
    assert encoder.describe()["content"] == f"revision {commit}" and encoder.name == "org/tiny"
    expected = open_encoder(f"hf:{checkpoint}", device="cpu")(texts)
    assert np.array_equal(encoder(texts), expected)
    with pytest.raises(EncoderError, match="No transformer could be loaded from 'org/absent'"):
        open_encoder("hf:org/absent", device="cpu")


@pytest.mark.parametrize("options", ["", "?precision=int8", "?pooling=cls"])
def test_parameters_are_counted_as_they_were_stored(checkpoint: Path, options: str) -> None:
    weights = loaded(checkpoint)[1].named_parameters()
    expected = sum(one.numel() for name, one in weights if not name.startswith("pooler."))
    encoder = open_encoder(f"{checkpoint}{options}", device="cpu")
    assert encoder.describe()["parameters"] == expected > 0


def test_trained_archives(trained: Path, texts: list[str]) -> None:
    expected = Encoder(trained, cuda_device=-1, dtype="float32")(texts)
    tar = trained / "model.tar.gz"
    for spec in (str(trained), f"{trained}/", f"it={tar}", f"archive:{trained}"):
        encoder = open_encoder(spec, batch_size=5, device="cpu")
        assert np.abs(encoder(texts) - expected).max() < 1e-5
        assert encoder.dimension == 32 and encoder.describe()["kind"] == "trained archive"
    assert open_encoder(f"it={trained}", device="cpu").name == "it"
    short = open_encoder(str(trained), device="cpu", max_length=16)
    assert short.describe()["max_length"] == 16
    assert fingerprint(trained, max_length=16) != fingerprint(trained)


def test_fingerprints_notice_another_archive(trained: Path, tmp_path: Path) -> None:
    moved = tmp_path / "run"
    shutil.copytree(trained, moved)
    before = fingerprint(trained)
    (moved / "metrics.json").write_text("{}")
    assert fingerprint(moved) == before
    for name in ("best.th", "weights.th"):
        if (moved / name).exists():
            weights = torch.load(moved / name, weights_only=True)
            torch.save({key: value + 1 for key, value in weights.items()}, moved / name)
    assert fingerprint(moved) != before


def test_another_whitening_changes_where_embeddings_are_stored(
    trained: Path, tmp_path: Path
) -> None:
    moved = shutil.copytree(trained, tmp_path / "moved")
    found = [stored_by(str(moved))]
    for seed in (0, 1):
        rows = np.random.default_rng(seed).normal(size=(99, 32))
        Whitening.fit([rows]).save(moved)
        found.append(stored_by(str(moved)))
    found.append(stored_by(f"{moved}?whiten=false"))
    assert len(set(found)) == len(found)


def test_archives_that_are_broken_or_missing_are_reported(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=r"No model at .*absent"):
        open_encoder(f"archive:{tmp_path}/absent")
    (tmp_path / "config.json").write_text('{"model": {"type": "declutr"}}')
    with pytest.raises(EncoderError, match="holds no weights"):
        open_encoder(str(tmp_path))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path) -> Path:
    package = pytest.importorskip("sentence_transformers", reason="the extra is not installed")
    folder = tmp_path_factory.mktemp("st") / "model"
    package.SentenceTransformer(str(checkpoint), device="cpu").save(str(folder))
    return folder


def test_a_model_of_another_kind_is_refused(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(DeCLUTR, "embedding_dim")
    with pytest.raises(EncoderError, match="holds a DeCLUTR, which gives no embeddings"):
        Encoder(trained)


class TestSentenceTransformers:
    """Tests with the real package, on a model made of the same pretrained transformer."""

    def test_the_folder_is_recognised(self, folder: Path, checkpoint: Path, texts: list) -> None:
        encoder = open_encoder(str(folder), device="cpu", batch_size=3)
        assert encoder.describe()["kind"] == "sentence-transformers" and encoder.dimension == 32
        explicit = open_encoder(f"st:{folder}", device="cpu")
        assert np.abs(encoder(texts) - explicit(texts)).max() < 1e-5
        # Of a plain transformer, the package also takes the mean of the tokens.
        own = open_encoder(f"hf:{checkpoint}", device="cpu")(texts)
        # Releases of the package before 6 strip white space from texts.
        filled = [row for row, text in enumerate(texts) if text and text == text.strip()]
        assert np.abs(encoder(texts)[filled] - own[filled]).max() < 1e-5

    def test_long_texts_are_counted(self, folder: Path, documents: list[str]) -> None:
        encoder = open_encoder(str(folder), device="cpu", max_length=20)
        assert encoder(["ka lo", documents[0]]).shape == (2, 32)
        assert encoder.counts() == {"truncated_texts": 1}
        assert encoder.describe()["max_length"] == 20

    def test_fingerprints_notice_another_pooling_and_code(
        self, folder: Path, tmp_path: Path
    ) -> None:
        """Change files that fingerprints must cover, among them code that the package runs."""
        moved = tmp_path / "moved"
        shutil.copytree(folder, moved)
        assert fingerprint(moved) == fingerprint(folder)
        (moved / "1_Pooling").rename(moved / "pooling")
        modules = moved / "modules.json"
        modules.write_text(modules.read_text().replace("1_Pooling", "pooling"))
        seen = [fingerprint(folder), fingerprint(moved)]
        config = moved / "pooling" / "config.json"
        for file, content in (
            (config, config.read_text() + "\n"),
            (moved / "pooling" / "own.py", "factor = 1"),
            (moved / "pooling" / "own.py", "factor = 2"),
        ):
            file.write_text(content)
            seen.append(fingerprint(moved))
        assert len(set(seen)) == 5

    def test_a_folder_without_a_model_is_reported(self, folder: Path, tmp_path: Path) -> None:
        with pytest.raises(EncoderError, match="No sentence-transformers model could be loaded"):
            open_encoder(f"st:{tmp_path / 'absent'}")


def test_a_missing_package_is_named(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sentence_transformers", None)
    with pytest.raises(EncoderError, match=r"needs the package.*pip install.*hf:.*pooling=mean"):
        open_encoder(f"st:{checkpoint}")
