"""Tests of NT-Xent and SupCon against golden numbers, the formulas as loops over floats, and
pytorch-metric-learning."""

import math

import pytest
import torch
from hypothesis.strategies import integers, sampled_from
from pytorch_metric_learning import losses, reducers
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from declutr.objectives import NTXent, PairMarginMiner, SupCon, nt_xent, nt_xent_loss, sup_con_loss
from tests.objectives import laws
from tests.objectives.oracles import (
    Golden,
    assert_reductions,
    cosine,
    doubles,
    drawn,
    log_sum_exp,
    mean,
    normal,
    others_with_label,
    some_labels,
)

GOLDEN, SUP_CON = Golden("objectives", "ntxent_declutr"), Golden("pairs", "supcon")
X, LABELS = SUP_CON.inputs("x", "labels")


def views(pairs: int, width: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> list:
    """Draw two views that have nothing to do with each other, with gradients."""
    rows = normal(2 * pairs, width, seed=seed).to(dtype)
    return [view.clone().requires_grad_() for view in (rows[:pairs], rows[pairs:])]


def naive_terms(rows: Tensor, tau: float, others: list[Tensor] | None = None) -> list[float]:
    """Return `l(i, partner of i)` of every row, with all other rows and `others` as candidates."""
    terms = []
    for i, row in enumerate(rows):
        positive = cosine(row, rows[(i + len(rows) // 2) % len(rows)]) / tau
        candidates = [other for k, other in enumerate(rows) if k != i] + (others or [])
        terms.append(log_sum_exp([cosine(row, other) / tau for other in candidates]) - positive)
    return terms


# ------------------------------------------------------------------------------- golden numbers


def test_golden_numbers() -> None:
    anchors, raw = GOLDEN.inputs("anchors", "positives")
    positives, values = raw.mean(dim=1), GOLDEN.values
    assert torch.allclose(positives, doubles(values["mean_positive"]))
    GOLDEN.check(
        {
            f"tau{tau}_{reduction}": NTXent(tau, reduction)(anchors, positives)
            for tau in (0.05, 0.5)
            for reduction in ("mean", "sum")
        },
    )
    wrong = values["tau0.5_mean_if_positives_normalised_before_averaging_WRONG"]
    unit = torch.nn.functional.normalize(raw, dim=-1).mean(dim=1)
    assert NTXent(0.5)(anchors, unit).item() == pytest.approx(wrong, abs=1e-7)
    assert abs(NTXent(0.5)(anchors, positives).item() - wrong) > 1e-2
    x, y = Golden("objectives", "align_uniform").inputs("x", "y")
    of_classes = Golden("objectives", "supcon")
    of_classes.check({"ntxent_equality_unique_labels_tau0.5": NTXent(0.5)(x, y)})


def test_golden_numbers_of_sup_con() -> None:
    found = {f"tau{tau}_mean": sup_con_loss(X, LABELS, tau) for tau in (0.1, 0.5)}
    found["tau0.5_sum"] = total = sup_con_loss(X, LABELS, 0.5, "sum")
    unique = sup_con_loss(X, torch.arange(4).repeat(2), 0.5)
    SUP_CON.check({**found, "ntxent_equality_unique_labels_tau0.5": unique})
    scaled = SUP_CON.values["tau0.1_mean_x_(0.1/0.07)_reference_code"]
    assert abs(found["tau0.1_mean"].item() - scaled) > 1
    misprinted = SUP_CON.values["tau0.5_sum_survey_literal_normaliser_WRONG"]
    assert abs(total.item() - misprinted) > 1e-2


# ------------------------------------------------------------------------------------ the formulas


@drawn(40, pairs=integers(1, 7), width=integers(2, 5), tau=sampled_from([0.05, 0.1, 0.5, 2.0]))
def test_equals_the_formula_in_loops(pairs: int, width: int, seed: int, tau: float) -> None:
    batch = views(pairs, width, seed)
    terms = naive_terms(torch.cat(batch).detach(), tau)
    assert_reductions(lambda reduction: NTXent(tau, reduction)(*batch), terms, "mean sum")
    supervised = SupCon(tau)(*batch).item()
    assert supervised == pytest.approx(mean(terms), rel=1e-9, abs=1e-9)


@drawn(40, rows=integers(1, 9), classes=integers(1, 5), tau=sampled_from([0.1, 1.0]))
def test_sup_con_equals_loops(rows: int, classes: int, seed: int, tau: float) -> None:
    x, labels = normal(rows, 3, seed=seed), some_labels(rows, classes, seed)
    terms = []
    for i in range(rows):
        own = [cosine(x[i], x[j]) / tau for j in others_with_label(labels, i, True)]
        other = [cosine(x[i], x[j]) / tau for j in others_with_label(labels, i, False)]
        if own and other:
            everything = log_sum_exp(own + other)
            terms.append(mean([everything - score for score in own]))
    assert_reductions(lambda reduction: sup_con_loss(x, labels, tau, reduction), terms)


@pytest.mark.parametrize("labels", [[0, 0, 1, 1, 2, 3, 4, 5], [*range(8)], [0] * 8])
def test_rows_without_a_positive_are_only_candidates(labels: list[int]) -> None:
    x, classes = X.clone().requires_grad_(), torch.tensor(labels)
    assert sup_con_loss(x, classes, reduction="none").shape == (4 if len(set(labels)) == 6 else 0,)
    if len(set(labels)) == 6:
        laws.assert_gradients(lambda rows: sup_con_loss(rows, classes, 0.4), x)
    else:
        laws.assert_zero_with_a_graph(sup_con_loss(x, classes), x)


@pytest.mark.parametrize("tau", [0.05, 0.5])
def test_identical_rows_give_the_loss_of_guessing(tau: float) -> None:
    rows, expected = torch.ones(3, 3, dtype=torch.float64), math.log(2 * 3 - 1)
    assert NTXent(tau)(rows, rows).item() == pytest.approx(expected, rel=1e-12)
    assert NTXent(tau, "sum")(rows, rows).item() == pytest.approx(2 * 3 * expected, rel=1e-12)


def test_pairs_with_a_very_large_loss_have_a_gradient() -> None:
    """Use losses above 87, at which `NTXentLoss` is capped by a number inside its logarithm."""
    anchors = torch.tensor([[1.0, 0.0], [-1.0, 0.01]])
    positives = torch.tensor([[-1.0, 0.02], [1.0, 0.03]], requires_grad=True)
    loss = NTXent(0.01)(anchors, positives)
    loss.backward()
    terms = naive_terms(torch.cat([anchors, positives]).detach(), 0.01)
    assert loss.item() == pytest.approx(mean(terms), rel=1e-5)
    assert loss > 150 and positives.grad.norm() > 1


@pytest.mark.parametrize("block", [1, 3, 10])
def test_blocks_of_rows_change_nothing(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = views(5, 3)
    whole = nt_xent_loss(*batch, 0.2, "none")
    assert whole.tolist() == pytest.approx(naive_terms(torch.cat(batch).detach(), 0.2), rel=1e-9)
    monkeypatch.setattr(nt_xent, "_BLOCK", block)
    parts = nt_xent_loss(*batch, 0.2, "none")
    assert torch.allclose(whole, parts, rtol=1e-12)
    laws.assert_same_gradients(whole.sum(), parts.sum(), *batch, rtol=1e-12)


def test_an_empty_batch_gives_zero() -> None:
    batch = views(0, 3)
    laws.assert_zero_with_a_graph(nt_xent_loss(*batch), *batch)


class LargestMade(TorchDispatchMode):
    """Notes the number of elements of the largest tensor that any operation returns."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.untyped_storage().nbytes() // 4)
        return made


def test_no_tensor_is_larger_than_a_matrix_of_all_pairs() -> None:
    """Use 512 pairs, which need 18 GB in `NTXentLoss` and a few matrices of 4 MB here."""
    batch = views(512, 64, dtype=torch.float32)
    with LargestMade() as made:
        NTXent()(*batch).backward()
    assert 0 < made.elements <= 1024**2


# ---------------------------------------------------------------- equality with the plain library


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("pairs", [2, 3, 16])
@pytest.mark.parametrize("tau", [0.05, 0.5])
def test_equals_the_loss_of_the_library(tau: float, pairs: int, reduction: str) -> None:
    reducer = {"mean": reducers.MeanReducer, "sum": reducers.SumReducer}[reduction]()
    batch, labels = views(pairs, 8, seed=3), torch.arange(pairs).repeat(2)
    theirs = losses.NTXentLoss(temperature=tau, reducer=reducer)(torch.cat(batch), labels)
    laws.assert_same_gradients(NTXent(tau, reduction)(*batch), theirs, *batch)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_in_float32_it_is_the_loss_of_the_library(reduction: str) -> None:
    """Compare with a tolerance of 1e-6, which is the accuracy of logits of 20 in float32."""
    x = views(32, 16, dtype=torch.float32)
    ours, theirs = NTXent(0.05, reduction)(*x), NTXent(0.05, reduction)(*x, labels=torch.arange(32))
    terms = 1 if reduction == "mean" else 64
    assert ours.item() == pytest.approx(theirs.item(), abs=5e-6 * terms)
    mine, others = (torch.stack(torch.autograd.grad(loss, x)) for loss in (ours, theirs))
    assert (mine - others).norm() < 1e-4 * others.norm()


def test_given_classes_it_is_the_supervised_loss_of_the_library() -> None:
    batch, labels = views(6, 4), torch.tensor([0, 0, 1, 1, 2, 3])
    loss = NTXent(0.3)(*batch, labels=labels)
    theirs = losses.SupConLoss(temperature=0.3, reducer=reducers.MeanReducer())
    assert loss.item() == theirs(torch.cat(batch), labels.repeat(2)).item()
    assert loss.item() != pytest.approx(NTXent(0.3)(*batch).item(), rel=1e-3)


# -------------------------------------------------------------------------------------- the miner


def mined_loss(batch: list[Tensor], pos_margin: float, neg_margin: float) -> Tensor:
    objective = NTXent(0.1)
    objective.attach_miner(PairMarginMiner(pos_margin, neg_margin))
    return objective(*batch)


def test_miners_that_keep_everything_or_nothing() -> None:
    batch = views(5, 4)
    assert mined_loss(batch, 1.1, -1.1).item() == pytest.approx(NTXent(0.1)(*batch).item())
    laws.assert_zero_with_a_graph(mined_loss(batch, -1.1, 1.1), *batch)


def test_with_a_miner_only_mined_pairs_have_terms() -> None:
    """Compare with a mean over mined positives, each against the mined negatives of its row."""
    batch = views(6, 3, seed=5)
    rows, terms = torch.cat(batch).detach(), []
    for i, row in enumerate(rows):
        j = (i + 6) % 12
        s = cosine(row, rows[j])
        if s < 0.4:
            negatives = [cosine(row, rows[k]) for k in range(12) if k not in (i, j)]
            kept = [s, *(n for n in negatives if n > 0.1)]
            terms.append(log_sum_exp([c / 0.1 for c in kept]) - s / 0.1)
    assert 0 < len(terms) < 12
    assert mined_loss(batch, 0.4, 0.1).item() == pytest.approx(mean(terms), rel=1e-9)
