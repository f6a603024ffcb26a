"""Tests of RECLAIM against golden numbers and loops."""

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis.strategies import integers, sampled_from
from torch import Tensor
from torch.nn import functional

from declutr.objectives import Reclaim, nce_loss, reclaim_loss
from declutr.objectives.memories import reclaim_losses
from tests.objectives import laws
from tests.objectives.memories.test_lipschitz_critic import golden_critic
from tests.objectives.oracles import (
    Golden,
    assert_reductions,
    doubles,
    drawn,
    mean,
    normal,
    softplus,
)
from tests.objectives.test_nt_xent import LargestMade
from tests.objectives.waits import NeverWaits

GOLDEN, OF_LOGITS = (Golden("reclaim", key) for key in ("reclaim", "reclaim_loss_from_logits"))
IDS, KEYS = torch.tensor([1, 8, 3]), torch.tensor([7, 7, 5])


def made(instances: int = 9, width: int = 4, **settings: Any) -> Reclaim:
    """Return an objective in float64 in whose banks every slot was visited."""
    torch.manual_seed(0)
    objective = Reclaim(instances, width, **{"num_negatives": 3, **settings}).double()
    every = torch.arange(instances)
    objective.u_bank.update(every, normal(instances, width, seed=100))
    objective.v_bank.update(every, normal(instances, objective.v_bank.width, seed=101))
    return objective


def features(n: int = 3, of_v: int = 4) -> list[Tensor]:
    return [normal(n, 4).requires_grad_(), normal(n, of_v, seed=1).requires_grad_()]


def banks(objective: Reclaim) -> list[Tensor]:
    return [bank.vectors.clone() for bank in (objective.u_bank, objective.v_bank)]


# --------------------------------------------------------------------------------------- the loss


def test_golden_numbers_of_logits() -> None:
    names = ("logit_pos", "logits_neg_v", "logits_neg_u")
    logits = [doubles([OF_LOGITS.given[name]]) for name in names]
    OF_LOGITS.check({"loss": reclaim_loss(*logits)})


@pytest.mark.parametrize("negatives", ["sum", "mean"])
def test_golden_numbers_of_a_step(negatives: str) -> None:
    inputs, params, values = GOLDEN.given, GOLDEN.params, GOLDEN.values
    settings = {"num_negatives": params["K"], "momentum": params["rho"], "negatives": negatives}
    objective = Reclaim(5, 3, 2, **settings).double()
    objective.critic = golden_critic()
    for name in ("u", "v"):
        bank = getattr(objective, f"{name}_bank")
        bank.update(torch.arange(5), doubles(inputs[f"bank_{name}"]))
    objective.train()
    objective.critic.eval()
    own = torch.tensor([params["own_index"]])
    loss = objective(doubles([inputs["u"]]), doubles([inputs["v"]]), own)
    GOLDEN.check({"loss_corrected" if negatives == "sum" else "loss_mean_over_K": loss})
    assert abs(loss.item() - values["eq6_literal_objective_WRONG"]) > 1e-4
    for name, bank in zip("uv", banks(objective), strict=True):
        assert torch.allclose(bank[0], doubles(values[f"bank_{name}0_after_update"]), atol=1e-9)


@drawn(
    50,
    n=integers(1, 5),
    of_v=integers(0, 4),
    of_u=integers(0, 4),
    negatives=sampled_from(["sum", "mean"]),
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
            there = [softplus(x) for x in logits[i][found[i]].tolist()]
            term += (mean(there) if negatives == "mean" else sum(there)) / 2
        terms.append(term)
    assert_reductions(lambda r: reclaim_loss(positive, *kinds, *flags, negatives, r), terms)


def test_is_nce_where_both_kinds_are_the_same() -> None:
    positive, negative = normal(4), normal(4, 3)
    expected = nce_loss(positive, negative.flatten())
    assert reclaim_loss(positive, negative, negative).item() == pytest.approx(expected.item())


def test_negatives_that_were_not_found_have_no_gradient() -> None:
    negatives = normal(2, 2).requires_grad_()
    found = torch.tensor([[True, False], [False, False]])
    reclaim_loss(normal(2), negatives, negatives, found, found).backward()
    assert (negatives.grad != 0).tolist() == found.tolist()


def test_gradients_and_extremes() -> None:
    for way in ("sum", "mean"):
        logits = normal(3), normal(3, 2), normal(3, 4)
        laws.assert_gradients(lambda *x, way=way: reclaim_loss(*x, negatives=way), *logits)
    far = torch.full((2, 2), 1e4, requires_grad=True)
    loss = reclaim_loss(-far[:, 0], far, far)
    assert loss.isfinite() and torch.autograd.grad(loss, far)[0].isfinite().all()
    laws.assert_full_precision(lambda p: reclaim_loss(p, p.unsqueeze(1), p.unsqueeze(1)), normal(5))
    nobody = normal(3).requires_grad_()
    none = nobody[:0].unsqueeze(1)
    laws.assert_zero_with_a_graph(reclaim_loss(nobody[:0], none, none), nobody)


LOGITS = normal(2), normal(2, 2), normal(2, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((normal(2), normal(3, 2), normal(2, 2)), r"got \(2,\), \(3, 2\) and \(3, 2\)"),
        ((normal(2), normal(2), normal(2, 2)), r"got \(2,\), \(2,\) and \(2,\)"),
        (
            (*LOGITS, torch.ones(2, 1).bool()),
            r"and as many flags; got \(2,\), \(2, 2\) and \(2, 1\)",
        ),
        ((*LOGITS, None, None, "max"), "Unknown negatives 'max'"),
        ((*LOGITS, None, None, "sum", "all"), "Unknown reduction 'all'"),
    ],
)
def test_logits_that_do_not_fit_raise(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reclaim_loss(*arguments)


# ---------------------------------------------------------------------------------------- a step


def expected_loss(objective: Reclaim, u: Tensor, v: Tensor, ids: Tensor, k: int) -> float:
    """Compute the loss of one pair after the other, without another power iteration."""
    total = 0.0
    of_banks = [(objective.u_bank.vectors, u), (objective.v_bank.vectors, v)]
    for i in range(len(ids)):
        near = []
        for bank, queries in of_banks:
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
    u, v = features(of_v=6)
    assert objective(u, v, IDS).item() == pytest.approx(expected_loss(objective, u, v, IDS, k))


def test_negatives_are_selected_before_banks_are_updated() -> None:
    objective = made(momentum=0.25).train()
    u, v = features()
    before = banks(objective)
    loss = objective(u, v, IDS)
    objective.eval()
    for was, now, new in zip(before, banks(objective), (u, v), strict=True):
        expected = was.clone()
        expected[IDS] = 0.75 * new.detach() + 0.25 * was[IDS]
        assert torch.allclose(now, expected)
    # In evaluation the critic does no further power iteration, so the loss can be computed again.
    for bank, was in zip((objective.u_bank, objective.v_bank), before, strict=True):
        bank.set_extra_state(was)
    assert loss.item() == pytest.approx(objective(u, v, IDS).item())


@pytest.mark.parametrize("num_negatives", [3, None])
def test_with_an_empty_bank_the_loss_has_pairs_only(num_negatives: int | None) -> None:
    objective = Reclaim(9, 4, num_negatives=num_negatives).double()
    u, v = features()
    loss = objective(u, v, IDS)
    pairs = functional.softplus(-objective.eval().critic(u, v)).mean()
    assert loss.item() == pytest.approx(pairs.item())
    loss.backward()
    assert objective.u_bank.visited.nonzero()[:, 0].tolist() == [1, 3, 8]


def test_gradient_reaches_both_views_and_all_of_the_critic_but_no_bank() -> None:
    objective, (u, v) = made().train(), features()
    objective(u, v, IDS).backward()
    for leaf in (u, v, *objective.critic.parameters()):
        assert leaf.grad is not None and leaf.grad.any()
    assert not objective.u_bank.vectors.requires_grad
    objective.eval()
    laws.assert_gradients(lambda u, v: objective(u, v, IDS), u, v)


def test_full_precision_with_full_banks() -> None:
    objective, twin = made().float().eval(), made().eval()
    laws.assert_full_precision(
        lambda u, v: objective(u, v, IDS), *features(), exact=lambda u, v: twin(u, v, IDS)
    )


def test_learns_to_tell_pairs_from_others() -> None:
    """Train on ten instances whose v is a rotation of u, to below the loss of guessing."""
    torch.manual_seed(1)
    u = normal(10, 6).float() * 3
    v = u.roll(1, dims=1)
    objective = Reclaim(10, 6, num_negatives=2, critic_width=16, lipschitz=False)
    optimizer = torch.optim.Adam(objective.parameters(), lr=1e-2)
    for _ in range(150):
        optimizer.zero_grad()
        loss = objective(u, v, torch.arange(10))
        loss.backward()
        optimizer.step()
    ignorant = softplus(math.log(2)) + 2 * softplus(-math.log(2))  # -log K everywhere
    assert loss.item() < 0.5 * ignorant


# ------------------------------------------------------------------------------------- ablations


def test_negatives_from_the_batch_only() -> None:
    objective = made(candidates="batch", num_negatives=2).eval()
    ids = torch.tensor([1, 8, 3, 1])
    u, v = features(4)
    found, is_ = objective._nearest(objective.u_bank, u, ids, None, None)
    assert not found.requires_grad
    cosines = torch.cosine_similarity(u.unsqueeze(1), u.unsqueeze(0), dim=2)
    for i in range(4):
        others = [j for j in cosines[i].argsort(descending=True).tolist() if ids[j] != ids[i]]
        assert torch.equal(found[i], u[others[:2]]) and is_[i].all()
    _, none = objective._nearest(objective.u_bank, u[:1], ids[:1], None, None)
    assert not none.any()
    assert objective(u[:1], v[:1], ids[:1]).isfinite()
    objective = made(candidates="batch", num_negatives=None).eval()
    found, there = objective._nearest(objective.u_bank, u[:3], IDS, None, None)
    assert found.shape == (3, 3, 4) and there.sum(dim=1).tolist() == [2, 2, 2]


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
        total = total + functional.softplus(-critic(u[i], v[i])) * 2
        share = 1 / len(others) if mean else 1
        for j in others:
            logits = (
                critic(u[i], objective.v_bank.vectors[j]),
                critic(objective.u_bank.vectors[j], v[i]),
            )
            total = total + share * sum(map(functional.softplus, logits))
    return total / 2 / len(IDS)


def judged_at_once(patch: pytest.MonkeyPatch, candidates: int) -> None:
    patch.setattr(reclaim_losses, "CACHED", candidates * 4 * 64 * 3)


@pytest.mark.parametrize("blocks_of", [1, 4, 100])
@pytest.mark.parametrize(
    "settings", [{}, {"candidate_share": 0.6}, {"negatives": "mean"}, {"lipschitz": False}]
)
def test_all_candidates_are_negatives(
    settings: dict, blocks_of: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare loss and gradients with a loop, however many candidates are judged at once."""
    judged_at_once(monkeypatch, blocks_of)
    objective = made(v_embedding_size=6, num_negatives=None, **settings).eval()
    among = objective._among()
    slots = list(range(9)) if among is None else among.nonzero()[:, 0].tolist()
    assert 2 < len(slots) < 9 or "candidate_share" not in settings
    u, v = features(of_v=6)
    expected = loop_over_candidates(objective, u, v, slots, settings.get("negatives") == "mean")
    leaves = [u, v, *objective.critic.parameters()]
    laws.assert_same_gradients(objective(u, v, IDS), expected, *leaves, rtol=1e-5)
    with torch.no_grad():
        assert objective(u, v, IDS).item() == pytest.approx(expected.item())


def test_all_candidates_are_judged_by_the_weights_of_one_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Check that all blocks share one power iteration, and that banks are updated after it."""
    losses = []
    for blocks_of in (1, 100):
        judged_at_once(monkeypatch, blocks_of)
        objective = made(num_negatives=None, momentum=0.25).train()
        u, v = features()
        loss = objective(u, v, IDS)
        loss.backward()
        estimates = [b for name, b in objective.critic.named_buffers() if name.endswith("._u")]
        losses.append([loss.detach(), u.grad, *estimates, objective.u_bank.vectors])
    assert all(torch.allclose(one, other) for one, other in zip(*losses, strict=True))


def test_all_candidates_take_memory_that_does_not_grow_with_the_banks() -> None:
    sizes = []
    for instances in (1000, 4000):
        objective = made(instances, num_negatives=None, candidate_share=0.8)
        with LargestMade() as tensors:
            objective(*features(16), torch.arange(16)).backward()
        sizes.append(tensors.elements)
    assert sizes[0] == sizes[1] < 16 * 64 * 4000, "the inner layer of all pairs at once"


def test_equal_texts_are_not_negatives_of_each_other() -> None:
    u, v = features()
    for candidates in ("bank", "batch"):
        objective = Reclaim(9, 4, num_negatives=8, candidates=candidates).double()
        objective(u, v, IDS, KEYS)
        found = objective._nearest(objective.u_bank, u, IDS, KEYS, None)[1]
        without = objective._nearest(objective.u_bank, u, IDS, None, None)[1]
        assert found.sum(dim=1).tolist() == [1, 1, 2]
        assert without.sum(dim=1).tolist() == [2, 2, 2]
    objective = Reclaim(9, 4, num_negatives=None).double()
    objective(u, v, IDS, KEYS)
    assert objective.eval()(u, v, IDS, KEYS) < objective(u, v, IDS)


@pytest.mark.parametrize("k", [2, 100])
def test_the_last_bias_starts_at_minus_log_k(k: int) -> None:
    """Check that gradients of pairs and negatives cancel for a logit that is equal for all."""
    same = Reclaim(200, 4, num_negatives=k).double().critic.last_bias
    logits = same.expand(k).unsqueeze(0)  # (1, k)
    reclaim_loss(same, logits, logits).backward()
    assert same.grad is not None and abs(same.grad.item()) < 1e-6
    assert same.item() == pytest.approx(-math.log(k))
    objective = Reclaim(201, 4, num_negatives=None, candidate_share=0.8)
    assert objective.critic.last_bias.item() == pytest.approx(-math.log(160))  # candidates


@pytest.mark.parametrize("settings", [{"num_negatives": 1}, {"negatives": "mean"}])
def test_the_last_bias_starts_near_zero_if_negatives_do_not_outweigh_pairs(settings: dict) -> None:
    assert abs(Reclaim(200, 4, **settings).critic.last_bias.item()) < 0.126  # 1 / sqrt(64)


def test_without_lipschitz_weights_are_plain_parameters() -> None:
    assert "critic.u_map.weight" in dict(Reclaim(9, 4, lipschitz=False).named_parameters())
    assert "critic.u_map.weight" not in dict(Reclaim(9, 4).named_parameters())


def test_recall_is_recorded_where_search_is_approximate() -> None:
    pytest.importorskip("faiss")
    objective = made(200, 4, search="approximate", approximate_from=100)
    assert objective.last_metrics == {}
    objective(*features(), IDS)
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
def test_fixed_shapes_give_the_same_losses_and_gradients(settings: dict) -> None:
    """Check also that with them a step reads no tensor on the host."""
    torch.manual_seed(0)
    one = Reclaim(9, 4, **{"num_negatives": 3, **settings}).train()
    other = copy.deepcopy(one)
    for bank in (one.u_bank, one.v_bank):
        bank.search = "exact"
    pairs = zip(steps_of(one, False), steps_of(other, True), strict=True)
    assert all(torch.allclose(ours, theirs, atol=1e-5) for ours, theirs in pairs)
    state = other.state_dict()
    assert all(torch.equal(value, state[k]) for k, value in one.state_dict().items() if "bank" in k)
    if other.num_negatives is None:
        other.candidate_share = 1  # With a smaller share the host reads what it has drawn.
    for ids in ([1, 8, 3], [1, 8, 1]):
        u, v = (view.detach().float().requires_grad_() for view in features())
        with NeverWaits():
            other(u, v, torch.tensor(ids), torch.arange(3)).backward()


# ---------------------------------------------------------------------------------------- warnings


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
    objective, (u, v) = made(momentum=0.0).train(), features(4)
    objective(u, v, torch.tensor([7, 2, 5, 3]))
    objective.eval()(u, v, torch.tensor([7, 2, 7, 2]))
    assert caplog.messages == []
    for _ in range(2):
        objective.train()(u, v, torch.tensor([7, 2, 7, 7]))
    assert len(caplog.messages) == 1
    assert "2 of 4 instances in a batch have the id of another one, such as 7" in caplog.text
    assert torch.equal(objective.u_bank.vectors[[2, 7]], u[[1, 3]])
