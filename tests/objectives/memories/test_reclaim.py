"""Tests of RECLAIM against golden numbers and loops."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from declutr.objectives import Objective, Reclaim, nce_loss, reclaim_loss
from declutr.objectives.memories import reclaim_losses
from tests.objectives.laws import (
    assert_finite_where_it_is_hard,
    assert_full_precision,
    assert_gradients,
    assert_zero_with_a_graph,
    doubles,
    golden,
    normal,
    permuted,
)
from tests.objectives.memories.test_lipschitz_critic import golden_critic
from tests.objectives.waits import NeverWaits

GOLDEN = golden("reclaim")
IDS = torch.tensor([1, 8, 3])


def softplus(x: float) -> float:
    return math.log1p(math.exp(-abs(x))) + max(x, 0.0)


def made(instances: int = 9, width: int = 4, **settings: Any) -> Reclaim:
    """Return an objective in float64 in whose banks every slot was visited."""
    torch.manual_seed(0)
    objective = Reclaim(instances, width, **{"num_negatives": 3, **settings}).double()
    every = torch.arange(instances)
    objective.u_bank.update(every, normal(instances, width, seed=100))
    objective.v_bank.update(every, normal(instances, objective.v_bank.width, seed=101))
    return objective


# --------------------------------------------------------------------------------------- the loss


def test_golden_numbers_of_logits() -> None:
    entry = GOLDEN["reclaim_loss_from_logits"]
    positive, v, u = (
        doubles([entry["inputs"][name]]) for name in ("logit_pos", "logits_neg_v", "logits_neg_u")
    )
    assert reclaim_loss(positive, v, u).item() == pytest.approx(entry["values"]["loss"], abs=1e-9)


@pytest.mark.parametrize("negatives", ["sum", "mean"])
def test_golden_numbers_of_a_step(negatives: str) -> None:
    entry = GOLDEN["reclaim"]
    inputs, params, values = entry["inputs"], entry["params"], entry["values"]
    objective = Reclaim(
        5, 3, 2, num_negatives=params["K"], momentum=params["rho"], negatives=negatives
    ).double()
    objective.critic = golden_critic()
    for name in ("u", "v"):
        bank = getattr(objective, f"{name}_bank")
        bank.update(torch.arange(5), doubles(inputs[f"bank_{name}"]))
    own = torch.tensor([params["own_index"]])
    objective.train()
    objective.critic.eval()
    loss = objective(doubles([inputs["u"]]), doubles([inputs["v"]]), own).item()
    key = "loss_corrected" if negatives == "sum" else "loss_mean_over_K"
    assert loss == pytest.approx(values[key], abs=1e-9)
    assert abs(loss - values["eq6_literal_objective_WRONG"]) > 1e-4
    for name in ("u", "v"):
        moved = getattr(objective, f"{name}_bank").vectors[0]
        assert torch.allclose(moved, doubles(values[f"bank_{name}0_after_update"]), atol=1e-9)


@settings(max_examples=50, deadline=None)
@given(
    n=st.integers(1, 5),
    of_v=st.integers(0, 4),
    of_u=st.integers(0, 4),
    seed=st.integers(0, 10**6),
    negatives=st.sampled_from(["sum", "mean"]),
)
def test_loss_equals_the_formula_in_loops(
    n: int, of_v: int, of_u: int, seed: int, negatives: str
) -> None:
    positive = 5 * normal(n, seed=seed)
    kinds = [5 * normal(n, k, seed=seed + 1 + k) for k in (of_v, of_u)]
    flags = [normal(n, k, seed=seed + 7) < 0.5 for k in (of_v, of_u)]
    terms = []
    for i in range(n):
        term = softplus(-positive[i].item())
        for logits, found in zip(kinds, flags, strict=True):
            there = [
                softplus(x) for x, is_ in zip(logits[i].tolist(), found[i], strict=True) if is_
            ]
            if there:
                term += sum(there) / (len(there) if negatives == "mean" else 1) / 2
        terms.append(term)
    each = reclaim_loss(positive, *kinds, *flags, negatives, "none")
    assert each.tolist() == pytest.approx(terms, rel=1e-9)
    order = permuted(n, seed, positive, *kinds, *flags)
    assert reclaim_loss(*order, negatives).item() == pytest.approx(sum(terms) / n, rel=1e-9)
    total = reclaim_loss(positive, *kinds, *flags, negatives, "sum").item()
    assert total == pytest.approx(sum(terms), rel=1e-9)


def test_gradients_raise_logits_of_pairs_and_lower_those_of_negatives() -> None:
    """Check that a step against the gradient raises logits of pairs and lowers the others."""
    logits = [normal(4).requires_grad_(), normal(4, 3).requires_grad_(), normal(4, 2)]
    logits[2].requires_grad_()
    reclaim_loss(*logits).backward()
    assert (logits[0].grad < 0).all() and (logits[1].grad > 0).all() and (logits[2].grad > 0).all()


def test_is_nce_where_both_kinds_are_the_same() -> None:
    positive, negative = normal(4), normal(4, 3)
    expected = nce_loss(positive, negative.flatten())
    assert reclaim_loss(positive, negative, negative).item() == pytest.approx(expected.item())
    without = reclaim_loss(positive, negative[:, :0], negative[:, :0]).item()
    assert without == pytest.approx(nce_loss(positive, negative[:0]).item())


def test_negatives_that_were_not_found_have_no_gradient() -> None:
    negatives = normal(2, 2).requires_grad_()
    found = torch.tensor([[True, False], [False, False]])
    reclaim_loss(normal(2), negatives, negatives, found, found).backward()
    assert (negatives.grad != 0).tolist() == found.tolist()


def test_gradients_and_extremes() -> None:
    for way in ("sum", "mean"):
        assert_gradients(
            lambda p, v, u, way=way: reclaim_loss(p, v, u, negatives=way),
            normal(3),
            normal(3, 2),
            normal(3, 4),
        )
    far = torch.full((2, 2), 1e4, requires_grad=True)
    loss = reclaim_loss(-far[:, 0], far, far)
    loss.backward()
    assert loss.isfinite() and far.grad is not None and far.grad.isfinite().all()
    assert_full_precision(lambda p: reclaim_loss(p, p.unsqueeze(1), p.unsqueeze(1)), normal(5))
    nobody = normal(3).requires_grad_()
    none = nobody[:0].unsqueeze(1)
    assert_zero_with_a_graph(reclaim_loss(nobody[:0], none, none), nobody)


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ((normal(2), normal(3, 2), normal(2, 2)), {}, r"got \(2,\), \(3, 2\) and \(3, 2\)"),
        ((normal(2), normal(2), normal(2, 2)), {}, r"got \(2,\), \(2,\) and \(2,\)"),
        (
            (normal(2), normal(2, 2), normal(2, 2), torch.ones(2, 1).bool()),
            {},
            r"and as many flags; got \(2,\), \(2, 2\) and \(2, 1\)",
        ),
        ((normal(2), normal(2, 2), normal(2, 2)), {"negatives": "max"}, "Unknown negatives 'max'"),
        ((normal(2), normal(2, 2), normal(2, 2)), {"reduction": "all"}, "Unknown reduction 'all'"),
    ],
)
def test_logits_of_wrong_shapes_raise(arguments: tuple, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reclaim_loss(*arguments, **settings)


# ---------------------------------------------------------------------------------------- a step


def expected_loss(objective: Reclaim, u: Tensor, v: Tensor, ids: Tensor, k: int) -> float:
    """Compute the loss of one pair after the other, without another power iteration."""
    total = 0.0
    banks = [(objective.u_bank.vectors, u), (objective.v_bank.vectors, v)]
    for i in range(len(ids)):
        near = []
        for bank, queries in banks:
            cosines = torch.cosine_similarity(queries[i : i + 1], bank, dim=1)
            order = [j for j in cosines.argsort(descending=True).tolist() if j != ids[i]]
            near.append(bank[order[:k]])
        pair = objective.critic(u[i], v[i]).item()
        terms = [softplus(objective.critic(u[i], row).item()) for row in near[1]]
        terms += [softplus(objective.critic(row, v[i]).item()) for row in near[0]]
        total += softplus(-pair) + sum(terms) / 2
    return total / len(ids)


@pytest.mark.parametrize("k", [0, 1, 3, 8, 50])
def test_a_step_equals_pairs_one_after_the_other(k: int) -> None:
    """Ask for more negatives than there are, too, of which all are taken."""
    objective = made(v_embedding_size=6, num_negatives=k).eval()
    u, v = normal(3, 4), normal(3, 6, seed=1)
    assert objective(u, v, IDS).item() == pytest.approx(expected_loss(objective, u, v, IDS, k))


def test_negatives_are_selected_before_banks_are_updated() -> None:
    objective = made(momentum=0.25).train()
    u, v = normal(3, 4), normal(3, 4, seed=1)
    before = [bank.vectors.clone() for bank in (objective.u_bank, objective.v_bank)]
    loss = objective(u, v, IDS)
    objective.eval()
    moved = [bank.vectors.clone() for bank in (objective.u_bank, objective.v_bank)]
    for was, now, new in zip(before, moved, (u, v), strict=True):
        expected = was.clone()
        expected[IDS] = 0.75 * new + 0.25 * was[IDS]
        assert torch.allclose(now, expected)
    # In evaluation the critic does no further power iteration, so the loss can be computed again.
    for bank, was in zip((objective.u_bank, objective.v_bank), before, strict=True):
        bank.set_extra_state(was)
    assert loss.item() == pytest.approx(objective(u, v, IDS).item())


def test_with_an_empty_bank_the_loss_has_pairs_only() -> None:
    objective = Reclaim(9, 4, num_negatives=3).double()
    u, v = normal(3, 4), normal(3, 4, seed=1)
    loss = objective(u, v, IDS)
    objective.eval()
    pairs = reclaim_loss(objective.critic(u, v), u[:, :0], u[:, :0])
    assert loss.item() == pytest.approx(pairs.item())
    loss.backward()
    assert objective.u_bank.visited.nonzero()[:, 0].tolist() == [1, 3, 8]


def test_gradient_reaches_both_views_and_all_of_the_critic_but_no_bank() -> None:
    objective = made().train()
    u, v = normal(3, 4).requires_grad_(), normal(3, 4, seed=1).requires_grad_()
    objective(u, v, IDS).backward()
    for leaf in (u, v, *objective.critic.parameters()):
        assert leaf.grad is not None and leaf.grad.any()
    assert not objective.u_bank.vectors.requires_grad
    objective.eval()
    assert_gradients(lambda u, v: objective(u, v, IDS), u.detach(), v.detach())


def test_learns_to_tell_pairs_from_others() -> None:
    """Train on ten instances whose v is a rotation of u, to below the loss of guessing."""
    torch.manual_seed(1)
    u = normal(10, 6).float() * 3
    v = u.roll(1, dims=1)
    objective = Reclaim(10, 6, num_negatives=2, critic_width=16, lipschitz=False)
    optimizer = torch.optim.Adam(objective.parameters(), lr=1e-2)
    ids = torch.arange(10)
    for _ in range(150):
        optimizer.zero_grad()
        loss = objective(u, v, ids)
        loss.backward()
        optimizer.step()
    ignorant = softplus(math.log(2)) + 2 * softplus(-math.log(2))  # -log K everywhere
    assert loss.item() < 0.5 * ignorant


def test_validation_changes_no_state() -> None:
    objective = made(candidate_share=0.5).eval()
    before = {key: value.clone() for key, value in objective.state_dict().items()}
    u, v = normal(3, 4), normal(3, 4, seed=1)
    assert torch.equal(objective(u, v, IDS), objective(u, v, IDS))
    for key, value in objective.state_dict().items():
        assert torch.equal(value, before[key]), key


@pytest.mark.parametrize(
    "settings", [{}, {"storage": "disk"}, {"candidate_share": 0.5}, {"candidates": "batch"}]
)
def test_a_resumed_run_continues_exactly(tmp_path: Path, settings: dict) -> None:
    def fresh() -> Reclaim:
        return Reclaim(9, 4, num_negatives=3, **settings).train()

    def step(objective: Reclaim, number: int) -> Tensor:
        u, v = normal(3, 4, seed=number).float(), normal(3, 4, seed=50 + number).float()
        return objective(u, v, (IDS + number) % 9)

    one = fresh()
    for number in range(3):
        step(one, number)
    torch.save(one.state_dict(), tmp_path / "state.th")
    other = fresh()
    other.load_state_dict(torch.load(tmp_path / "state.th"))
    for number in range(3, 6):
        mine = step(one, number)
        torch.rand(3)  # the global state must not matter
        assert torch.equal(mine, step(other, number))
    for key, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[key]), key


# ------------------------------------------------------------------------------------- ablations


def test_negatives_from_the_batch_only() -> None:
    objective = made(candidates="batch", num_negatives=2).eval()
    ids = torch.tensor([1, 8, 3, 1])
    u, v = normal(4, 4), normal(4, 4, seed=1)
    found, is_ = objective._nearest(objective.u_bank, u, ids, None, None)
    cosines = torch.cosine_similarity(u.unsqueeze(1), u.unsqueeze(0), dim=2)
    for i in range(4):
        others = [j for j in cosines[i].argsort(descending=True).tolist() if ids[j] != ids[i]]
        assert torch.equal(found[i], u[others[:2]]) and is_[i].all()
    u.requires_grad_()
    assert not objective._nearest(objective.u_bank, u, ids, None, None)[0].requires_grad
    _, none = objective._nearest(objective.u_bank, u[:1], ids[:1], None, None)
    assert not none.any()
    assert objective(u[:1], v[:1], ids[:1]).isfinite()


def test_a_share_of_the_bank_is_drawn_anew_in_each_step() -> None:
    objective = Reclaim(2000, 4, candidate_share=0.8)
    first, again = objective._among(), objective._among()
    assert torch.equal(first, again)
    assert first.float().mean().item() == pytest.approx(0.8, abs=0.05)
    objective.load_state_dict({**objective.state_dict(), "steps": torch.tensor(1)})
    assert not torch.equal(first, objective._among())
    assert Reclaim(2000, 4)._among() is None


def loop_over_candidates(
    objective: Reclaim, u: Tensor, v: Tensor, among: list[int], mean: bool = False
) -> Tensor:
    """Compute the loss of each pair with each candidate but itself, one after the other."""
    critic, total = objective.critic, torch.zeros((), dtype=u.dtype)
    for i, own in enumerate(IDS.tolist()):
        others = [j for j in among if j != own]
        total = total + torch.nn.functional.softplus(-critic(u[i], v[i])) * 2
        share = 1 / len(others) if mean else 1
        for j in others:
            logits = (
                critic(u[i], objective.v_bank.vectors[j]),
                critic(objective.u_bank.vectors[j], v[i]),
            )
            total = total + share * sum(map(torch.nn.functional.softplus, logits))
    return total / 2 / len(IDS)


@pytest.mark.parametrize("blocks_of", [1, 4, 100])
@pytest.mark.parametrize(
    "settings", [{}, {"candidate_share": 0.6}, {"negatives": "mean"}, {"lipschitz": False}]
)
def test_all_candidates_are_negatives(
    settings: dict, blocks_of: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare loss and gradients with a loop, however many candidates are judged at once."""
    monkeypatch.setattr(reclaim_losses, "BLOCK", blocks_of * 4 * 64 * 3)
    objective = made(v_embedding_size=6, num_negatives=None, **settings).eval()
    among = objective._among()
    slots = list(range(9)) if among is None else among.nonzero()[:, 0].tolist()
    assert 2 < len(slots) < 9 or "candidate_share" not in settings
    u, v = normal(3, 4).requires_grad_(), normal(3, 6, seed=1).requires_grad_()
    leaves = [u, v, *objective.critic.parameters()]
    loss = objective(u, v, IDS)
    expected = loop_over_candidates(objective, u, v, slots, settings.get("negatives") == "mean")
    assert loss.item() == pytest.approx(expected.item())
    pairs = zip(*(torch.autograd.grad(one, leaves) for one in (loss, expected)), strict=True)
    assert all(torch.allclose(ours, theirs) for ours, theirs in pairs)


def test_all_candidates_are_judged_by_the_weights_of_one_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Check that all blocks share one power iteration, and that banks are updated after it."""
    losses = []
    for blocks_of in (1, 100):
        monkeypatch.setattr(reclaim_losses, "BLOCK", blocks_of * 4 * 64 * 3)
        objective = made(num_negatives=None, momentum=0.25).train()
        u = normal(3, 4).requires_grad_()
        loss = objective(u, normal(3, 4, seed=1), IDS)
        loss.backward()
        estimates = [b for name, b in objective.critic.named_buffers() if name.endswith("._u")]
        losses.append([loss.detach(), u.grad, *estimates, objective.u_bank.vectors])
    assert all(torch.allclose(one, other) for one, other in zip(*losses, strict=True))


def test_all_candidates_without_a_gradient_and_without_candidates() -> None:
    objective = Reclaim(9, 4, num_negatives=None).double()
    u, v = normal(3, 4), normal(3, 4, seed=1)
    first = objective(u, v, IDS)  # nothing was visited
    pairs = torch.nn.functional.softplus(-objective.eval().critic(u, v)).mean()
    assert first.item() == pytest.approx(pairs.item())
    with torch.no_grad():
        later = objective(u, v, IDS)
    assert later.item() == pytest.approx(
        loop_over_candidates(objective, u, v, sorted(IDS.tolist())).item()
    )
    keys = torch.tensor([7, 7, 5])
    objective.train()(u, v, IDS, keys)
    apart = objective.eval()(u, v, IDS, keys)
    assert apart < objective(u, v, IDS)  # Instances of the same text are not negatives.


def test_all_other_instances_of_the_batch_are_negatives() -> None:
    objective = made(candidates="batch", num_negatives=None).eval()
    found, there = objective._nearest(objective.u_bank, normal(3, 4), IDS, None, None)
    assert found.shape == (3, 3, 4) and there.sum(dim=1).tolist() == [2, 2, 2]


def test_equal_texts_are_not_negatives_of_each_other() -> None:
    """Check negatives from the bank and from the batch."""
    u, v = normal(3, 4), normal(3, 4, seed=1)
    keys = torch.tensor([7, 7, 5])
    for candidates in ("bank", "batch"):
        objective = Reclaim(9, 4, num_negatives=8, candidates=candidates).double()
        objective(u, v, IDS, keys)
        found = objective._nearest(objective.u_bank, u, IDS, keys, None)[1]
        without = objective._nearest(objective.u_bank, u, IDS, None, None)[1]
        assert found.sum(dim=1).tolist() == [1, 1, 2]
        assert without.sum(dim=1).tolist() == [2, 2, 2]


@pytest.mark.parametrize("k", [2, 100])
def test_the_last_bias_starts_at_minus_log_k(k: int) -> None:
    """Check that gradients of pairs and negatives cancel for a logit that is equal for all."""
    same = Reclaim(200, 4, num_negatives=k).double().critic.last_bias
    logits = same.expand(k).unsqueeze(0)  # (1, k)
    reclaim_loss(same, logits, logits).backward()
    assert same.grad is not None and abs(same.grad.item()) < 1e-6
    assert same.item() == pytest.approx(-math.log(k))


def test_the_last_bias_starts_at_minus_log_of_the_number_of_candidates() -> None:
    objective = Reclaim(201, 4, num_negatives=None, candidate_share=0.8)
    assert objective.critic.last_bias.item() == pytest.approx(-math.log(160))


@pytest.mark.parametrize("settings", [{"num_negatives": 1}, {"negatives": "mean"}])
def test_the_last_bias_starts_near_zero_if_negatives_do_not_outweigh_pairs(settings: dict) -> None:
    assert abs(Reclaim(200, 4, **settings).critic.last_bias.item()) < 0.126  # 1 / sqrt(64)


def test_without_lipschitz_weights_are_plain_parameters() -> None:
    names = {name for name, _ in Reclaim(9, 4, lipschitz=False).named_parameters()}
    assert "critic.u_map.weight" in names
    assert "critic.u_map.weight" not in dict(Reclaim(9, 4).named_parameters())


def test_recall_is_recorded_where_search_is_approximate() -> None:
    pytest.importorskip("faiss")
    objective = made(200, 4, search="approximate", approximate_from=100)
    assert objective.last_metrics == {}
    objective(normal(3, 4), normal(3, 4, seed=1), IDS)
    assert set(objective.last_metrics) == {"u_recall", "v_recall"}
    assert all(0 < value <= 1 for value in objective.last_metrics.values())


# ------------------------------------------------------------------------------------- on a GPU


WAYS = [
    {},
    {"precision": "float16", "search": "approximate", "approximate_from": 0},
    {"eligible": "all", "candidate_share": 0.5},
    {"candidates": "batch"},
    {"num_negatives": None},
    {"num_negatives": None, "candidate_share": 0.7, "negatives": "mean"},
    {"lipschitz": False, "num_negatives": 20},
]


def steps_of(objective: Reclaim, fixed: bool) -> list[Tensor]:
    """Return losses and gradients of a few steps from empty banks, some with repeated ids."""
    objective.u_bank.fixed_shapes = objective.v_bank.fixed_shapes = fixed
    seen = []
    for step in range(5):
        u, v = (normal(4, 4, seed=seed + step).float() for seed in (0, 50))
        ids, keys = torch.tensor([1, 8, 3, step]), torch.tensor([0, 1, 0, step])
        loss = objective(u.requires_grad_(), v.requires_grad_(), ids, keys)
        loss.backward()
        seen += [loss.detach(), u.grad, v.grad]
    return seen


@pytest.mark.parametrize("settings", WAYS)
def test_fixed_shapes_give_the_same_losses_and_gradients(
    settings: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"num_negatives": 3, **settings}
    torch.manual_seed(0)
    one = Reclaim(9, 4, **given).train()
    other = copy.deepcopy(one)
    for bank in (one.u_bank, one.v_bank):
        bank.search = "exact"
    pairs = zip(steps_of(one, False), steps_of(other, True), strict=True)
    assert all(torch.allclose(ours, theirs, atol=1e-5) for ours, theirs in pairs)
    assert all(
        torch.equal(value, other.state_dict()[k])
        for k, value in one.state_dict().items()
        if "bank" in k
    )


@pytest.mark.parametrize("settings", WAYS)
def test_with_fixed_shapes_a_step_reads_no_tensor_on_the_host(settings: dict) -> None:
    objective = Reclaim(9, 4, **{"num_negatives": 3, **settings}).train()
    steps_of(objective, True)
    u, v, keys = normal(3, 4).float(), normal(3, 4, seed=1).float(), torch.arange(3)
    if "num_negatives" in settings and objective.candidate_share < 1:
        objective.candidate_share = 1  # With a smaller share the host reads what it has drawn.
    for ids in ([1, 8, 3], [1, 8, 1]):
        with NeverWaits():
            objective(u.requires_grad_(), v, torch.tensor(ids), keys).backward()


# --------------------------------------------------------------------------------- hard and wrong


def test_values_and_gradients_of_hard_batches_are_finite() -> None:
    def loss(u: Tensor, v: Tensor) -> Tensor:
        objective = Reclaim(9, 4, num_negatives=3).to(u.dtype)
        ids = torch.arange(len(u)) % 4
        objective(u, v, ids)
        return objective(u, v, ids)

    assert_finite_where_it_is_hard(loss)


def test_full_precision() -> None:
    objective = made().float().eval()
    twin = made().eval()

    def loss(u: Tensor, v: Tensor) -> Tensor:
        return (twin if u.dtype == torch.float64 else objective)(u, v, IDS)

    assert_full_precision(loss, normal(3, 4), normal(3, 4, seed=1))


def test_registered_name_and_refusals() -> None:
    built = Objective.from_params(
        Params({"type": "reclaim", "instances": 5, "embedding_size": 4, "lipschitz": True})
    )
    assert isinstance(built, Reclaim)
    assert built.min_pairs == 1
    assert built.inputs == {"anchors": True, "positives": True, "ids": True, "texts": False}
    assert (built.num_negatives, built.u_bank.momentum) == (100, 0.5)
    rows = normal(2, 4).float()
    with pytest.raises(ValueError, match=r"ids from 0 to 4 \(instances is 5\), got 0 to 5"):
        built(rows, rows, torch.tensor([0, 5]))
    with pytest.raises(ValueError, match=r"features \(n, 4\) and ids \(n,\), got \(2, 3\)"):
        built(rows[:, :3], rows, torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"same instance; got \(2, 4\) and \(1, 4\)"):
        built(rows, rows[:1], torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"got \(2, 1, 4\) and \(2,\)"):
        built(rows.unsqueeze(1), rows.unsqueeze(1), torch.tensor([0, 1]))


def test_more_negatives_than_other_instances_give_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Reclaim(5, 4, num_negatives=4)
    Reclaim(5, 4, num_negatives=100, candidates="batch")
    assert caplog.messages == []
    Reclaim(5, 4, num_negatives=5)
    assert caplog.messages == [
        "num_negatives is 5, but in banks of 5 instances there are at most 4 others: all of them "
        "are negatives. Is 'instances' the number of rows of the training data?"
    ]


def test_repeated_ids_give_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Check the warning, and that the last row of an id is kept as in a loop."""
    objective = made(momentum=0.0).train()
    u, v = normal(4, 4), normal(4, 4, seed=1)
    objective(u, v, torch.tensor([7, 2, 5, 3]))
    objective.eval()(u, v, torch.tensor([7, 2, 7, 2]))
    assert caplog.messages == []
    for _ in range(2):
        objective.train()(u, v, torch.tensor([7, 2, 7, 7]))
    assert len(caplog.messages) == 1
    assert "2 of 4 instances in a batch have the id of another one, such as 7" in caplog.text
    assert torch.equal(objective.u_bank.vectors[[2, 7]], u[[1, 3]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_negatives": -1}, "num_negatives must be 0 or more, got -1"),
        ({"negatives": "max"}, "Unknown negatives 'max': expected one of sum, mean"),
        ({"candidates": "corpus"}, "Unknown candidates 'corpus': expected one of bank, batch"),
        ({"candidate_share": 0.0}, r"candidate_share must be in \(0, 1\], got 0.0"),
        ({"candidates": "batch", "candidate_share": 0.8}, "candidate_share is a share of the bank"),
        (
            {"num_negatives": None, "search": "approximate"},
            "all candidates are negatives, and nothing",
        ),
        ({"momentum": 1.0}, "1 would never update"),
        ({"reduction": "none"}, "Unknown reduction 'none'"),
    ],
)
def test_invalid_settings_raise(changes: dict, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Reclaim(5, 4, **changes)
