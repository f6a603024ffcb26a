"""Compare prepared linear layers with torch's own, in models of several families."""

import copy
import multiprocessing
import pickle
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AlbertConfig,
    AutoModel,
    BertConfig,
    DistilBertConfig,
    MPNetConfig,
    RobertaConfig,
    T5Config,
    T5EncoderModel,
)

from declutr import Encoder
from declutr.system.kernel_choices import CHOICES, PLAIN
from declutr.transformer import int8_product, linear_layers, prepared_linear
from declutr.transformer.linear_layers import LinearLayers, prepare_linear_layers

SMALL = {
    "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 24,
}  # fmt: skip
DISTILBERT = {"vocab_size": 50, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}
T5 = {"vocab_size": 50, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
IDS = torch.arange(2, 24).view(2, 11)
ACTIVATIONS = {
    "gelu": torch.nn.GELU(), "gelu tanh": torch.nn.GELU("tanh"), "relu": torch.nn.ReLU(),
}  # fmt: skip


def model(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    if name == "t5":
        return T5EncoderModel(T5Config(**T5)).eval()
    config = {
        "bert": BertConfig(**SMALL),
        "bert of tanh": BertConfig(**SMALL, hidden_act="gelu_pytorch_tanh"),
        "bert of silu": BertConfig(**SMALL, hidden_act="silu"),
        "roberta": RobertaConfig(**SMALL),
        "mpnet": MPNetConfig(**SMALL),
        "albert": AlbertConfig(**SMALL, embedding_size=8, hidden_act="gelu"),
        "distilbert": DistilBertConfig(**DISTILBERT),
    }[name]
    return AutoModel.from_config(config).eval()


def vectors(transformer: torch.nn.Module) -> torch.Tensor:
    with torch.inference_mode():
        return transformer(input_ids=IDS).last_hidden_state


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that makes one product the quickest, also for tiny layers."""
    for module in (prepared_linear, int8_product):
        monkeypatch.setattr(module, "LEAST_WEIGHTS", 1)

    def answer(way: str) -> None:
        monkeypatch.setattr(CHOICES, "quickest", lambda question, ways: way)

    return answer


# Numbers of layers that are joined (query, key and value), and of activations that are fused.
FAMILIES = {
    "bert": (2, 2), "bert of tanh": (2, 2), "bert of silu": (2, 0), "roberta": (2, 2),
    "mpnet": (2, 2), "albert": (1, 1), "distilbert": (2, 2), "t5": (2, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_embeddings_stay_the_same(name: str, measured, caplog) -> None:
    measured(prepared_linear.REORDERED)
    transformer = model(name)
    before = vectors(transformer)
    structure = LinearLayers(transformer, "int8")
    joined = sum(len(layer.layers) == 3 for layer in structure.prepared)
    fused = sum(layer.activation is not None for layer in structure.prepared)
    assert (joined, fused) == FAMILIES[name]
    structure.restore()
    assert torch.equal(vectors(transformer), before)

    structure = LinearLayers(transformer, "int8")  # before it is in whole numbers
    assert (vectors(transformer) - before).abs().max() < 1e-5 * before.abs().max()
    structure.restore()

    prepare_linear_layers(transformer, lambda: vectors(transformer), "float32")
    assert not any(type(part) is torch.nn.Linear for part in transformer.modules())
    assert (vectors(transformer) - before).abs().max() < 1e-5 * before.abs().max()
    assert not caplog.records


@pytest.mark.parametrize("dtype, apart", [("bfloat16", 0.02), ("int8", 0.02)])
def test_other_dtypes_are_close(dtype: str, apart: float) -> None:
    transformer = model("bert")
    before = vectors(transformer)
    prepare_linear_layers(transformer, lambda: vectors(transformer), dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
        after = vectors(transformer).float()
    assert 0 < (after - before).norm() < apart * before.norm()


def test_plain_float32_stays_as_it_is() -> None:
    transformer = model("bert")
    prepare_linear_layers(transformer, lambda: pytest.fail("nothing is to be tried"), "float32")
    assert type(transformer.encoder.layer[0].output.dense) is torch.nn.Linear


class Unusual(torch.nn.Module):
    """A module with the names of BERT that changes the input of the values in place."""

    def __init__(self, ready: bool) -> None:
        super().__init__()
        self.query, self.key, self.value = (torch.nn.Linear(4, 4) for _ in range(3))
        self._ready = ready

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        vectors = vectors.clone()
        keys = self.query(vectors) + self.key(vectors)
        vectors.mul_(2)  # in place: the same tensor is another input
        if not self._ready and type(self.value) is not torch.nn.Linear:
            raise AttributeError("weight")
        return keys.float() + self.value(vectors)


def test_layers_that_do_not_belong_together_are_replaced_one_by_one(caplog) -> None:
    module, inputs = Unusual(ready=True), torch.randn(3, 4)
    with torch.no_grad():
        before = module(inputs)
        prepare_linear_layers(module, lambda: module(inputs).float(), "bfloat16")
        assert torch.allclose(module(inputs).float(), before, atol=0.05)
    assert type(module.value).__name__ == "PreparedLinear" and not caplog.records


def test_a_model_that_needs_its_own_layers_keeps_them(measured, caplog) -> None:
    measured(prepared_linear.REORDERED)
    module, inputs = Unusual(ready=False), torch.randn(3, 4)
    with torch.no_grad():
        before = module(inputs)
        prepare_linear_layers(module, lambda: module(inputs), "float32")
        assert torch.equal(module(inputs), before)
    assert "keeps those" in caplog.text


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_prepared_layers_can_be_copied_and_pickled(dtype: str, measured) -> None:
    measured(int8_product.PACKED if dtype == "int8" else prepared_linear.REORDERED)
    transformer = model("bert")
    prepare_linear_layers(transformer, lambda: vectors(transformer), dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
        expected = vectors(transformer)
        assert torch.equal(vectors(copy.deepcopy(transformer)), expected)
        assert torch.equal(vectors(pickle.loads(pickle.dumps(transformer))), expected)
    # A tensor that only the pickle holds is gone before a started process reads it.
    kept = {id(tensor) for tensor in _tensors(transformer)}
    for part in transformer.modules():
        if isinstance(part, prepared_linear.PreparedLinear):
            state: Any = part._product.__reduce_ex__(2)[2]
            assert not {id(each) for each in _tensors(state)} - kept


def _tensors(inside: Any) -> list[torch.Tensor]:
    """Return the tensors of a model and of its products, or of the state of a product."""
    if isinstance(inside, torch.nn.Module):
        products = [getattr(part, "_product", None) for part in inside.modules()]
        return [
            *inside.parameters(),
            *(t for each in products if each for t in _tensors(vars(each))),
        ]
    return [each for each in inside.values() if isinstance(each, torch.Tensor)]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_prepared_layers_reach_started_processes(dtype: str, measured) -> None:
    measured(int8_product.PACKED if dtype == "int8" else prepared_linear.REORDERED)
    transformer = model("bert")
    prepare_linear_layers(transformer, lambda: vectors(transformer), dtype)
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=repr, args=(transformer,))
    process.start()
    process.join(60)
    assert process.exitcode == 0


def test_compiled_models_are_left_to_the_compiler(measured) -> None:
    measured(prepared_linear.REORDERED)
    transformer = model("bert")
    transformer.compile(backend="eager")
    prepare_linear_layers(transformer, lambda: pytest.fail("nothing is to be tried"), "float32")
    assert type(transformer.encoder.layer[0].output.dense) is torch.nn.Linear
    prepare_linear_layers(transformer, lambda: vectors(transformer), "int8")
    assert transformer._compiled_call_impl is None and vectors(transformer).isfinite().all()


def test_the_last_input_is_recognized_by_identity_and_not_kept_alive() -> None:
    transformer = model("bert")
    LinearLayers(transformer, "int8").prepare()
    attention = transformer.encoder.layer[0].attention.self
    shared = attention.query._shared
    first, second = torch.randn(1, 5, 16), torch.randn(1, 5, 16)
    with torch.inference_mode():
        query, key = attention.query(first), attention.key(first)
        assert query.data_ptr() + 4 * 16 == key.data_ptr()  # of one product
        assert not torch.equal(attention.key(second), key)
        assert torch.equal(attention.key(first), key)
    del first, second
    assert shared._kept.last is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_reordered_products_equal_torchs(dtype: str, bias: bool, activation: str | None) -> None:
    torch.manual_seed(0)
    number = getattr(torch, dtype)
    weight, rows = torch.randn(6, 16).to(number), torch.randn(5, 16)
    offset = torch.randn(6).to(number) if bias else None
    exact = torch.nn.functional.linear(
        rows.to(number).double(), weight.double(), None if offset is None else offset.double()
    )
    if activation is not None:
        exact = ACTIVATIONS[activation](exact)
    for kind in (prepared_linear.PlainProduct, prepared_linear.ReorderedProduct):
        got = kind(weight, offset, activation)(rows)
        assert got.dtype == number
        assert (got.double() - exact).abs().max() < (1e-5 if dtype == "float32" else 0.1)


def test_a_wrong_product_is_not_used(measured, monkeypatch) -> None:
    measured(prepared_linear.REORDERED)
    wrong = prepared_linear.ReorderedProduct
    monkeypatch.setattr(wrong, "__call__", lambda self, rows: torch.ones(len(rows), 3))
    product = prepared_linear.float_product(torch.eye(3), None, None)
    assert type(product) is prepared_linear.PlainProduct


def test_an_encoder_gives_the_same_with_prepared_layers(checkpoint: Path, measured) -> None:
    texts = ["ka lo mi", "tu", "re sa no ve pi du " * 9]
    measured(PLAIN)
    exact = Encoder(checkpoint, dtype="float32", device="cpu")(texts)
    measured(prepared_linear.REORDERED)
    encoder = Encoder(checkpoint, dtype="float32", device="cpu")
    kinds = {type(part) for part in encoder._model.linear_part.modules()}
    assert torch.nn.Linear not in kinds and linear_layers.PreparedLinear in kinds
    assert np.abs(encoder(texts) - exact).max() < 1e-5
    assert np.abs(encoder(texts[:1]) - exact[:1]).max() < 1e-5


def test_threads_do_not_undo_what_others_share() -> None:
    """A layer on the same input is computed once in each thread, however threads take turns."""
    computed: list[torch.Tensor] = []

    def layer(vectors: torch.Tensor) -> torch.Tensor:
        computed.append(vectors)
        return vectors * 2

    shared = linear_layers.OnSameInput(layer)  # type: ignore[arg-type]
    turns = threading.Barrier(2)

    def embed(number: int) -> bool:
        vectors, right = torch.full((2,), float(number)), True
        for _ in range(3):
            turns.wait(60)
            right &= torch.equal(shared(vectors), vectors * 2)
        return right

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(embed, range(2)))
    assert len(computed) == 2
    vectors = torch.ones(2)
    kept = weakref.ref(shared(vectors))
    assert kept() is not None
    del vectors
    assert len(computed) == 3 and kept() is not None
    computed.clear()  # the input goes, and with it the output
    assert kept() is None
