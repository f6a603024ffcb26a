"""Tests of parts of trained archives in models of other types."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Batch, DatasetReader, Instance, TokenIndexer, Tokenizer, Vocabulary
from allennlp.data.fields import TextField
from allennlp.models import Model
from allennlp.modules import Seq2VecEncoder, TextFieldEmbedder, TokenEmbedder
from allennlp.nn.util import get_text_field_mask

import declutr.pretrained_parts.opened as opened
from declutr.archives.safety import UnsafeArchive
from declutr.inference.encoder import Encoder
from declutr.pretrained_parts import (
    ArchivedVocabularyIndexer,
    NormalisingTokenizer,
    TrainedPooler,
    TrainedTextFieldEmbedder,
    TrainedTokenEmbedder,
    open_model,
)
from tests.families import build
from tests.pretrained_parts.conftest import moved_away

pytestmark = pytest.mark.slow

EMBEDDERS = {
    "token_embedder": {"token_embedders": {"tokens": {"type": "declutr"}}},
    "text_field_embedder": {"type": "declutr"},
}


@pytest.fixture(scope="module")
def texts(documents: list[str]) -> list[str]:
    """Return texts that are short, too long, blank, with odd white space, and in other scripts."""
    return [
        documents[0][:40],
        documents[1],
        "",
        "  ka\tlo \n mi  ",
        "\u6d4b\u8bd5 \U0001f642 na\u00efve",
        *(document[: 30 * n] for n, document in enumerate(documents[2:10], start=1)),
    ]


def part(kind: Any, archive: Path, vocab: Vocabulary | None = None, **more: Any) -> Any:
    """Build a part from its configuration, as AllenNLP does."""
    params = Params({"type": "declutr", "archive": str(archive), **more})
    return kind.from_params(params, **({"vocab": vocab} if vocab is not None else {}))


def with_archive(config: dict[str, Any], archive: Path, **more: Any) -> Params:
    """Return the configuration with the key `archive` in each part of type "declutr"."""
    given = json.loads(json.dumps(config))
    inside = given.get("token_embedders", {}).get("tokens", given)
    inside.update(archive=str(archive), **more)
    return Params(given)


def tensors(
    texts: list[str], archive: Path, vocab: Vocabulary | None = None, **more: Any
) -> dict[str, dict[str, torch.Tensor]]:
    """Return texts as tensors, made by the tokenizer and indexer of an archive."""
    tokenizer = part(Tokenizer, archive)
    indexers = {"tokens": part(TokenIndexer, archive, **more)}
    batch = Batch([Instance({"t": TextField(tokenizer.tokenize(t), indexers)}) for t in texts])
    batch.index_instances(vocab or Vocabulary.empty())
    return batch.as_tensor_dict()["t"]  # type: ignore[return-value]


def embeddings(
    texts: list[str], archive: Path, embedder: torch.nn.Module, pooler: torch.nn.Module
) -> np.ndarray:
    given = tensors(texts, archive)
    with torch.no_grad():
        return pooler(embedder(given), get_text_field_mask(given)).numpy()


# ----------------------------------------------------------------------- the same numbers


@pytest.mark.parametrize("place", ["", "model.tar.gz"])
@pytest.mark.parametrize("kind", EMBEDDERS)
def test_embedder_and_pooler_give_the_encoders_embedding(
    kind: str, place: str, trained: Path, texts: list[str]
) -> None:
    archive = trained / place
    embedder = TextFieldEmbedder.from_params(with_archive(EMBEDDERS[kind], archive))
    pooler = part(Seq2VecEncoder, archive)
    got = embeddings(texts, archive, embedder, pooler)
    expected = Encoder(trained, dtype="float32", device="cpu")(texts)
    assert np.abs(got - expected).max() < 1e-6
    assert embedder.get_output_dim() == pooler.get_input_dim() == pooler.get_output_dim() == 32


def test_an_archive_without_a_transformer(of_words: Path, texts: list[str]) -> None:
    archive = of_words / "model.tar.gz"
    vocab = Vocabulary(tokens_to_add={"labels": ["yes", "no"]})
    embedder = part(TextFieldEmbedder, archive, vocab)
    filled = [text for text in texts if text.strip()]
    given = tensors(filled, archive, vocab)
    with torch.no_grad():
        got = part(Seq2VecEncoder, archive)(embedder(given), get_text_field_mask(given)).numpy()
    assert np.abs(got - Encoder(of_words, dtype="float32", device="cpu")(filled)).max() < 1e-6
    # Ids can be turned back into tokens, and AllenNLP does not extend the embedding.
    word = part(Tokenizer, archive).tokenize(filled[0])[0].text
    first = int(given["tokens"]["tokens"][0, 0])
    assert vocab.get_token_from_index(first, "tokens") == word
    before = embedder.embedder.token_embedder_tokens.weight.clone()
    vocab.add_token_to_namespace("one more", "tokens")
    embedder.embedder.token_embedder_tokens.extend_vocab(vocab)
    assert torch.equal(before, embedder.embedder.token_embedder_tokens.weight)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert"])
def test_an_exported_folder(family: str, pooling: str, tmp_path: Path) -> None:
    """Take parts of a sentence-transformers folder with a maximum length of 9 tokens."""
    from transformers import AutoModel, AutoTokenizer

    folder = build(family, tmp_path / family)
    kinds = ("Transformer", "Pooling", "Normalize")
    paths = ("", "1_Pooling", "2_Normalize")
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": pooling}))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 9}))
    texts = ["the old house", "she plays the violin and he plays the cello in one band", ""]
    got = embeddings(texts, folder, part(TextFieldEmbedder, folder), part(Seq2VecEncoder, folder))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=9, return_tensors="pt")
    inputs = {key: inputs[key] for key in ("input_ids", "attention_mask")}
    with torch.no_grad():
        vectors = AutoModel.from_pretrained(folder).eval()(**inputs).last_hidden_state
    mask = inputs["attention_mask"].unsqueeze(-1)
    expected = {
        "mean": (vectors * mask).sum(1) / mask.sum(1),
        "cls": vectors[:, 0],
        "max": vectors.masked_fill(mask == 0, -torch.inf).amax(1),
    }[pooling]
    assert np.abs(got - expected.numpy()).max() < 1e-5


def test_the_pooling_of_folders_with_pooling_mode_keys(checkpoint: Path, tmp_path: Path) -> None:
    from declutr.archives.configuration import trained_configuration

    assert "seq2vec_encoder" not in trained_configuration(checkpoint)["model"]
    folder = tmp_path / "exported"
    shutil.copytree(checkpoint, folder)
    (folder / "1_Pooling").mkdir()

    def write(modules: list[str], **pooling: bool) -> None:
        listed = [
            {"type": name, "path": "1_Pooling" if name == "Pooling" else ""} for name in modules
        ]
        (folder / "modules.json").write_text(json.dumps(listed))
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))

    write(["Transformer", "Pooling"], pooling_mode_cls_token=True, pooling_mode_mean_tokens=False)
    assert trained_configuration(folder)["model"]["seq2vec_encoder"] == {"type": "cls_pooler"}
    write(["Transformer", "Pooling"], pooling_mode_cls_token=True, pooling_mode_mean_tokens=True)
    with pytest.raises(ConfigurationError, match=r"pooling_mode_cls_token, .* is not followed"):
        open_model(str(folder))
    write(["Transformer", "Pooling"], pooling_mode_max_tokens=True)
    pooler = {"type": "declutr-token_pooling", "pooling": "max"}
    assert trained_configuration(folder)["model"]["seq2vec_encoder"] == pooler
    write(["Transformer", "Pooling"], pooling_mode_mean_tokens=True)
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    with pytest.raises(ConfigurationError, match="lower case or a default prompt, for which"):
        open_model(str(folder))
    (folder / "sentence_bert_config.json").unlink()
    (folder / "config_sentence_transformers.json").write_text('{"truncate_dim": 8}')
    with pytest.raises(ConfigurationError, match=r"keeps 8 dimensions .* Remove that setting"):
        open_model(str(folder))
    (folder / "config_sentence_transformers.json").unlink()
    write(["Transformer", "Pooling", "LSTM"], pooling_mode_mean_tokens=True)
    with pytest.raises(ConfigurationError, match="module 2, LSTM, which is not followed"):
        open_model(str(folder))


# ----------------------------------------------------------------------- frozen or trained


@pytest.mark.parametrize("kind", EMBEDDERS)
def test_frozen_parts_do_not_change(kind: str, trained: Path, texts: list[str]) -> None:
    embedder = TextFieldEmbedder.from_params(with_archive(EMBEDDERS[kind], trained))
    embedder.train()
    assert not any(parameter.requires_grad for parameter in embedder.parameters())
    dropouts = [part for part in embedder.modules() if isinstance(part, torch.nn.Dropout)]
    assert dropouts and not any(part.training for part in dropouts)
    given = tensors(texts, trained)
    assert torch.equal(embedder(given), embedder(given))


@pytest.mark.parametrize("kind", EMBEDDERS)
def test_trained_parts_get_gradients_in_every_parameter(
    kind: str, trained: Path, texts: list[str]
) -> None:
    """Compute gradients: without the language modelling head, every parameter must get one."""
    params = with_archive(EMBEDDERS[kind], trained, train_parameters=True)
    embedder = TextFieldEmbedder.from_params(params)
    embedder.train()
    given = tensors(texts, trained)
    assert not torch.equal(embedder(given), embedder(given)), "no dropout"
    embedder(given).square().sum().backward()
    without = [name for name, p in embedder.named_parameters() if p.grad is None]
    assert without == [] and len(list(embedder.parameters())) > 10
    embedder.eval()
    assert torch.equal(embedder(given), embedder(given))


def test_no_two_parts_share_parameters(trained: Path) -> None:
    first, second = (part(TokenEmbedder, trained, train_parameters=True) for _ in range(2))
    whole = part(TextFieldEmbedder, trained)
    assert all(p.requires_grad for p in first.parameters()), "freezing one freezes another"
    addresses = [{p.data_ptr() for p in one.parameters()} for one in (first, second, whole)]
    assert not addresses[0] & addresses[1] and not (addresses[0] | addresses[1]) & addresses[2]
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name])


# ----------------------------------------------------------------------- opened once


def test_an_archive_is_opened_and_loaded_once(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Any] = []
    extractions: list[Any] = []
    build, extracted = opened.OpenedModel._build, opened.extracted
    monkeypatch.setattr(opened.OpenedModel, "_build", lambda *a: built.append(1) or build(*a))
    monkeypatch.setattr(opened, "extracted", lambda a: extractions.append(a) or extracted(a))
    archive = trained / "model.tar.gz"
    for kind in (Tokenizer, TokenIndexer, TokenEmbedder, Seq2VecEncoder):
        part(kind, archive)
    assert len(built) == len(extractions) == 1
    folder = open_model(str(archive)).folder
    assert folder.exists()
    opened._opened.cache_clear()
    assert not folder.exists(), "what was extracted lies around"


def test_an_archive_that_changed_is_opened_again(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    before = open_model(str(tmp_path / "run"))
    assert open_model(str(tmp_path / "run" / ".." / "run")) is before
    state = torch.load(tmp_path / "run" / "best.th", weights_only=True)
    torch.save({name: value * 2 for name, value in state.items()}, tmp_path / "run" / "best.th")
    changed = open_model(str(tmp_path / "run"))
    assert changed is not before
    # One of the same size and time takes its place, as `cp -p` and `rsync -t` keep times.
    shutil.copy2(tmp_path / "run" / "best.th", tmp_path / "other.th")
    (tmp_path / "other.th").replace(tmp_path / "run" / "best.th")
    assert open_model(str(tmp_path / "run")) is not changed


# ----------------------------------------------------------------------- settings of parts


def test_settings_of_the_tokenizer(trained: Path, documents: list[str]) -> None:
    cut = part(Tokenizer, trained).tokenize(documents[0])
    assert len(cut) == 128, "as many as the transformer takes"
    assert len(part(Tokenizer, trained, max_length=10).tokenize(documents[0])) == 10
    assert len(part(Tokenizer, trained, max_length=200).tokenize(documents[0])) == 200
    plain = part(Tokenizer, trained, add_special_tokens=False)
    assert [t.text_id for t in plain.tokenize("ka lo")] == [
        t.text_id for t in part(Tokenizer, trained).tokenize("ka lo")[1:-1]
    ]


def test_long_texts_in_segments(trained: Path, documents: list[str]) -> None:
    """Fold long texts; a text of one segment is embedded as without folding."""
    embedder = part(TokenEmbedder, trained, max_length=50, gradient_checkpointing=True)
    assert any(getattr(m, "gradient_checkpointing", False) for m in embedder.modules())
    short = tensors(["ka lo mi"], trained, max_length=50)["tokens"]
    plain = tensors(["ka lo mi"], trained)["tokens"]
    torch.testing.assert_close(embedder(**short), part(TokenEmbedder, trained)(**plain))
    long = tensors(documents[:2], trained, max_length=50)["tokens"]
    assert embedder(**long).shape == (2, 128, 32)


def test_segments_of_only_indexer_or_embedder_are_refused(trained: Path) -> None:
    folded = tensors(["ka lo mi"], trained, max_length=50)
    with pytest.raises(ConfigurationError, match=r"folds long texts into .* max_length is None"):
        part(TokenEmbedder, trained)(**folded["tokens"])
    with pytest.raises(ConfigurationError, match=r"folds long texts into .* max_length is None"):
        part(TextFieldEmbedder, trained)(folded)
    with pytest.raises(
        ConfigurationError, match=r"does not fold .* max_length is 50. Set max_length"
    ):
        part(TokenEmbedder, trained, max_length=50)(**tensors(["ka"], trained)["tokens"])


def test_parts_of_other_archives(of_words: Path) -> None:
    tokenizer, indexer = part(Tokenizer, of_words), part(TokenIndexer, of_words)
    assert isinstance(tokenizer, NormalisingTokenizer)
    assert isinstance(indexer, ArchivedVocabularyIndexer)
    tokens = tokenizer.tokenize(" ka \t lo ")
    assert [token.text for token in tokens] == ["ka", "lo"]
    assert tokenizer.add_special_tokens(tokens) == tokens
    assert tokenizer.num_special_tokens_for_sequence() == 0
    assert tokenizer.num_special_tokens_for_pair() == 0
    indexed = indexer.tokens_to_indices(tokens, Vocabulary.empty())
    assert list(indexed) == list(indexer.get_empty_token_list()) == ["tokens"]
    with pytest.raises(NotImplementedError):  # as by the indexer of the archive
        indexer.indices_to_tokens(indexed, Vocabulary.empty())
    with pytest.raises(ConfigurationError, match="is a WhitespaceTokenizer: it has neither"):
        part(Tokenizer, of_words, max_length=3)
    with pytest.raises(ConfigurationError, match="is a SingleIdTokenIndexer, not one of word"):
        part(TokenIndexer, of_words, max_length=3)
    with pytest.raises(
        ConfigurationError, match=r"is not one transformer but .*Embedding'\]. Take"
    ):
        part(TokenEmbedder, of_words)


def test_one_of_several_indexers(of_words: Path, tmp_path: Path) -> None:
    shutil.copytree(of_words, tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["dataset_reader"]["token_indexers"] = {"a": {"type": "single_id"}, "b": {}}
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    assert part(TokenIndexer, tmp_path / "run", indexer="b")
    with pytest.raises(ConfigurationError, match=r"indexers a, b; none was chosen. Set 'indexer'"):
        part(TokenIndexer, tmp_path / "run")
    with pytest.raises(ConfigurationError, match="indexers a, b; there is no 'c'"):
        part(TokenIndexer, tmp_path / "run", indexer="c")


# ----------------------------------------------------------------------- mistakes


def test_places_without_an_archive_are_refused(
    trained: Path, checkpoint: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=r"No model at 'nowhere'. Expected the fo"):
        open_model("nowhere")
    with pytest.raises(ConfigurationError, match=r"holds no config.json. Expected the folder"):
        open_model(str(tmp_path))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"notes.txt' is not an archive. Expected"):
        open_model(str(tmp_path / "notes.txt"))
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text(json.dumps({"model": {"type": "basic_classifier"}}))
    with pytest.raises(ConfigurationError, match="a model of type 'basic_classifier', expected"):
        open_model(str(other))


def test_an_archive_without_weights_is_refused(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "best.th").unlink()
    with pytest.raises(ConfigurationError, match="holds no weights: its training has not finished"):
        part(TokenEmbedder, tmp_path / "run")
    assert part(TokenEmbedder, tmp_path / "run", load_weights=False).get_output_dim() == 32


def test_hostile_archives_are_refused(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["model"]["seq2vec_encoder"] = {"type": "antigravity.Thing"}
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    for kind in (Tokenizer, TokenEmbedder, Seq2VecEncoder):
        with pytest.raises(UnsafeArchive, match=r"run: .*antigravity"):
            part(kind, tmp_path / "run")


def test_text_indexed_for_another_model_is_refused(
    trained: Path, of_words: Path, tmp_path: Path
) -> None:
    bert = build("bert", tmp_path / "bert")
    vocab = Vocabulary.empty()
    given = tensors(["the old house"], bert, vocab)
    for kind in EMBEDDERS.values():
        embedder = TextFieldEmbedder.from_params(with_archive(kind, trained), vocab=vocab)
        with pytest.raises(
            ConfigurationError, match=r"'tags' has \d+ tokens .* another model. Giv"
        ):
            embedder(given)
    # Text that is indexed in another namespace is not checked.
    vocab = Vocabulary.empty()
    tensors(["the old house"], bert, vocab, namespace="bert")
    part(TextFieldEmbedder, trained, vocab)(tensors(["ka lo"], trained, vocab))
    # Tokens that have the ids of another vocabulary are refused.
    vocab = Vocabulary(tokens_to_add={"tokens": ["ka", "lo", "mi"]})
    with pytest.raises(ConfigurationError, match="'tokens' has 5 tokens that are not the"):
        part(TextFieldEmbedder, of_words, vocab)(tensors(["ka lo"], of_words, vocab))


def test_tensors_of_other_indexers_are_refused(trained: Path, of_words: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"Expected token_ids and a mask.*\['tokens'\]. Give"
    ):
        part(TokenEmbedder, trained)(**tensors(["ka lo"], of_words)["tokens"])
    given = {"bert": tensors(["ka lo"], trained)["tokens"]}
    with pytest.raises(
        ConfigurationError, match=r"\['bert'\], expected \['tokens'\] as in training"
    ):
        part(TextFieldEmbedder, trained)(given)


def test_parts_have_registered_names(trained: Path) -> None:
    assert TokenEmbedder.by_name("declutr") is TrainedTokenEmbedder
    assert TextFieldEmbedder.by_name("declutr") is TrainedTextFieldEmbedder
    assert Seq2VecEncoder.by_name("declutr") is TrainedPooler
    assert "declutr" in Tokenizer.list_available() and "declutr" in TokenIndexer.list_available()


# ----------------------------------------------------------------------- whole models


@pytest.mark.parametrize("where", ["trained", "of_words", "exported"])
def test_a_classifier_loads_without_the_archive_of_its_parts(
    where: str, request: pytest.FixtureRequest, checkpoint: Path, tmp_path: Path
) -> None:
    """Train a classifier with parts, move it, and use it without the archive of the parts."""
    from allennlp.models.archival import load_archive
    from allennlp.predictors import Predictor

    source = tmp_path / "source"
    given = checkpoint if where == "exported" else request.getfixturevalue(where)
    shutil.copytree(given, source)
    rows = [{"text": f"{word} {word} mi", "label": word} for word in ("ka", "lo") * 4]
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ours = {"type": "declutr", "archive": str(source)}
    config = {
        "dataset_reader": {
            "type": "text_classification_json",
            "tokenizer": ours,
            "token_indexers": {"tokens": ours},
        },
        "train_data_path": str(data),
        "model": {
            "type": "basic_classifier",
            "namespace": "tokens" if where == "of_words" else "tags",
            "text_field_embedder": {**ours, "train_parameters": True},
            "seq2vec_encoder": ours,
        },
        "data_loader": {"batch_size": 4},
        "trainer": {"optimizer": {"type": "adam", "lr": 1e-2}, "cuda_device": -1},
    }
    config["trainer"]["num_epochs"] = 2
    config = json.loads(json.dumps(config))  # a deep copy, in which no two parts share a dictionary
    train_model(Params(config), str(tmp_path / "run"))
    predictor = Predictor.from_path(str(tmp_path / "run"))
    expected = [predictor.predict(row["text"])["logits"] for row in rows]
    expected_tokens = predictor.predict(rows[0]["text"])["tokens"]
    archive = load_archive(moved_away(tmp_path / "run", source))
    assert archive.config["dataset_reader"]["tokenizer"]["archive"] == str(source)
    predictor = Predictor.from_archive(archive)
    got = [predictor.predict(row["text"])["logits"] for row in rows]
    np.testing.assert_allclose(got, expected, atol=1e-6)
    assert predictor.predict(rows[0]["text"])["tokens"] == expected_tokens
    assert isinstance(archive.model, Model) and isinstance(archive.dataset_reader, DatasetReader)
