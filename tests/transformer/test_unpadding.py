"""Compare packed and grouped passes with the padded pass of transformers."""

import inspect
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from declutr.transformer.packing import (
    CannotPack,
    KnownWhole,
    Packing,
    padding_not_looked_for,
    text_lengths,
)
from declutr.transformer.unpadding import UNPADDING, Texts, UnpaddedPass
from tests.families import FAMILIES, FNET_TAKES_A_MASK, MAX_LENGTH, build, build_gpt2

# The families that can be packed. All others are grouped.
PACKS = {"bert", "roberta", "albert", "xlm-roberta"}
if int(transformers.__version__.split(".")[0]) >= 5:
    # In earlier releases DistilBERT took no positions, and ELECTRA had eager attention only.
    PACKS |= {"distilbert", "electra"}


class Encoder:
    """A transformer of one family, called as by an embedder."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32, **options)
        self.model.pooler = None
        self.config = self.model.config
        self.first = self.config.pad_token_id + 1 if "roberta" in self.config.model_type else 0
        self.shapes: list[tuple[int, ...]] = []  # of all batches of token ids

    def run(self, **inputs: Tensor) -> Tensor:
        self.shapes.append(tuple(inputs["input_ids"].shape))
        return self.model(**inputs, return_dict=True).last_hidden_state

    def unpadded(self, unpadding: str, tried: bool = False) -> UnpaddedPass:
        """Return a pass; `tried` says that padding is known to be hidden from tokens."""
        padding = self.config.pad_token_id
        unpadded = UnpaddedPass(unpadding, padding_id=padding, first_position=self.first)
        unpadded._padding_shows = False if tried else None
        return unpadded

    def embed(self, unpadding: str, ids: Tensor, mask: Tensor, *given: Any) -> Tensor:
        return self.unpadded(unpadding)(self.model, self.run, ids, mask, *given)

    def padded(self, ids: Tensor, mask: Tensor, **inputs: Tensor) -> Tensor:
        """Return what transformers computes in evaluation mode."""
        self.model.eval()
        return self.model(input_ids=ids, attention_mask=mask.long(), **inputs).last_hidden_state

    def batch(self, lengths: list[int], width: int | None = None) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(3)
        shape = (len(lengths), width or max(lengths))
        ids = torch.randint(5, self.config.vocab_size, shape, generator=generator)
        mask = torch.arange(shape[1]) < torch.tensor(lengths)[:, None]
        return ids.masked_fill(~mask, self.config.pad_token_id), mask


@pytest.fixture(scope="module", params=list(FAMILIES))
def encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    family = request.param
    return Encoder(build(family, tmp_path_factory.mktemp(family)))


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return Encoder(build("bert", tmp_path_factory.mktemp("bert")))


@pytest.mark.parametrize("unpadding", ["auto", "grouped"])
@pytest.mark.parametrize("lengths", [[5, 60, 33, 5, 2, 60, 17], [9], [4, 4, 4]], ids=len)
def test_equals_the_padded_pass(encoder: Encoder, unpadding: str, lengths: list[int]) -> None:
    """Compare token embeddings and all gradients in evaluation mode, as dropout would differ."""
    ids, mask = encoder.batch(lengths, width=62)
    encoder.model.eval()
    weights = torch.randn(*ids.shape, 16) * mask[..., None]
    outputs, gradients = [], []
    for way in ("none", unpadding):
        encoder.model.zero_grad()
        vectors = encoder.embed(way, ids, mask)
        (vectors * weights).sum().backward()
        outputs.append(vectors[mask])
        gradients.append([p.grad.clone() for p in encoder.model.parameters() if p.grad is not None])
    expected = encoder.padded(ids, mask)[mask]
    assert torch.allclose(outputs[0], expected, atol=1e-6)
    assert torch.allclose(outputs[1], expected, atol=1e-5)
    for padded, packed in zip(*gradients, strict=True):
        assert (packed - padded).norm() <= 1e-5 * padded.norm() + 1e-6


def test_only_some_families_are_packed(encoder: Encoder, caplog: pytest.LogCaptureFixture) -> None:
    """They get one row of all tokens and no mask; for others it is logged once."""
    unpadded = encoder.unpadded("auto")
    ids, mask = encoder.batch([7, 30, 12])
    with caplog.at_level(logging.INFO, logger="declutr"):
        for _ in range(2):
            encoder.shapes.clear()
            unpadded(encoder.model, encoder.run, ids, mask)
    told = [record for record in caplog.records if "is not packed" in record.message]
    if encoder.config.model_type in PACKS:
        assert encoder.shapes == [(1, 49)] and not told
    else:
        assert encoder.shapes == [(3, 30)] and len(told) == 1


@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.integers(0, MAX_LENGTH), min_size=1, max_size=6).filter(any))
def test_texts_may_have_any_length(bert: Encoder, lengths: list[int]) -> None:
    """Texts without tokens are included, as fields of lists are padded with them."""
    ids, mask = bert.batch(lengths, width=MAX_LENGTH)
    bert.model.eval()
    with torch.no_grad():
        padded, packed, grouped = (
            bert.embed(way, ids, mask)[mask] for way in ("none", "packed", "grouped")
        )
    assert torch.allclose(padded, packed, atol=1e-5)
    assert torch.allclose(padded, grouped, atol=1e-5)


@pytest.mark.parametrize("way", ["auto", "grouped", "none"])
def test_a_text_may_have_the_padding_token(encoder: Encoder, way: str) -> None:
    """RoBERTa gives it a position of its own, and does not count it."""
    ids, mask = encoder.batch([20, 9, 33])
    ids[0, 3] = ids[0, 4] = ids[1, 0] = ids[2, 32] = encoder.config.pad_token_id
    found = encoder.embed(way, ids, mask)
    for row, text, inside in zip(found, ids, mask, strict=True):
        alone = encoder.padded(text[inside][None], inside[inside][None])[0]
        assert torch.allclose(row[inside], alone, atol=1e-5)


def test_groups_are_of_similar_length(bert: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("declutr.transformer.unpadding._GROUP_TOKENS", {"cpu": 40})
    bert.shapes.clear()
    unpadded = bert.unpadded("grouped", tried=True)
    unpadded(bert.model, bert.run, *bert.batch([5, 30, 10, 50, 12, 4]))
    assert bert.shapes == [(1, 50), (1, 30), (3, 12), (1, 4)]


_FNET = pytest.param("FNet", marks=FNET_TAKES_A_MASK)


@pytest.mark.parametrize("kind", ["ConvBert", _FNET, "MobileBert", "Nystromformer", "Yoso"])
def test_padding_reaches_no_token(
    kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each text gets what transformers gives for it alone, in training as well.

    Convolutions, Fourier transforms and neighbouring words see padding, whatever the mask says.
    """
    small = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "embedding_size": 16}
    small |= {"num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 40}
    small |= {"pad_token_id": 0, "intra_bottleneck_size": 16}
    config = getattr(transformers, f"{kind}Config")(**small)
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(config).eval()
    with torch.no_grad():  # attention of the first initialization would be nearly even
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)

    def run(**inputs: Tensor) -> Tensor:
        return model(**inputs, return_dict=True).last_hidden_state

    ids = torch.randint(5, 40, (4, 20))
    mask = torch.arange(20) < torch.tensor([20, 7, 12, 7])[:, None]
    alone = zip(ids, mask, strict=True)
    expected = torch.cat([model(row[inside][None]).last_hidden_state[0] for row, inside in alone])
    for way in ("auto", "grouped", "none"):
        unpadded = UnpaddedPass(way)
        with caplog.at_level(logging.INFO, logger="declutr"):
            found = unpadded(model, run, ids, mask)[mask]
        assert torch.allclose(found, expected, atol=1e-5)
    assert f"Padding changes what {type(model).__name__} gives" in caplog.text
    padded = model(ids.where(mask, 0), attention_mask=mask.long()).last_hidden_state[mask]
    assert (padded - expected).abs().max() > 1e-3 * expected.abs().max()
    # A model that is sharded over processes must run the same number of passes in all of them.
    monkeypatch.setattr("declutr.transformer.unpadding.is_sharded", lambda module: True)
    for way in ("auto", "none"):
        caplog.clear()
        unpadded = UnpaddedPass(way)
        for _ in range(2):
            assert torch.allclose(unpadded(model, run, ids, mask)[mask], padded, atol=1e-6)
        (warning,) = (each for each in caplog.records if each.levelname == "WARNING")
        assert "sharded over processes, it embeds each text by the length" in warning.message


def test_processes_of_a_sharded_model_run_equally_many_passes(
    bert: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where one of them has a batch that cannot be packed after others have packed theirs."""
    monkeypatch.setattr("declutr.transformer.unpadding.is_sharded", lambda module: True)
    ids, mask = bert.batch([5, 3])
    with_holes = mask.clone()
    with_holes[0, 1] = False
    passes = []
    for second in (mask, with_holes):
        unpadded, before = bert.unpadded("auto"), len(bert.shapes)
        unpadded(bert.model, bert.run, ids, mask)
        unpadded(bert.model, bert.run, ids, second)
        passes.append(len(bert.shapes) - before)
    assert passes[0] == passes[1]


def test_trying_padding_changes_no_state_and_raises_nothing(bert: Encoder) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()

    def drawing(**inputs: Tensor) -> Tensor:
        return bert.run(**inputs) + torch.rand(1)

    def failing(**inputs: Tensor) -> Tensor:
        raise RuntimeError("a text must have 64 tokens")

    cpu = torch.device("cpu")
    bert.model.train()
    assert bert.unpadded("grouped")._try_padding(bert.model, drawing, cpu)
    # The texts at hand may be right for it: those of equal length go together.
    assert bert.unpadded("grouped")._try_padding(bert.model, failing, cpu)
    assert bert.model.training and torch.equal(torch.get_rng_state(), before)


def test_a_transformer_that_cannot_be_tried_gets_no_padding() -> None:
    """As a model that does not say where its vectors of tokens are."""
    torch.manual_seed(0)
    vectors, convolution = torch.nn.Embedding(9, 4), torch.nn.Conv1d(4, 4, 5, padding=2)
    model = torch.nn.ModuleList([vectors, convolution])

    def run(input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return convolution(vectors(input_ids).transpose(1, 2)).transpose(1, 2)

    ids, mask = torch.randint(9, (3, 7)), torch.arange(7) < torch.tensor([7, 2, 4])[:, None]
    for way in ("auto", "none"):
        found = UnpaddedPass(way)(model, run, ids, mask)
        for row, text, inside in zip(found, ids, mask, strict=True):
            alone = run(text[inside][None], inside[None])[0]
            assert torch.allclose(row[inside], alone, atol=1e-6)
    assert torch._dynamo.eval_frame._stance.stance == "default"  # or nothing would be compiled


@pytest.mark.parametrize("way", ["auto", "grouped", "packed"])
def test_padding_elsewhere_than_at_the_end_is_left_alone(bert: Encoder, way: str) -> None:
    ids, mask = bert.batch([6, 6])
    mask[0, 0] = mask[1, 2] = False
    expected = bert.padded(ids.masked_fill(~mask, 0), mask)
    assert torch.allclose(bert.embed(way, ids, mask)[mask], expected[mask], atol=1e-6)


@pytest.mark.parametrize("way", ["auto", "grouped", "none"])
def test_masked_tokens_inside_a_text_move_no_other_token(encoder: Encoder, way: str) -> None:
    """Compare with a pass of transformers that gets the mask and all positions."""
    ids, mask = encoder.batch([20, 9, 33, 20], width=40)
    mask[0, [4, 5, 11]] = mask[1, 1] = mask[2, 10:31] = False
    positions = {"position_ids": encoder.first + torch.arange(40).expand(4, 40)}
    if "position_ids" not in inspect.signature(encoder.model.forward).parameters:
        positions = {}  # it counts columns
    expected = encoder.padded(ids, mask, **positions)[mask]
    junk = ids.masked_fill(torch.arange(40) >= torch.tensor([20, 9, 33, 20])[:, None], 7)
    assert torch.allclose(encoder.embed(way, junk, mask)[mask], expected, atol=1e-5)


def test_masked_tokens_are_not_in_a_packed_row(encoder: Encoder) -> None:
    """Compare what a GPU computes with the padded pass; other tokens keep their positions."""
    ids, mask = encoder.batch([20, 9, 33, 20], width=40)
    mask[0, [4, 5, 11]] = mask[1, 1] = mask[2, 10:31] = mask[3, -1] = False
    if encoder.config.model_type not in PACKS:
        pytest.skip("it is not packed")
    encoder.model.eval()
    unpadded = encoder.unpadded("packed")
    packing = Packing(text_lengths(mask), 40, ids.device, mask)
    packed = unpadded._packed(encoder.model, encoder.run, packing, Texts(ids, mask))
    padded = encoder.embed("none", ids, mask)
    assert torch.allclose(packed[mask], padded[mask], atol=1e-5)
    assert not packed[~mask].any()


@pytest.mark.parametrize("way", ["auto", "none"])
def test_padding_before_a_text_is_not_counted(encoder: Encoder, way: str) -> None:
    """In transformers, RoBERTa counts from the first token, and BERT from the first column."""
    ids, mask = encoder.batch([6, 6])
    mask[:, :2] = False
    expected = encoder.padded(ids.masked_fill(~mask, encoder.config.pad_token_id), mask)[mask]
    assert torch.allclose(encoder.embed(way, ids, mask)[mask], expected, atol=1e-6)


def test_texts_with_masked_tokens_are_grouped_on_a_cpu(
    bert: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are grouped by their ends, not their numbers of tokens; empty texts are left out."""
    monkeypatch.setattr("declutr.transformer.unpadding._GROUP_TOKENS", {"cpu": 40})
    ids, mask = bert.batch([5, 30, 10, 9])
    mask[1, 2:28] = mask[3] = False
    bert.shapes.clear()
    unpadded = bert.unpadded("auto", tried=True)
    assert unpadded(bert.model, bert.run, ids, mask).shape[:2] == (4, 30)
    assert bert.shapes == [(1, 30), (2, 10)]


@pytest.mark.parametrize("way", UNPADDING)
@pytest.mark.parametrize("hole", [False, True])
def test_features_of_texts_are_passed_with_their_tokens(
    bert: Encoder, way: str, hole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("declutr.transformer.unpadding._GROUP_TOKENS", {"cpu": 40})
    ids, mask = bert.batch([5, 30, 0, 10, 30])
    mask[1, 3] = not hole
    of_texts = torch.arange(10.0).view(5, 2)

    def run(of_texts: Tensor, **inputs: Tensor) -> Tensor:
        said = of_texts.expand(*inputs["input_ids"].shape, 2)
        return torch.cat([bert.run(**inputs), said], dim=-1)

    unpadded = bert.unpadded(way)
    unpadded._packs = way in ("auto", "packed")
    vectors = unpadded(bert.model, run, ids, mask, of_texts=of_texts)
    assert torch.equal(vectors[..., -2:][mask], of_texts[:, None].expand(5, 30, 2)[mask])


def test_segments_are_passed_with_their_tokens(bert: Encoder) -> None:
    ids, mask = bert.batch([6, 9, 4])
    types = (torch.arange(9) > 3).long().expand(3, 9)
    bert.model.eval()
    one, other, without = (
        bert.embed(way, ids, mask, given)[mask]
        for way, given in (("none", types), ("packed", types), ("packed", None))
    )
    assert torch.allclose(one, other, atol=1e-5)
    assert not torch.allclose(one, without, atol=1e-2)


def test_trying_to_pack_changes_no_state(bert: Encoder) -> None:
    """Modes of modules, random states and gradients are unchanged."""
    bert.model.train()
    bert.model.embeddings.eval()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    unpadded = bert.unpadded("auto")
    assert unpadded._try_packing(bert.model, bert.run, torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), before)
    assert bert.model.training and bert.model.encoder.training
    assert not bert.model.embeddings.training


def test_threads_try_one_after_another(bert: Encoder) -> None:
    """Each turns off compilation meanwhile, and ends with what was there when it began."""
    bert.model.eval()
    shared = bert.unpadded("auto")
    ids, mask = bert.batch([3, 8])
    began, found = threading.Event(), list[Tensor]()

    def run(**inputs: Tensor) -> Tensor:
        began.set()
        time.sleep(0.02)
        return bert.run(**inputs)

    def start(unpadded: UnpaddedPass) -> threading.Thread:
        def embed() -> None:
            found.append(unpadded(bert.model, run, ids, mask)[mask])

        thread = threading.Thread(target=embed, daemon=True)  # one that waits for ever may
        thread.start()
        return thread

    bert.shapes.clear()
    threads = [start(shared)]
    assert began.wait(timeout=60)
    threads += [start(each) for each in (shared, shared, bert.unpadded("none"))]
    for thread in threads:
        thread.join(timeout=60)
    assert len(found) == 4
    assert torch._dynamo.eval_frame._stance.stance == "default"
    # One was tried packed, the other with padding: two passes each. All four were computed.
    assert len(bert.shapes) == 2 + 2 + 4
    for each in found[1:]:
        assert torch.allclose(each, found[0], atol=1e-5)


def test_more_tokens_are_tried_than_a_text_may_have(bert: Encoder) -> None:
    """An error that occurs only beyond the last position of a single text is found."""
    limit = bert.config.max_position_embeddings

    def run(**inputs: Tensor) -> Tensor:
        vectors = bert.run(**inputs)
        return torch.cat([vectors[:, :limit], vectors[:, limit:] + 1], dim=1)

    with pytest.raises(CannotPack, match="packed and padded texts differ"):
        bert.unpadded("packed")(bert.model, run, *bert.batch([3, 8]))


def test_causal_transformers_are_not_packed(tmp_path: Path) -> None:
    encoder = Encoder(build_gpt2(tmp_path))
    encoder.config.pad_token_id = 0
    ids, mask = encoder.batch([3, 8])
    encoder.model.eval()
    with pytest.raises(CannotPack, match="Set unpadding to 'grouped'"):
        encoder.embed("packed", ids, mask)
    expected = encoder.padded(ids, mask)[mask]
    assert torch.allclose(encoder.embed("auto", ids, mask)[mask], expected, atol=1e-5)


def test_eager_attention_is_not_packed(tmp_path: Path) -> None:
    encoder = Encoder(build("bert", tmp_path), attn_implementation="eager")
    with pytest.raises(CannotPack, match="not torch's scaled_dot_product_attention"):
        encoder.embed("packed", *encoder.batch([3, 8]))


@pytest.mark.parametrize("whole", [False, True])
def test_whether_a_mask_is_true_throughout_is_known_on_the_host(whole: bool) -> None:
    mask = torch.ones(2, 3, dtype=torch.bool, device="meta")  # nothing can be read from it
    with KnownWhole(mask.shape, whole):
        assert bool(mask.all()) is bool(torch.all(mask == 1)) is whole
        assert torch.ones(2, 2, dtype=torch.bool).all()
        assert mask.all(dim=1).shape == (2,)


def test_transformers_does_not_look_for_padding() -> None:
    class Model(torch.nn.Module):
        def warn_if_padding_and_no_attention_mask(self, *args: Any) -> str:
            return "looked"

    model = Model()
    with padding_not_looked_for(model):
        assert model.warn_if_padding_and_no_attention_mask(None, None) is None
    assert model.warn_if_padding_and_no_attention_mask(None, None) == "looked"
    with padding_not_looked_for(torch.nn.Linear(1, 1)) as nothing:
        assert nothing is None


def test_an_unknown_unpadding_is_refused() -> None:
    with pytest.raises(ValueError, match=f"expected one of {', '.join(UNPADDING)}"):
        UnpaddedPass("squeezed")
