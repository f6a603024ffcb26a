"""Tests that steps of objectives read no tensor, for which the host would wait on a GPU.

Losses and miners of pytorch-metric-learning do read tensors.
"""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from allennlp.common import Params
from torch import Tensor

from declutr.objectives import Objective, PairMarginMiner, Reclaim
from tests.objectives.laws import normal
from tests.objectives.waits import NeverWaits

ROWS, WIDTH = 6, 4
CLASSES = torch.tensor([0, 1, 0, 2, 1, 3])
NUMBERS = torch.arange(ROWS)
DOCUMENTS = torch.tensor([0, 0, 0, 1, 1, 2])
QUEUE = {"embedding_size": WIDTH, "queue_size": 20}
BANK = {"instances": 9, "embedding_size": WIDTH}

# By registered name: the settings, and the tensors of the batch beside its views.
STEPS: dict[str, list[tuple[dict[str, Any], dict[str, Tensor]]]] = {
    "align_uniform": [({}, {})],
    "barlow_twins": [({}, {})],
    "byol": [({}, {})],
    "contrastive": [({}, {}), ({"normalize_embeddings": True}, {"labels": CLASSES})],
    "cosine_regression": [({}, {"labels": torch.linspace(-1, 1, ROWS)})],
    "cross_batch_memory": [
        ({"loss": {}, "embedding_size": WIDTH, "memory_size": 20}, {}),
    ],
    "debiased_contrastive": [({}, {})],
    "hard_negative": [({}, {}), ({"detach_weights": True, "tau_plus": 0}, {})],
    "info_nce": [
        ({}, {}),
        ({"similarity": "bilinear", "embedding_size": WIDTH, "symmetric": True}, {}),
        ({"own_negative_logit": 1.0}, {"negatives": normal(ROWS, WIDTH).float()}),
    ],
    "instance_discrimination": [
        (BANK, {"ids": NUMBERS}),
        ({**BANK, "noise": 5}, {"ids": NUMBERS}),
    ],
    "is_bert": [({}, {})],
    "lifted_structured": [({}, {}), ({"hinge": True}, {"labels": CLASSES})],
    "mochi": [
        (QUEUE, {}),
        ({**QUEUE, "only_filled": True, "in_batch": True, "start_after": 1}, {}),
        ({"queue_size": 0, "in_batch": True}, {}),
    ],
    "moco": [(QUEUE, {}), ({**QUEUE, "only_filled": True}, {})],
    "n_pair": [({}, {})],
    "nce": [({}, {}), ({"learn_scale": True, "learn_bias": True}, {})],
    "nt_xent": [({}, {}), ({"reduction": "sum"}, {})],
    "pair_softmax": [({"num_labels": 4, "embedding_size": WIDTH}, {"labels": CLASSES})],
    "quick_thoughts": [({}, {"ids": NUMBERS, "documents": DOCUMENTS}), ({"parity": True}, {})],
    "reclaim": [({**BANK, "num_negatives": 3}, {"ids": NUMBERS})],
    "scd": [({}, {})],
    "soft_nearest_neighbours": [({}, {}), ({"distance": "cosine"}, {"labels": CLASSES})],
    "sup_con": [({}, {}), ({}, {"labels": CLASSES})],
    "swav": [({"embedding_size": WIDTH, "prototypes": 3}, {}), ({**QUEUE, "prototypes": 3}, {})],
    "triplet": [
        ({}, {}),
        ({"squared": True}, {"labels": CLASSES}),
        ({}, {"negatives": normal(2 * ROWS, WIDTH).float()}),
    ],
    "weighted_sum": [
        ({"objectives": [{"objective": {}}, {"objective": {"type": "barlow_twins"}}]}, {})
    ],
}
STEPS["quick_thoughts"][1][1].update(STEPS["quick_thoughts"][0][1])
WAITS = {
    "pytorch_metric_learning": "lists of pairs, whose length depends on labels",
    "pml": "another name of it",
}


def batch(name: str, seed: int) -> list[Tensor]:
    """Draw the views that `forward` of an objective takes by position, with gradients."""
    if name == "is_bert":
        mask = torch.arange(3) < torch.tensor([[3], [1], [2], [3], [0], [2]])
        return [normal(ROWS, 3, WIDTH, seed=seed).float().requires_grad_(), mask]
    views = {"byol": 4, "scd": 4, "instance_discrimination": 1}.get(name, 2)
    return [normal(ROWS, WIDTH, seed=seed + i).float().requires_grad_() for i in range(views)]


def step(objective: Objective, inputs: list[Tensor], given: dict[str, Tensor]) -> None:
    if inputs[-1].dtype == torch.bool:
        inputs = [*inputs, inputs[0].mean(dim=1)]
    objective(*inputs, **given).backward()


@pytest.mark.parametrize(
    ("name", "settings", "given"),
    [(name, *variant) for name, variants in STEPS.items() for variant in variants],
)
def test_steps_read_no_tensor_on_the_host(
    name: str, settings: dict, given: dict[str, Tensor]
) -> None:
    """Take training steps from empty queues until they wrap around, and a validation step."""
    objective = Objective.from_params(Params({"type": name, **settings})).train()
    if isinstance(objective, Reclaim):
        objective.u_bank.fixed_shapes = objective.v_bank.fixed_shapes = True  # as on a GPU
    for seed in range(5):
        inputs = batch(name, seed)
        # The host reads the number of steps once, in the first step.
        reads_steps = seed == 0 and hasattr(objective, "_steps_done")
        with nullcontext() if reads_steps else NeverWaits():
            step(objective.train(seed < 4), inputs, given)
        assert inputs[0].grad is not None


def test_every_registered_objective_is_covered() -> None:
    own = {name for name in Objective.list_available() if name != "squared_distance"}
    assert own == set(STEPS) | set(WAITS)


@pytest.mark.parametrize("mined", [False, True])
def test_the_guard_catches_the_waits_of_the_library(mined: bool) -> None:
    objective = Objective.from_params(Params({"type": "pml", "loss": "SupConLoss"}))
    if mined:
        objective = Objective.from_params(Params({"type": "nt_xent"}))
        objective.attach_miner(PairMarginMiner(0.9, 0.1))
    with NeverWaits(), pytest.raises(AssertionError, match="waits"):
        step(objective, batch("nt_xent", 0), {})
