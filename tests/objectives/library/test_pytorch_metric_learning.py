"""Tests of every loss of pytorch-metric-learning, with arguments, miners and a memory."""

import inspect
import itertools
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from pytorch_metric_learning import losses, miners

from declutr.objectives import (
    Contrastive,
    CrossBatchMemory,
    LiftedStructured,
    Miner,
    NPair,
    NTXent,
    Objective,
    PairMarginMiner,
    PytorchMetricLearning,
    PytorchMetricLearningMiner,
    SoftNearestNeighbours,
    SupCon,
    Triplet,
)
from declutr.objectives.library import library_parts as parts
from tests.objectives import laws
from tests.objectives.oracles import normal, permuted, views

RAW_L2 = {"class": "LpDistance", "normalize_embeddings": False}
UNIT_L2 = {"class": "LpDistance", "power": 2}
# Arguments of the losses that have no default.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "MultipleLosses": {"losses": [{"class": "SupConLoss"}, {"class": "NCALoss"}]},
    "RankedListLoss": {"margin": 0.4, "Tn": 10},
    "SelfSupervisedLoss": {"loss": {"class": "NTXentLoss"}},
}
USABLE = parts.names("loss")
OF_TWO_VIEWS = {"SelfSupervisedLoss", "VICRegLoss"}
WITHOUT_MINER = {*OF_TWO_VIEWS, "InstanceLoss", "PNPLoss", "RankedListLoss"}
ALL_PAIRS = {"pos_margin": 2.0, "neg_margin": -2.0}


def built(name: str, **arguments: Any) -> PytorchMetricLearning:
    arguments = {**ARGUMENTS.get(name, {}), **arguments}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The library warns of high temperatures.
        objective = Objective.from_params(
            Params({"type": "pml", "loss": name, "loss_args": arguments})
        )
    assert isinstance(objective, PytorchMetricLearning)
    return objective


def pair(n: int, width: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    return normal(n, width).requires_grad_(), normal(n, width, seed=1).requires_grad_()


# ------------------------------------------------------------------------------------ every loss


def test_every_loss_is_usable_or_refused() -> None:
    """Check every class in the library's module of losses, and the list in the documentation."""
    everything = {name for name, part in vars(losses).items() if inspect.isclass(part)}
    refused = everything & set(parts.REFUSED)
    bases = everything - refused - set(USABLE)
    bases.discard("GenericPairLoss")
    assert all(name.startswith("Base") or name.endswith("Mixin") for name in bases)
    assert len(USABLE) == 24 and len(refused) == 14
    documentation = inspect.getdoc(PytorchMetricLearning)
    assert documentation is not None
    for name in USABLE:
        assert name in documentation, name


@pytest.mark.parametrize("name", USABLE)
def test_every_step_has_a_finite_gradient(name: str) -> None:
    objective = built(name)
    for dtype in (torch.float32, torch.float64, torch.float32):
        first, second = (normal(6, 8, seed=seed).to(dtype).requires_grad_() for seed in (3, 4))
        loss = objective(first, second)
        loss.backward()
        assert loss.shape == () and loss.isfinite()
        for view in (first, second):
            assert view.grad.isfinite().all() and view.grad.abs().sum() > 0


@pytest.mark.parametrize("name", USABLE)
def test_values_of_hard_batches_are_finite(name: str) -> None:
    hard = laws.hard_batches()
    one = [view[:1] for view in hard["random"]]
    for batch in (hard["duplicates"], hard["all equal"], hard["two rows"], one):
        views = [view.float().requires_grad_() for view in batch]
        assert built(name)(*views).isfinite()


@pytest.mark.parametrize("name", ["SupConLoss", "MultiSimilarityLoss", "VICRegLoss", "NCALoss"])
def test_precision_gradients_and_order_of_pairs(name: str) -> None:
    objective, batch = built(name), pair(5, 3)
    laws.assert_gradients(objective, *pair(3, 3))
    laws.assert_full_precision(objective, *views(12, 16))
    moved = objective(*permuted(5, 3, *batch)).item()
    assert moved == pytest.approx(objective(*batch).item(), rel=1e-9, abs=1e-12)


# ------------------------------------------------------------------- equality with our own losses


@pytest.mark.parametrize(
    "name, arguments, ours",
    [
        ("NTXentLoss", {"temperature": 0.05}, NTXent()),
        ("SupConLoss", {"temperature": 0.1}, SupCon()),
        (
            "NPairsLoss",
            {"distance": {"class": "DotProductSimilarity", "normalize_embeddings": False}},
            NPair(),
        ),
        ("NCALoss", {"distance": {**RAW_L2, "power": 2}}, SoftNearestNeighbours()),
        ("LiftedStructureLoss", {"distance": RAW_L2}, LiftedStructured()),
        (
            "TripletMarginLoss",
            {"margin": 1, "distance": RAW_L2, "reducer": {"class": "MeanReducer"}},
            Triplet(),
        ),
        (
            "TripletMarginLoss",
            {"margin": 0.2, "distance": UNIT_L2, "reducer": {"class": "MeanReducer"}},
            Triplet(margin=0.2, squared=True, normalize_embeddings=True),
        ),
    ],
)
def test_equals_the_objective_of_this_package(
    name: str, arguments: dict[str, Any], ours: Objective
) -> None:
    theirs = built(name, **arguments)(*pair(6))
    assert theirs.item() == pytest.approx(ours(*pair(6)).item(), rel=1e-6)


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("dtype, most", [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_nt_xent_of_the_library_is_the_fast_one(
    dtype: torch.dtype, most: float, numbered: bool
) -> None:
    """Values and gradients, of pairs that belong together, with and without a number of each.

    Gradients are of cosines / temperature, so they are compared times the temperature.
    """
    for tau, (n, width) in itertools.product((0.02, 0.05, 0.5, 1), ((1, 3), (2, 64), (16, 5))):
        rows = normal(2, n, width, seed=n)
        batch = [view.to(dtype).requires_grad_() for view in (rows[0], rows.sum(dim=0))]
        labels = torch.arange(n) + 7 if numbered else None
        ours = NTXent(tau)(*batch)
        theirs = built("NTXentLoss", temperature=tau)(*batch, labels=labels)
        assert torch.allclose(ours, theirs, rtol=most, atol=most), (tau, n, width)
        mine, others = (torch.stack(torch.autograd.grad(loss, batch)) for loss in (ours, theirs))
        assert (mine - others).abs().max() * tau <= most, (tau, n, width)


def test_the_contrastive_loss_of_the_library_differs() -> None:
    theirs = built("ContrastiveLoss", distance=RAW_L2)(*pair(6))
    assert abs(theirs.item() - Contrastive()(*pair(6)).item()) > 1e-2


def test_self_supervised_loss_with_one_direction() -> None:
    one_sided = built("SelfSupervisedLoss", loss={"class": "NTXentLoss"}, symmetric=False)
    expected = losses.SelfSupervisedLoss(losses.NTXentLoss(), symmetric=False)(*pair(4))
    assert one_sided(*pair(4)).item() == pytest.approx(expected.item())
    assert one_sided(*pair(1)).item() == 0


# --------------------------------------------------------------------------- names and arguments


@pytest.mark.parametrize("name", ["pytorch_metric_learning", "pml"])
def test_registered_names(name: str) -> None:
    objective = Objective.from_params(Params({"type": name, "loss": "SupConLoss"}))
    assert isinstance(objective, PytorchMetricLearning) and objective.temperature == 0.1
    miner = Miner.from_params(Params({"type": name, "miner": "MultiSimilarityMiner"}))
    assert isinstance(miner, PytorchMetricLearningMiner)
    ours = memory("SupConLoss")  # for the run's record
    assert (ours.temperature, ours.reduction) == (0.1, None)


def test_learnt_parameters_are_saved() -> None:
    objective = built("MarginLoss", learn_beta=True)
    assert [name for name, _ in objective.named_parameters()] == ["_loss.beta"]
    assert list(objective.state_dict()) == ["_loss.beta"]


# ---------------------------------------------------------------------------------------- miners


@pytest.mark.parametrize("name", parts.names("miner"))
def test_every_miner_selects_for_a_loss(name: str) -> None:
    objective = built("TripletMarginLoss", margin=1.0)
    objective.attach_miner(Miner.from_params(Params({"type": "pml", "miner": name})))
    batch = pair(8)
    loss = objective(*batch)
    loss.backward()
    assert loss.isfinite() and batch[0].grad.isfinite().all()


def test_a_miner_by_name_selects_as_the_miner_of_the_library() -> None:
    rows, labels = normal(8, 3), torch.arange(4).repeat(2)
    settings = {"type": "pml", "miner": "MultiSimilarityMiner", "miner_args": {"epsilon": 0.3}}
    mined = Miner.from_params(Params(settings))(rows, labels)
    expected = miners.MultiSimilarityMiner(epsilon=0.3)(rows, labels)
    assert all(torch.equal(a, b) for a, b in zip(mined, expected, strict=True))
    other = miners.MultiSimilarityMiner(epsilon=-0.5)(rows, labels)
    assert [index.tolist() for index in mined] != [index.tolist() for index in other]


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence:UserWarning")
def test_why_two_losses_are_refused() -> None:
    """Show the failures in the library; once they are fixed there, the refusals can be removed."""
    with pytest.raises(RuntimeError, match="out of bounds"):
        losses.HistogramLoss(n_bins=10)(torch.ones(4, 3), torch.tensor([0, 0, 1, 1]))
    theirs, labels = losses.DynamicSoftMarginLoss(), torch.arange(4).repeat(2)
    theirs(normal(8, 3).requires_grad_(), labels).backward()
    with pytest.raises(RuntimeError, match="second time"):
        theirs(normal(8, 3).requires_grad_(), labels).backward()


@pytest.mark.parametrize("name", USABLE)
def test_a_miner_changes_the_loss_or_is_refused(name: str) -> None:
    """Check that no loss ignores a miner silently, and that one that keeps all changes nothing."""
    everything = Miner.from_params(Params({"type": "pair_margin", **ALL_PAIRS}))
    plain, objective = built(name), built(name)
    if name in WITHOUT_MINER:
        with pytest.raises(ConfigurationError, match=f"{name} takes no miner: remove the key 'mi"):
            objective.attach_miner(everything)
        return
    expected = plain(*pair(6)).item()
    objective.attach_miner(everything)
    assert objective(*pair(6)).item() == pytest.approx(expected, rel=1e-6)
    objective.attach_miner(PairMarginMiner(pos_margin=0.0, neg_margin=0.0))
    assert objective(*pair(6)).item() != pytest.approx(expected, rel=1e-6)


# ---------------------------------------------------------------------------- cross-batch memory

WITH_MEMORY = [name for name in USABLE if name in losses.CrossBatchMemory.supported_losses()]


def memory(name: str, **options: Any) -> CrossBatchMemory:
    inner = {"type": "pml", "loss": name, "loss_args": ARGUMENTS.get(name, {})}
    settings = {"type": "cross_batch_memory", "loss": inner, "embedding_size": 4, **options}
    built = Objective.from_params(Params(settings))
    assert isinstance(built, CrossBatchMemory)
    return built.train()


@pytest.mark.parametrize("name", WITH_MEMORY)
def test_memory_around_any_loss(name: str, tmp_path: Path) -> None:
    """Compare with the memory of the library, step by step and after a resume."""
    ours = memory(name, memory_size=20)
    theirs = losses.CrossBatchMemory(getattr(losses, name)(), embedding_size=4, memory_size=20)
    for step in range(4):
        batch = views(4, 4, seed=step, dtype=torch.float32)
        labels = (4 * step + torch.arange(4)).repeat(2)
        expected = theirs(torch.cat(batch), labels)
        assert ours(*batch).item() == pytest.approx(expected.item(), rel=1e-5)
    torch.save(ours.state_dict(), tmp_path / "state.th")
    resumed = memory(name, memory_size=20)
    resumed.load_state_dict(torch.load(tmp_path / "state.th"))
    batch = views(4, 4, seed=9, dtype=torch.float32)
    assert torch.equal(ours(*batch), resumed(*batch))


def test_memory_with_a_miner_by_name() -> None:
    mined = memory("NTXentLoss", miner={"type": "pml", "miner": "MultiSimilarityMiner"})
    theirs = losses.CrossBatchMemory(
        losses.NTXentLoss(), embedding_size=4, miner=miners.MultiSimilarityMiner()
    )
    for step in range(3):
        batch = views(3, 4, seed=step)
        expected = theirs(torch.cat(batch), (3 * step + torch.arange(3)).repeat(2))
        assert mined(*batch).item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("name", sorted(set(USABLE) - set(WITH_MEMORY)))
@pytest.mark.filterwarnings("ignore:Values of Tp or Tn:UserWarning")
def test_losses_without_a_memory_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} cannot compare a batch with a memory"):
        memory(name)


def test_memory_refuses_objectives_that_are_not_of_the_library() -> None:
    with pytest.raises(ConfigurationError, match=r"got SupCon. It can also wrap 'pytorch_metric"):
        CrossBatchMemory(SupCon(), embedding_size=4)
