"""Tests of settings of objectives that are built from their registered names, and of refusals."""

from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr import objectives
from declutr.objectives import Objective
from tests.objectives.oracles import normal

BANK = {"instances": 5, "embedding_size": 4}
PAIRS = {"num_labels": 3, "embedding_size": 2}
RAW = {"normalize_embeddings": False}
TWO = {"anchors": True, "positives": True}
OF_PAIRS = {**TWO, "labels": True}
OF_BANK = {"anchors": True, "ids": True}
WITH_PROJECTIONS = dict.fromkeys([*TWO, "projected_anchors", "projected_positives"], True)
OF_TOKENS = dict.fromkeys(("token_vectors", "token_mask", "anchors"), True)


def built(name: str | None, **settings: Any) -> Objective:
    return Objective.from_params(Params({**({"type": name} if name else {}), **settings}))


@pytest.mark.parametrize(
    ("name", "settings", "kind", "attributes"),
    [
        (None, {"temperature": 0.2}, "NTXent", {"temperature": 0.2, "reduction": "mean"}),
        ("nt_xent", {"reduction": "sum"}, "NTXent", {"temperature": 0.05, "reduction": "sum"}),
        (
            "cross_batch_memory",
            {"loss": {"temperature": 0.1}, "embedding_size": 4},
            "CrossBatchMemory",
            {"temperature": 0.1, "reduction": "mean"},  # for the run's record
        ),
        ("contrastive", {}, "Contrastive", {"margin": 1.0, **RAW}),
        ("lifted_structured", {}, "LiftedStructured", {"margin": 1.0, "hinge": False, **RAW}),
        ("soft_nearest_neighbours", {}, "SoftNearestNeighbours", {"temperature": 1.0}),
        ("triplet", {}, "Triplet", {"margin": 1.0, "squared": False, **RAW}),
        ("align_uniform", {"t": 3}, "AlignUniform", {"min_pairs": 2, "t": 3}),
        ("barlow_twins", {"redundancy_weight": 0.1}, "BarlowTwins", {"redundancy_weight": 0.1}),
        ("byol", {"reduction": "sum"}, "BYOL", {"min_pairs": 1, "reduction": "sum"}),
        (
            "cosine_regression",
            {"reduction": "sum"},
            "CosineRegression",
            {"reduction": "sum", "min_pairs": 1, "inputs": OF_PAIRS},
        ),
        ("debiased_contrastive", {"reduction": "sum"}, "DebiasedContrastive", {"beta": 0.0}),
        ("hard_negative", {"beta": 2.0}, "HardNegative", {"beta": 2.0, "detach_weights": False}),
        (
            "instance_discrimination",
            {**BANK, "noise": 2},
            "InstanceDiscrimination",
            {"min_pairs": 1, "noise": 2, "inputs": OF_BANK},
        ),
        ("is_bert", {}, "ISBert", {"inputs": OF_TOKENS}),
        ("mochi", {"queue_size": 0, "in_batch": True}, "HardNegativeMixing", {"min_pairs": 2}),
        (
            "mochi",
            {"embedding_size": 4, "in_batch": True},  # keys of a momentum encoder
            "HardNegativeMixing",
            {"min_pairs": 1},
        ),
        (
            "moco",
            {"embedding_size": 4, "queue_size": 6, "only_filled": True},
            "MomentumContrast",
            {"temperature": 0.07, "min_pairs": 1, "only_filled": True},
        ),
        (
            "pair_softmax",
            {"num_labels": 4, "embedding_size": 5},
            "PairSoftmax",
            {"concatenation": ("u", "v", "difference"), "min_pairs": 1, "inputs": OF_PAIRS},
        ),
        ("quick_thoughts", {"context": 2}, "QuickThoughts", {"context": 2, "parity": False}),
        (
            "reclaim",
            BANK,
            "Reclaim",
            {"num_negatives": 100, "min_pairs": 1, "inputs": {**TWO, "ids": True, "texts": False}},
        ),
        (
            "scd",
            {"temperature": 1.0, "reduction": "sum"},
            "SCD",
            {"temperature": 1.0, "reduction": "sum", "min_pairs": 2, "inputs": WITH_PROJECTIONS},
        ),
        ("swav", {"embedding_size": 4, "prototypes": 6}, "SwappedPrediction", {}),
    ],
)
def test_registered_names(
    name: str | None, settings: dict, kind: str, attributes: dict[str, Any]
) -> None:
    objective = built(name, **settings)
    assert type(objective) is getattr(objectives, kind)
    assert {key: getattr(objective, key) for key in attributes} == attributes


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("align_uniform", {"alpha": 0}, "alpha must be above 0, got 0"),
        ("align_uniform", {"uniform_weight": -1}, "uniform_weight must be 0 or above, got -1"),
        ("barlow_twins", {"redundancy_weight": -1}, "redundancy_weight must be 0 or above, got -1"),
        ("barlow_twins", {"eps": 0}, "eps must be above 0, got 0"),
        ("contrastive", {"margin": 0}, "margin must be above 0, got 0"),
        ("cosine_regression", {"reduction": "none"}, "Unknown reduction 'none'"),
        ("debiased_contrastive", {"tau_plus": -0.1}, r"tau_plus must be in \[0, 1\), got -0.1"),
        ("debiased_contrastive", {"tau_plus": 1.0}, r"tau_plus must be in \[0, 1\), got 1.0"),
        ("hard_negative", {"beta": -1}, "beta must be 0 or above, got -1"),
        ("hard_negative", {"temperature": 0}, "temperature must be above 0, got 0"),
        ("info_nce", {"temperature": 0}, "temperature must be above 0, got 0"),
        ("info_nce", {"similarity": "cos"}, "Unknown similarity 'cos': expected one of dot"),
        ("info_nce", {"similarity": "bilinear"}, "embedding_size is needed .* None"),
        ("info_nce", {"embedding_size": 3}, "has no meaning otherwise; got similarity 'dot'"),
        ("instance_discrimination", {**BANK, "momentum": 1}, r"must be in \[0, 1\), got 1"),
        ("instance_discrimination", {**BANK, "noise": 0}, "noise must be at least 1 draw, got 0"),
        ("instance_discrimination", {**BANK, "instances": 0}, "instances must be above 0, got 0"),
        ("lifted_structured", {"margin": -1}, "margin must be 0 or above, got -1"),
        ("mochi", {}, "queue of 16384 keys needs embedding_size"),
        ("mochi", {"queue_size": 0}, "no negatives to mix"),
        ("mochi", {"embedding_size": 4, "hardest": 0}, "hardest must be above 0, got 0"),
        ("moco", {"embedding_size": 4, "queue_size": 0}, "queue_size must be above 0, got 0"),
        ("n_pair", {"reduction": "none"}, "Unknown reduction 'none': expected one of mean, sum"),
        ("nce", {"scale": -1}, "scale must be above 0, got -1"),
        ("nce", {"gamma": 0}, "gamma must be above 0, got 0"),
        ("nce", {"similarity": "bilinear"}, "expected one of cosine, dot"),
        ("nt_xent", {"temperature": 0}, "temperature must be above 0, got 0"),
        ("nt_xent", {"temperature": -0.1}, "temperature must be above 0, got -0.1"),
        ("nt_xent", {"reduction": "none"}, "Unknown reduction 'none'.*mean, sum"),
        ("pair_softmax", {**PAIRS, "num_labels": 1}, "num_labels must be at least 2, got 1"),
        ("pair_softmax", {**PAIRS, "embedding_size": 0}, "embedding_size must be above 0, got 0"),
        (
            "pair_softmax",
            {**PAIRS, "concatenation": ["w"]},
            "Unknown part of the concatenation 'w': expected one of u, v",
        ),
        ("pair_softmax", {**PAIRS, "concatenation": ["u", "u"]}, r"each once; got \['u', 'u'\]"),
        ("pair_softmax", {**PAIRS, "concatenation": []}, r"must name some of u, v, .*; got \[\]"),
        ("pair_softmax", {**PAIRS, "reduction": "none"}, "Unknown reduction 'none': expected one"),
        ("quick_thoughts", {"context": 0}, "context must be at least 1 sentence, got 0"),
        ("reclaim", {**BANK, "num_negatives": -1}, "num_negatives must be 0 or more, got -1"),
        ("reclaim", {**BANK, "negatives": "max"}, "Unknown negatives 'max': expected one of sum"),
        (
            "reclaim",
            {**BANK, "candidates": "corpus"},
            "Unknown candidates 'corpus': expected one of bank, batch",
        ),
        ("reclaim", {**BANK, "candidate_share": 0.0}, r"must be in \(0, 1\], got 0.0"),
        (
            "reclaim",
            {**BANK, "candidates": "batch", "candidate_share": 0.8},
            "candidate_share is a share of the bank",
        ),
        (
            "reclaim",
            {**BANK, "num_negatives": None, "search": "approximate"},
            "all candidates are negatives, and nothing",
        ),
        ("reclaim", {**BANK, "momentum": 1.0}, "1 would never update"),
        ("reclaim", {**BANK, "reduction": "none"}, "Unknown reduction 'none'"),
        ("scd", {"contrast_weight": 0, "decorrelation_weight": 0}, "both 0, so there is nothing"),
        ("scd", {"temperature": 0}, "temperature must be above 0, got 0"),
        ("scd", {"reduction": "none"}, "Unknown reduction 'none'"),
        ("soft_nearest_neighbours", {"distance": "l2"}, "Unknown distance 'l2'"),
        ("sup_con", {"temperature": -0.1}, "temperature must be above 0, got -0.1"),
        *(
            ("swav", {"embedding_size": 4, name: 0}, f"{name} must be above 0, got 0")
            for name in ("prototypes", "epsilon", "iterations", "temperature", "embedding_size")
        ),
        *(
            ("swav", {"embedding_size": 4, **given}, message)
            for given, message in (
                ({"assigned_views": 0}, "assigned_views must be above 0, got 0"),
                ({"frozen_steps": -1}, "frozen_steps must be 0 or above, got -1"),
            )
        ),
        (
            "instance_discrimination",
            {**BANK, "proximal": -1},
            "proximal must be 0 or above, got -1",
        ),
        (
            "info_nce",
            {"view_pairs": "all"},
            "Unknown view_pairs 'all': expected one of core_view, full_g",
        ),
        (
            "info_nce",
            {"temperature": 0.001, "learn_temperature": True},
            "A learnt temperature stays at 0.01 or above, got 0.001",
        ),
        ("swav", {"embedding_size": 4, "queue_size": -1}, "queue_size must be 0 or above, got -1"),
        ("triplet", {"margin": -1}, "margin must be 0 or above, got -1"),
    ],
)
def test_invalid_settings_raise(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        built(name, **settings)


def zeros(*shapes: tuple[int, ...]) -> list[Tensor]:
    return [torch.zeros(shape) for shape in shapes]


ROWS, SHORTER, MOCO = (3, 4), (2, 4), {"embedding_size": 4, "queue_size": 8}
U, LABELS = (2, 2), torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("name", "settings", "inputs", "message"),
    [
        *(("nt_xent", {}, zeros(x, y), r"must both be \(N, d\)")
          for x, y in ((ROWS, SHORTER), (ROWS, (3, 5)), ((4,), (4,)))),
        *((name, {}, zeros(ROWS, SHORTER), r"row i of both belonging together; got \(3, 4\) and")
          for name in ("align_uniform", "barlow_twins", "debiased_contrastive", "info_nce",
                       "triplet")),
        ("cosine_regression", {}, zeros(U, (1, 2), (2,)), r"\(2, 2\) and \(1, 2\)"),
        ("pair_softmax", PAIRS, [*zeros(U, (1, 2)), LABELS], r"\(2, 2\) and \(1, 2\)"),
        ("byol", {}, zeros((2, 3), (1, 3)), r"got \(2, 3\) and \(1, 3\)"),
        ("align_uniform", {}, zeros((1, 4), (1, 4)), "at least two embeddings, got 1"),
        ("barlow_twins", {}, zeros((1, 4), (1, 4)), "at least two rows, got 1"),
        ("is_bert", {}, zeros((1, 3, 4), (1, 3), (1, 4)), "at least two sentences, got 1"),
        ("is_bert", {}, zeros((2, 2, 3), (2, 3), (2, 3)), r"\(N, T\), got \(2, 2, 3\) and \(2, 3"),
        ("is_bert", {}, zeros((2, 2, 3), (2, 2), (3, 3)), r"vectors \(2, 3\).*got \(3, 3\)"),
        *((name, settings, zeros((2, 3), (2, 3)), r"rows of width 4 \(embedding_size\), got \(2, 3")
          for name, settings in (("moco", MOCO), ("mochi", MOCO), ("swav", {"embedding_size": 4}))),
        ("instance_discrimination", BANK, [torch.zeros(2, 4), torch.tensor([0, 5])],
         r"ids from 0 to 4 \(instances is 5\), got 0 to 5"),
        ("instance_discrimination", BANK, [torch.zeros(2, 4), torch.arange(3)],
         r"features \(N, 4\) and ids \(N,\), got \(2, 4\) and \(3,\)"),
        ("reclaim", BANK, [*zeros(SHORTER, SHORTER), torch.tensor([0, 5])],
         r"ids from 0 to 4 \(instances is 5\), got 0 to 5"),
        ("reclaim", BANK, [*zeros((2, 3), SHORTER), LABELS],
         r"features \(n, 4\) and ids \(n,\), got \(2, 3\)"),
        ("reclaim", BANK, [*zeros(SHORTER, (1, 4)), LABELS],
         r"same instance; got \(2, 4\) and \(1, 4\)"),
        ("reclaim", BANK, [*zeros((2, 1, 4), (2, 1, 4)), LABELS], r"got \(2, 1, 4\) and \(2,\)"),
        ("pair_softmax", {**PAIRS, "embedding_size": 3}, [*zeros(U, U), LABELS],
         r"rows of width 3 \(embedding_size\), got \(2, 2\)"),
        *(("pair_softmax", PAIRS, [*zeros(U, U), torch.tensor(labels)], message)
          for labels, message in (
              ([0, 3], r"classes from 0 to 2 \(num_labels is 3\), got 0 to 3"),
              ([-1, 1], r"classes from 0 to 2 \(num_labels is 3\), got -1 to 1"),
              ([0.0, 1.0], r"the class \(int64\) of each of the 2 pairs, got torch.float32"),
              ([0], r"each of the 2 pairs, got torch.int64 \(1,\)"))),
        *(("cosine_regression", {}, [*zeros(U, U), torch.tensor(labels)], message)
          for labels, message in (
              ([0.1, 4.5], r"scores from -1 to 1, as cosines are, got 0.1 to 4.5. Set max_s"),
              ([0.1, float("nan")], r"scores from -1 to 1, as cosines are, got nan to nan"),
              ([0, 1], r"the score \(float32\) of each of the 2 pairs, got torch.int64"),
              ([0.5], r"each of the 2 pairs, got torch.float32 \(1,\)"))),
        ("quick_thoughts", {}, [*zeros(ROWS, ROWS), torch.arange(3), torch.zeros(2)],
         r"one document id for each of the 3 rows, got \(2,\)"),
        ("quick_thoughts", {}, [*zeros(ROWS, ROWS), torch.tensor([0, 9, 20]), torch.zeros(3)],
         "No sentence of the batch of 3 has a neighbour in it. Set 'consec"),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit_raise(
    name: str, settings: dict, inputs: list[Tensor], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        built(name, **settings).train()(*inputs)


def test_parameters_of_objectives() -> None:
    """Check which parameters are learnt, and saved."""
    softmax = {"num_labels": 2, "embedding_size": 5, "concatenation": ["product", "u"]}
    nce = {"learn_scale": True, "learn_bias": True}
    for name, settings, expected in (
        ("info_nce", {}, {}),
        ("info_nce", {"similarity": "bilinear", "embedding_size": 3}, {"weight": (3, 3)}),
        ("info_nce", {"learn_temperature": True}, {"log_scale": (1,)}),
        ("nce", nce, {"log_scale": (), "bias": ()}),
        ("nce", {}, {}),
        ("pair_softmax", softmax, {"classifier.weight": (2, 10)}),
        ("swav", {"embedding_size": 4, "prototypes": 6}, {"prototypes": (6, 4)}),
        ("moco", MOCO, {}),
    ):
        objective = built(name, **settings)
        learnt = {key: p for key, p in objective.named_parameters() if p.requires_grad}
        assert {key: tuple(p.shape) for key, p in learnt.items()} == expected
        assert learnt.keys() <= objective.state_dict().keys()
        if learnt and name != "pair_softmax":
            width = 3 if name == "info_nce" else 4
            objective(normal(3, width).float(), normal(3, width, seed=1).float()).backward()
            assert all(p.grad.abs().sum() > 0 for p in learnt.values())
