"""With every option of AllenNLP's trainer, a run that is killed and resumed ends as if it were not.

Weights, optimizer, schedules, averages, best weights and all metrics are compared, to the bit.
"""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.training.learning_rate_schedulers import LearningRateScheduler
from allennlp.training.optimizers import Optimizer

from tests.resumed_runs import Snapshots, differences, make_trainer, outcome

pytestmark = pytest.mark.slow

ADAM = {"type": "adamw", "lr": 0.05}
SGD = {"type": "sgd", "lr": 0.05, "momentum": 0.9}
LAYERS = [[[name], {}] for name in ("classify", "layers.2", "layers.1", "layers.0")]
AVERAGE = {"moving_average": {"type": "exponential", "decay": 0.5}}
MULTI = {
    "type": "multi",
    "optimizers": {"default": {"type": "adam", "lr": 0.05}, "last": SGD},
    "parameter_groups": [[["classify"], {"optimizer_name": "last"}]],
}
CONSTANT = {"type": "constant"}
STEPS_ALONE = {"save_completed_epochs": False, "save_every_num_batches": 1}


def every_two_epochs(**more: Any) -> dict[str, Any]:
    return {"callbacks": [{"type": "should_validate_callback", "validation_interval": 2, **more}]}


def combined(*schedulers: dict[str, Any]) -> dict[str, Any]:
    return {"type": "combined", "schedulers": [[1, one] for one in schedulers]}


OPTIONS: dict[str, dict[str, Any]] = {
    "average": AVERAGE,
    "average of a part": {**AVERAGE, "no_grad": ["layers.0"], "grad_norm": 0.1},
    "average, no epochs": {**AVERAGE, "checkpointer": STEPS_ALONE},
    "clipping": {"grad_clipping": 0.01, "grad_norm": True, "run_confidence_checks": True},
    "patience": {"patience": 1, "num_epochs": 6, "validation_metric": "+accuracy"},
    "two metrics": {"validation_metric": ["+accuracy", "-loss"], "enable_default_callbacks": False},
    "validated at times": every_two_epochs(),
    "counted epochs": {"callbacks": [{"type": "track_epoch_callback"}, {"type": "run_record"}]},
    "no accumulation": {"num_gradient_accumulation_steps": 1},
    "by seconds": {"checkpointer": {"save_every_num_batches": None, "save_every_num_seconds": 0}},
    "by age": {"checkpointer": {"keep_most_recent_by_count": None, "keep_most_recent_by_age": 99}},
    "momentum": {
        "optimizer": SGD,
        "momentum_scheduler": {"type": "inverted_triangular", "cool_down": 1, "warm_up": 2},
    },
    "unfreezing": {
        "optimizer": {**ADAM, "parameter_groups": LAYERS},
        "learning_rate_scheduler": {
            "type": "slanted_triangular",
            "gradual_unfreezing": True,
            "discriminative_fine_tuning": True,
        },
    },
    "several optimizers": {
        "optimizer": MULTI,
        "learning_rate_scheduler": {"type": "linear_with_warmup", "warmup_steps": 2},
    },
}
SCHEDULES: dict[str, dict[str, Any]] = {
    "slanted_triangular": {"cut_frac": 0.5},
    "noam": {"model_size": 4, "warmup_steps": 4},
    "polynomial_decay": {"warmup_steps": 2},
    "linear_with_warmup": {"warmup_steps": 2},
    "cosine": {"t_initial": 2, "t_mul": 1.5, "eta_mul": 0.9},
    "step": {"step_size": 1},
    "multi_step": {"milestones": [1, 2]},
    "exponential": {"gamma": 0.5},
    "piecewise_constant": {"boundaries": [2, 4], "factors": [1, 0.5, 0.1]},
    "reduce_on_plateau": {"patience": 0, "factor": 0.5},
    "constant_with_warmup": {"num_warmup_steps": 8},
    "cosine_with_warmup": {"num_warmup_steps": 1, "num_training_steps": 8},
    "cosine_hard_restarts_with_warmup": {"num_warmup_steps": 1, "num_training_steps": 8},
}
COMBINED = {
    "by epoch": combined(CONSTANT, {"type": "constant_with_warmup", "num_warmup_steps": 3}),
    "chained": combined({"type": "exponential", "gamma": 0.5}, {"type": "exponential"}),
    "by step": combined({"type": "linear_with_warmup", "warmup_steps": 1}, {"type": "noam"}),
}
COMBINED["by step"]["schedulers"][1][1] |= {"model_size": 4, "warmup_steps": 4}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adam": {"lr": 0.05, "amsgrad": True},
    "huggingface_adafactor": {},
    "rmsprop": {"lr": 0.05, "momentum": 0.5, "centered": True},
    "averaged_sgd": {"lr": 0.05, "t0": 2},
    "multi": MULTI,
}


def apart(folder: Path, *places: str, alone: bool = True, **changes: Any) -> dict[str, list[str]]:
    """What differs in runs cut off at `places`, of those that had a checkpoint there.

    Within epochs there are no others, unless `alone` is false.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Snapshots, "places", places if alone else ())
        whole = outcome(folder / "whole", **changes)
    cut = [place for place in places if (folder / "cut" / place).exists()]
    assert cut
    found = {p: differences(whole, outcome(folder / "cut" / p, **changes)) for p in cut}
    return {place: different for place, different in found.items() if different}


@pytest.mark.parametrize("name", OPTIONS)
def test_options(name: str, tmp_path: Path) -> None:
    """Between two epochs, within one, after the last step of one, and at the end."""
    last = "e2_b0" if name == "patience" else "e3_b0"
    places = "e1_b0", "e1_b2", "e2_b3", last
    different = apart(tmp_path, *places, alone=False, **OPTIONS[name])
    if name == "validated at times":
        # AllenNLP repeats the last validation; without one in this process there is none.
        names = different.pop("e1_b0", []) + different.pop("e1_b2", [])
        assert all(n.startswith("/metrics_epoch_1.json/validation_") for n in names)
    assert different == {}


@pytest.mark.parametrize("name", sorted({*LearningRateScheduler.list_available()} - {"combined"}))
def test_schedules(name: str, tmp_path: Path) -> None:
    scheduler = {"type": name, **SCHEDULES.get(name, {})}
    assert apart(tmp_path, "e1_b2", "e1_b3", learning_rate_scheduler=scheduler) == {}


@pytest.mark.parametrize("name", COMBINED)
def test_combined_schedules(name: str, tmp_path: Path) -> None:
    places = "e0_b3", "e1_b0", "e1_b1", "e1_b3"
    assert apart(tmp_path, *places, learning_rate_scheduler=COMBINED[name]) == {}


@pytest.mark.parametrize("name", sorted({*Optimizer.list_available()} - {"sparse_adam"}))
def test_optimizers(name: str, tmp_path: Path) -> None:
    settings = OPTIMIZERS.get(name, {"lr": 0.05})
    assert apart(tmp_path, "e1_b1", optimizer={"type": name, **settings}) == {}


def test_mixed_precision_is_refused_on_a_cpu(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="AMP requires a cuda device"):
        make_trainer(tmp_path / "run", use_amp=True)


def test_figures_of_a_checkpoint_of_an_earlier_release(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They are not in there, which is said; everything else is as it would have been."""
    whole = outcome(tmp_path / "whole")
    for place in ("e1_b2", "e2_b3"):
        file = tmp_path / "cut" / place / f"training_state_{place}.th"
        state = torch.load(file)
        (resume,) = (c for c in state["callbacks"] if "means" in c)
        for name in resume.keys() - {"seed", "means"}:
            del resume[name]
        torch.save(state, file)
        with caplog.at_level(logging.WARNING, "declutr.training.epoch_figures"):
            caplog.clear()
            different = differences(whole, outcome(tmp_path / "cut" / place))
        assert "hold what these were at: accuracy, others.f1, others.pearson" in caplog.text
        assert all("/training_" in name and "metrics" in name for name in different)
