"""Twenty steps of further methods equal plain loops of their public codes' logic, in float64.

As in `test_public_codes.py`, the loops are written here, of transformers' and torch's own parts,
and get the batches and the initial weights of our run. They are after the builder of
facebookresearch/moco, google-deepmind's BYOL, facebookresearch/swav (main_swav.py), IS-BERT
(MutualInformationLoss.py), Contrastive Tension (Training.py) and sentence-transformers
(ContrastiveTensionLossInBatchNegatives). What codes for images are optimised with is not followed:
there the optimizer is the recipe's.
"""

import copy
import math
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F

from tests.recipe_data import RecipeData
from tests.training.test_public_codes import (
    STEPS,
    OurRun,
    assert_same_run,
    mean_of_tokens,
    trained,
    with_draws,
)
from tests.training.test_public_codes import data as data  # fixtures
from tests.training.test_public_codes import environment as environment

pytestmark = pytest.mark.slow

ENCODER = "token_embedder_tokens.transformer_model."
OWN, SECOND = f"_text_field_embedder.{ENCODER}", f"_second_encoder.embedder.{ENCODER}"
HEAD, PREDICTOR = "_head.layers.", "_predictor.layers."
COPIES = "_momentum_encoder.copies.head.layers."


def encoder(ours: OurRun) -> nn.Module:
    """A transformer of its own kind with the first weights of our run."""
    name = str(ours.model.embedders[0].token_embedder.model_name)
    settings = {"add_pooling_layer": False, "attn_implementation": "eager"}
    found = transformers.AutoModel.from_pretrained(name, **settings).double().train()
    found.load_state_dict(ours.weights(OWN, start=True))
    return found


def projector(ours: OurRun, prefix: str, *layers: nn.Module) -> nn.Sequential:
    found = nn.Sequential(*layers).double()
    found.load_state_dict(ours.weights(prefix, start=True))
    return found


def with_batch_norm(width: int, bias: bool) -> list[nn.Module]:
    first, last = nn.Linear(width, 24, bias=False), nn.Linear(24, 16, bias=bias)
    return [first, nn.BatchNorm1d(24), nn.ReLU(), last]


def texts_of(ours: OurRun, step: int) -> tuple[Tensor, Tensor]:
    tensors = ours.batches[step]["anchors"]["tokens"]
    return tensors["token_ids"], tensors["mask"]


def vectors(model: nn.Module, ids: Tensor, mask: Tensor) -> Tensor:
    return model(ids, attention_mask=mask.long()).last_hidden_state


def first_token(model: nn.Module, ids: Tensor, mask: Tensor) -> Tensor:
    return vectors(model, ids, mask)[:, 0]


def unit(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1)


@torch.no_grad()
def follow(targets: Iterable[nn.Module], sources: Iterable[nn.Module], momentum: float) -> None:
    for target, source in zip(targets, sources, strict=True):
        for theirs, own in zip(target.parameters(), source.parameters(), strict=True):
            theirs.copy_(momentum * theirs + (1 - momentum) * own)


def by_the_trainer(
    modules: nn.ModuleDict, loss_of: Callable[[int], Tensor], rate: float = 3e-5
) -> list[float]:
    """Twenty steps by the defaults of transformers' `Trainer`, as recipes of image codes take."""
    groups = [{"params": list(modules.parameters()), "decay": 0.0}]
    rates = [rate * (STEPS - step) / STEPS for step in range(STEPS)]
    return trained(modules, loss_of, groups, rates.__getitem__, eps=1e-8, correct_bias=True)


def test_fine_tuning(environment: pytest.MonkeyPatch, data: RecipeData, tmp_path: Path) -> None:
    """RECLAIM's baseline is transformers' own classifier, as its run_glue.py trains it."""
    draws = with_draws(environment, texts=None)
    ours = OurRun("reclaim_task_alone", data, tmp_path, draws)
    kind = transformers.AutoModelForSequenceClassification
    name = os.environ["TRANSFORMER_MODEL"]
    model = kind.from_pretrained(name, attn_implementation="eager").double().train()
    head = model.classifier
    modules = nn.ModuleDict({"encoder": model.roberta, "dense": head.dense, "last": head.out_proj})
    prefixes = {"encoder": OWN, "dense": "_seq2vec_encoder._dense."}
    prefixes["last"] = "_classification_layer."
    for part, prefix in prefixes.items():
        modules[part].load_state_dict(ours.weights(prefix, start=True))

    def loss_of(step: int) -> Tensor:
        draws.begin(step)
        batch = ours.batches[step]
        ids, mask = (batch["tokens"]["tokens"][key] for key in ("token_ids", "mask"))
        return model(input_ids=ids, attention_mask=mask.long(), labels=batch["label"]).loss

    assert_same_run(ours, by_the_trainer(modules, loss_of, 2e-5), modules, prefixes)


def test_moco(environment: pytest.MonkeyPatch, data: RecipeData, tmp_path: Path) -> None:
    """The key encoder follows when a step begins, and its keys enter the queue at the end."""
    draws = with_draws(environment, texts=None)
    ours = OurRun("moco", data, tmp_path, draws)
    head = projector(ours, HEAD, nn.Linear(32, 24), nn.ReLU(), nn.Linear(24, 16))
    modules = nn.ModuleDict({"encoder": encoder(ours), "head": head})
    keys_by = [copy.deepcopy(modules["encoder"]), copy.deepcopy(modules["head"])]
    queue = unit(ours.start["_loss.queue.keys"])
    place = 0

    def loss_of(step: int) -> Tensor:
        nonlocal place
        follow(keys_by, modules.values(), 0.999)
        draws.begin(step)
        texts = texts_of(ours, step)
        queries = unit(head(first_token(modules["encoder"], *texts)))
        with torch.no_grad():
            keys = unit(keys_by[1](first_token(keys_by[0], *texts)))
        positive = (queries * keys).sum(dim=1, keepdim=True)
        logits = torch.cat([positive, queries @ queue.clone().T], dim=1) / 0.07
        queue[place : place + len(keys)] = keys
        place = (place + len(keys)) % len(queue)
        return F.cross_entropy(logits, torch.zeros(len(keys), dtype=torch.long))

    losses = by_the_trainer(modules, loss_of)
    follow(keys_by, modules.values(), 0.999)
    assert_same_run(ours, losses, modules, {"encoder": OWN, "head": HEAD})
    for key, value in keys_by[1].state_dict().items():  # which have hardly moved
        torch.testing.assert_close(ours.weights(COPIES)[key], value, rtol=0, atol=1e-9)
    torch.testing.assert_close(ours.weights("_loss.queue.")["keys"], queue, rtol=0, atol=1e-7)


def test_byol(environment: pytest.MonkeyPatch, data: RecipeData, tmp_path: Path) -> None:
    """The target follows after a step; all four projections have batch statistics of their own."""
    draws = with_draws(environment, texts=None)
    ours = OurRun("byol", data, tmp_path, draws)
    head = projector(ours, HEAD, *with_batch_norm(32, bias=False))
    predictor = projector(ours, PREDICTOR, *with_batch_norm(16, bias=False))
    modules = nn.ModuleDict({"encoder": encoder(ours), "head": head, "predictor": predictor})
    targets = [copy.deepcopy(modules["encoder"]), copy.deepcopy(head)]

    def move(done: int) -> None:
        momentum = 1 - (1 - 0.996) * (math.cos(math.pi * done / STEPS) + 1) / 2
        follow(targets, [modules["encoder"], head], momentum)

    def loss_of(step: int) -> Tensor:
        if step:
            move(step - 1)
        draws.begin(step)
        texts = texts_of(ours, step)
        views = [first_token(modules["encoder"], *texts) for _ in range(2)]
        with torch.no_grad():
            wanted = [first_token(targets[0], *texts) for _ in range(2)]
            wanted = [unit(targets[1](view)) for view in wanted]
        found = [head(view) for view in views]
        found = [unit(predictor(view)) for view in found]
        crossed = zip(found, wanted[::-1], strict=True)
        return sum((2 - 2 * (p * t).sum(dim=1) for p, t in crossed), torch.zeros(())).mean()

    losses = by_the_trainer(modules, loss_of)
    move(STEPS - 1)
    modules["target"] = targets[1]
    prefixes = {"encoder": OWN, "head": HEAD, "predictor": PREDICTOR, "target": COPIES}
    assert_same_run(ours, losses, modules, prefixes)


def sinkhorn(scores: Tensor) -> Tensor:
    matrix = torch.exp(scores / 0.05).T
    matrix = matrix / matrix.sum()
    for _ in range(3):
        matrix = matrix / matrix.sum(dim=1, keepdim=True) / len(matrix)
        matrix = matrix / matrix.sum(dim=0, keepdim=True) / matrix.size(1)
    return (matrix * matrix.size(1)).T


def test_swav(environment: pytest.MonkeyPatch, data: RecipeData, tmp_path: Path) -> None:
    """A queue of each view that serves once it is full, and prototypes that are frozen at first."""
    draws = with_draws(environment, texts=None)
    ours = OurRun("swav", data, tmp_path, draws)
    head = projector(ours, HEAD, *with_batch_norm(32, bias=True))
    modules = nn.ModuleDict({"encoder": encoder(ours), "head": head})
    prototypes = nn.Parameter(ours.start["_loss.prototypes"].clone())
    modules["prototypes"] = nn.ParameterList([prototypes])
    queues = torch.zeros(2, 20, 16, dtype=torch.float64)

    def loss_of(step: int) -> Tensor:
        prototypes.data = unit(prototypes.data)
        draws.begin(step)
        texts = texts_of(ours, step)
        views = [first_token(modules["encoder"], *texts) for _ in range(2)]
        views = [unit(head(view)) for view in views]
        used = prototypes.detach() if step < 5 else prototypes
        scores = [view @ used.T for view in views]
        loss = torch.zeros((), dtype=torch.float64)
        for number, view in enumerate(views):
            assigned = scores[number].detach()
            if queues[number, -1].any():
                earlier = queues[number] @ prototypes.detach().T
                assigned = torch.cat([earlier, assigned])
            queues[number, len(view) :] = queues[number, : -len(view)].clone()
            queues[number, : len(view)] = view.detach()
            wanted = sinkhorn(assigned)[-len(view) :]
            logs = F.log_softmax(scores[1 - number] / 0.1, dim=1)
            loss = loss - (wanted * logs).sum(dim=1).mean() / 2
        return loss

    losses = by_the_trainer(modules, loss_of)
    assert_same_run(ours, losses, modules, {"encoder": OWN, "head": HEAD})
    found = ours.weights("_loss.")["prototypes"]
    torch.testing.assert_close(found, unit(prototypes.data), rtol=0, atol=1e-9)


def fitted(
    modules: nn.ModuleDict,
    loss_of: Callable[[int], Tensor],
    rate: float,
    eps: float,
    correct_bias: bool,
) -> list[float]:
    """`fit` of sentence-transformers: a decay of 0.01, a tenth of the steps as a warm-up."""
    kinds: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for name, parameter in modules.named_parameters():
        kinds[bool(re.search(r"bias|LayerNorm\.weight", name))].append(parameter)
    groups = [{"params": kinds[True], "decay": 0.0}, {"params": kinds[False], "decay": 0.01}]
    warm = STEPS // 10

    def rate_of(step: int) -> float:
        return rate * (step / warm if step < warm else (STEPS - step) / (STEPS - warm))

    return trained(modules, loss_of, groups, rate_of, eps=eps, correct_bias=correct_bias)


def test_is_bert(environment: pytest.MonkeyPatch, data: RecipeData, tmp_path: Path) -> None:
    draws = with_draws(environment, texts=None)
    ours = OurRun("is_bert", data, tmp_path, draws)
    layers = nn.ModuleList(nn.Conv1d(32, 8, width, padding=width // 2) for width in (1, 3, 5))
    modules = nn.ModuleDict({"encoder": encoder(ours), "convolutions": layers.double()})
    prefix = "_seq2vec_encoder.convolutions."
    layers.load_state_dict(ours.weights(prefix, start=True))

    def loss_of(step: int) -> Tensor:
        draws.begin(step)
        ids, mask = texts_of(ours, step)
        tokens = (vectors(modules["encoder"], ids, mask) * mask.unsqueeze(-1)).transpose(1, 2)
        local = torch.cat([layer(tokens) for layer in layers], dim=1).relu().transpose(1, 2)
        scores = local[mask] @ mean_of_tokens(local, mask).T
        own = torch.arange(len(ids)).repeat_interleave(mask.sum(dim=1))
        positive = F.one_hot(own, len(ids)).double()
        with_own = (math.log(2) - F.softplus(-scores * positive)).sum() / len(scores)
        others = scores * (1 - positive)
        with_others = (F.softplus(-others) + others - math.log(2)).sum()
        return with_others / (len(scores) * (len(ids) - 1)) - with_own

    losses = fitted(modules, loss_of, 2e-6, eps=1e-7, correct_bias=False)
    assert_same_run(ours, losses, modules, {"encoder": OWN, "convolutions": prefix})


def two_encoders(ours: OurRun) -> nn.ModuleDict:
    one = encoder(ours)
    return nn.ModuleDict({"one": one, "two": copy.deepcopy(one)})


def test_contrastive_tension(
    environment: pytest.MonkeyPatch, data: RecipeData, tmp_path: Path
) -> None:
    """Of three sentences, two pairs; TensorFlow's RMSprop, nothing clipped and no dropout."""
    draws = with_draws(environment, texts=None)
    ours = OurRun("contrastive_tension", data, tmp_path, draws, rows=30)
    modules = two_encoders(ours).eval()
    squares = {p: torch.zeros_like(p) for p in modules.parameters()}
    labels, losses = torch.tensor([1.0, 0.0], dtype=torch.float64), []
    for step in range(STEPS):
        ids, mask = texts_of(ours, step)
        each = [
            mean_of_tokens(vectors(modules[name], ids[rows], mask[rows]), mask[rows])
            for name, rows in (("one", [0, 1]), ("two", [0, 2]))
        ]
        loss = F.binary_cross_entropy_with_logits((each[0] * each[1]).sum(dim=1), labels)
        modules.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p, square in squares.items():
                if p.grad is not None:
                    square.copy_(0.9 * square + 0.1 * p.grad**2)
                    p -= 1e-5 * p.grad / (square.sqrt() + 1e-7)
        losses.append(loss.item())
    assert_same_run(ours, losses, modules, {"one": OWN, "two": SECOND})


def test_contrastive_tension_in_batch(
    environment: pytest.MonkeyPatch, data: RecipeData, tmp_path: Path
) -> None:
    draws = with_draws(environment, texts=None)
    ours = OurRun("contrastive_tension_in_batch", data, tmp_path, draws)
    modules = two_encoders(ours)
    scale = nn.Parameter(ours.start["_loss.log_scale"].clone())
    assert scale.item() == pytest.approx(math.log(20))
    modules["scale"] = nn.ParameterList([scale])

    def loss_of(step: int) -> Tensor:
        draws.begin(step)
        ids, mask = texts_of(ours, step)
        one, two = (
            unit(mean_of_tokens(vectors(modules[name], ids, mask), mask)) for name in ("one", "two")
        )
        scores, own = one @ two.T * scale.exp(), torch.arange(len(ids))
        return (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2

    losses = fitted(modules, loss_of, 5e-5, eps=1e-6, correct_bias=True)
    assert_same_run(ours, losses, modules, {"one": OWN, "two": SECOND})
    found = ours.weights("_loss.")["log_scale"]
    torch.testing.assert_close(found, scale.data, rtol=0, atol=1e-9)
