"""Tests of NT-Xent against three references.

They are the numbers of `fixtures/golden_objectives.json`, the formula as two loops over floats, and
`NTXentLoss` of pytorch-metric-learning.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import losses, reducers
from torch import Tensor

from declutr.objectives import (
    CrossBatchMemory,
    NTXent,
    Objective,
    PairMarginMiner,
    nt_xent,
    nt_xent_loss,
)
from tests.objectives.laws import assert_full_precision, largest_saved

FIXTURES = Path(__file__).parents[1] / "fixtures"
GOLDEN = json.loads((FIXTURES / "golden_objectives.json").read_text())


def doubles(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def views(pairs: int, width: int, seed: int = 0, **options: Any) -> tuple[Tensor, Tensor]:
    """Draw two random views `(pairs, width)`, in float64 by default."""
    generator = torch.Generator().manual_seed(seed)
    options = {"dtype": torch.float64, **options}
    draw = [torch.randn(pairs, width, generator=generator, dtype=torch.float64) for _ in range(2)]
    return draw[0].to(**options), draw[1].to(**options)


def cosine(x: list[float], y: list[float]) -> float:
    dot = sum(a * b for a, b in zip(x, y, strict=True))
    return dot / math.sqrt(sum(a * a for a in x) * sum(b * b for b in y))


def naive_terms(
    rows: list[list[float]], partner: list[int], tau: float, others: list[list[float]] | None = None
) -> list[float]:
    """Return `l(i, partner(i))` for every row i, with all other rows and `others` as candidates."""
    terms = []
    for i, row in enumerate(rows):
        positive = cosine(row, rows[partner[i]]) / tau
        candidates = [cosine(row, rows[k]) / tau for k in range(len(rows)) if k != i]
        candidates += [cosine(row, other) / tau for other in others or []]
        top = max(candidates)
        lse = top + math.log(sum(math.exp(c - top) for c in candidates))
        terms.append(lse - positive)
    return terms


def naive_nt_xent(anchors: Tensor, positives: Tensor, tau: float) -> list[float]:
    n = len(anchors)
    partner = [*range(n, 2 * n), *range(n)]
    return naive_terms(torch.cat([anchors, positives]).tolist(), partner, tau)


# ------------------------------------------------------------------------------- golden numbers


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("tau", [0.05, 0.5])
def test_golden_numbers(tau: float, reduction: str) -> None:
    golden = GOLDEN["ntxent_declutr"]
    positives = doubles(golden["inputs"]["positives"]).mean(dim=1)
    assert torch.allclose(positives, doubles(golden["values"]["mean_positive"]))
    loss = NTXent(tau, reduction)(doubles(golden["inputs"]["anchors"]), positives)
    assert loss.item() == pytest.approx(golden["values"][f"tau{tau}_{reduction}"], abs=1e-9)


def test_positives_are_not_normalised_before_they_are_averaged() -> None:
    golden = GOLDEN["ntxent_declutr"]
    wrong = golden["values"]["tau0.5_mean_if_positives_normalised_before_averaging_WRONG"]
    anchors, positives = (doubles(golden["inputs"][key]) for key in ("anchors", "positives"))
    unit = torch.nn.functional.normalize(positives, dim=-1).mean(dim=1)
    assert NTXent(0.5)(anchors, unit).item() == pytest.approx(wrong, abs=1e-7)
    assert abs(NTXent(0.5)(anchors, positives.mean(dim=1)).item() - wrong) > 1e-2


def test_golden_value_of_supcon_with_unique_labels() -> None:
    inputs = GOLDEN["align_uniform"]["inputs"]
    loss = NTXent(0.5)(doubles(inputs["x"]), doubles(inputs["y"]))
    expected = GOLDEN["supcon"]["values"]["ntxent_equality_unique_labels_tau0.5"]
    assert loss.item() == pytest.approx(expected, abs=1e-9)


# ---------------------------------------------------------------------- the formula, and its laws


@settings(max_examples=40, deadline=None)
@given(
    pairs=st.integers(2, 7),
    width=st.integers(2, 5),
    seed=st.integers(0, 10**6),
    tau=st.sampled_from([0.05, 0.1, 0.5, 2.0]),
)
def test_equals_the_formula_in_loops(pairs: int, width: int, seed: int, tau: float) -> None:
    anchors, positives = views(pairs, width, seed)
    terms = naive_nt_xent(anchors, positives, tau)
    mean, total = (NTXent(tau, reduction)(anchors, positives) for reduction in ("mean", "sum"))
    assert total.item() == pytest.approx(sum(terms), rel=1e-9, abs=1e-9)
    assert mean.item() == pytest.approx(sum(terms) / (2 * pairs), rel=1e-9, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(pairs=st.integers(2, 8), seed=st.integers(0, 10**6))
def test_invariant_to_order_scale_and_exchange_of_views(pairs: int, seed: int) -> None:
    anchors, positives = views(pairs, 4, seed)
    objective = NTXent(0.1)
    expected = objective(anchors, positives).item()
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(pairs, generator=generator)
    scale = torch.rand(2, pairs, 1, generator=generator, dtype=torch.float64) * 50 + 0.01
    for changed in (
        (anchors[order], positives[order]),
        (positives, anchors),
        (anchors * scale[0], positives * scale[1]),
    ):
        assert objective(*changed).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("tau", [0.05, 0.5])
@pytest.mark.parametrize("pairs", [2, 3, 9])
def test_identical_rows_give_the_loss_of_guessing(pairs: int, tau: float) -> None:
    rows = torch.ones(pairs, 3, dtype=torch.float64)
    expected = math.log(2 * pairs - 1)
    assert NTXent(tau)(rows, rows).item() == pytest.approx(expected, rel=1e-12)
    assert NTXent(tau, "sum")(rows, rows).item() == pytest.approx(2 * pairs * expected, rel=1e-12)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_one_pair_has_no_negatives(reduction: str) -> None:
    anchors, positives = views(1, 4)
    anchors.requires_grad_(), positives.requires_grad_()
    loss = NTXent(0.05, reduction)(anchors, positives)
    loss.backward()
    assert loss.item() == 0 and loss.shape == ()
    assert anchors.grad is not None and not anchors.grad.any()
    assert positives.grad is not None and not positives.grad.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["duplicates", "opposite", "zeros", "huge", "tiny", "perfect"])
def test_values_and_gradients_of_hard_batches_are_finite(kind: str, dtype: torch.dtype) -> None:
    anchors, positives = views(6, 4, dtype=dtype)
    if kind == "duplicates":
        anchors, positives = anchors[[0, 0, 0, 1, 1, 2]], anchors[[0, 0, 1, 1, 2, 2]]
    elif kind == "opposite":
        positives = -anchors
    elif kind == "zeros":
        anchors, positives = anchors * 0, positives * 0
    elif kind == "huge":
        anchors, positives = anchors * 1e15, positives * 1e15
    elif kind == "tiny":
        anchors, positives = anchors * 1e-15, positives * 1e-15
    else:
        positives = anchors.clone()
    anchors.requires_grad_(), positives.requires_grad_()
    loss = NTXent(0.05)(anchors, positives)
    loss.backward()
    assert loss.isfinite() and loss >= 0
    assert anchors.grad.isfinite().all() and positives.grad.isfinite().all()


def test_pairs_with_a_very_large_loss_have_a_gradient() -> None:
    """Use losses above 87, at which `NTXentLoss` is capped by a number inside its logarithm."""
    anchors = torch.tensor([[1.0, 0.0], [-1.0, 0.01]])
    positives = torch.tensor([[-1.0, 0.02], [1.0, 0.03]], requires_grad=True)
    loss = NTXent(0.01)(anchors, positives)
    loss.backward()
    assert loss.item() == pytest.approx(
        sum(naive_nt_xent(anchors, positives.detach(), 0.01)) / 4, rel=1e-5
    )
    assert loss > 150 and positives.grad.norm() > 1


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("pairs", [1, 2, 4])
def test_gradcheck(pairs: int, reduction: str) -> None:
    inputs = [view.requires_grad_() for view in views(pairs, 3, seed=pairs)]
    assert torch.autograd.gradcheck(NTXent(0.3, reduction), inputs)


# ---------------------------------------------------------------- equality with the plain library


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("pairs", [2, 3, 16])
@pytest.mark.parametrize("tau", [0.05, 0.5])
def test_equals_the_loss_of_the_library(tau: float, pairs: int, reduction: str) -> None:
    reducer = {"mean": reducers.MeanReducer, "sum": reducers.SumReducer}[reduction]()
    theirs = losses.NTXentLoss(temperature=tau, reducer=reducer)
    results = []
    for ours in (True, False):
        anchors, positives = (view.requires_grad_() for view in views(pairs, 8, seed=3))
        if ours:
            loss = NTXent(tau, reduction)(anchors, positives)
        else:
            labels = torch.arange(pairs).repeat(2)
            loss = theirs(torch.cat([anchors, positives]), labels)
        loss.backward()
        results.append((loss, anchors.grad, positives.grad))
    for mine, other in zip(*results, strict=True):
        assert torch.allclose(mine, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_in_float32_it_is_the_loss_of_the_library(reduction: str) -> None:
    """Compare with a tolerance of 1e-6, which is the accuracy of logits of 20 in float32."""
    x = [view.requires_grad_() for view in views(32, 16, dtype=torch.float32)]
    labels = torch.arange(32).repeat(2)
    ours, theirs = NTXent(0.05, reduction)(*x), NTXent(0.05, reduction)(*x, labels=labels[:32])
    terms = 1 if reduction == "mean" else 64
    assert ours.item() == pytest.approx(theirs.item(), abs=5e-6 * terms)
    mine, others = (torch.stack(torch.autograd.grad(loss, x)) for loss in (ours, theirs))
    assert (mine - others).norm() < 1e-4 * others.norm()


def test_given_classes_it_is_the_supervised_loss_of_the_library() -> None:
    anchors, positives = views(6, 4)
    labels = torch.tensor([0, 0, 1, 1, 2, 3])
    loss = NTXent(0.3)(anchors, positives, labels=labels)
    rows = torch.cat([anchors, positives])
    theirs = losses.SupConLoss(temperature=0.3, reducer=reducers.MeanReducer())
    assert loss.item() == theirs(rows, labels.repeat(2)).item()
    assert loss.item() != pytest.approx(NTXent(0.3)(anchors, positives).item(), rel=1e-3)


@pytest.mark.parametrize("block", [1, 3, 10])
def test_blocks_of_rows_change_nothing(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    anchors, positives = (view.requires_grad_() for view in views(5, 3))
    whole = nt_xent_loss(anchors, positives, 0.2, "none")
    assert whole.tolist() == pytest.approx(naive_nt_xent(anchors, positives, 0.2), rel=1e-9)
    monkeypatch.setattr(nt_xent, "_BLOCK", block)
    parts = nt_xent_loss(anchors, positives, 0.2, "none")
    assert torch.allclose(whole, parts, rtol=1e-12)
    for one, other in zip(
        *(torch.autograd.grad(terms.sum(), [anchors, positives]) for terms in (whole, parts)),
        strict=True,
    ):
        assert torch.allclose(one, other, rtol=1e-12)


def test_an_empty_batch_gives_zero() -> None:
    anchors, positives = (view.requires_grad_() for view in views(0, 3))
    loss = nt_xent_loss(anchors, positives)
    loss.backward()
    assert loss.item() == 0 and anchors.grad is not None


def test_full_precision() -> None:
    assert_full_precision(nt_xent_loss, *views(16, 8))


def test_only_one_matrix_of_all_pairs_is_kept() -> None:
    assert largest_saved(nt_xent_loss, *views(64, 4, dtype=torch.float32)) == 128**2


_MEMORY = """
import resource, torch
torch.set_num_threads(1)
from declutr.objectives import NTXent
def step(pairs):
    x = torch.randn(2, pairs, 64, requires_grad=True)
    NTXent()(x[0], x[1]).backward()
step(8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
step(512)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.slow
def test_memory_is_not_cubic() -> None:
    """Use 512 pairs, which need 18 GB in `NTXentLoss` and a few matrices of 4 MB here."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) < 400  # MB


# ------------------------------------------------------------------------------------- arguments


def test_registered_names() -> None:
    built = Objective.from_params(Params({"temperature": 0.2, "reduction": "sum"}))
    assert isinstance(built, NTXent) and (built.temperature, built.reduction) == (0.2, "sum")
    assert isinstance(Objective.from_params(Params({"type": "nt_xent"})), NTXent)
    memory = Objective.from_params(
        Params({"type": "cross_batch_memory", "loss": {"temperature": 0.1}, "embedding_size": 4})
    )
    assert isinstance(memory, CrossBatchMemory)
    assert (memory.temperature, memory.reduction) == (0.1, "mean")  # for the run's record


@pytest.mark.parametrize("temperature", [0, -0.1])
def test_invalid_temperatures_raise(temperature: float) -> None:
    with pytest.raises(ConfigurationError, match=r"temperature must be above 0"):
        NTXent(temperature)


def test_unknown_reductions_raise() -> None:
    with pytest.raises(ConfigurationError, match=r"Unknown reduction 'none'.*mean, sum"):
        NTXent(reduction="none")


@pytest.mark.parametrize("shapes", [((3, 4), (2, 4)), ((3, 4), (3, 5)), ((4,), (4,))])
def test_views_of_different_shapes_raise(shapes: tuple) -> None:
    with pytest.raises(ValueError, match=r"must both be \(N, d\)"):
        NTXent()(torch.ones(shapes[0]), torch.ones(shapes[1]))


def test_objectives_that_take_no_miner_raise() -> None:
    class Constant(Objective):
        def forward(self, anchors: Tensor, positives: Tensor) -> Tensor:
            return anchors.sum() * 0

    with pytest.raises(ConfigurationError, match="Constant takes no miner"):
        Constant().attach_miner(PairMarginMiner(0.2, 0.8))


# -------------------------------------------------------------------------------------- the miner


def test_a_miner_that_keeps_everything_changes_nothing() -> None:
    anchors, positives = views(5, 4)
    plain, mined = NTXent(0.1), NTXent(0.1)
    mined.attach_miner(PairMarginMiner(pos_margin=1.1, neg_margin=-1.1))
    assert mined(anchors, positives).item() == pytest.approx(plain(anchors, positives).item())


def test_with_a_miner_only_mined_pairs_have_terms() -> None:
    """Compare with a mean over mined positives, each against the mined negatives of its row."""
    anchors, positives = views(6, 3, seed=5)
    margins = {"pos_margin": 0.4, "neg_margin": 0.1}
    rows = torch.cat([anchors, positives]).tolist()
    terms = []
    for i, row in enumerate(rows):
        j = (i + 6) % 12
        s = cosine(row, rows[j])
        if s >= margins["pos_margin"]:
            continue
        negatives = [cosine(row, rows[k]) for k in range(12) if k not in (i, j)]
        kept = [s, *(n for n in negatives if n > margins["neg_margin"])]
        terms.append(-s / 0.1 + math.log(sum(math.exp(c / 0.1) for c in kept)))
    assert 0 < len(terms) < 12
    objective = NTXent(0.1)
    objective.attach_miner(PairMarginMiner(**margins))
    assert objective(anchors, positives).item() == pytest.approx(sum(terms) / len(terms), rel=1e-9)


def test_a_miner_that_keeps_nothing_gives_zero_with_a_graph() -> None:
    anchors, positives = (view.requires_grad_() for view in views(4, 3))
    objective = NTXent(0.1)
    objective.attach_miner(PairMarginMiner(pos_margin=-1.1, neg_margin=1.1))
    loss = objective(anchors, positives)
    loss.backward()
    assert loss.item() == 0 and not anchors.grad.any()
