"""Two processes equal one in loss, metrics and every gradient after the averaging of DDP."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allennlp.data import Vocabulary
from allennlp.data.token_indexers import PretrainedTransformerIndexer
from allennlp.data.tokenizers import PretrainedTransformerTokenizer
from torch import Tensor

from declutr.archives.static_folder import StaticTable, write_static
from declutr.data.data_loader import DeCLUTRDataLoader
from declutr.data.span_reader import DeCLUTRDatasetReader
from declutr.objectives import NTXent
from declutr.system.distributed import (
    all_reduced,
    gather_ragged_rows,
    gather_rows,
    is_distributed,
    world_size,
)
from tests import distributed_steps as steps
from tests import two_processes
from tests.conftest import shared_by_workers

pytestmark = pytest.mark.slow

ROWS = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
FEEDFORWARD = {"input_dim": 32, "num_layers": 1, "hidden_dims": 6, "activations": "tanh"}
PROJECTOR = {"type": "projector", "hidden_dims": [12, 8]}
MEMORY = {"type": "cross_batch_memory", "loss": {"temperature": 0.1}, "embedding_size": 32}
# By name: changes of the model, changes of the embedder, masks, dtype.
CASES: dict[str, tuple[dict, dict, str, torch.dtype]] = {
    "contrastive": ({}, {"masked_language_modeling": False}, "by_position", torch.float32),
    "feedforward": (
        {"feedforward": FEEDFORWARD},
        {"masked_language_modeling": False},
        "by_position",
        torch.float32,
    ),
    "mlm": ({"loss": None}, {}, "by_position", torch.float32),
    "both": ({}, {}, "by_position", torch.float32),
    "both in float64": ({"feedforward": FEEDFORWARD}, {}, "by_position", torch.float64),
    "clean anchors": ({"mask_contrastive_anchor": False}, {}, "by_position", torch.float32),
    "sum": ({"loss": {"temperature": 0.1, "reduction": "sum"}}, {}, "half", torch.float64),
    "nothing masked in one": ({"loss": None}, {}, "half", torch.float32),
    "head without mlm": ({"mlm_weight": 0.0}, {}, "by_position", torch.float32),
    "memory": ({"loss": MEMORY}, {}, "by_position", torch.float32),
    "checkpointing": ({}, {"gradient_checkpointing": True}, "by_position", torch.float32),
    "chunks": ({"chunk_size": 1, "feedforward": FEEDFORWARD}, {}, "by_position", torch.float64),
    "chunks, nothing masked in one": ({"chunk_size": 1}, {}, "half", torch.float64),
    # Statistics of the batch, parameters and memories of an objective.
    "scd": ({"head": PROJECTOR, "loss": {"type": "scd"}}, {}, "by_position", torch.float64),
    "barlow twins": (
        {"head": PROJECTOR, "loss": {"type": "barlow_twins"}},
        {"masked_language_modeling": False},
        "by_position",
        torch.float64,
    ),
    "learnt scale": (
        {"loss": {"type": "nce", "learn_scale": True, "learn_bias": True}},
        {},
        "by_position",
        torch.float64,
    ),
    "prototypes": (
        {"loss": {"type": "swav", "embedding_size": 32, "prototypes": 6}},
        {},
        "by_position",
        torch.float64,
    ),
    "prototypes of several views": (
        {
            "loss": {
                **{"type": "swav", "embedding_size": 8, "prototypes": 6, "queue_size": 8},
                "assigned_views": 2,
            },
            "head": PROJECTOR,
        },
        {"masked_language_modeling": False},
        "by_position",
        torch.float64,
    ),
    "learnt temperature": (
        {"loss": {"type": "info_nce", "learn_temperature": True, "view_pairs": "core_view"}},
        {"masked_language_modeling": False},
        "by_position",
        torch.float64,
    ),
    "moco": (
        {"loss": {"type": "moco", "embedding_size": 32, "queue_size": 24}},
        {},
        "by_position",
        torch.float64,
    ),
    "momentum encoder": (
        {
            "loss": {"type": "moco", "embedding_size": 8, "queue_size": 24},
            "head": PROJECTOR,
            "momentum_encoder": {},
        },
        {},
        "by_position",
        torch.float64,
    ),
    "byol": (
        {
            "loss": {"type": "byol"},
            "head": PROJECTOR,
            "predictor": PROJECTOR,
            "momentum_encoder": {},
        },
        {},
        "by_position",
        torch.float64,
    ),
    # These objectives need further entries in a batch, which `GIVEN` has by the name of the case.
    "sup_con with labels": ({"loss": {"type": "sup_con"}}, {}, "by_position", torch.float64),
    "instance_discrimination": (
        {
            "loss": {
                "type": "instance_discrimination",
                "instances": 30,
                "embedding_size": 32,
                "noise": 5,
            }
        },
        {"masked_language_modeling": False},
        "by_position",
        torch.float64,
    ),
    "deep_cluster": (
        {
            "loss": {
                "type": "deep_cluster",
                "instances": 30,
                "embedding_size": 32,
                "clusters": 4,
            }
        },
        {"masked_language_modeling": False},
        "by_position",
        torch.float64,
    ),
    "reclaim": (
        {"loss": {"type": "reclaim", "instances": 30, "embedding_size": 32, "num_negatives": 3}},
        {"masked_language_modeling": False},
        "by_position",
        torch.float64,
    ),
    "quick_thoughts": (
        {
            "loss": {"type": "quick_thoughts"},
            "views": "dropout",
            "head": PROJECTOR,
            "two_encoders": True,
        },
        {"masked_language_modeling": False},
        "by_position",
        torch.float64,
    ),
    "cpc": (
        {"loss": {"type": "cpc", "embedding_size": 32, "steps": 2}},
        {"masked_language_modeling": False},
        "by_position",
        torch.float64,
    ),
    "is_bert": (
        {
            "loss": {"type": "is_bert"},
            "seq2vec_encoder": {"type": "ngram_convolutions", "channels": 4},
        },
        {},
        "by_position",
        torch.float64,
    ),
    "pair_softmax": (
        {
            "loss": {"type": "pair_softmax", "num_labels": 3, "embedding_size": 8},
            "head": PROJECTOR,
        },
        {"masked_language_modeling": False},
        "by_position",
        torch.float64,
    ),
    "cosine_regression": (
        {"loss": {"type": "cosine_regression"}},
        {},
        "by_position",
        torch.float64,
    ),
    "static": (
        {"loss": {"type": "matryoshka", "loss": {}, "dimensions": [3]}},
        {"type": "token_embedding_bag", "token_weights": True},
        "by_position",
        torch.float64,
    ),
    "scale_fix off": (
        {"scale_fix": False},
        {"masked_language_modeling": False},
        "by_position",
        torch.float64,
    ),
}


# One value for each document; sentences 3 and 4 are in different processes.
GIVEN = {
    "sup_con with labels": {"labels": [0, 1, 1, 0]},
    "instance_discrimination": {"ids": [7, 0, 29, 7]},
    "deep_cluster": {"ids": [7, 0, 29, 7]},
    "reclaim": {"ids": [7, 0, 29, 7]},
    "quick_thoughts": {"ids": [1, 2, 3, 5], "documents": [0, 0, 0, 1]},
    "cpc": {"ids": [1, 2, 3, 5], "documents": [0, 0, 0, 1]},
    "pair_softmax": {"labels": [2, 0, 1, 2]},
    "cosine_regression": {"labels": [0.2, -0.5, 1.0, 0.0]},
}


def with_given(name: str, batches: list[dict]) -> list[dict]:
    given = {key: torch.tensor(values) for key, values in GIVEN.get(name, {}).items()}
    if name in ("cpc", "quick_thoughts"):  # sentences alone
        batches = [{"anchors": batch["anchors"]} for batch in batches]
    return [{**batch, **given} for batch in batches]


def model_config(folder: Path, changes: dict[str, Any], embedder: dict[str, Any]) -> dict:
    if "type" in embedder:
        bag = {"model_name": str(folder / "static"), **embedder}
        return {"type": "declutr", "text_field_embedder": bag, **changes}
    transformer = {
        "type": "pretrained_transformer_mlm",
        "model_name": str(folder),
        "transformer_kwargs": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        **embedder,
    }
    return {
        "type": "declutr",
        "text_field_embedder": {"type": "mlm", "token_embedders": {"tokens": transformer}},
        "loss": {"temperature": 0.1},
        **changes,
    }


@pytest.fixture(scope="module")
def batches(checkpoint: Path, corpus_file: Path) -> list[dict]:
    """Return two batches of 4 documents."""
    reader = DeCLUTRDatasetReader(
        tokenizer=PretrainedTransformerTokenizer(str(checkpoint)),
        token_indexers={"tokens": PretrainedTransformerIndexer(str(checkpoint))},
        num_anchors=2,
        num_positives=2,
        max_span_len=16,
        min_span_len=8,
    )
    loader = DeCLUTRDataLoader(reader, str(corpus_file), batch_size=4, quiet=True)
    loader.index_with(Vocabulary())
    return [batch for _, batch in zip(range(2), loader, strict=False)]


@pytest.fixture(scope="module")
def results(
    checkpoint: Path, batches: list[dict], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Return the results of all cases, which the first pytest worker computes for the others.

    All cases run in one start of the processes.
    """
    with shared_by_workers(tmp_path_factory, "two_processes.pt") as file:
        if not file.exists():
            tokenizer = (checkpoint / "tokenizer.json").read_text()
            table = np.random.default_rng(0).normal(size=(500, 6)).astype(np.float32)
            write_static(StaticTable(tokenizer, table), checkpoint / "static")
            cases = [
                (
                    model_config(checkpoint, changes, embedder),
                    masks,
                    with_given(name, batches),
                    dtype,
                )
                for name, (changes, embedder, masks, dtype) in CASES.items()
            ]
            together = two_processes.run(
                steps.everything, cases, model_config(checkpoint, {}, {}), ROWS
            )
            torch.save({"alone": steps.several(cases), "together": together}, file)
    return torch.load(file, weights_only=False)


@pytest.fixture(scope="module")
def outcomes(results: dict[str, Any]) -> dict[str, tuple[dict, list[dict]]]:
    """Return the results of one process and of each of two processes, by the name of the case."""
    return {
        name: (results["alone"][i], [process["cases"][i] for process in results["together"]])
        for i, name in enumerate(CASES)
    }


@pytest.mark.parametrize("name", CASES)
def test_two_processes_equal_one(name: str, outcomes: dict[str, tuple[dict, list[dict]]]) -> None:
    alone, together = outcomes[name]
    atol = 1e-9 if CASES[name][3] is torch.float64 else 2e-6
    factor = 2 if name == "scale_fix off" else 1
    for process in together:
        assert process["losses"] == pytest.approx(alone["losses"], abs=max(atol, 1e-6))
        assert process["metrics"] == pytest.approx(alone["metrics"], abs=1e-5)
        for ours, expected in zip(process["gradients"], alone["gradients"], strict=True):
            assert ours.keys() == expected.keys()
            largest = max(gradient.abs().max().item() for gradient in expected.values())
            assert largest > 1e-3
            for key in expected:
                difference = (ours[key] * factor - expected[key]).abs().max().item()
                assert difference <= atol * max(1, largest), key


def test_without_scale_fix_only_the_contrastive_gradient_is_divided(
    outcomes: dict[str, tuple[dict, list[dict]]],
) -> None:
    """The released configurations of DeCLUTR train so. The loss is still logged undivided."""
    alone, together = outcomes["scale_fix off"]
    name = next(name for name in alone["gradients"][0] if name.endswith("word_embeddings.weight"))
    whole, divided = (r["gradients"][0][name].norm().item() for r in (alone, together[0]))
    assert divided == pytest.approx(whole / 2, rel=1e-9)
    assert together[0]["losses"] == pytest.approx(alone["losses"], rel=1e-9)


def test_validation_is_the_same_in_every_process(results: dict[str, Any]) -> None:
    first, second = (process["validation"] for process in results["together"])
    assert first == second and first[0] == first[1]


@pytest.fixture(scope="module")
def primitives(results: dict[str, Any]) -> list[dict]:
    return [process["primitives"] for process in results["together"]]


def test_gathered_rows_come_in_order_of_rank(primitives: list[dict]) -> None:
    for rank, result in enumerate(p["gathering"] for p in primitives):
        assert result["rank"] == (rank, 2)
        assert torch.equal(result["rows"], ROWS)
        assert result["needs_grad"] == (True, False)


def test_gradients_summed_over_processes_are_those_of_one(primitives: list[dict]) -> None:
    """Each process has the gradient of its own rows that a process with all rows would have."""
    rows = ROWS.clone().requires_grad_()
    loss = NTXent(0.5)(rows, rows.flip(1))
    loss.backward()
    gradient = torch.cat([p["gathering"]["gradient"] for p in primitives])
    assert torch.allclose(gradient, rows.grad, atol=1e-12)
    assert [p["gathering"]["loss"] for p in primitives] == pytest.approx([loss.item()] * 2)


def test_values_are_reduced_and_logged(primitives: list[dict]) -> None:
    for result in (p["gathering"] for p in primitives):
        assert torch.equal(result["reduced"], torch.full((3,), 2.0))
        assert torch.equal(result["untouched"], torch.ones(3))
        assert result["logged"] == (1.5, 2.0)


def test_different_numbers_of_rows_raise_everywhere(primitives: list[dict]) -> None:
    for result in primitives:
        assert "different numbers of rows" in result["error"] and "[2, 3]" in result["error"]
        assert 'data loader "declutr"' in result["error"]


def test_ragged_rows_are_gathered(results: dict[str, Any]) -> None:
    rows = ROWS.clone().requires_grad_()
    NTXent(0.5)(rows, rows.flip(1)).backward()
    assert rows.grad is not None
    first, second = (process["ragged"] for process in results["together"])
    gradient = torch.cat([first["gradient"], second["gradient"]])
    assert torch.allclose(gradient, 2 * rows.grad, atol=1e-12)  # DistributedDataParallel halves it
    for result in (first, second):
        assert torch.equal(result["rows"], ROWS)
        assert result["numbers"] == [0, 1, *range(len(ROWS) - 2)]


@pytest.mark.parametrize("of_the_last, steps", [(5, 6), (3, 4)])
def test_both_trainers_agree_in_two_processes(
    of_the_last: int, steps: int, results: dict[str, Any]
) -> None:
    """If one process runs out of batches before the other, both end the epoch."""
    for process in results["together"]:
        theirs, ours = (
            process["trained"][kind, of_the_last] for kind in ("gradient_descent", "declutr")
        )
        assert ours["metrics"] == theirs["metrics"] and "training_reg_loss" in ours["metrics"]
        assert ours["steps"] == theirs["steps"] == steps
        for name, weight in theirs["weights"].items():
            assert torch.equal(weight, ours["weights"][name]), name


def test_a_single_process_needs_no_group() -> None:
    rows = ROWS.clone().requires_grad_()
    assert gather_rows(rows) is rows and gather_ragged_rows(rows) is rows
    assert not is_distributed() and world_size() == 1
    reduced: Tensor = all_reduced(rows)
    assert torch.equal(reduced, rows) and not reduced.requires_grad
    assert reduced.data_ptr() != rows.data_ptr()
