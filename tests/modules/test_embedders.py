"""Embedders of seven families of transformers, against Hugging Face's own models and AllenNLP's."""

import json
import math
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Batch, Instance, Vocabulary
from allennlp.data.fields import LabelField, TextField
from allennlp.data.token_indexers import PretrainedTransformerIndexer
from allennlp.data.tokenizers import PretrainedTransformerTokenizer
from allennlp.models import Model
from allennlp.modules import TextFieldEmbedder
from allennlp.modules.token_embedders import Embedding, PretrainedTransformerEmbedder
from torch import Tensor
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, BigBirdConfig

from declutr import Encoder
from declutr.inference import EncoderError
from declutr.modules.embedders import MLMTextFieldEmbedder, PretrainedTransformerEmbedderMLM
from declutr.modules.transformer_embedder import recompute_layers
from declutr.sampling.masking import IGNORE
from declutr.transformer import training_products as linear_products
from declutr.transformer.architectures import dropout_rate, masked_lm_logits, mend
from declutr.transformer.pooling import LAYERS
from tests.families import (
    FAMILIES,
    MAX_LENGTH,
    TEXTS,
    build,
    build_bart,
    build_canine,
    build_fsmt,
    build_gpt2,
    build_perceiver,
    build_reformer,
    build_t5,
)
from tests.hostile_archives import with_remote_code

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return a function that makes the pretrained transformer of an architecture once."""
    return cache(lambda family: str(build(family, tmp_path_factory.mktemp(family))))


@pytest.fixture(params=FAMILIES)
def folder(request: pytest.FixtureRequest, folder_of: Callable[[str], str]) -> str:
    return folder_of(request.param)


@pytest.fixture
def bert(folder_of: Callable[[str], str]) -> str:
    return folder_of("bert")


def made(folder: Any, **options: Any) -> PretrainedTransformerEmbedderMLM:
    return PretrainedTransformerEmbedderMLM(str(folder), **options).eval()


def bare(folder: Any, **options: Any) -> PretrainedTransformerEmbedderMLM:
    return made(folder, masked_language_modeling=False, **options)


@cache
def batch_of(folder: str) -> tuple[Tensor, Tensor]:
    """Return token ids and mask, both `(N, L)`, with padding."""
    short = [TEXTS[0], *(text[: 20 + 5 * i] for i, text in enumerate(TEXTS[1:]))]
    encoded = AutoTokenizer.from_pretrained(folder)(short, padding=True, return_tensors="pt")
    return encoded["input_ids"], encoded["attention_mask"].bool()


def masked_batch(folder: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return token ids with every third one masked, the mask of padding, and labels."""
    ids, mask = batch_of(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    chosen = mask & (torch.arange(ids.numel()).view_as(ids) % 3 == 1)
    labels = ids.masked_fill(~chosen, IGNORE)
    return ids.masked_fill(chosen, tokenizer.mask_token_id), mask, labels


def reference(folder: str, with_head: bool = True) -> Any:
    cls = AutoModelForMaskedLM if with_head else AutoModel
    return cls.from_pretrained(folder, dtype=torch.float32).eval()


def summed_loss(embedder: Any, vectors: Tensor, labels: Tensor) -> Tensor:
    """Return the sum of the losses of the head on vectors of masked positions."""
    chosen = labels != IGNORE
    logits = masked_lm_logits(embedder.transformer_model, vectors[chosen])
    return torch.nn.functional.cross_entropy(logits, labels[chosen], reduction="sum")


# -------------------------------------------------------------------- equal to transformers' own


@pytest.mark.parametrize("with_head", [True, False])
def test_embeds_like_the_bare_transformer(folder: str, with_head: bool) -> None:
    embedder, (ids, mask) = made(folder, masked_language_modeling=with_head), batch_of(folder)
    expected = reference(folder, with_head=False)(input_ids=ids, attention_mask=mask.long())
    vectors = embedder(ids, mask)
    if not with_head:  # A bare encoder has no parameter to spare.
        vectors.pow(2).mean().backward()
        assert [name for name, p in embedder.named_parameters() if p.grad is None] == []
    assert vectors.dtype == torch.float32 and vectors.shape == (*ids.shape, 16)
    assert embedder.get_output_dim() == 16
    assert torch.allclose(vectors[mask], expected.last_hidden_state[mask], atol=1e-6)


@pytest.mark.parametrize("kernels", ["torch's own", "oneDNN's"])
def test_loss_and_gradients_are_those_of_the_whole_model(
    folder: str, kernels: str, request: pytest.FixtureRequest
) -> None:
    """The head runs on masked positions only, which changes neither loss nor gradients.

    One of the masked tokens is the padding token: RoBERTa does not count it as a position.
    """
    if kernels == "oneDNN's":
        request.getfixturevalue("onednn_products")
    ids, mask, labels = masked_batch(folder)
    embedder = made(folder)
    replaced = tuple((labels != IGNORE).nonzero()[1])
    ids[replaced] = embedder.tokenizer.pad_token_id  # a random token may be this one
    whole = reference(folder)
    expected = whole(input_ids=ids, attention_mask=mask.long(), labels=labels)
    output = embedder.masked_lm(labels, ids, mask)
    count = int((labels != IGNORE).sum())
    assert output.num_masked.item() == count > 5
    assert (output.loss_sum / count).item() == pytest.approx(expected.loss.item(), rel=1e-6)
    correct = (expected.logits.argmax(-1) == labels).sum().item()
    assert output.num_correct.item() == correct and not output.num_correct.requires_grad
    (output.loss_sum / count).backward()
    expected.loss.backward()
    theirs = {name: p.grad for name, p in whole.named_parameters()}
    for name, parameter in embedder.transformer_model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.allclose(parameter.grad, theirs[name], atol=1e-6), name


def test_masked_positions_are_those_of_a_boolean_index(folder: str) -> None:
    """Values and gradients are bit-identical."""
    ids, mask, labels = masked_batch(folder)
    embedder = made(folder)
    parameters = list(embedder.transformer_model.parameters())
    output, vectors = embedder.masked_lm(labels, ids, mask), embedder(ids, mask)
    assert torch.equal(output.embeddings, vectors)
    losses = output.loss_sum, summed_loss(embedder, vectors, labels)
    assert torch.equal(*losses)
    gradients = [torch.autograd.grad(loss, parameters) for loss in losses]
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))


def test_logits_at_any_positions(folder: str) -> None:
    ids, mask, labels = masked_batch(folder)
    model = reference(folder)
    hidden = model.base_model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    chosen = labels != IGNORE
    full = model(input_ids=ids, attention_mask=mask.long()).logits
    names = [name for name, _ in model.named_modules()]
    logits = masked_lm_logits(model, hidden[chosen])
    assert logits.shape == (int(chosen.sum()), full.size(-1))
    assert torch.allclose(logits, full[chosen], atol=1e-6)
    assert [name for name, _ in model.named_modules()] == names  # the copy took nothing away
    assert torch.equal(model(input_ids=ids, attention_mask=mask.long()).logits, full)


def test_the_head_runs_on_masked_positions_alone(folder: str) -> None:
    ids, mask, labels = masked_batch(folder)
    embedder, shapes = made(folder), []
    model, encoder = embedder.transformer_model, set(embedder.encoder.modules())
    for module in set(model.modules()) - encoder - {model}:
        module.register_forward_pre_hook(lambda _, inputs: shapes.append(inputs[0].shape))
    embedder(ids, mask)
    assert not shapes
    embedder.masked_lm(labels, ids, mask)
    count = int((labels != IGNORE).sum())
    assert shapes and all(shape[:2] == (1, count) for shape in shapes)


def test_a_wide_head_runs_on_a_multiple_of_eight_rows(
    bert: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, mask, labels = masked_batch(bert)
    first = (labels != IGNORE).nonzero()[: int((labels != IGNORE).sum()) % 8 + 3]
    labels[first.unbind(1)] = IGNORE  # leaves a number that is 5 more than a multiple of 8
    embedder, rows = made(bert), []
    decoder = embedder.transformer_model.get_output_embeddings()
    decoder.register_forward_hook(lambda _, inputs, output: rows.append(output.shape[-2]))
    parameters = list(embedder.transformer_model.parameters())
    found = []
    for least in (1 << 30, 1):
        monkeypatch.setattr(linear_products, "LEAST_WEIGHTS", least)
        monkeypatch.setenv("DECLUTR_KERNELS", "plain")
        output = embedder.masked_lm(labels, ids, mask)
        gradients = torch.autograd.grad(output.loss_sum, parameters)
        found.append([output.loss_sum, output.num_correct, output.num_masked, *gradients])
    assert rows == [int(output.num_masked), -(-int(output.num_masked) // 8) * 8]
    for exact, wide in zip(*found, strict=True):
        torch.testing.assert_close(wide, exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("nothing_masked", [False, True])
def test_every_parameter_gets_a_gradient(folder: str, nothing_masked: bool) -> None:
    """DistributedDataParallel waits for the gradient of every parameter."""
    ids, mask, labels = masked_batch(folder)
    embedder = PretrainedTransformerEmbedderMLM(folder).train()
    if nothing_masked:
        labels = torch.full_like(labels, IGNORE)
    output = embedder.masked_lm(labels, ids, mask)
    (output.loss_sum + embedder(ids, mask).pow(2).mean()).backward()
    for name, parameter in embedder.named_parameters():
        assert parameter.requires_grad and parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    if nothing_masked:
        values = (output.loss_sum, output.num_correct, output.num_masked)
        assert [value.item() for value in values] == [0, 0, 0]
        assert all(value.dtype == torch.float32 and value.shape == () for value in values)


# ------------------------------------------------------------------------------------- positions


def test_texts_longer_than_the_transformer_allows_are_refused(folder: str) -> None:
    embedder = made(folder)
    assert embedder.max_positions() == MAX_LENGTH
    ids = torch.full((1, MAX_LENGTH + 1), 7)
    assert embedder(ids[:, 1:], torch.ones(1, MAX_LENGTH, dtype=torch.bool)).isfinite().all()
    with pytest.raises(ConfigurationError, match=f"text of {MAX_LENGTH + 1} tokens.*{MAX_LENGTH}"):
        embedder(ids, torch.ones_like(ids, dtype=torch.bool))


def test_padding_changes_nothing_and_cannot_be_masked(folder: str) -> None:
    embedder, (ids, mask) = made(folder), batch_of(folder)
    special = torch.isin(ids, torch.tensor(AutoTokenizer.from_pretrained(folder).all_special_ids))
    assert torch.equal(embedder.maskable(ids, mask), mask & ~special)
    assert (mask & ~special).any() and (mask & special).any()
    row = int(mask.sum(dim=1).argmin())
    length = int(mask[row].sum())
    assert length < ids.size(1)
    alone = embedder(ids[row : row + 1, :length], mask[row : row + 1, :length])
    assert torch.allclose(embedder(ids, mask)[row, :length], alone[0], atol=1e-6)


# -------------------------------------------------------------------------------------- settings


def test_architecture_without_weights(folder: str) -> None:
    """Archives build it: it has the same names and shapes, and other values."""
    loaded = made(folder)
    built = PretrainedTransformerEmbedderMLM(folder, load_weights=False)
    shapes = {name: tensor.shape for name, tensor in loaded.state_dict().items()}
    assert {name: tensor.shape for name, tensor in built.state_dict().items()} == shapes
    ids, mask = batch_of(folder)
    assert not torch.allclose(built.eval()(ids, mask), loaded.eval()(ids, mask), atol=1e-3)
    built.load_state_dict(loaded.state_dict())
    assert torch.equal(built(ids, mask), loaded(ids, mask))
    labels = masked_batch(folder)[2]
    output, expected = (e.masked_lm(labels, ids, mask).loss_sum for e in (built, loaded))
    assert torch.equal(output, expected)


@pytest.mark.parametrize("load_weights", [True, False])
def test_transformer_kwargs_reach_the_transformer(bert: str, load_weights: bool) -> None:
    options = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.25}
    embedder = made(bert, load_weights=load_weights, transformer_kwargs=options)
    rates = {m.p for m in embedder.encoder.modules() if isinstance(m, torch.nn.Dropout)}
    assert 0.0 in rates and rates <= {0.0, 0.25}
    assert embedder.config.attention_probs_dropout_prob == 0.25


def test_half_precision_checkpoints_load_in_float32(bert: str, tmp_path: Path) -> None:
    AutoModelForMaskedLM.from_pretrained(bert, dtype=torch.bfloat16).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(bert).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    for load_weights in (True, False):
        embedder = made(tmp_path, load_weights=load_weights)
        assert {p.dtype for p in embedder.parameters()} == {torch.float32}


@pytest.mark.parametrize("eval_mode", [True, False])
def test_eval_mode_keeps_dropout_off_and_parameters_may_be_frozen(
    bert: str, eval_mode: bool
) -> None:
    embedder = made(bert, eval_mode=eval_mode, train_parameters=False).train()
    assert embedder.training and embedder.transformer_model.training is not eval_mode
    first, second = (embedder(*batch_of(bert)) for _ in range(2))
    assert torch.equal(first, second) is eval_mode
    assert not any(parameter.requires_grad for parameter in embedder.parameters())
    assert not first.requires_grad


def set_mix(embedder: Any) -> Tensor:
    """Give both layers scalars of a mix, and return their shares."""
    weights = torch.tensor([0.3, -0.5])
    for scalar, value in zip(embedder._scalar_mix.scalar_parameters, weights, strict=True):
        scalar.data.fill_(value)
    return weights.softmax(0)


@pytest.mark.parametrize("unpadding", ["auto", "grouped", "none"])
def test_the_head_reads_the_last_layer_beside_a_mix(folder: str, unpadding: str) -> None:
    """As in the original package, embeddings are the mix, and the loss is that of the model."""
    ids, mask, labels = masked_batch(folder)
    embedder = made(folder, last_layer_only=False, unpadding=unpadding)
    set_mix(embedder)
    whole = reference(folder)
    expected = whole(input_ids=ids, attention_mask=mask.long(), labels=labels).loss
    output = embedder.masked_lm(labels, ids, mask)
    assert (output.loss_sum / output.num_masked).item() == pytest.approx(expected.item(), rel=1e-6)
    assert torch.allclose(output.embeddings[mask], embedder(ids, mask)[mask], atol=1e-6)
    output.loss_sum.backward()
    mixing = [p.grad for n, p in embedder.named_parameters() if n.startswith("_scalar_mix")]
    assert len(mixing) == 3 and not any(grad is not None and grad.any() for grad in mixing)
    table = embedder.transformer_model.get_input_embeddings().weight
    assert table.grad is not None and table.grad.any()


def test_a_head_of_release_1_5_that_was_trained_on_the_mix_reads_the_mix(
    bert: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights of release 1.5 have no buffer for this; once saved again, they have."""
    told: list[str] = []
    monkeypatch.setattr("declutr.modules.embedders.logger.warning", told.append)
    ids, mask, labels = masked_batch(bert)
    embedder = made(bert, last_layer_only=False)
    state = embedder.state_dict()
    assert state.pop("_head_reads_last_layer") and not embedder.head_reads_mix
    for _ in range(2):
        embedder = made(bert, last_layer_only=False)
        embedder.load_state_dict(state)
        state = embedder.state_dict()
        assert embedder.head_reads_mix and not state["_head_reads_last_layer"]
    embedder(ids, mask)
    assert not told  # embeddings are the mix in any case
    output = embedder.masked_lm(labels, ids, mask)
    expected = summed_loss(embedder, embedder(ids, mask), labels)
    assert output.loss_sum.item() == pytest.approx(expected.item(), rel=1e-6)
    output.loss_sum.backward()
    assert all(p.grad.any() for p in embedder._scalar_mix.scalar_parameters)
    embedder.masked_lm(labels, ids, mask)
    assert len(told) == 1 and "read the mix of layers. It goes on so." in told[0]
    embedder.load_state_dict(made(bert, last_layer_only=False).state_dict())
    assert not embedder.head_reads_mix


@pytest.mark.parametrize("with_head", [True, False])
def test_scalar_mix_of_all_layers(folder: str, with_head: bool) -> None:
    embedder = made(folder, last_layer_only=False, masked_language_modeling=with_head)
    ids, mask = batch_of(folder)
    whole = reference(folder, with_head=False)
    layers = whole(input_ids=ids, attention_mask=mask.long(), output_hidden_states=True)
    shares = set_mix(embedder)
    mixed = sum(s * layer for s, layer in zip(shares, layers.hidden_states[1:], strict=True))
    assert torch.allclose(embedder(ids, mask)[mask], mixed[mask], atol=1e-6)


def test_layers_of_bart_are_those_of_its_decoder(tmp_path: Path) -> None:
    place = build_bart(tmp_path, decoder_layers=2)
    options: dict[str, Any] = {"masked_language_modeling": False}
    whole = AutoModel.from_pretrained(place).eval()
    ids = torch.arange(5, 12)[None]
    mask = torch.ones_like(ids).bool()
    layers = whole(input_ids=ids, output_hidden_states=True).decoder_hidden_states
    two = PretrainedTransformerEmbedderMLM(str(place), layers="first-last", **options).eval()
    assert torch.allclose(two(ids, mask), (layers[1] + layers[-1]) / 2, atol=1e-6)
    mix = PretrainedTransformerEmbedderMLM(str(place), last_layer_only=False, **options).eval()
    assert torch.allclose(mix(ids, mask), sum(layers[1:]) / 2, atol=1e-6)


@pytest.mark.parametrize(
    "layers, unpadding", [*zip(LAYERS, ["auto", "grouped", "none"], strict=True)]
)
def test_the_mean_of_two_layers(folder: str, layers: str, unpadding: str) -> None:
    """Embeddings are the mean, and the head reads the last layer: the loss is that of the model."""
    ids, mask, labels = masked_batch(folder)
    embedder = made(folder, layers=layers, unpadding=unpadding)
    whole = reference(folder)
    output = whole(
        input_ids=ids, attention_mask=mask.long(), labels=labels, output_hidden_states=True
    )
    first, last = (output.hidden_states[number] for number in LAYERS[layers])
    found = embedder.masked_lm(labels, ids, mask)
    assert (found.loss_sum / found.num_masked).item() == pytest.approx(output.loss.item(), rel=1e-6)
    assert torch.allclose(found.embeddings[mask], ((first + last) / 2)[mask], atol=2e-6)
    assert torch.allclose(embedder(ids, mask)[mask], found.embeddings[mask], atol=1e-6)
    found.embeddings[mask].square().sum().backward()
    table = embedder.transformer_model.get_input_embeddings().weight
    assert table.grad is not None and table.grad.any()


@pytest.mark.parametrize("named", [{}, {"sub_module": "encoder"}])
def test_t5_embeds_with_its_encoder(tmp_path: Path, named: dict[str, str]) -> None:
    """Its decoder wants an input of its own."""
    folder = str(build_t5(tmp_path))
    embedder = bare(folder, **named)
    ids, mask = batch_of(folder)
    expected = reference(folder, with_head=False).encoder(ids, mask.long()).last_hidden_state
    assert torch.equal(embedder(ids, mask), expected)
    assert not any("decoder" in name for name, _ in embedder.named_parameters())


def test_sub_module_is_a_part_of_a_transformer_without_a_head(bert: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be combined with masked"):
        PretrainedTransformerEmbedderMLM(bert, sub_module="encoder")
    with pytest.raises(ConfigurationError, match="'decoder' is no part of BertModel"):
        bare(bert, sub_module="decoder")


def test_gradient_checkpointing_changes_no_gradient(
    bert: str, onednn_products: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick: list[int] = []
    linear = linear_products._linear
    monkeypatch.setattr(linear_products, "_linear", lambda *a: quick.append(1) or linear(*a))
    ids, mask, labels = masked_batch(bert)
    gradients, calls, counts = [], [], []
    for checkpointing in (False, True):
        options = {"gradient_checkpointing": checkpointing, "transformer_kwargs": NO_DROPOUT}
        embedder = made(bert, **options).train()
        embedder(ids, mask)  # tries packing
        modules = dict(embedder.encoder.named_modules())
        dense = next(module for name, module in modules.items() if name.endswith("mediate.dense"))
        dense.register_forward_hook(lambda *_: calls.append(1))
        loss = embedder.masked_lm(labels, ids, mask).loss_sum
        loss.backward(retain_graph=checkpointing)
        gradients.append([parameter.grad for parameter in embedder.parameters()])
        counts.append(len(quick))
    assert len(calls) == 1 + 2  # once, and then once more on the way back
    layers = embedder.config.num_hidden_layers
    # The same kernels on the way back, for six linear layers in each layer.
    assert counts[1] - counts[0] == counts[0] + 6 * layers
    for plain, recomputed in zip(*gradients, strict=True):
        assert torch.allclose(plain, recomputed, atol=1e-6)
    loss.backward()  # computes layers again a second time
    for plain, recomputed in zip(*gradients, strict=True):
        assert torch.allclose(2 * plain, recomputed, atol=2e-6)


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_gradient_checkpointing_drops_as_before_where_views_have_a_rate(
    bert: str, rate: float
) -> None:
    """The rates of SCD's two views are over when the backward pass computes layers again."""
    ids, mask = batch_of(bert)
    gradients = []
    for checkpointing in (False, True):
        embedder = bare(bert, gradient_checkpointing=checkpointing).train()
        torch.manual_seed(0)
        with dropout_rate(embedder, rate):
            vectors = embedder(ids, mask)
        vectors.square().sum().backward()
        gradients.append([parameter.grad for parameter in embedder.parameters()])
    for plain, recomputed in zip(*gradients, strict=True):
        assert torch.allclose(plain, recomputed, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradient_checkpointing_attends_as_before_where_bigbird_turns(dtype: torch.dtype) -> None:
    """Its layers attend fully after a short text, when those of a long one are recomputed."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 50}
    sparse = {"attention_type": "block_sparse", "block_size": 2, "num_random_blocks": 1}
    config = BigBirdConfig(**sizes, **sparse, **NO_DROPOUT, intermediate_size=16, sep_token_id=2)
    model = AutoModel.from_config(config, add_pooling_layer=False).train()
    mend(model)
    ids = torch.randint(3, 50, (1, 32))
    gradients = []
    for checkpointing in (False, True):
        if checkpointing:
            recompute_layers(model)
        model.zero_grad()
        with torch.autocast("cpu", dtype, enabled=dtype is torch.bfloat16):
            loss = sum(model(ids[:, :end])[0].square().sum() for end in (32, 5))
        loss.backward()
        found = [one.grad.clone() for one in model.parameters() if one.grad is not None]
        gradients.append(torch.cat([one.flatten() for one in found]))
    plain, recomputed = gradients
    assert (plain - recomputed).norm() < 1e-5 * plain.norm()


def test_compiled_equals_eager(bert: str) -> None:
    """Batches of other lengths need no further compilation."""
    options = {**NO_DROPOUT, "num_hidden_layers": 1}  # compiling takes time
    plain, compiled = (
        made(bert, compile=compile, transformer_kwargs=options).train()
        for compile in (False, {"backend": "eager", "fullgraph": True})
    )
    ids, mask = batch_of(bert)
    graphs = []
    for rows in (slice(None), slice(1, 3), slice(0, 1)):
        outputs = [embedder(ids[rows], mask[rows]) for embedder in (plain, compiled)]
        assert torch.allclose(*(output[mask[rows]] for output in outputs), atol=1e-6)
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    for output in outputs:
        output[mask[rows]].sin().sum().backward()
    for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        assert one.grad is None or torch.allclose(one.grad, other.grad, atol=1e-5)
    assert compiled._unpadded._packs
    assert graphs[0] > 0 and graphs[0] == graphs[-1]
    assert plain.state_dict().keys() == compiled.state_dict().keys()


def test_added_tokens_get_embeddings(bert: str) -> None:
    """In an archive, the table of input embeddings must have the size it had in training."""
    options = {"additional_special_tokens": ["<one>", "<two>"]}
    for load_weights in (True, False):
        embedder = made(bert, tokenizer_kwargs=options, load_weights=load_weights)
        size = len(embedder.tokenizer)
        assert size == len(AutoTokenizer.from_pretrained(bert)) + 2
        assert embedder.encoder.get_input_embeddings().num_embeddings == size
        ids = torch.tensor([[2, size - 1, size - 2, 3]])
        mask = torch.ones_like(ids, dtype=torch.bool)
        assert embedder.masked_lm(ids, ids, mask).loss_sum.isfinite()
        assert not embedder.maskable(ids, mask).any()


def test_a_tokenizer_without_a_mask_token_is_refused(bert: str, tmp_path: Path) -> None:
    AutoModelForMaskedLM.from_pretrained(bert).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(bert)
    tokenizer.mask_token = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ConfigurationError, match=r"has no mask token.*to false"):
        made(tmp_path)
    assert bare(tmp_path)


def test_a_part_that_is_no_transformer_by_itself_is_refused(tmp_path: Path) -> None:
    """It was an `AttributeError`."""
    folder = str(build_fsmt(tmp_path))
    told = r"cannot be trained: FSMTEncoder is a part of FSMTModel.* Use another one"
    with pytest.raises(ConfigurationError, match=told):
        PretrainedTransformerEmbedderMLM(folder, masked_language_modeling=False)


def test_a_transformer_without_vectors_of_tokens_is_refused(tmp_path: Path) -> None:
    """It was an `AttributeError`, in training and embedding."""
    folder = str(build_perceiver(tmp_path))
    told = r"'perceiver' gives no embeddings of tokens .* Use another one"
    with pytest.raises(ConfigurationError, match=told):
        PretrainedTransformerEmbedderMLM(folder, masked_language_modeling=False)
    with pytest.raises(EncoderError, match=told):
        Encoder(folder)


def test_training_reformer_is_refused_where_it_fails(tmp_path: Path) -> None:
    folder = str(build_reformer(tmp_path))
    embedder = PretrainedTransformerEmbedderMLM(folder, masked_language_modeling=False)
    batch = batch_of(folder)
    with pytest.raises(ConfigurationError, match=r"Reformer takes texts of certain lengths only"):
        embedder.train()(*batch)
    assert embedder.eval()(*batch).shape[-1] == 32


def test_a_transformer_without_a_table_of_tokens(tmp_path: Path) -> None:
    """It hashes characters; texts of three were an error as well."""
    folder = str(build_canine(tmp_path))
    embedder = PretrainedTransformerEmbedderMLM(folder, masked_language_modeling=False).eval()
    given = AutoTokenizer.from_pretrained(folder)([TEXTS[0], "a"], padding=True)
    ids, mask = (torch.tensor(given[name]) for name in ("input_ids", "attention_mask"))
    found = embedder(ids, mask.bool(), torch.zeros_like(ids))
    plain = AutoModel.from_pretrained(folder).eval()
    assert torch.allclose(found[:1], plain(ids[:1]).last_hidden_state, atol=1e-6)
    assert torch.allclose(found[1, :3], plain(ids[1:, :4], mask[1:, :4])[0][0, :3], atol=1e-6)


def test_a_transformer_without_a_language_modelling_head_is_refused(tmp_path: Path) -> None:
    folder = str(build_gpt2(tmp_path))
    with pytest.raises(ConfigurationError, match=r"\(gpt2\) has no masked language modelling head"):
        PretrainedTransformerEmbedderMLM(folder)
    embedder = bare(folder)
    assert embedder(*batch_of(folder)).shape[-1] == 16


# --------------------------------------------------------------------- a drop-in for AllenNLP's


def text_fields(folder: str, texts: list[str], max_length: int | None = None) -> list[TextField]:
    tokenizer = PretrainedTransformerTokenizer(folder)
    indexer = PretrainedTransformerIndexer(folder, max_length=max_length)
    return [TextField(tokenizer.tokenize(text), {"tokens": indexer}) for text in texts]


def text_field_batch(folder: str, texts: list[str], max_length: int | None) -> dict[str, Tensor]:
    """Return the tensors that AllenNLP's tokenizer and indexer make of texts."""
    batch = Batch([Instance({"text": field}) for field in text_fields(folder, texts, max_length)])
    batch.index_instances(Vocabulary())
    return batch.as_tensor_dict()["text"]["tokens"]


@pytest.mark.parametrize("max_length", [None, 7, 10, 60])
@pytest.mark.parametrize("last_layer_only", [True, False])
def test_equals_allennlps_embedder(folder: str, max_length: int, last_layer_only: bool) -> None:
    options = {"max_length": max_length, "last_layer_only": last_layer_only}
    ours, theirs = bare(folder, **options), PretrainedTransformerEmbedder(folder, **options).eval()
    for texts in (TEXTS, [TEXTS[0], "the"], ["the"]):
        tensors = text_field_batch(folder, texts, max_length)
        expected, vectors = theirs(**tensors), ours(**tensors)
        assert vectors.shape == expected.shape
        kept = tensors["mask"].unsqueeze(-1)
        assert torch.allclose(vectors * kept, expected * kept, atol=1e-6)


def test_settings_that_do_not_go_together_are_refused(bert: str) -> None:
    with pytest.raises(ConfigurationError, match="max_length 8: folded inputs cannot be masked"):
        made(bert, max_length=8).masked_lm(*masked_batch(bert)[::-1])
    with pytest.raises(ConfigurationError, match="do not go together: remove one of them"):
        made(bert, compile=True, gradient_checkpointing=True)
    with pytest.raises(ConfigurationError, match=r"Got layers 'middle' .* Expected one of first-l"):
        made(bert, layers="middle")
    with pytest.raises(ConfigurationError, match=r"'first-last' and last_layer_only False\. "):
        made(bert, layers="first-last", last_layer_only=False)


def test_mlm_takes_a_single_embedder_of_its_own_type(bert: str) -> None:
    right = made(bert)
    other = Embedding(num_embeddings=4, embedding_dim=4)
    plain = PretrainedTransformerEmbedder(bert)
    for embedders in ({}, {"tokens": other}, {"tokens": plain}, {"a": right, "b": other}):
        with pytest.raises(ConfigurationError, match=r'holds exactly one token embedder.*"basic"'):
            MLMTextFieldEmbedder(embedders)


def test_mlm_embedder_from_parameters(bert: str) -> None:
    words = {"type": "pretrained_transformer_mlm", "model_name": bert}
    config = {"type": "mlm", "token_embedders": {"words": words}}
    embedder = TextFieldEmbedder.from_params(Params(config))
    assert isinstance(embedder, MLMTextFieldEmbedder) and embedder.masked_language_modeling
    assert isinstance(embedder.token_embedder, PretrainedTransformerEmbedderMLM)
    embedder.eval()
    ids, mask, labels = masked_batch(bert)
    tensors = {"words": {"token_ids": ids, "mask": mask, "type_ids": torch.zeros_like(ids)}}
    inner = embedder.token_embedder
    assert torch.equal(embedder(tensors), inner(ids, mask))
    losses = embedder.masked_lm(tensors, labels), inner.masked_lm(labels, ids, mask)
    assert torch.equal(*(each.loss_sum for each in losses))


def test_the_head_can_be_left_out_of_training(folder: str) -> None:
    embedder = MLMTextFieldEmbedder({"tokens": PretrainedTransformerEmbedderMLM(folder)})
    assert all(parameter.requires_grad for parameter in embedder.parameters())
    embedder.freeze_head()
    ids, mask = batch_of(folder)
    embedder({"tokens": {"token_ids": ids, "mask": mask}}).pow(2).mean().backward()
    trained = [p for p in embedder.parameters() if p.requires_grad]
    assert all(parameter.grad is not None for parameter in trained)
    assert {id(p) for p in trained} == {id(p) for p in embedder.token_embedder.encoder.parameters()}


def test_type_ids_reach_transformers_that_have_them(bert: str) -> None:
    embedder = made(bert)
    ids, mask = batch_of(bert)
    zeros, ones = torch.zeros_like(ids), torch.ones_like(ids)
    assert torch.equal(embedder(ids, mask), embedder(ids, mask, zeros))
    assert not torch.allclose(embedder(ids, mask), embedder(ids, mask, ones), atol=1e-3)


def test_other_models_of_allennlp_can_use_the_embedder(folder: str) -> None:
    """A `basic_classifier` trains with it as with any other embedder."""
    vocab = Vocabulary(non_padded_namespaces=["labels"])
    fields = zip(text_fields(folder, TEXTS), map(LabelField, "ab" * len(TEXTS)), strict=False)
    instances = [Instance({"tokens": text, "label": label}) for text, label in fields]
    vocab.extend_from_instances(instances)
    batch = Batch(instances)
    batch.index_instances(vocab)
    pretrained = {"type": "pretrained_transformer_mlm", "model_name": folder, "eval_mode": True}
    config = {
        "type": "basic_classifier",
        "text_field_embedder": {"token_embedders": {"tokens": pretrained}},
        "seq2vec_encoder": {"type": "cls_pooler", "embedding_dim": 16},
    }
    torch.manual_seed(0)
    model = Model.from_params(Params(config), vocab=vocab)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    values = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = model(**batch.as_tensor_dict())["loss"]
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    assert math.isfinite(values[-1]) and values[-1] < 0.8 * values[0]


# -------------------------------------------------------------------------------- untrusted code


@pytest.fixture
def with_code(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a pretrained transformer with code of its own, which writes a file when it runs."""
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asked"))
    modules = str(tmp_path / "modules")
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", modules)
    shutil.copytree(checkpoint, tmp_path / "model")
    with_remote_code(tmp_path / "marker")(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("load_weights", [True, False])
def test_untrusted_code_runs_only_if_a_recipe_says_so(with_code: Path, load_weights: bool) -> None:
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        bare(with_code, load_weights=load_weights)
    assert not (with_code.parent / "marker").exists()
    trusting = {"trust_remote_code": True}
    embedder = bare(with_code, transformer_kwargs=trusting, load_weights=load_weights)
    assert type(embedder.transformer_model).__module__.startswith("transformers_modules")
    assert (with_code.parent / "marker").exists()
