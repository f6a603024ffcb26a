"""Features from outputs of submodules: default names, means over tokens and calls, errors."""

from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.nn.util import get_text_field_mask
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from declutr.models.reclaim.named_submodules import (
    output_width,
    pooler_name,
    require_submodule,
    word_embeddings_name,
)
from declutr.models.reclaim.submodule_features import SubmoduleFeature, recorded_calls
from tests.built_task_models import (
    build,
    classifier,
    pair_model,
    read_batch,
    reader_config,
    transformer,
)

WORDS = "_text_field_embedder.token_embedder_tokens.transformer_model.embeddings.word_embeddings"
TWO_FIELDS = {"texts": ["text", "second"], "combine": False}


class Gives(torch.nn.Module):
    """A submodule that returns its argument."""

    def forward(self, output: Any, **inputs: Any) -> Any:
        return output


class Whole(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = Gives()

    def forward(self, *outputs: Any, **inputs: Any) -> None:
        for output in outputs:
            self.part(output, **inputs)


def texts(lengths: list[int]) -> dict[str, dict[str, Tensor]]:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    return {"tokens": {"tokens": mask.long() * 7}}


def feature(*outputs: Any, width: int = 2, instances: int = 2, **batch: Any) -> Tensor:
    model = Whole()
    taken = SubmoduleFeature(model, "u", "part", width)
    with recorded_calls(model, ["part"]) as calls:
        model(*outputs)
    assert not model.part._forward_hooks
    return taken.of_batch(model, calls["part"], batch, instances)


# ----------------------------------------------------------------------------------- the names


@pytest.fixture
def vocab(tmp_path: Path, checkpoint: Path) -> Vocabulary:
    return read_batch(tmp_path, reader_config(checkpoint))[0]


def test_default_names_are_the_pooler_and_the_word_embeddings(
    vocab: Vocabulary, checkpoint: Path
) -> None:
    model = build(classifier(checkpoint), vocab)
    assert (pooler_name(model), word_embeddings_name(model)) == ("_seq2vec_encoder", WORDS)
    model = build(classifier(), vocab)
    assert word_embeddings_name(model) == "_text_field_embedder"
    model = build(pair_model(), vocab)
    assert (pooler_name(model), word_embeddings_name(model)) == ("encoder", "embedder")
    model.another = model.encoder
    model.other = build(pair_model(), vocab).encoder
    several = r"of which PairModel has several \(encoder, other\)\. Set 'u' to the dotted name"
    with pytest.raises(ConfigurationError, match=several):
        pooler_name(model)
    for find, key in ((pooler_name, "u"), (word_embeddings_name, "v")):
        with pytest.raises(ConfigurationError, match=f"Linear has none. Set '{key}'"):
            find(torch.nn.Linear(2, 2))


def test_unknown_names_get_suggestions(vocab: Vocabulary, checkpoint: Path) -> None:
    model = build(classifier(checkpoint), vocab)
    assert require_submodule(model, WORDS, "v") is model.get_submodule(WORDS)
    with pytest.raises(ConfigurationError) as caught:
        require_submodule(model, "_seq2vec_encodr", "u")
    assert str(caught.value) == (
        "u is '_seq2vec_encodr', but BasicClassifier has no submodule of that name. Did you mean "
        "'_seq2vec_encoder'? Its parts are _text_field_embedder, _seq2vec_encoder, "
        "_classification_layer, _loss; parts of those have dotted names."
    )
    with pytest.raises(ConfigurationError, match=f"Did you mean '{WORDS}'"):
        require_submodule(model, "word_embeddings", "v")
    with pytest.raises(ConfigurationError, match=r"of that name\. Its parts are _text_field"):
        require_submodule(model, "zzz", "v")


def test_the_width_is_that_of_the_submodule_or_must_be_given(
    vocab: Vocabulary, checkpoint: Path
) -> None:
    model = build(classifier(checkpoint), vocab)
    embedder = model._text_field_embedder
    known = [embedder, model.get_submodule(WORDS), embedder.token_embedder_tokens.transformer_model]
    assert [output_width(part) for part in known] == [32, 32, 32]
    assert output_width(torch.nn.Linear(2, 7)) == 7
    assert output_width(Gives()) is None
    with pytest.raises(ConfigurationError, match=r"'part' \(Gives\) does not say.*set 'v_width'"):
        SubmoduleFeature(Whole(), "v", "part")
    assert SubmoduleFeature(Whole(), "v", "part", 3).width == 3


# -------------------------------------------------------------------------------- the features


def test_vectors_are_taken_as_they_are() -> None:
    vectors = torch.randn(2, 2, requires_grad=True)
    assert feature(vectors) is vectors
    others = torch.randn(2, 2)
    output = BaseModelOutput(last_hidden_state=vectors, hidden_states=(others,))
    for given in ((vectors, others), [vectors], {"a": vectors, "b": others}, output):
        assert feature(given) is vectors
    assert feature({"ids": torch.ones(2, 2, dtype=torch.long), "x": (None, vectors)}) is vectors
    assert feature(vectors.bfloat16()).dtype is torch.float32
    assert feature(vectors.double()).dtype is torch.float64


def test_several_calls_are_averaged() -> None:
    one, two = torch.randn(2, 2), torch.randn(2, 2)
    assert torch.equal(feature(one, two), (one + two) / 2)


def test_token_embeddings_are_averaged_over_each_text() -> None:
    vectors = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    tokens = texts([3, 1])
    result = feature(vectors, tokens=tokens, label=torch.zeros(2))
    expected = torch.stack([vectors[0].mean(dim=0), vectors[1, 0]])
    assert torch.allclose(result, expected, atol=1e-12)
    result.sum().backward()
    assert vectors.grad is not None
    assert torch.equal(vectors.grad[1, 1:], torch.zeros(2, 2))
    assert torch.equal(feature(vectors, tokens=texts([3, 0]))[1], torch.zeros(2))
    spoilt = torch.ones(2, 3, 2)
    spoilt[1, 1:] = torch.nan
    assert torch.equal(feature(spoilt, tokens=tokens), torch.ones(2, 2))


def test_each_call_finds_the_text_it_was_about() -> None:
    """Two texts of the same padded length, and an encoder that gets their masks only once."""
    model = Whole()
    batch = {"first": texts([3, 1]), "second": texts([1, 3]), "short": texts([1, 1])}
    vectors = torch.randn(2, 3, 2)
    taken = SubmoduleFeature(model, "u", "part", 2)
    for name, expected in (
        ("first", torch.stack([vectors[0].mean(dim=0), vectors[1, 0]])),
        ("second", torch.stack([vectors[0, 0], vectors[1].mean(dim=0)])),
    ):
        for inputs in ({"texts": batch[name]}, {"ids": batch[name]["tokens"]["tokens"]}):
            with recorded_calls(model, ["part"]) as calls:
                model(vectors, **inputs)
            result = taken.of_batch(model, calls["part"], batch, 2)
            assert torch.allclose(result, expected, atol=1e-6)
    with pytest.raises(ConfigurationError, match="may be of any of the text fields first, second"):
        feature(vectors, **batch)
    assert feature(vectors, **batch | {"second": batch["first"]}).shape == (2, 2)


def test_a_mismatched_indexer_has_a_mask_of_words_and_one_of_pieces() -> None:
    words, pieces = (get_text_field_mask(texts(lengths)) for lengths in ([2, 1], [4, 2]))
    field = {"tokens": {"token_ids": pieces.long(), "mask": words, "wordpiece_mask": pieces}}
    vectors = torch.randn(2, 4, 2)
    assert torch.allclose(feature(vectors, tokens=field)[1], vectors[1, :2].mean(dim=0))
    assert torch.allclose(feature(vectors[:, :2], tokens=field)[1], vectors[1, 0])


@pytest.mark.parametrize("unpadding", ["none", "packed", "grouped"])
def test_word_embeddings_do_not_depend_on_unpadding(
    unpadding: str, tmp_path: Path, checkpoint: Path
) -> None:
    """They are looked up once more if the transformer gets the texts in another form."""
    mlm = {**transformer(checkpoint), "type": "pretrained_transformer_mlm", "unpadding": unpadding}
    embedder = {"token_embedders": {"tokens": mlm | {"masked_language_modeling": False}}}
    vocab, batch = read_batch(tmp_path, reader_config(checkpoint))
    model = build(classifier(checkpoint, text_field_embedder=embedder), vocab)
    words_agree(model, batch, [batch["tokens"]])


def test_word_embeddings_of_segments(tmp_path: Path, checkpoint: Path) -> None:
    folded = transformer(checkpoint, max_length=6)
    embedder, indexers = {"token_embedders": {"tokens": folded}}, {"tokens": folded}
    vocab, batch = read_batch(tmp_path, reader_config(checkpoint, token_indexers=indexers))
    assert batch["tokens"]["tokens"]["segment_concat_mask"].size(1) > 6
    model = build(classifier(checkpoint, text_field_embedder=embedder), vocab)
    words_agree(model, batch, [batch["tokens"]])


def test_word_embeddings_of_both_texts_of_a_pair(tmp_path: Path, checkpoint: Path) -> None:
    vocab, batch = read_batch(tmp_path, reader_config(checkpoint, **TWO_FIELDS))
    embedder = {"token_embedders": {"tokens": transformer(checkpoint)}}
    encoder = {"type": "cls_pooler", "embedding_dim": 32}
    model = build(pair_model(embedder=embedder, encoder=encoder), vocab)
    words_agree(model, batch, [batch["premise"], batch["hypothesis"]])


def words_agree(model: Any, batch: dict[str, Any], fields: list[dict[str, Any]]) -> None:
    """Assert that the feature is the mean of the means over word pieces, with a gradient."""
    name = word_embeddings_name(model)
    taken = SubmoduleFeature(model, "v", name)
    given = {key: field for key, field in batch.items() if key != "ids"}
    with recorded_calls(model, [name]) as calls:
        model(**given)
    result = taken.of_batch(model, calls[name], given, 6)
    table = model.get_submodule(name)
    means = []
    for field in fields:
        tensors = field["tokens"]
        kept = tensors.get("segment_concat_mask", tensors["mask"]).unsqueeze(-1)
        means.append((table(tensors["token_ids"]) * kept).sum(dim=1) / kept.sum(dim=1))
    assert torch.allclose(result, torch.stack(means).mean(dim=0), atol=1e-6)
    result.sum().backward()
    assert table.weight.grad.abs().sum() > 0


# ------------------------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ([], "'part' was not called in the forward pass"),
        ([torch.ones(2)], r"'part' gave a tensor \(2,\), expected vectors \(2, d\) or token vect"),
        ([torch.ones(3, 2)], r"gave a tensor \(3, 2\), expected vectors \(2, d\)"),
        ([torch.ones(2, 2, 2, 2)], r"gave a tensor \(2, 2, 2, 2\), expected"),
        ([None], "'part' gave no tensor of numbers. Set 'u' to one"),
        ([torch.ones(2, 5)], r"gave features \(2, 5\), expected \(2, 2\).*'u_width' to 5"),
        ([torch.ones(2, 4, 2)], r"token vectors for \(2, 4\) tokens.*\{'tokens': \(2, 3\)\}"),
    ],
)
def test_outputs_that_are_no_features_are_refused(outputs: list, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        feature(*outputs, tokens=texts([3, 1]))
    with pytest.raises(ConfigurationError, match="has that shape: it has none"):
        feature(torch.ones(2, 4, 2), label=torch.zeros(2))
