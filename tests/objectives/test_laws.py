"""Laws that all registered objectives obey, built from their names, and what they refuse.

Losses and miners of pytorch-metric-learning are in `library/`.
"""

import copy
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from torch import Tensor

import declutr.objectives
from declutr.objectives import Miner, Objective, Reclaim
from tests.objectives import laws
from tests.objectives.oracles import FIXTURES, normal, rescaled, views
from tests.objectives.waits import NeverWaits

ROWS, WIDTH = 6, 4
CLASSES = torch.tensor([0, 1, 0, 2, 1, 3])
IDS, DOCUMENTS = {"ids": torch.arange(ROWS)}, {"documents": torch.tensor([0, 0, 0, 1, 1, 2])}
QUEUE: dict[str, Any] = {"embedding_size": WIDTH, "queue_size": 20}
BANK: dict[str, Any] = {"instances": 9, "embedding_size": WIDTH}
SUM = [{"objective": {}}, {"objective": {"type": "barlow_twins"}}]
LEARNT = {"learn_scale": True, "learn_bias": True}
EACH = {"positive_views": normal(ROWS, 2, WIDTH, seed=5).float()}
UNIT = {"normalize_embeddings": True}

# The registered name, settings, and the tensors of the batch beside its views.
CASES: list[tuple[str, dict[str, Any], dict[str, Tensor]]] = [
    ("align_uniform", {}, {}),
    ("align_uniform", {"alpha": 1}, {}),
    ("barlow_twins", {}, {}),
    ("byol", {}, {}),
    ("contrastive", {"margin": 2.5}, {}),
    ("contrastive", {**UNIT, "reduction": "sum"}, {"labels": CLASSES}),
    ("contrastive_tension", {"negatives": 1}, {}),
    ("cosine_regression", {}, {"labels": torch.linspace(-1, 1, ROWS)}),
    ("cpc", {"embedding_size": WIDTH, "context_size": 3}, {**IDS, **DOCUMENTS}),
    ("cross_batch_memory", {"loss": {}, "embedding_size": WIDTH, "memory_size": 20}, {}),
    ("cross_batch_memory", {"loss": {}, "embedding_size": WIDTH, "memory_size": 12}, {}),
    ("debiased_contrastive", {}, {}),
    ("deep_cluster", {**BANK, "clusters": 3}, IDS),
    ("distillation", {"targets": str(FIXTURES / "teacher.npy")}, IDS),
    ("hard_negative", {}, {}),
    ("hard_negative", {"temperature": 0.005, "tau_plus": 0.9, "beta": 0}, {}),
    ("hard_negative", {"detach_weights": True, "tau_plus": 0}, {}),
    ("info_nce", {}, {}),
    ("info_nce", {"similarity": "cosine", "temperature": 0.1}, {}),
    ("info_nce", {"similarity": "cosine", "symmetric": True}, {}),
    ("info_nce", {"similarity": "bilinear", "embedding_size": WIDTH, "symmetric": True}, {}),
    ("info_nce", {"similarity": "cosine", "temperature": 0.07, "learn_temperature": True}, {}),
    ("info_nce", {"similarity": "cosine", "view_pairs": "full_graph"}, EACH),
    ("info_nce", {"own_negative_logit": 1.0}, {"negatives": normal(ROWS, WIDTH).float()}),
    ("instance_discrimination", BANK, IDS),
    ("instance_discrimination", {**BANK, "noise": 5}, IDS),
    ("instance_discrimination", {**BANK, "proximal": 3.0}, IDS),
    ("is_bert", {}, {}),
    ("lifted_structured", {}, {}),
    ("lifted_structured", {"hinge": True}, {"labels": CLASSES}),
    ("lifted_structured", {"hinge": True}, {}),
    ("matryoshka", {"loss": {"type": "barlow_twins"}, "dimensions": [2]}, {}),
    ("matryoshka", {"loss": {"type": "nce", **LEARNT}, "dimensions": [3, 2]}, {}),
    ("mochi", QUEUE, {}),
    ("mochi", {**QUEUE, "only_filled": True, "in_batch": True, "start_after": 1}, {}),
    ("mochi", {"queue_size": 0, "in_batch": True}, {}),
    ("moco", QUEUE, {}),
    ("moco", {**QUEUE, "only_filled": True}, {}),
    ("n_pair", {}, {}),
    ("nce", {"similarity": "dot", "scale": 0.5, "gamma": 1}, {}),
    ("nce", {**LEARNT, "bias": -1}, {}),
    ("nt_xent", {}, {}),
    ("nt_xent", {"reduction": "sum"}, {}),
    ("pair_softmax", {"num_labels": 4, "embedding_size": WIDTH}, {"labels": CLASSES}),
    ("quick_thoughts", {}, {**IDS, **DOCUMENTS}),
    ("quick_thoughts", {"parity": True}, {**IDS, **DOCUMENTS}),
    ("reclaim", {**BANK, "num_negatives": 3}, IDS),
    ("scd", {}, {}),
    ("soft_nearest_neighbours", {}, {}),
    ("soft_nearest_neighbours", {"distance": "cosine", "temperature": 0.2}, {}),
    ("soft_nearest_neighbours", {"distance": "cosine"}, {"labels": CLASSES}),
    ("sup_con", {}, {}),
    ("sup_con", {}, {"labels": CLASSES}),
    ("swav", {"embedding_size": WIDTH, "prototypes": 3}, {}),
    ("swav", {**QUEUE, "prototypes": 3}, {}),
    ("swav", {**QUEUE, "prototypes": 3, "assigned_views": 3, "renormalise": True}, EACH),
    ("triplet", {}, {}),
    ("triplet", {"squared": True}, {"labels": CLASSES}),
    ("triplet", {"squared": True, **UNIT, "margin": 0.2}, {}),
    ("triplet", {}, {"negatives": normal(2 * ROWS, WIDTH).float()}),
    ("weighted_sum", {"objectives": SUM}, {}),
]
# The host reads what these have drawn or found.
READS: list[tuple[str, dict[str, Any], dict[str, Tensor]]] = [
    ("reclaim", {**BANK, "num_negatives": 3, "storage": "disk"}, IDS),
    ("reclaim", {**BANK, "num_negatives": 3, "candidate_share": 0.5}, IDS),
    ("reclaim", {**BANK, "num_negatives": 3, "candidates": "batch"}, IDS),
]
LIBRARY = {"pytorch_metric_learning", "pml"}
MINED = {"nt_xent", "cross_batch_memory", "matryoshka", "weighted_sum", *LIBRARY}
VIEWS = {"byol": 4, "scd": 4, "cpc": 1, "instance_discrimination": 1, "deep_cluster": 1}
VIEWS["distillation"] = 1


def cases(*without: str, among: Any = CASES) -> Any:
    """Run a test for each case whose name is not in `without`."""
    left = [case for case in among if case[0] not in without]
    named = [f"{name} {settings}" for name, settings, _ in left]
    return pytest.mark.parametrize(("name", "settings", "given"), left, ids=named)


def built(name: str, settings: dict) -> Objective:
    torch.manual_seed(0)
    return Objective.from_params(Params(copy.deepcopy({"type": name, **settings})))


def batch(name: str, seed: int) -> list[Tensor]:
    """Draw the views that `forward` of an objective takes by position, with gradients."""
    if name == "is_bert":
        mask = torch.arange(3) < torch.tensor([[3], [1], [2], [3], [0], [2]])
        return [normal(ROWS, 3, WIDTH, seed=seed).float().requires_grad_(), mask]
    return [
        normal(ROWS, WIDTH, seed=seed + i).float().requires_grad_()
        for i in range(VIEWS.get(name, 2))
    ]


def step(objective: Objective, inputs: list[Tensor], given: dict[str, Tensor]) -> Tensor:
    if inputs[-1].dtype == torch.bool:
        inputs = [*inputs, inputs[0].mean(dim=1)]
    loss = objective(*inputs, **given)
    loss.backward()
    return loss.detach()


def later(given: dict[str, Tensor], number: int) -> dict[str, Tensor]:
    """Return the same tensors, but for other instances."""
    return {name: t + number % 4 if name == "ids" else t for name, t in given.items()}


def test_every_registered_objective_is_covered() -> None:
    own = {name for name in Objective.list_available() if name != "squared_distance"}
    assert own == {name for name, _, _ in CASES} | LIBRARY
    for name, settings, _ in CASES:
        objective = built(name, settings)
        assert type(objective).__name__ in declutr.objectives.__all__
        assert getattr(objective, "reduction", "mean") in ("mean", "sum")  # for the run's record


@cases()
def test_steps_read_no_tensor_on_the_host(name: str, settings: dict, given: dict) -> None:
    """Take training steps from empty queues until they wrap around, and a validation step."""
    objective = built(name, settings).train()
    if isinstance(objective, Reclaim):
        objective.u_bank.fixed_shapes = objective.v_bank.fixed_shapes = True  # as on a GPU
    repeats = name == "instance_discrimination"
    repeated = {"ids": torch.tensor([4, 8, 1, 4, 4, 8])} if repeats else given
    for seed in range(6):
        inputs = batch(name, seed)
        # The host reads the number of steps once, in the first step.
        reads_steps = seed == 0 and hasattr(objective, "_steps_done")
        with nullcontext() if reads_steps else NeverWaits():
            step(objective.train(seed < 5), inputs, repeated if seed == 4 else given)
        assert inputs[0].grad is not None


@pytest.mark.parametrize("mined", [False, True])
def test_the_guard_catches_the_waits_of_the_library(mined: bool) -> None:
    objective = built("pml", {"loss": "SupConLoss"})
    if mined:
        objective = built("nt_xent", {})
        objective.attach_miner(Miner.from_params(Params({"pos_margin": 0.9, "neg_margin": 0.1})))
    with NeverWaits(), pytest.raises(AssertionError, match="waits"):
        step(objective, batch("nt_xent", 0), {})


def assert_same_state(one: Objective, state: dict) -> None:
    torch.testing.assert_close(dict(one.state_dict()), state, rtol=0, atol=0, equal_nan=True)


@cases(among=CASES + READS)
@pytest.mark.parametrize("steps", [0, 2, 5])
def test_a_resumed_run_continues_exactly(
    name: str, settings: dict, given: dict, steps: int, tmp_path: Path
) -> None:
    one, other = built(name, settings).train(), built(name, settings).train()
    for number in range(steps):
        step(one, batch(name, number), later(given, number))
    torch.save(one.state_dict(), tmp_path / "state.th")
    step(other, batch(name, 99), later(given, 3))  # Loading a state must overwrite this one.
    other.load_state_dict(torch.load(tmp_path / "state.th"))
    for number in range(steps, steps + 4):
        torch.manual_seed(number)  # the global state must not matter
        mine = step(one, batch(name, number), later(given, number))
        torch.rand(7)
        assert torch.equal(mine, step(other, batch(name, number), later(given, number)))
    assert_same_state(one, dict(other.state_dict()))
    finite = [value for value in one.state_dict().values() if isinstance(value, Tensor)]
    assert all(value.isfinite().all() for value in finite)  # Checkpoints with others are refused.


@cases(among=CASES + READS)
def test_validation_changes_no_state(name: str, settings: dict, given: dict) -> None:
    objective = built(name, settings).train()
    step(objective, batch(name, 0), given)
    before = copy.deepcopy(dict(objective.state_dict()))
    objective.eval()
    values = [step(objective, batch(name, 1), later(given, 1)) for _ in range(2)]
    assert torch.equal(*values)
    assert_same_state(objective, before)


def views_of(name: str, pair: list[Tensor]) -> list[Tensor]:
    """Return as many views as `forward` of an objective takes by position."""
    return (pair + pair[::-1])[: VIEWS.get(name, 2)]


def rows_of(given: dict[str, Tensor], n: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return the tensors beside the views of n rows, numbers with a point in the dtype."""
    first = {key: t[: len(t) * n // ROWS] for key, t in given.items()}
    return {key: t.to(dtype) if t.is_floating_point() else t for key, t in first.items()}


@cases("is_bert")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_of_hard_batches_are_finite(
    name: str, settings: dict, given: dict, dtype: torch.dtype
) -> None:
    """Take two steps: in the second one memories have the rows of the first one."""
    for kind, pair in laws.hard_batches().items():
        objective = built(name, settings).to(dtype).train()
        for _ in range(2):
            inputs = [x.to(dtype, copy=True).requires_grad_() for x in views_of(name, pair)]
            value = step(objective, inputs, rows_of(given, len(pair[0]), dtype))
            assert value.shape == () and value.isfinite(), (kind, value)
            assert inputs[0].grad is not None, kind
            found = [leaf.grad for leaf in (*inputs, *objective.parameters())]
            assert all(gradient is None or gradient.isfinite().all() for gradient in found), kind


# All tensors of the batch must be variables of the loss, and not constants.
DIFFERENTIABLE = [case for case in CASES if not case[1].keys() & {"detach_weights", "noise"}]


@cases("is_bert", "mochi", "swav", among=DIFFERENTIABLE)
@pytest.mark.parametrize("rows", [2, 4])
def test_gradients(name: str, settings: dict, given: dict, rows: int) -> None:
    objective = built(name, settings).double().eval()
    inputs = [view[:rows].detach().double() for view in batch(name, 10)]
    trained, beside = {"byol": 2, "moco": 1}.get(name, 4), rows_of(given, rows, torch.float64)
    laws.assert_gradients(lambda *x: objective(*x, *inputs[trained:], **beside), *inputs[:trained])


@cases("is_bert")
def test_autocast_changes_no_loss(name: str, settings: dict, given: dict) -> None:
    objective = built(name, settings).eval()
    twin, exact = copy.deepcopy(objective).double(), rows_of(given, ROWS, torch.float64)
    laws.assert_full_precision(
        lambda *x: objective(*x, **given),
        *views_of(name, views(ROWS, WIDTH)),
        exact=lambda *x: twin(*x, **exact),
    )


# Without negatives that are given or remembered.
ALONE = (
    "cross_batch_memory debiased_contrastive hard_negative info_nce lifted_structured n_pair nce"
)
ALONE += " nt_xent soft_nearest_neighbours sup_con triplet"


@cases(among=[case for case in CASES if case[0] in ALONE.split() and "negatives" not in case[2]])
def test_one_pair_has_no_negatives(name: str, settings: dict, given: dict) -> None:
    first, second = normal(1, WIDTH).requires_grad_(), normal(1, WIDTH, seed=1)
    loss = built(name, settings)(first, second, **rows_of(given, 1, torch.float64))
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-12) and loss.shape == ()
    assert first.grad is not None and first.grad.abs().max() < 1e-12


@cases(among=[case for case in CASES if case[1].keys() & UNIT.keys()])
def test_the_length_of_rows_that_are_normalised_does_not_matter(
    name: str, settings: dict, given: dict
) -> None:
    objective, pair = built(name, settings), views(ROWS)
    expected = objective(*pair, **given).item()
    assert objective(*rescaled(1, *pair), **given).item() == pytest.approx(expected)


# For 512 rows: the width, and the number of elements of the largest tensor kept.
MEMORY: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("align_uniform", "quick_thoughts"), (4, 512**2)),
    **dict.fromkeys(("debiased_contrastive", "hard_negative", "nt_xent"), (8, 1024**2)),
    **dict.fromkeys(("byol", "swav"), (4, 512 * 4)),
    **dict.fromkeys(("barlow_twins", "scd"), (64, 512 * 64)),
    **dict.fromkeys(("moco",), (4, 512 * 21)),
}


WIDE = [case for case in CASES if not case[2] or case[0] in ("cpc", "quick_thoughts")]


@cases("cross_batch_memory", "is_bert", "mochi", among=WIDE)
def test_memory_is_not_cubic(name: str, settings: dict, given: dict) -> None:
    width, bound = MEMORY.get(name, (8, 2 * 1024**2))
    if "embedding_size" in settings:
        settings = {**settings, "embedding_size": width}
    pair = [normal(512, width, seed=seed).float() for seed in (0, 1)]
    documents = {"ids": torch.arange(512), "documents": torch.zeros(512)} if given else {}
    objective = built(name, settings)
    saved = laws.largest_saved(lambda *x: objective(*x, **documents), *views_of(name, pair))
    assert 0 < saved <= bound


@cases(*MINED)
def test_takes_no_miner(name: str, settings: dict, given: dict) -> None:
    miner = Miner.from_params(Params({"pos_margin": 0.2, "neg_margin": 0.8}))
    objective = built(name, settings)
    message = f"{type(objective).__name__} takes no miner: remove the key 'miner'"
    with pytest.raises(ConfigurationError, match=message):
        objective.attach_miner(miner)
