"""Twenty steps of recipes equal plain loops of the public codes' logic, in float64.

The loops are written here, of transformers' and torch's own parts: SimCSE and SCD after `train.py`,
`models.py` and `trainers.py` of their repositories, DeCLUTR after its model and its
`training_config/declutr.jsonnet`. They get the batches and the initial weights of our run, and the
same random numbers at each dropout: what the test compares is all the rest.
"""

import copy
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from pytorch_metric_learning.losses import NTXentLoss
from torch import Tensor, nn
from torch.nn import functional as F

from declutr.models import training_step
from declutr.recipes import recipe_path
from tests.recipe_data import RecipeData
from tests.test_recipes import built

pytestmark = pytest.mark.slow

STEPS = 20
AS_FLOAT = Tensor.float


class Draws:
    """Dropout whose random numbers depend on the step, the layer and the view of a text alone.

    Our model embeds the two views of N texts in two passes of N rows, the public codes in one pass
    of 2N, row 2i + v being view v of text i. A layer has the same numbers for a row either way.
    """

    def __init__(self, texts: int | None = None) -> None:
        self.texts = texts  # of a pass with one view; None takes rows as they come
        self.rates: tuple[float, float] | None = None  # of the two views of a pass of 2N rows
        self.begin(0)

    def begin(self, step: int) -> None:
        self.step, self.calls = step, 0

    def __call__(
        self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        if not training:
            return x
        call, self.calls = self.calls, self.calls + 1
        if self.texts is None:
            levels = self._levels(call, x.shape)
            return x * (levels >= p) / (1 - p)
        sites = 7  # of two layers: the embeddings, and three each
        shape = (2, self.texts, *x.shape[1:])
        levels = self._levels(call % sites, shape)
        if len(x) == self.texts:
            return x * (levels[call // sites % 2] >= p) / (1 - p)
        levels = levels.transpose(0, 1).flatten(0, 1)
        rates = x.new_tensor(self.rates or (p, p)).repeat(self.texts)
        rates = rates.view(-1, *[1] * (x.dim() - 1))
        return x * (levels >= rates) / (1 - rates)

    def _levels(self, call: int, shape: Any) -> Tensor:
        generator = torch.Generator().manual_seed(1000 * self.step + call)
        return torch.rand(shape, generator=generator, dtype=torch.float64)


class OurRun:
    """A run of a recipe in float64, step by step: its batches, losses and weights."""

    def __init__(
        self, name: str, data: RecipeData, folder: Path, draws: Draws, rows: int = 40
    ) -> None:
        config = data.small(recipe_path(name), num_epochs=2)
        config["dataset_reader"]["max_instances"] = rows
        # A transformer of its own kind alone, as the loops have it.
        embedder = config["model"]["text_field_embedder"]["token_embedders"]["tokens"]
        embedder |= {"unpadding": "none", "transformer_kwargs": {"attn_implementation": "eager"}}
        config["trainer"]["callbacks"] = []
        run = built(config, folder)
        self.model, trainer = run.model.double(), run.trainer
        self.start = copy.deepcopy(self.model.state_dict())
        self.batches: list[Any] = []
        self.losses: list[float] = []
        outputs = trainer.batch_outputs

        def recorded(batch: Any, for_training: bool) -> Any:
            draws.begin(len(self.batches))
            self.batches.append(batch)
            found = outputs(batch, for_training)
            self.losses.append(found["loss"].item())
            return found

        trainer.batch_outputs = recorded
        trainer._validation_data_loader = None
        trainer.train()
        assert len(self.losses) == STEPS

    def weights(self, prefix: str, start: bool = False) -> dict[str, Tensor]:
        state = self.start if start else self.model.state_dict()
        return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


class AdamW:
    """transformers' AdamW of then: decay after the step, `eps` beside the uncorrected root."""

    def __init__(self, groups: list[dict[str, Any]], eps: float, correct_bias: bool) -> None:
        self.groups, self.eps, self.correct_bias = groups, eps, correct_bias
        self.moments: dict[Tensor, tuple[Tensor, Tensor, int]] = {}

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for group in self.groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                zeros = torch.zeros_like(p)
                mean, square, steps = self.moments.get(p, (zeros, zeros, 0))
                mean = 0.9 * mean + 0.1 * p.grad
                square = 0.999 * square + 0.001 * p.grad**2
                steps += 1  # of this parameter: one without a gradient does not count
                self.moments[p] = mean, square, steps
                size = rate
                if self.correct_bias:
                    size = rate * math.sqrt(1 - 0.999**steps) / (1 - 0.9**steps)
                p -= size * mean / (square.sqrt() + self.eps)
                p -= rate * group["decay"] * p


def trained(
    modules: nn.ModuleDict,
    loss_of: Callable[[int], Tensor],
    groups: list[dict[str, Any]],
    rate_of: Callable[[int], float],
    **settings: Any,
) -> list[float]:
    """The loop: loss, gradients scaled to a norm of at most 1, update."""
    optimizer, losses = AdamW(groups, **settings), []
    for step in range(STEPS):
        loss = loss_of(step)
        modules.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(modules.parameters(), 1.0)
        optimizer.step(rate_of(step))
        losses.append(loss.item())
    return losses


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> RecipeData:
    return RecipeData(tmp_path_factory.mktemp("data"))


def in_float64(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`Tensor.float`, which leaves float64 as it is."""
    return tensor if tensor.dtype == torch.float64 else AS_FLOAT(tensor, *args, **kwargs)


@pytest.fixture
def environment(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """float64 throughout: in float32, noise alone moves parameters without a gradient."""
    monkeypatch.setenv("TRANSFORMER_MODEL", str(checkpoint))
    monkeypatch.setattr(Tensor, "float", in_float64)
    return monkeypatch


def with_draws(monkeypatch: pytest.MonkeyPatch, texts: int | None) -> Draws:
    draws = Draws(texts)
    monkeypatch.setattr(F, "dropout", draws)
    return draws


def assert_same_run(
    ours: OurRun, losses: list[float], modules: nn.ModuleDict, prefixes: dict[str, str]
) -> None:
    assert ours.losses == pytest.approx(losses, abs=1e-9)
    for name, prefix in prefixes.items():
        theirs, start = modules[name].state_dict(), ours.weights(prefix, start=True)
        found = {k: v for k, v in ours.weights(prefix).items() if v.is_floating_point()}
        assert found and found.keys() <= theirs.keys()
        for key, value in found.items():
            torch.testing.assert_close(value, theirs[key], rtol=0, atol=1e-9, msg=f"{name}.{key}")
        moved = [(value - start[key]).abs().max().item() for key, value in found.items()]
        assert max(moved) > 1e-4


# ------------------------------------------------------------------------------- SimCSE and SCD


class TanhLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x))


def simcse(first: Tensor, second: Tensor, projected: Callable[[Tensor], Tensor]) -> Tensor:
    z1, z2 = projected(first), projected(second)
    cosines = nn.CosineSimilarity(dim=-1)(z1.unsqueeze(1), z2.unsqueeze(0)) / 0.05
    return nn.CrossEntropyLoss()(cosines, torch.arange(len(z1)))


def scd(first: Tensor, second: Tensor, projected: Callable[[Tensor], Tensor]) -> Tensor:
    bn = nn.BatchNorm1d(16, affine=False, dtype=torch.float64)
    c = bn(projected(first)).T @ bn(projected(second)) / len(first)
    diagonal = torch.diagonal(c)
    beside = c.pow(2).sum() - diagonal.pow(2).sum()
    contrast = nn.CosineSimilarity(dim=-1)(first, second).mean() / 0.05
    return contrast + 0.005 * ((diagonal - 1).pow(2).sum() + 0.013 * beside)


def projector(width: int, hidden: int, out: int) -> nn.Module:
    """The public SCD's: the first layer has a bias, which the batch normalisation takes away."""
    return nn.ModuleDict(
        {
            "layers": nn.Sequential(
                *[nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.ReLU()],
                nn.Linear(hidden, out, bias=False),
            )
        }
    )


@pytest.mark.parametrize("method", [simcse, scd])
def test_simcse_and_scd(
    method: Callable, environment: pytest.MonkeyPatch, data: RecipeData, tmp_path: Path
) -> None:
    draws = with_draws(environment, texts=4)
    name = method.__name__
    ours = OurRun(name, data, tmp_path, draws)
    modules = nn.ModuleDict(
        {
            "encoder": transformers.AutoModel.from_pretrained(
                str(ours.model.embedders[0].token_embedder.model_name),
                add_pooling_layer=False,
                attn_implementation="eager",
            ),
            "head": TanhLayer(32) if method is simcse else projector(32, 24, 16),
        }
    ).double()
    modules.train()
    head = ours.weights("_head.", start=True)
    missing, unexpected = modules["head"].load_state_dict(head, strict=False)
    assert not unexpected and set(missing) <= {"layers.0.bias"}
    if missing:
        nn.init.zeros_(modules["head"]["layers"][0].bias)
    for key, value in head.items():  # as `init_weights` of transformers begins
        if value.dim() == 2:
            assert value.std().item() == pytest.approx(0.02, rel=0.15), key
        elif "bias" in key:
            assert not value.any(), key
    projected = modules["head"] if method is simcse else modules["head"]["layers"]
    draws.rates = None if method is simcse else (0.05, 0.15)

    def loss_of(step: int) -> Tensor:
        draws.begin(step)
        texts = ours.batches[step]["anchors"]["tokens"]
        ids, mask = (texts[key].repeat_interleave(2, dim=0) for key in ("token_ids", "mask"))
        output = modules["encoder"](ids, attention_mask=mask.long()).last_hidden_state[:, 0]
        pairs = output.view(len(ids) // 2, 2, -1)
        return method(pairs[:, 0], pairs[:, 1], projected)

    # The Trainer's: no decay, no warm-up, linear to 0.
    groups = [{"params": list(modules.parameters()), "decay": 0.0}]
    rates = [3e-5 * (STEPS - step) / STEPS for step in range(STEPS)]
    losses = trained(modules, loss_of, groups, rates.__getitem__, eps=1e-8, correct_bias=True)
    encoder = "_text_field_embedder.token_embedder_tokens.transformer_model."
    assert_same_run(ours, losses, modules, {"encoder": encoder, "head": "_head."})


# ------------------------------------------------------------------------------------- DeCLUTR


def mean_of_tokens(vectors: Tensor, mask: Tensor) -> Tensor:
    weights = mask.unsqueeze(-1).to(vectors.dtype)
    return (vectors * weights).sum(1) / weights.sum(1)


def slanted_triangular(step: int, steps: int, rate: float) -> float:
    """Howard & Ruder (2018), equation 3, with a cut fraction of 0.1 and a ratio of 32."""
    cut = int(steps * 0.1)
    share = step / cut if step < cut else 1 - (step - cut) / (steps - cut)
    return rate * (1 + share * (32 - 1)) / 32


def test_declutr(environment: pytest.MonkeyPatch, data: RecipeData, tmp_path: Path) -> None:
    """Masks are those of transformers' collator, on both sides, of seeds of the steps."""
    draws = with_draws(environment, texts=None)
    tokenizer = transformers.AutoTokenizer.from_pretrained(os.environ["TRANSFORMER_MODEL"])
    collator = transformers.DataCollatorForLanguageModeling(tokenizer)

    def masked(token_ids: Tensor, *_: Any, **others: Any) -> tuple[Tensor, Tensor]:
        with torch.random.fork_rng():
            torch.manual_seed(draws.step)
            special = torch.isin(token_ids, torch.tensor(tokenizer.all_special_ids))
            return collator.torch_mask_tokens(token_ids.clone(), special_tokens_mask=special)

    environment.setattr(training_step, "mask_tokens", masked)
    ours = OurRun("declutr", data, tmp_path, draws)
    model = transformers.AutoModelForMaskedLM.from_pretrained(
        os.environ["TRANSFORMER_MODEL"], output_hidden_states=True, attn_implementation="eager"
    )
    modules = nn.ModuleDict({"model": model}).double()
    modules.train()
    contrast = NTXentLoss(temperature=0.05)

    def loss_of(step: int) -> Tensor:
        draws.begin(step)
        views = []
        for name in ("anchors", "positives"):
            texts = ours.batches[step][name]["tokens"]
            views.append([texts[key].flatten(0, 1) for key in ("token_ids", "mask")])
        (anchors, mask), (positives, positive_mask) = views
        corrupted, labels = masked(anchors)
        output = model(corrupted, attention_mask=mask.long(), labels=labels)
        x = mean_of_tokens(output.hidden_states[-1], mask)
        found = model(positives, attention_mask=positive_mask.long()).hidden_states[-1]
        y = mean_of_tokens(found, positive_mask).view(len(x), -1, x.size(-1)).mean(dim=1)
        numbers = torch.arange(len(x))
        return contrast(torch.cat([x, y]), torch.cat([numbers, numbers])) + output.loss

    spared = re.compile(r"bias|LayerNorm\.weight|layer_norm\.weight")  # of the public configuration
    kinds: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for name, parameter in model.named_parameters():
        kinds[bool(spared.search(name))].append(parameter)
    groups = [{"params": kinds[True], "decay": 0.0}, {"params": kinds[False], "decay": 0.1}]
    losses = trained(
        modules,
        loss_of,
        groups,
        lambda step: slanted_triangular(step + 1, STEPS, 5e-5),
        eps=1e-6,
        correct_bias=False,
    )
    encoder = "_text_field_embedder.token_embedder_tokens.transformer_model."
    assert_same_run(ours, losses, modules, {"model": encoder})
