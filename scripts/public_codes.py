"""Trains SimCSE or SCD for 20 steps by the model classes of their public codes, beside ours.

In this environment, which writes what our runs had and became:

    python scripts/public_codes.py ours found

In another one, with clones of the public codes and what they import:

    pip install --no-deps --target old transformers==4.30.2 tokenizers==0.13.3 \
        huggingface_hub==0.23.5 einops
    PYTHONPATH=old python scripts/public_codes.py theirs found simcse SimCSE
    PYTHONPATH=old python scripts/public_codes.py theirs found scd SCD

Both compute in float64, with the same batches, initial weights and random numbers of dropout. The
public side has the optimizer and the schedule of transformers. docs/SETTINGS.md has the figures.
"""

import importlib
import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
TEXTS = 4  # of a batch
RATES = 0.05, 0.15
ENCODER = "_text_field_embedder.token_embedder_tokens.transformer_model."
HEADS = {"simcse": ("_head.linear.", "mlp.dense."), "scd": ("_head.layers.", "projector.")}


def ours(place: Path) -> None:
    """Run our recipes as `tests/training/test_public_codes.py` does, and save what they had."""
    from declutr.quickstart.small_checkpoints import make_checkpoint, train_tokenizer
    from tests.conftest import make_documents
    from tests.recipe_data import RecipeData
    from tests.training.test_public_codes import Draws, OurRun, in_float64

    (place / "data").mkdir(parents=True)
    os.environ["DECLUTR_CACHE"] = str(place / "cache")
    os.environ["TRANSFORMER_MODEL"] = str(place / "tiny")
    tokenizer = train_tokenizer(make_documents(24, 300), 400, max_length=128)
    sizes = {"layers": 2, "hidden_size": 32, "heads": 2, "max_length": 128}
    make_checkpoint(place / "tiny", tokenizer, **sizes)
    data = RecipeData(place / "data")
    for name in HEADS:
        draws = Draws(TEXTS)
        with patch("torch.nn.functional.dropout", draws), patch("torch.Tensor.float", in_float64):
            run = OurRun(name, data, Path(tempfile.mkdtemp()), draws)
        batches = [dict(batch["anchors"]["tokens"]) for batch in run.batches]
        states = {"start": dict(run.start), "end": dict(run.model.state_dict())}
        torch.save({"batches": batches, "losses": run.losses, **states}, place / f"{name}.pt")


class PublicDropout:
    """The random numbers of `Draws`, in the order in which the public codes ask for dropout."""

    def __init__(self, a_view_at_a_time: bool) -> None:
        self.a_view_at_a_time, self.step, self.calls = a_view_at_a_time, 0, 0

    def __call__(
        self, x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> torch.Tensor:
        if not training:
            return x
        site, view = divmod(self.calls, 2) if self.a_view_at_a_time else (self.calls, 0)
        self.calls += 1
        generator = torch.Generator().manual_seed(1000 * self.step + site)
        shape = (2, TEXTS, *x.shape[1:])
        levels = torch.rand(shape, generator=generator, dtype=torch.float64)
        rows = levels[view] if self.a_view_at_a_time else levels.transpose(0, 1).flatten(0, 1)
        return x * (rows >= p) / (1 - p)


def public_model(place: Path, name: str, clone: Path) -> Any:
    """Build the model of a public code, with its own initial weights."""
    import transformers

    sys.path.insert(0, str(clone))
    known = json.loads((place / "tiny" / "config.json").read_text())
    drop = ("dtype", "transformers_version", "architectures", "model_type")
    config = transformers.RobertaConfig(**{k: v for k, v in known.items() if k not in drop})
    pooler = {"simcse": "cls", "scd": "cls_before_pooler"}[name]
    arguments = {"temp": 0.05, "do_mlm": False, "hard_negative_weight": 0, "mlp_only_train": True}
    if name == "scd":
        use_patched_transformer(clone)
        kinds = ("hidden_dropout_prob", "attention_probs_dropout_prob")
        rates = {
            f"{kind}{noise}": rate
            for kind in kinds
            for noise, rate in zip(("", "_noise"), RATES, strict=True)
        }
        weights = {"task_alpha": 1.0, "task_beta": 0.005, "task_lambda": 0.013}
        sizes = {"embedding_dim": 32, "projector": "24-16", "multi_dropout": True}
        config.update({**rates, **weights, **sizes})
    models = importlib.import_module(f"{name}.models")
    torch.manual_seed(0)
    return models.RobertaForCL(
        config, model_args=SimpleNamespace(pooler_type=pooler, **arguments)
    ).double()


def use_patched_transformer(clone: Path) -> None:
    """Put the `modeling_roberta.py` of SCD in the place of transformers' own, as it wants."""
    import transformers.file_utils
    import transformers.models.roberta

    # It only writes docstrings, and had other arguments in transformers 4.10.
    transformers.file_utils.add_code_sample_docstrings = lambda *_, **__: lambda model: model
    name = "transformers.models.roberta.modeling_roberta"
    file = clone / "transformers_v4.10/src/transformers/models/roberta/modeling_roberta.py"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec and spec.loader
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])


def theirs(place: Path, name: str, clone: Path) -> None:
    """Train the public model on what our run had, and print how far apart the two are."""
    transformers: Any = importlib.import_module("transformers")  # of an earlier release
    saved = torch.load(place / f"{name}.pt", weights_only=True)
    model = public_model(place, name, clone).train()
    own, public = HEADS[name]

    def renamed(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        pairs = [
            (key.replace(ENCODER, "roberta.").replace(own, public), state[key]) for key in state
        ]
        return {key: value for key, value in pairs if key in model.state_dict()}

    start, end = renamed(saved["start"]), renamed(saved["end"])
    first = model.state_dict()[f"{public}{'0.' if name == 'scd' else ''}weight"]
    print(f"{name}: weights of the head begin there with a deviation of {first.std().item():.4f}")
    model.load_state_dict(start, strict=False)
    steps = len(saved["batches"])
    optimizer = transformers.AdamW(model.parameters(), lr=3e-5, eps=1e-8)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 0, steps)
    draws, losses = PublicDropout(a_view_at_a_time=name == "scd"), []
    for step, batch in enumerate(saved["batches"]):
        draws.step, draws.calls = step, 0
        ids, mask = (batch[key].unsqueeze(1).repeat(1, 2, 1) for key in ("token_ids", "mask"))
        with patch("torch.nn.functional.dropout", draws):
            loss = model(input_ids=ids, attention_mask=mask.long(), return_dict=True).loss
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    floats = [key for key, value in end.items() if value.is_floating_point()]
    trained = [key for key, _ in model.named_parameters() if key in floats]
    final = model.state_dict()
    apart = {
        "losses apart by": max(abs(a - b) for a, b in zip(losses, saved["losses"], strict=True)),
        "weights apart by": max((final[k] - end[k]).abs().max().item() for k in floats),
        "weights moved by": max((start[k] - end[k]).abs().max().item() for k in trained),
    }
    print(f"{steps} steps, {len(floats)} tensors:", *[f"{k} {v:.1e}" for k, v in apart.items()])


if __name__ == "__main__":
    if sys.argv[1] == "ours":
        ours(Path(sys.argv[2]))
    else:
        theirs(Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
