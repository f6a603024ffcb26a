"""The trainer "declutr" is bit-identical to AllenNLP's, and reads the device rarely."""

import copy
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.training import Trainer, TrainerCallback
from allennlp.training.callbacks.log_writer import LogWriterCallback

from declutr.training.trainer import DeCLUTRTrainer
from tests.resumed_runs import EPOCHS, STEPS, TinyModel, differences, make_trainer, outcome

pytestmark = pytest.mark.slow

AVERAGE = {"moving_average": {"type": "exponential", "decay": 0.5}}
OPTIONS: dict[str, dict[str, Any]] = {
    "accumulation": {},
    "average": {**AVERAGE, "grad_norm": 0.1, "num_gradient_accumulation_steps": 1},
    "clipping": {"grad_norm": True, "grad_clipping": 0.01, "run_confidence_checks": True},
    "patience": {"patience": 1, "num_epochs": 5, "validation_metric": "+accuracy"},
    "schedules": {
        "optimizer": {"type": "sgd", "lr": 0.05, "momentum": 0.9},
        "learning_rate_scheduler": {"type": "linear_with_warmup", "warmup_steps": 2},
        "momentum_scheduler": {"type": "inverted_triangular", "cool_down": 1, "warm_up": 2},
    },
}


@TrainerCallback.register("told_of_tests")
class Told(TrainerCallback):
    """A callback that keeps the metrics of each batch."""

    def on_start(self, trainer: Any, is_primary: bool = True, **kwargs: Any) -> None:
        super().on_start(trainer, is_primary)
        self.told: list[Any] = []
        self.losses: list[list[float]] = []

    def on_batch(  # type: ignore[override]
        self, trainer: Any, inputs: Any, outputs: Any, metrics: dict, *args: Any, **kwargs: Any
    ) -> None:
        self.told.append((dict(metrics), args, kwargs))
        self.losses.append([output["loss"].item() for output in outputs])


@TrainerCallback.register("blind_of_tests")
class Blind(Told):
    looks_at_metrics = False


@TrainerCallback.register("writer_of_tests")
class Writer(LogWriterCallback):
    """A log writer that keeps what it would write."""

    def on_start(self, trainer: Any, is_primary: bool = True, **kwargs: Any) -> None:
        super().on_start(trainer, is_primary)
        self.written: list[Any] = []

    def log_scalars(self, scalars: Any, log_prefix: str = "", epoch: int | None = None) -> None:
        kept = {k: v for k, v in scalars.items() if "memory" not in k}
        self.written.append((log_prefix, epoch, kept))

    def log_tensors(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError


# Which options are run with reads at every step, as on a CPU, and which with fewer.
READ_EVERY = dict(zip(OPTIONS, (None, 2, 2, None, 3), strict=True))


@pytest.mark.parametrize("name", OPTIONS)
def test_training_equals_that_of_allennlps_trainer(name: str, tmp_path: Path) -> None:
    kinds = {"type": "gradient_descent"}, {"type": "declutr", "read_every": READ_EVERY[name]}
    runs = [outcome(tmp_path / k["type"], **OPTIONS[name], **k) for k in kinds]
    assert differences(*runs) == []


@pytest.mark.parametrize("kind", ["gradient_descent", "declutr"])
@pytest.mark.parametrize("callbacks", [[], [{"type": "mixed_precision_backward"}]])
@pytest.mark.parametrize("grad_norm", [9.0, True])
def test_scaled_gradients_are_means_of_the_batches_of_a_step(
    kind: str, callbacks: list[dict[str, Any]], grad_norm: float, tmp_path: Path
) -> None:
    """With `use_amp`, weights and norms are as without, also in the smaller last step."""
    runs = []
    for scaled in (False, True):
        given = [{"type": "told_of_tests"}, *(callbacks if scaled else [])]
        options = {"optimizer": {"type": "sgd", "lr": 0.05}, "grad_norm": grad_norm}
        trainer = make_trainer(tmp_path / str(scaled), type=kind, callbacks=given, **options)
        if scaled:  # as for a GPU, but in float32; powers of two scale without rounding
            trainer._scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        assert len(trainer.data_loader) % trainer._num_gradient_accumulation_steps
        trainer.train()
        weights = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
        told = [kwargs for _, _, kwargs in trainer._callbacks[0].told]
        norms = [one["batch_grad_norm"] for one in told if "batch_grad_norm" in one]
        assert len(norms) == STEPS * EPOCHS
        runs.append((weights, torch.tensor(norms)))
    assert all(torch.equal(*pair) for pair in zip(*runs, strict=True))


@pytest.mark.parametrize("kind", ["gradient_descent", "declutr"])
def test_the_scale_of_gradients_is_resumed(kind: str, tmp_path: Path) -> None:
    scales = []
    for epochs in (2, 2, 3):
        trainer = make_trainer(tmp_path, type=kind, num_epochs=epochs)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0, growth_interval=1)
        trainer._scaler = scaler
        trainer.train()
        scales.append(scaler.get_scale())
    assert scales == [2.0 ** (1 + 2 * STEPS)] * 2 + [2.0 ** (1 + 3 * STEPS)]


@pytest.mark.parametrize("kind", ["gradient_descent", "declutr"])
def test_a_run_ends_with_its_best_weights(kind: str, tmp_path: Path) -> None:
    """Also if its last epoch was not validated."""
    callbacks = [{"type": "should_validate_callback", "validation_interval": 2}]
    trainer = make_trainer(tmp_path, type=kind, callbacks=callbacks, num_epochs=2)
    trainer.train()
    best = torch.load(tmp_path / "best.th")
    assert all(torch.equal(best[name], value) for name, value in trainer.model.state_dict().items())
    last = torch.load(tmp_path / "model_state_e2_b0.th")
    assert not all(torch.equal(best[name], value) for name, value in last.items())


@pytest.mark.parametrize("steps, read_every", [(1, None), (2, 2)])
def test_callbacks_that_read_metrics_get_the_same_as_from_allennlp(
    steps: int, read_every: int | None, tmp_path: Path
) -> None:
    """Every number of every step is the same, however rarely the device is read."""
    told = []
    for kind in ({"type": "gradient_descent"}, {"type": "declutr", "read_every": read_every}):
        callbacks = [{"type": "told_of_tests"}, {"type": "writer_of_tests", "summary_interval": 1}]
        trainer = make_trainer(
            tmp_path / kind["type"],
            **kind,
            **{"callbacks": callbacks, "num_gradient_accumulation_steps": steps},
            **{"grad_norm": 0.1, "num_epochs": 2},
        )
        trainer.train()
        told.append(trainer._callbacks[:2])
    (theirs, their_writer), (ours, our_writer) = told
    assert ours.told == theirs.told and ours.losses == theirs.losses
    assert our_writer.written == their_writer.written and our_writer.written
    assert isinstance(ours.told[0][2]["batch_grad_norm"], float)


def test_a_log_writer_gets_the_metrics_at_its_interval(tmp_path: Path) -> None:
    written = []
    for kind in ({"type": "gradient_descent"}, {"type": "declutr", "read_every": 100}):
        writer = {"type": "writer_of_tests", "summary_interval": 2}
        trainer = make_trainer(tmp_path / kind["type"], callbacks=[writer], num_epochs=2, **kind)
        trainer.train()
        written.append(trainer._callbacks[0].written)
    assert written[0] == written[1] and "batch_loss" in written[0][4][2]


def test_metrics_are_read_every_few_steps_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A callback that does not read metrics causes no further reads."""
    asked: list[bool] = []
    get_metrics = TinyModel.get_metrics
    spy = lambda self, reset=False: asked.append(reset) or get_metrics(self, reset)  # noqa: E731
    monkeypatch.setattr(TinyModel, "get_metrics", spy)
    changes: dict[str, Any] = {"num_gradient_accumulation_steps": 1, "num_epochs": 1}
    changes |= {"type": "declutr", "read_every": 4, "checkpointer": {"save_every_num_batches": 99}}
    trainer = make_trainer(tmp_path, callbacks=[{"type": "blind_of_tests"}], **changes)
    trainer._validation_data_loader = None
    trainer.train()
    batches = STEPS * 2 - 1
    assert asked == [False] * 2 + [True]  # steps 1 and 4, and the epoch
    told = [metrics["batch_loss"] for metrics, _, _ in trainer._callbacks[0].told]
    losses = [loss for (loss,) in trainer._callbacks[0].losses]
    assert told == [losses[0]] * 3 + [losses[3]] * (batches - 3)


THEIRS, OURS = {"type": "gradient_descent"}, {"type": "declutr"}
READING_RARELY = {**OURS, "read_every": 2}


@pytest.mark.parametrize(
    "first, then", [(THEIRS, READING_RARELY), (OURS, READING_RARELY), (READING_RARELY, THEIRS)]
)
def test_each_trainer_can_resume_within_an_epoch_of_the_other(
    first: dict, then: dict, tmp_path: Path
) -> None:
    whole = outcome(tmp_path / "whole", **first)
    for place in ("e1_b2", f"e{EPOCHS}_b0"):
        assert differences(whole, outcome(tmp_path / "cut" / place, **then)) == [], place


def broken_at(trainer: Any, step: int) -> None:
    """Make the loss of a trainer's model not a number from a step on."""
    forward, steps = trainer.model.forward, [0]

    def broken(**batch: Any) -> dict[str, torch.Tensor]:
        output = forward(**batch)
        steps[0] += 1
        return {"loss": output["loss"] * (math.nan if steps[0] >= step else 1.0)}

    trainer.model.forward = broken


@pytest.mark.parametrize("every", [1, 4, 99])
def test_a_loss_that_is_no_number_ends_the_run(every: int, tmp_path: Path) -> None:
    """It ends before the next checkpoint and validation, and can be resumed from the last."""
    changes: dict[str, Any] = {"type": "declutr", "num_gradient_accumulation_steps": 1}
    changes |= {"num_epochs": 1}
    whole = outcome(tmp_path / "unbroken", **changes)
    changes["read_every"] = every
    trainer = make_trainer(
        tmp_path / "run", checkpointer={"save_every_num_batches": 2}, **copy.deepcopy(changes)
    )
    broken_at(trainer, 3)
    validated: list[int] = []
    trainer._validation_loss = validated.append
    message = "nan loss encountered" + (" in step 3 of the epoch" if every > 1 else "")
    with pytest.raises(ValueError, match=message):
        trainer.train()
    # A checkpoint is due after step 4.
    assert trainer._batches_in_epoch_completed == (2 if every == 1 else 4)
    assert validated == [] and not (tmp_path / "run" / "best.th").exists()
    assert [p.name for p in (tmp_path / "run").glob("model_state*")] == ["model_state_e0_b2.th"]
    assert differences(whole, outcome(tmp_path / "run", **changes)) == []


def test_read_every_below_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="read_every must be at least 1, got 0"):
        make_trainer(tmp_path, type="declutr", read_every=0)


def test_a_key_that_the_trainer_does_not_take_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """AllenNLP's own trainer goes on, and the misspelt number of epochs is that by default."""
    told = r"Extra parameters passed to .*Trainer: {'num_epoch': 9}. Did you mean 'num_epochs' for"
    with pytest.raises(ConfigurationError, match=told):
        make_trainer(tmp_path / "own", type="declutr", num_epoch=9)
    make_trainer(tmp_path / "others", type="gradient_descent", num_epoch=9, run_sanity_checks=False)
    (warning,) = (one for one in caplog.messages if "num_epoch'" in one)
    assert re.match(told, warning) and warning.endswith("makes no use of others.")


def test_a_class_that_extends_a_trainer_has_keys_of_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may pass all on to the trainer of this package, which raises for its own name alone."""
    monkeypatch.setattr(Trainer, "_registry", {Trainer: {**Trainer._registry[Trainer]}})

    @Trainer.register("extended", constructor="from_partial_objects")
    class Extended(DeCLUTRTrainer):
        def __init__(self, *arguments: Any, warmth: float = 0.0, **others: Any) -> None:
            super().__init__(*arguments, warmth=warmth, **others)

    make_trainer(tmp_path, type="extended", warmth=1.0)
    assert "warmth" not in caplog.text
    make_trainer(tmp_path, type="extended", num_epoch=1)
    assert "Did you mean 'num_epochs' for 'num_epoch'?" in caplog.text
    assert "arguments" not in caplog.text and "others," not in caplog.text


def test_sparse_gradients_are_limited_as_dense_ones(tmp_path: Path) -> None:
    """They were an error of torch's at the first step, as `grad_norm` is set in most recipes."""
    found = []
    for sparse in (False, True):
        trainer: Any = make_trainer(tmp_path / str(sparse), type="declutr", grad_norm=0.5)
        trainer._parameters = list(trainer.model.parameters())
        for one in trainer._parameters:
            grad = torch.full_like(one, 2.0)
            one.grad = grad.to_sparse(1) if sparse and one.dim() == 2 else grad
        norm = trainer._rescaled()
        found.append([norm, *(one.grad.to_dense() for one in trainer._parameters)])
    assert all(map(torch.equal, *found))
    assert found[0][0] > 0.5 and found[0][1].abs().max() < 0.1


def test_a_loss_that_is_to_rise_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The error of a metric without a sign says that it is + or -."""
    for metrics in ("-loss", ["+accuracy", "-loss"], "+loss"):
        assert "highest" not in caplog.text
        make_trainer(tmp_path / str(metrics), type="declutr", validation_metric=metrics)
    assert "validation_metric is '+loss', so that the epoch with the highest" in caplog.text
