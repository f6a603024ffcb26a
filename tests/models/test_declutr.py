"""The model, on batches of the real reader and loader, against naive computations of every part."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.data.token_indexers import (
    PretrainedTransformerIndexer,
    SingleIdTokenIndexer,
    TokenCharactersIndexer,
)
from allennlp.data.tokenizers import PretrainedTransformerTokenizer
from allennlp.models import Model
from allennlp.models.archival import load_archive
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import AutoModelForMaskedLM, AutoTokenizer

from declutr.data.data_loader import DeCLUTRDataLoader
from declutr.data.span_reader import DeCLUTRDatasetReader
from declutr.models.declutr import DeCLUTR, NonFiniteLoss
from declutr.models.metrics import RunningMeans, UnreadLosses
from declutr.models.training_step import require_word_pieces
from declutr.modules.text_batches import flat
from declutr.objectives import NTXent, alignment, uniformity
from declutr.sampling.masking import IGNORE, mask_tokens
from declutr.system.host_memory import on_host, to_device
from tests.conftest import run_config
from tests.reference_kernels import as_on_a_gpu

GOLDEN = json.loads((Path(__file__).parents[1] / "fixtures" / "golden_objectives.json").read_text())
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
NT_XENT = {"type": "nt_xent", "temperature": 0.1}


def make_reader(folder: Path, **changes: Any) -> DeCLUTRDatasetReader:
    options: dict[str, Any] = {
        "tokenizer": PretrainedTransformerTokenizer(str(folder)),
        "token_indexers": {"tokens": PretrainedTransformerIndexer(str(folder))},
        **{"num_anchors": 2, "num_positives": 2, "max_span_len": 24, "min_span_len": 8},
    }
    return DeCLUTRDatasetReader(**{**options, **changes})


def batches_of(
    reader: DeCLUTRDatasetReader, corpus: Path, count: int = 1, vocab: Vocabulary | None = None
) -> list[dict]:
    loader = DeCLUTRDataLoader(reader, str(corpus), batch_size=4, shuffle=True, quiet=True)
    loader.index_with(vocab or Vocabulary())
    return [batch for _, batch in zip(range(count), loader, strict=False)]


@pytest.fixture(scope="module")
def batches(checkpoint: Path, corpus_file: Path) -> list[dict]:
    """Three batches of 4 documents, 2 anchors of 2 positives each."""
    return batches_of(make_reader(checkpoint), corpus_file, 3)


@pytest.fixture
def batch(batches: list[dict]) -> dict:
    return batches[0]


@pytest.fixture
def make_model(checkpoint: Path) -> Callable[..., DeCLUTR]:
    """Return a function that builds a model, by default with MLM and NT-Xent, without dropout."""

    def make(mlm: bool = True, embedder: dict[str, Any] | None = None, **changes: Any) -> DeCLUTR:
        transformer = {
            "type": "pretrained_transformer_mlm",
            "model_name": str(checkpoint),
            "masked_language_modeling": mlm,
            "transformer_kwargs": dict(NO_DROPOUT),
            **(embedder or {}),
        }
        config = {  # through JSON, below: Params empty what they are given
            "type": "declutr",
            "text_field_embedder": {"type": "mlm", "token_embedders": {"tokens": transformer}},
            "loss": dict(NT_XENT),
            **changes,
        }
        torch.manual_seed(0)
        model = Model.from_params(Params(json.loads(json.dumps(config))), vocab=Vocabulary())
        assert isinstance(model, DeCLUTR)
        return model

    return make


def stepped(model: DeCLUTR, batch: dict, seed: int = 0) -> tuple[float, dict[str, Tensor]]:
    """Return the loss and all gradients of a batch whose masks are drawn with a seed."""
    model.zero_grad()
    torch.manual_seed(seed)
    loss = model(**batch)["loss"]
    loss.backward()
    grads = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return loss.item(), grads


def assert_same_step(found: tuple, expected: tuple, tolerance: float = 1e-5) -> None:
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    assert found[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        # Key biases have no gradient but rounding: a constant added to all scores changes nothing.
        assert (found[1][name] - gradient).norm() <= tolerance * gradient.norm() + 1e-6, name


def fitted(model: DeCLUTR, batch: dict, steps: int, lr: float = 3e-3) -> list[float]:
    """Train on a batch, and return the loss of each step."""
    optimizer, losses = torch.optim.Adam(model.train().parameters(), lr=lr), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(**batch)["loss"]
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def without_gradient(model: DeCLUTR) -> list[str]:
    return [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]


def token_embedder(model: DeCLUTR) -> Any:
    return model._text_field_embedder.token_embedder


def feedforward(input_dim: int = 32) -> dict[str, Any]:
    options = {"num_layers": 1, "hidden_dims": 6, "activations": "tanh"}
    return {"input_dim": input_dim, **options}


def rows_of(texts: dict) -> dict[str, Tensor]:
    """Return spans of documents `(B, S, L)` as texts `(B * S, L)`."""
    return {key: tensor.flatten(0, 1) for key, tensor in texts["tokens"].items()}


def pooled(vectors: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of the token embeddings of each text, one text at a time."""
    return torch.stack([v[m].mean(dim=0) for v, m in zip(vectors, mask, strict=True)])


class Naive:
    """The joint objective computed with the whole Hugging Face model, for a known global seed."""

    def __init__(self, folder: Path) -> None:
        self.model = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)

    def hidden(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.model.base_model(ids, attention_mask=mask.long()).last_hidden_state

    def embed(self, texts: dict, ids: Tensor | None = None) -> Tensor:
        rows = rows_of(texts)
        ids = rows["token_ids"] if ids is None else ids
        return pooled(self.hidden(ids, rows["mask"]), rows["mask"])

    def masked(self, anchors: dict, probability: float = 0.15, **options: Any) -> tuple:
        rows = rows_of(anchors)
        ids, specials = rows["token_ids"].tolist(), self.tokenizer.all_special_ids
        special = torch.tensor([[token in specials for token in row] for row in ids])
        return mask_tokens(
            rows["token_ids"],
            rows["mask"] & ~special,
            mask_id=self.tokenizer.mask_token_id,
            vocab_size=len(self.tokenizer),
            probability=probability,
            **options,
        )

    def predictions(self, ids: Tensor, labels: Tensor, anchors: dict) -> tuple[Tensor, Tensor]:
        mask = rows_of(anchors)["mask"]
        logits = self.model(ids, attention_mask=mask.long()).logits
        chosen = labels != IGNORE
        return logits[chosen], labels[chosen]


@pytest.fixture(scope="module")
def naive(checkpoint: Path) -> Naive:
    return Naive(checkpoint)


def positives_of(naive: Naive, batch: dict, positives_an_anchor: int = 2) -> Tensor:
    """Return the mean embedding of the positives of each anchor, one anchor at a time."""
    raw = naive.embed(batch["positives"])
    return torch.stack([group.mean(dim=0) for group in raw.split(positives_an_anchor)])


# -------------------------------------------------------------------- the terms, and their sum


def test_the_loss_of_mlm_alone(make_model: Callable, batch: dict, naive: Naive) -> None:
    model = make_model(loss=None).train()
    torch.manual_seed(1)
    ids, labels = naive.masked(batch["anchors"])
    logits, targets = naive.predictions(ids, labels, batch["anchors"])
    torch.manual_seed(1)
    output = model(**batch)
    assert set(output) == {"loss"} and output["loss"].shape == ()
    assert output["loss"].item() == pytest.approx(cross_entropy(logits, targets).item(), abs=1e-5)
    assert set(model.get_metrics()) == {"mlm_loss", "mlm_accuracy"}
    torch.manual_seed(1)  # MLM alone needs no positives.
    assert torch.equal(model(anchors=batch["anchors"])["loss"], output["loss"])


@pytest.mark.parametrize("head_is_loaded", [True, False])
def test_the_loss_of_the_objective_alone(
    make_model: Callable, batch: dict, naive: Naive, head_is_loaded: bool
) -> None:
    model = make_model(mlm=head_is_loaded, mlm_weight=0.0 if head_is_loaded else 1.0).train()
    before = torch.get_rng_state()
    loss = model(**batch)["loss"]
    assert torch.equal(torch.get_rng_state(), before)  # nothing was masked
    expected = NTXent(0.1)(naive.embed(batch["anchors"]), positives_of(naive, batch))
    assert loss.item() == pytest.approx(expected.item(), abs=1e-5)
    assert "mlm_loss" not in model.get_metrics()
    loss.backward()
    assert without_gradient(model) == []


@pytest.mark.parametrize(("several", "finds"), [(True, False), (True, True), (False, False)])
def test_what_projects_for_a_term_without_weight_is_not_trained_by_several_processes(
    make_model: Callable, batch: dict, monkeypatch: pytest.MonkeyPatch, several: bool, finds: bool
) -> None:
    """A parameter without a gradient stops them, unless they look for such ones.

    Else it counts for the optimizer, as in runs that are resumed.
    """
    monkeypatch.setattr("declutr.models.declutr.is_distributed", lambda: several)
    changes = {"feedforward": feedforward(32), "loss": {"type": "nce", "learn_bias": True}}
    if finds:
        parallel = {"type": "torch", "find_unused_parameters": True, "local_rank": 0}
        changes["ddp_accelerator"] = {**parallel, "world_size": 2}
    model = make_model(contrastive_weight=0.0, **changes).train()
    model(**batch)["loss"].backward()
    unused = [] if several and not finds else ["_feedforward", "_loss"]
    assert sorted({name.split(".")[0] for name in without_gradient(model)}) == unused


@pytest.mark.parametrize("mask_contrastive_anchor", [True, False])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (0.5, 3.0)])
def test_the_loss_of_both_terms(
    make_model: Callable, batch: dict, naive: Naive, weights: tuple, mask_contrastive_anchor: bool
) -> None:
    torch.manual_seed(2)
    ids, labels = naive.masked(batch["anchors"], 0.3)
    mlm = cross_entropy(*naive.predictions(ids, labels, batch["anchors"]))
    anchors = naive.embed(batch["anchors"], ids if mask_contrastive_anchor else None)
    contrastive = NTXent(0.1)(anchors, positives_of(naive, batch))
    model = make_model(
        contrastive_weight=weights[0],
        mlm_weight=weights[1],
        mlm_probability=0.3,
        mask_contrastive_anchor=mask_contrastive_anchor,
    ).train()
    loss, _ = stepped(model, batch, seed=2)
    expected = weights[0] * contrastive + weights[1] * mlm
    assert loss == pytest.approx(expected.item(), abs=1e-5)
    assert without_gradient(model) == []
    expected.backward()
    theirs = dict(naive.model.named_parameters())
    for name, parameter in token_embedder(model).transformer_model.named_parameters():
        assert torch.allclose(parameter.grad, theirs[name].grad, atol=1e-5), name
    naive.model.zero_grad()


@pytest.mark.parametrize("mask_contrastive_anchor", [True, False])
def test_all_views_are_embedded_in_one_pass(
    make_model: Callable, batch: dict, mask_contrastive_anchor: bool
) -> None:
    """Masked anchors, clean anchors if those are contrasted, and positives share a pass."""
    model = make_model(mask_contrastive_anchor=mask_contrastive_anchor).train()
    model(**batch)  # tries packing
    rows: list[int] = []
    token_embedder(model).encoder.register_forward_hook(
        lambda _, args, inputs, output: rows.append(inputs["input_ids"].numel()), with_kwargs=True
    )
    model(**batch)
    tokens = {name: int(texts["tokens"]["mask"].sum()) for name, texts in batch.items()}
    views = 1 if mask_contrastive_anchor else 2
    assert rows == [views * tokens["anchors"] + tokens["positives"]]


# ------------------------------------------------------------------------------ gradient caching

OBJECTIVES = {
    "nt_xent": {},
    "sum": {"loss": {**NT_XENT, "reduction": "sum"}},
    "mined": {"miner": {"type": "pair_margin", "pos_margin": 0.9, "neg_margin": 0.1}},
    "memory": {"loss": {"type": "cross_batch_memory", "loss": NT_XENT, "embedding_size": 32}},
    "projected": {"feedforward": feedforward()},
    "clean anchors": {"mask_contrastive_anchor": False},
    "no mlm": {"mlm": False},
    "mlm only": {"loss": None},
    "mix of layers": {"embedder": {"last_layer_only": False}},
    "first and last": {"embedder": {"layers": "first-last"}},
    "maximum": {"seq2vec_encoder": {"type": "token_pooling", "pooling": "max"}},
    "mix of layers, mlm only": {"embedder": {"last_layer_only": False}, "loss": None},
}


@pytest.mark.slow
@pytest.mark.parametrize("objective", list(OBJECTIVES))
def test_chunks_equal_the_whole_batch(
    make_model: Callable, batches: list[dict], objective: str
) -> None:
    """Losses, metrics and all gradients of two steps, the last chunk being smaller."""
    found = []
    for size in (None, 1, 3):
        model = make_model(**OBJECTIVES[objective], chunk_size=size).train()
        steps = [stepped(model, batch, number) for number, batch in enumerate(batches[:2])]
        metrics = model.get_metrics()
        with torch.no_grad():
            steps.append((model.eval()(**batches[2])["loss"].item(), {}))
        found.append((steps, metrics))
    whole, metrics = found[0]
    for chunked, metrics_in_chunks in found[1:]:
        assert metrics_in_chunks == pytest.approx(metrics, rel=1e-5)
        for expected, in_chunks in zip(whole, chunked, strict=True):
            assert_same_step(in_chunks, expected, tolerance=1e-4)


@pytest.mark.parametrize(("chunk_size", "passes"), [(None, 1), (1, 8)])
def test_the_heap_is_settled_before_every_pass_of_training(
    make_model: Callable, batch: dict, chunk_size: int | None, passes: int, monkeypatch: Any
) -> None:
    """Each of the four documents goes through the encoder twice, if in chunks."""
    settled: list[None] = []
    monkeypatch.setattr("declutr.models.encoding.HEAP.settle", lambda: settled.append(None))
    model = make_model(chunk_size=chunk_size).train()
    model(**batch)["loss"].backward()
    assert len(settled) == passes
    with torch.no_grad():
        model.eval()(**batch)
    assert len(settled) == passes


def test_chunks_draw_the_same_dropout_twice(make_model: Callable, batch: dict) -> None:
    """Gradients are bit-identical to those of the same chunks without recomputation."""
    gradients = []
    for again in (True, False):
        model = make_model(embedder={"transformer_kwargs": {}}, chunk_size=1).train()
        dropouts = [m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)]
        assert dropouts and min(dropouts) > 0
        with pytest.MonkeyPatch.context() as patch:
            if not again:
                plain = lambda function, *args, use_reentrant: function(*args)  # noqa: E731
                patch.setattr("declutr.models.encoding.checkpoint", plain)
            gradients.append(list(stepped(model, batch)[1].values()))
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))


@pytest.mark.parametrize(
    "way",
    [{}, {"chunk_size": 1}, {"embedder": {"gradient_checkpointing": True}}, {"two_encoders": True}],
    ids=str,
)
def test_packed_attention_gives_the_same_loss_and_gradients(
    make_model: Callable, batch: dict, way: dict
) -> None:
    found = []
    with as_on_a_gpu() as calls:
        for unpadding in ("none", "packed"):
            options = {**way, "embedder": {**way.get("embedder", {}), "unpadding": unpadding}}
            found.append(stepped(make_model(**options).train(), batch))
    assert calls["efficient backward"] > 0
    assert_same_step(*found, tolerance=1e-4)


def test_chunks_keep_no_activations(make_model: Callable, batches: list[dict]) -> None:
    """Memory for the backward pass grows with the batch, but hardly if it is in chunks."""

    def kept(chunk_size: int | None, copies: int) -> int:
        model = make_model(chunk_size=chunk_size).train()
        batch = {
            name: {"tokens": {k: t.repeat(copies, 1, 1) for k, t in texts["tokens"].items()}}
            for name, texts in batches[0].items()
        }
        known = {p.data_ptr() for p in model.parameters()}
        sizes: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            if tensor.data_ptr() not in known:
                sizes[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        model(**batch)  # tries packing
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model(**batch)
        return sum(sizes.values())

    assert kept(None, 8) > 6 * kept(None, 1)
    assert kept(2, 8) < kept(None, 8) / 10


@pytest.mark.parametrize("unpadding", ["packed", "grouped"])
def test_equals_the_padded_step(make_model: Callable, batch: dict, unpadding: str) -> None:
    padded, found = (
        stepped(make_model(embedder={"unpadding": way}).train(), batch)
        for way in ("none", unpadding)
    )
    assert_same_step(found, padded)


def test_folded_spans_have_the_same_loss_packed_and_padded(
    checkpoint: Path, corpus_file: Path, make_model: Callable
) -> None:
    indexer = PretrainedTransformerIndexer(str(checkpoint), max_length=16)
    tokenizer = PretrainedTransformerTokenizer(str(checkpoint), add_special_tokens=False)
    folding = {"tokenizer": tokenizer, "token_indexers": {"tokens": indexer}}
    reader = make_reader(checkpoint, max_span_len=40, **folding)
    (batch,) = batches_of(reader, corpus_file)
    losses = []
    for unpadding in ("auto", "none"):
        ours = {
            "type": "pretrained_transformer_mlm",
            "model_name": str(checkpoint),
            "max_length": 16,
            "masked_language_modeling": False,
            "unpadding": unpadding,
            "transformer_kwargs": NO_DROPOUT,
        }
        embedder = {"type": "basic", "token_embedders": {"tokens": ours}}
        losses.append(make_model(text_field_embedder=embedder).train()(**batch)["loss"].item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize(("unpadding", "passes"), [("packed", 1), ("none", 2)])
def test_views_share_a_pass_where_padding_is_free(
    make_model: Callable, batch: dict, unpadding: str, passes: int
) -> None:
    model = make_model(embedder={"unpadding": unpadding}).train()
    model(**batch)  # tries packing
    calls: list[int] = []
    token_embedder(model).encoder.register_forward_hook(lambda *_: calls.append(1))
    model(**batch)
    assert len(calls) == passes


def test_masks_are_the_same_on_any_device(make_model: Callable, batch: dict) -> None:
    """No mask is read from the device: a tensor on "meta" has no values."""
    meta = torch.device("meta")
    texts = flat(batch["anchors"])
    there = {"tokens": {key: to_device(values, meta) for key, values in texts["tokens"].items()}}
    model = make_model().train()
    (drawn, labels), (on_meta, labels_on_meta) = (
        (torch.manual_seed(7), model._step.views.masked(anchors, training=True))[1]
        for anchors in (texts, there)
    )
    ids = on_meta["tokens"]["token_ids"]
    assert ids.device == labels_on_meta.device == meta
    assert torch.equal(on_host(ids), drawn["tokens"]["token_ids"])
    assert torch.equal(on_host(labels_on_meta), labels) and (labels != IGNORE).any()


def test_a_batch_without_masked_tokens_has_a_loss_and_gradients(
    make_model: Callable, batch: dict, naive: Naive
) -> None:
    model = make_model(mlm_probability=1e-12).train()
    loss, _ = stepped(model, batch)
    expected = NTXent(0.1)(naive.embed(batch["anchors"]), positives_of(naive, batch))
    assert loss == pytest.approx(expected.item(), abs=1e-5)
    assert without_gradient(model) == []
    assert not {"mlm_loss", "mlm_accuracy"} & set(model.get_metrics())


# --------------------------------------------------------------------------- parts of the model


def test_golden_mean_pooling(make_model: Callable) -> None:
    golden = GOLDEN["mean_pool"]
    hidden = torch.tensor(golden["inputs"]["hidden"])
    mask = torch.tensor(golden["inputs"]["attention_mask"]).bool()
    model = make_model()
    pooler = type(model._seq2vec_encoder)(2, averaged=True)
    expected = torch.tensor(golden["values"]["including_special_tokens"])
    assert torch.allclose(pooler(hidden, mask), expected)


def test_embeddings_are_means_of_all_token_vectors(
    make_model: Callable, batch: dict, naive: Naive
) -> None:
    model = make_model().eval()
    output = model(batch["anchors"])
    assert set(output) == {"embeddings"} and output["embeddings"].dtype == torch.float32
    assert torch.allclose(output["embeddings"], naive.embed(batch["anchors"]), atol=1e-6)
    flat = {"tokens": rows_of(batch["anchors"])}
    assert torch.equal(model(flat)["embeddings"], output["embeddings"])


@pytest.mark.parametrize("pooler", [{}, {"embedding_dim": 32}])
def test_cls_pooler_takes_the_first_token(
    make_model: Callable, batch: dict, naive: Naive, pooler: dict
) -> None:
    model = make_model(seq2vec_encoder={"type": "cls_pooler", **pooler}).eval()
    rows = rows_of(batch["anchors"])
    first = naive.hidden(rows["token_ids"], rows["mask"])[:, 0]
    assert torch.allclose(model(batch["anchors"])["embeddings"], first, atol=1e-6)


@pytest.mark.parametrize("mlm", [True, False])
def test_feedforward_is_between_embedding_and_loss(
    make_model: Callable, batch: dict, naive: Naive, mlm: bool
) -> None:
    """Each positive is projected before averaging; alignment is that of raw embeddings."""
    model = make_model(mlm=mlm, mask_contrastive_anchor=False, feedforward=feedforward())
    embedded = model.eval()(batch["anchors"])
    assert torch.allclose(embedded["embeddings"], naive.embed(batch["anchors"]), atol=1e-6)
    project = model._feedforward
    assert torch.equal(embedded["projections"], project(embedded["embeddings"]))
    assert embedded["projections"].shape == (8, 6)
    anchors = naive.embed(batch["anchors"])
    positives = project(naive.embed(batch["positives"])).reshape(8, 2, 6).mean(dim=1)
    expected = NTXent(0.1)(project(anchors), positives).item()
    loss = model.train()(**batch)["loss"]
    metrics = model.get_metrics()
    assert metrics["contrastive_loss"] == pytest.approx(expected, abs=1e-5)
    raw = alignment(anchors, positives_of(naive, batch)).item()
    assert metrics["alignment"] == pytest.approx(raw, abs=1e-5)
    loss.backward()
    assert without_gradient(model) == []


def test_miner_selects_pairs(make_model: Callable, batch: dict, naive: Naive) -> None:
    rows = torch.cat([naive.embed(batch["anchors"]), positives_of(naive, batch)])
    middle = torch.cosine_similarity(rows[:, None], rows[None], dim=-1).median().item()
    miner = {"type": "pair_margin", "pos_margin": 1.1, "neg_margin": middle}
    plain, mined = make_model(mlm=False), make_model(mlm=False, miner=miner)
    values = [model.train()(**batch)["loss"].item() for model in (plain, mined)]
    assert math.isfinite(values[1]) and abs(values[0] - values[1]) > 1e-3
    everything = {"type": "pair_margin", "pos_margin": 1.1, "neg_margin": -1.1}
    same = make_model(mlm=False, miner=everything).train()(**batch)["loss"].item()
    assert same == pytest.approx(values[0], abs=1e-5)


def test_initializer_is_applied_last(make_model: Callable) -> None:
    regexes = [["_feedforward.*weight", {"type": "constant", "val": 0.25}]]
    model = make_model(feedforward=feedforward(), initializer={"regexes": regexes})
    assert (model._feedforward._linear_layers[0].weight == 0.25).all()


def test_cross_batch_memory_serves_training_and_not_validation(
    make_model: Callable, batches: list[dict]
) -> None:
    """The second batch has the rows of the first among its negatives; validation does not."""
    memory = {"type": "cross_batch_memory", "loss": NT_XENT, "embedding_size": 32}
    plain, model = make_model(mlm=False), make_model(mlm=False, loss=memory)
    values = [[m.train()(**b)["loss"].item() for b in batches[:2]] for m in (plain, model)]
    assert values[1][0] == pytest.approx(values[0][0], abs=1e-5)
    assert values[1][1] > values[0][1] + 1e-3
    state = str(model._loss.state_dict())
    validation = [m.eval()(**batches[2])["loss"].item() for m in (plain, model)]
    assert validation[0] == pytest.approx(validation[1], abs=1e-6)
    assert str(model._loss.state_dict()) == state
    described = model.describe_objective()
    assert (described["objective"], described["temperature"]) == ("CrossBatchMemory", 0.1)


# ------------------------------------------------------------------- other embedders and tokens


CHARACTERS = {
    "type": "character_encoding",
    "embedding": {"embedding_dim": 5, "vocab_namespace": "token_characters"},
    "encoder": {"type": "cnn", "embedding_dim": 5, "num_filters": 4, "ngram_filter_sizes": [2, 3]},
}
EMBEDDERS = {"words": {"type": "embedding", "embedding_dim": 12}, "characters": CHARACTERS}


@pytest.mark.parametrize("kinds", [["words"], ["characters"], ["words", "characters"]])
def test_contrast_of_any_embedder(kinds: list[str], corpus_file: Path) -> None:
    """AllenNLP's own embedders on words work too. Oracle: every span embedded alone, as a text."""
    spans = {"num_anchors": 2, "num_positives": 3, "max_span_len": 20, "min_span_len": 4}
    indexers = {
        "words": SingleIdTokenIndexer(),
        "characters": TokenCharactersIndexer(min_padding_length=3),
    }
    reader = DeCLUTRDatasetReader(token_indexers={kind: indexers[kind] for kind in kinds}, **spans)
    loader = DeCLUTRDataLoader(reader, str(corpus_file), batch_size=4, quiet=True)
    vocab = Vocabulary.from_instances(loader.iter_instances())
    (batch,) = batches_of(reader, corpus_file, vocab=vocab)
    torch.manual_seed(0)
    embedders = {"type": "basic", "token_embedders": {kind: EMBEDDERS[kind] for kind in kinds}}
    config = {"type": "declutr", "text_field_embedder": embedders, "loss": NT_XENT}
    model = Model.from_params(Params(json.loads(json.dumps(config))), vocab=vocab)

    def alone(texts: dict) -> Tensor:
        rows = []
        for document in range(4):
            for span in range(next(iter(texts[kinds[0]].values())).size(1)):
                text = {
                    name: {key: t[document, span : span + 1] for key, t in tensors.items()}
                    for name, tensors in texts.items()
                }
                rows.append(model.eval()(text)["embeddings"][0])
        return torch.stack(rows)

    anchors = alone(batch["anchors"])
    positives = alone(batch["positives"]).reshape(8, 3, -1).mean(dim=1)
    expected = NTXent(0.1)(anchors, positives).item()
    assert model.train()(**batch)["loss"].item() == pytest.approx(expected, abs=1e-5)


# --------------------------------------------------------------------------------------- metrics


@pytest.mark.parametrize("training", [True, False])
def test_metrics_are_means_over_the_epoch(
    make_model: Callable, batches: list[dict], naive: Naive, training: bool
) -> None:
    model = make_model().train(training)
    sums = {"mlm_loss": 0.0, "mlm_accuracy": 0.0}
    names = ("contrastive_loss", "retrieval_accuracy", "alignment", "uniformity")
    of_batches, masked = {name: [] for name in names}, 0
    for number, batch in enumerate(batches):
        torch.manual_seed(number)
        options = {} if training else {"generator": torch.Generator().manual_seed(13370)}
        ids, labels = naive.masked(batch["anchors"], **options)
        logits, targets = naive.predictions(ids, labels, batch["anchors"])
        sums["mlm_loss"] += cross_entropy(logits, targets, reduction="sum").item()
        sums["mlm_accuracy"] += (logits.argmax(-1) == targets).sum().item()
        masked += len(targets)
        anchors = naive.embed(batch["anchors"], ids if training else None)
        positives = positives_of(naive, batch)
        similarity = torch.cosine_similarity(positives[:, None], anchors[None], dim=-1)
        right = (similarity.argmax(1) == torch.arange(8)).double().mean()
        measures = right, alignment(anchors, positives), uniformity(anchors)
        for name, value in zip(names, (NTXent(0.1)(anchors, positives), *measures), strict=True):
            of_batches[name].append(value.item())
        torch.manual_seed(number)
        model(**batch)
    expected = {name: value / masked for name, value in sums.items()}
    expected |= {name: sum(values) / 3 for name, values in of_batches.items()}
    assert model.get_metrics() == pytest.approx(expected, abs=1e-5)
    assert model.get_metrics(reset=True) == pytest.approx(expected, abs=1e-5)
    assert model.get_metrics() == {}
    model.train(not training)
    assert model.get_metrics() == {}


def test_validation_does_not_touch_the_means_of_training(
    make_model: Callable, batches: list[dict]
) -> None:
    model = make_model().train()
    model(**batches[0])
    before = model.get_metrics()
    model.eval()(**batches[1])
    assert model.get_metrics(reset=True) != before
    assert model.train().get_metrics() == before


# ------------------------------------------------------------------------------------ validation


def test_validation_is_deterministic_and_leaves_randomness_alone(
    make_model: Callable, batch: dict
) -> None:
    """Dropout is off, masks are fixed, and the next training step draws the same numbers."""
    model = make_model(embedder={"transformer_kwargs": {}}).eval()
    values = set()
    for seed in range(3):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        values.add(model(**batch)["loss"].item())
        assert torch.equal(torch.get_rng_state(), before)
    assert len(values) == 1
    texts = {"tokens": rows_of(batch["anchors"])}
    assert torch.equal(model(texts)["embeddings"], model(texts)["embeddings"])
    model.train()
    assert len({model(**batch)["loss"].item() for _ in range(3)}) == 3


# ---------------------------------------------------------------------------------------- errors


def test_a_training_batch_without_negatives_is_refused(make_model: Callable, batch: dict) -> None:
    single_pair = {
        name: {"tokens": {key: t[:1, :1] for key, t in texts["tokens"].items()}}
        for name, texts in batch.items()
    }
    model = make_model().train()
    with pytest.raises(ConfigurationError, match=r"1 anchor\(s\), so there are no negatives"):
        model(**single_pair)
    validated = model.eval()(**single_pair)  # the last batch of a validation set may be
    assert validated["loss"].item() == pytest.approx(model.get_metrics()["mlm_loss"], abs=1e-6)
    assert make_model(mlm=False).eval()(**single_pair) == {}


def test_training_without_positives_is_refused(make_model: Callable, batch: dict) -> None:
    for mlm in (True, False):
        with pytest.raises(ConfigurationError, match=r"no positives to contrast.*num_positives"):
            make_model(mlm=mlm).train()(anchors=batch["anchors"])


@pytest.mark.parametrize("where", ["encoder", "head"])
def test_a_loss_that_is_not_a_number_raises(make_model: Callable, batch: dict, where: str) -> None:
    model = make_model().train()
    model(**batch)
    transformer = token_embedder(model).transformer_model
    module = transformer.base_model if where == "encoder" else transformer.lm_head.dense
    with torch.no_grad():
        next(iter(reversed(list(module.parameters())))).fill_(math.nan)
    with pytest.raises(NonFiniteLoss, match=r"The loss is nan.*mlm_loss.*learning rate"):
        model(**batch)
    assert math.isnan(model.eval()(**batch)["loss"].item())  # validation reports, and goes on


def test_on_a_device_losses_are_checked_before_metrics_and_weights(
    make_model: Callable, batch: dict
) -> None:
    """Both metrics and weights raise, so that no broken weights are written."""
    for look in ("get_metrics", "state_dict"):
        model = make_model().train()
        model.record.losses = UnreadLosses(keep=True)
        model.record.training = RunningMeans(keep=True)
        model(**batch)
        assert model.get_metrics()["mlm_loss"] > 0
        with torch.no_grad():
            token_embedder(model).transformer_model.lm_head.dense.weight.fill_(math.nan)
        for _ in range(2):
            assert math.isnan(model(**batch)["loss"].item())
        assert model.get_metrics()["mlm_loss"] > 0  # what was read last
        options = {"reset": True} if look == "get_metrics" else {}
        with pytest.raises(NonFiniteLoss, match=r"loss is nan in training pass 2 of 3: not a fin"):
            getattr(model, look)(**options)


def test_a_model_asked_rarely_reads_metrics_at_every_call(
    make_model: Callable, batches: list[dict]
) -> None:
    model, other = make_model().train(), make_model().train()
    other.record.training, other.asked_rarely = RunningMeans(keep=True), True
    for one in batches:
        for each in (model, other):
            torch.manual_seed(0)
            each(**one)
        assert other.get_metrics() == model.get_metrics()


NOTHING = [
    {"mlm": False, "loss": None},
    {"mlm_weight": 0.0, "contrastive_weight": 0.0},
    {"mlm": False, "contrastive_weight": 0.0},
    {"mlm_weight": 0.0, "loss": None},
]
NARROW = {"type": "boe", "embedding_dim": 31}


@pytest.mark.parametrize(
    "changes, message",
    [
        *((changes, "Nothing to train by") for changes in NOTHING),
        ({"chunk_size": 0}, "chunk_size must be at least 1, got 0"),
        ({"embedder": {"unpadding": "squeezed"}}, "Unknown unpadding 'squeezed'"),
        ({"loss": None, "miner": {"pos_margin": 0.1, "neg_margin": 0.1}}, "A miner needs a contra"),
        ({"feedforward": feedforward(31)}, "input of feedforward is 31 wide.*width 32"),
        ({"seq2vec_encoder": NARROW}, "input of seq2vec_encoder is 31 wide.*width 32"),
        ({"mlm_probability": 0.0}, r"mlm_probability must lie in \(0, 1\], got 0"),
        ({"mlm_probability": 1.5}, r"mlm_probability must lie in \(0, 1\], got 1.5"),
        ({"precision": "float16"}, "'float16': expected one of auto, bfloat16, float32"),
    ],
)
def test_wrong_settings_are_refused(make_model: Callable, changes: dict, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_model(**changes)


# ------------------------------------------------------------------------------------- precision


def test_bfloat16_trains_and_embeds_in_float32(make_model: Callable, batch: dict) -> None:
    model = make_model(precision="bfloat16", feedforward=feedforward()).train()
    model(**batch)  # tries packing, in float32
    dtypes: list[torch.dtype] = []
    modules = token_embedder(model).encoder.modules()
    linear = next(m for m in modules if isinstance(m, torch.nn.Linear))
    linear.register_forward_hook(lambda _, inputs, output: dtypes.append(output.dtype))
    losses = fitted(model, batch, 12)
    assert set(dtypes) == {torch.bfloat16} and model(**batch)["loss"].dtype == torch.float32
    assert {p.grad.dtype for p in model.parameters()} == {torch.float32}
    assert losses[-1] < losses[0]
    dtypes.clear()
    output = model.eval()(batch["anchors"])
    assert set(dtypes) == {torch.float32}
    assert {tensor.dtype for tensor in output.values()} == {torch.float32}


def test_bfloat16_is_near_float32(make_model: Callable, batch: dict) -> None:
    ways = ("float32", "bfloat16")
    values = [stepped(make_model(precision=way).train(), batch)[0] for way in ways]
    assert values[0] != values[1] and values[1] == pytest.approx(values[0], rel=0.03)


# -------------------------------------------------------------------------------------- training


def test_overfits_one_batch(make_model: Callable, batch: dict) -> None:
    model = make_model(mlm=False, loss={"type": "nt_xent", "temperature": 0.05})
    first = fitted(model, batch, 40)[0]
    model.get_metrics(reset=True)
    assert model(**batch)["loss"].item() < 0.02 < 0.5 < first
    metrics = model.get_metrics()
    assert metrics["retrieval_accuracy"] == 1
    assert metrics["alignment"] < 1 and metrics["uniformity"] < -1


def test_overfits_one_batch_of_masks(
    make_model: Callable, batch: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    def every_fifth(ids: Tensor, maskable: Tensor, *, mask_id: int, **_: Any) -> tuple:
        chosen = maskable & (torch.arange(ids.size(1)) % 5 == 2)
        return ids.masked_fill(chosen, mask_id), ids.masked_fill(~chosen, IGNORE)

    monkeypatch.setattr("declutr.models.training_step.mask_tokens", every_fifth)
    model = make_model(loss=None)
    assert fitted(model, batch, 80, lr=1e-2)[-1] < 1.5 < math.log(400) - 1
    model.get_metrics(reset=True)
    model(**batch)
    assert model.get_metrics()["mlm_accuracy"] > 0.7


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["both", "memory"])
def test_trains_saves_and_loads(
    kind: str, checkpoint: Path, corpus_file: Path, batch: dict, tmp_path: Path
) -> None:
    """Like AllenNLP's `ModelTestCase`, but predictions of the loaded model are exactly the same."""
    loss: dict[str, Any] = NT_XENT
    if kind == "memory":
        loss = {"type": "cross_batch_memory", "loss": loss, "embedding_size": 6, "memory_size": 40}
    loader = {"type": "declutr", "batch_size": 4, "shuffle": True, "drop_last": True}
    files = {"validation_data_path": str(corpus_file), "data_loader": loader}
    config = run_config(checkpoint, corpus_file, **files)
    config["model"]["loss"] = loss
    config["trainer"]["optimizer"]["lr"] = 1e-3
    model = train_model(Params(json.loads(json.dumps(config))), str(tmp_path / "run"), force=True)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    for part in ("training", "validation"):
        for name in ("loss", "contrastive_loss", "mlm_loss", "mlm_accuracy", "uniformity"):
            assert math.isfinite(metrics[f"{part}_{name}"])
    loaded = load_archive(tmp_path / "run" / "model.tar.gz").model
    state, loaded_state = model.state_dict(), loaded.state_dict()
    assert list(state) == list(loaded_state)
    for key, value in state.items():
        same = torch.equal if isinstance(value, Tensor) else type(value).__eq__
        assert same(value, loaded_state[key]), key
    outputs = [m.eval()(batch["anchors"]) for m in (model, loaded)]
    assert set(outputs[0]) == {"embeddings", "projections"}
    for key in outputs[0]:
        assert torch.equal(outputs[0][key], outputs[1][key])
    assert torch.equal(*(m(**batch)["loss"] for m in (model, loaded)))
    batch_of_one = {"tokens": {k: t[:1] for k, t in rows_of(batch["anchors"]).items()}}
    alone = loaded(batch_of_one)["embeddings"][0]
    assert torch.allclose(alone, outputs[1]["embeddings"][0], atol=1e-6)


def test_texts_to_mask_are_whole_word_pieces_of_one_indexer() -> None:
    pieces = {"token_ids": torch.ones(2, 6), "mask": torch.ones(2, 6, dtype=torch.bool)}
    folded = {**pieces, "mask": torch.ones(2, 4, dtype=torch.bool)}
    require_word_pieces({"tokens": pieces}, "Masking")
    for texts, told in (
        ({"words": {"tokens": torch.ones(2, 6)}}, "needs the ids of word pieces"),
        ({"one": pieces, "other": pieces}, r"a single token indexer, got \['one', 'other'\]"),
        ({"tokens": folded}, r"the token indexer folds them by its max_length\. Remove it there"),
    ):
        with pytest.raises(ConfigurationError, match=told):
            require_word_pieces(texts, "Masking")
