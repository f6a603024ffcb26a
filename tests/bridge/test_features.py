"""AllenNLP's own features work under the bridge, tested on a classifier over a tiny BERT."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.commands import main
from allennlp.common import Params
from allennlp.models import load_archive
from allennlp.training.learning_rate_schedulers import LearningRateScheduler
from allennlp.training.momentum_schedulers import MomentumScheduler
from allennlp.training.optimizers import Optimizer

GROUPS = [[["bias", "LayerNorm"], {"weight_decay": 0.0}]]
ADAMW = {
    "type": "huggingface_adamw",
    "lr": 1e-3,
    "weight_decay": 0.1,
    "correct_bias": False,
    "parameter_groups": GROUPS,
}
SGD = {"type": "sgd", "lr": 0.1, "momentum": 0.9}
INVERTED = {"type": "inverted_triangular", "cool_down": 1, "warm_up": 1}

TRAINERS: dict[str, dict[str, Any]] = {
    "parameter groups": {"optimizer": ADAMW},
    "gradient clipping": {"grad_norm": 1.0, "grad_clipping": 0.1},
    "slanted triangular": {
        "learning_rate_scheduler": {"type": "slanted_triangular", "gradual_unfreezing": True},
        "optimizer": {
            "type": "huggingface_adamw",
            "lr": 1e-3,
            "parameter_groups": [[["_text_field_embedder"], {}], [["_classification"], {}]],
        },
    },
    "moving average": {"moving_average": {"type": "exponential", "decay": 0.9}},
    "momentum scheduler": {"optimizer": SGD, "momentum_scheduler": INVERTED},
    "accumulation": {"num_gradient_accumulation_steps": 2},
    "patience": {"patience": 1, "num_epochs": 2, "validation_metric": "+accuracy"},
    "tensorboard": {"callbacks": [{"type": "tensorboard", "should_log_learning_rate": True}]},
    "confidence checks": {"run_confidence_checks": True},
    "checkpoints by count": {
        "num_epochs": 3,
        "checkpointer": {"keep_most_recent_by_count": 1, "save_every_num_batches": 1},
    },
    "checkpoints by time": {
        "checkpointer": {"save_every_num_seconds": 0.001, "keep_most_recent_by_age": 60}
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("feature", TRAINERS)
def test_options_of_the_trainer(feature: str, train: Any, tmp_path: Path) -> None:
    model = train(trainer=TRAINERS[feature])
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert math.isfinite(metrics["training_loss"])
    states = len(list((tmp_path / "out").glob("model_state_*.th")))
    if feature == "checkpoints by count":
        assert states == 1
    if feature == "checkpoints by time":
        assert states >= 3
    if feature == "tensorboard":
        assert list((tmp_path / "out" / "log" / "train").glob("events*"))


EMBEDDERS: dict[str, dict[str, Any]] = {
    "frozen": {"train_parameters": False},
    "scalar mix": {"last_layer_only": False},
    "evaluation mode": {"eval_mode": True},
    "gradient checkpointing": {"gradient_checkpointing": True},
    "folding": {"max_length": 8},
    "without weights": {"load_weights": False},
    "last layer anew": {"reinit_modules": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("feature", EMBEDDERS)
def test_options_of_the_embedder(feature: str, train: Any, bert: str) -> None:
    embedder = {"type": "pretrained_transformer", "model_name": bert, **EMBEDDERS[feature]}
    changes: dict[str, Any] = {
        "model": {"text_field_embedder": {"token_embedders": {"tokens": embedder}}}
    }
    if feature == "folding":
        indexer = {"type": "pretrained_transformer", "model_name": bert, "max_length": 8}
        changes["dataset_reader"] = {"token_indexers": {"tokens": indexer}}
    model = train(**changes)
    reference = load_bert(bert)
    weights = dict(model.named_parameters())
    name = "encoder.layer.0.attention.self.query.weight"
    trained = next(weight for key, weight in weights.items() if key.endswith(name))
    assert torch.equal(trained.detach(), reference[name]) is (feature == "frozen")


def load_bert(bert: str) -> dict[str, torch.Tensor]:
    from transformers import AutoModel

    return AutoModel.from_pretrained(bert).state_dict()


SCHEDULERS: dict[str, dict[str, Any]] = {
    "combined": {"schedulers": [[1, "constant"], [1, {"type": "step", "step_size": 1}]]},
    "constant_with_warmup": {"num_warmup_steps": 2},
    "cosine": {"t_initial": 2},
    "cosine_with_warmup": {"num_warmup_steps": 1, "num_training_steps": 6},
    "cosine_hard_restarts_with_warmup": {"num_warmup_steps": 1, "num_training_steps": 6},
    "linear_with_warmup": {"warmup_steps": 1},
    "multi_step": {"milestones": [1]},
    "noam": {"model_size": 16, "warmup_steps": 2},
    "step": {"step_size": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LearningRateScheduler.list_available())
def test_every_scheduler_and_recovering(name: str, train: Any, tmp_path: Path, bert: str) -> None:
    """Compare a run recovered after its first epoch with an uninterrupted one."""
    embedder = {"type": "pretrained_transformer", "model_name": bert, "eval_mode": True}
    changes = {
        "model": {"text_field_embedder": {"token_embedders": {"tokens": embedder}}},
        "trainer": {
            "num_epochs": 3,
            "learning_rate_scheduler": {"type": name, **SCHEDULERS.get(name, {})},
        },
    }
    train(**changes)
    whole = last_state(tmp_path / "out", epoch=3)
    for path in (tmp_path / "out").glob("*_state_e3_b0.th"):
        path.unlink()
    train(recover=True, **changes)
    recovered = last_state(tmp_path / "out", epoch=3)
    assert whole.keys() == recovered.keys()
    for key, value in whole.items():
        torch.testing.assert_close(recovered[key], value, msg=key)


def last_state(folder: Path, epoch: int) -> dict[str, torch.Tensor]:
    return torch.load(folder / f"model_state_e{epoch}_b0.th")


OPTIMIZERS = [n for n in Optimizer.list_available() if n not in ("multi", "sparse_adam")]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer(name: str) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    params = Params({"type": name, **({"lr": 0.1} if "sgd" in name else {})})
    optimizer = Optimizer.from_params(params, model_parameters=[("w", weight)])
    weight.sum().backward()
    optimizer.step()
    assert torch.isfinite(weight).all() and not torch.equal(weight, torch.ones(3))


@pytest.mark.parametrize("name", MomentumScheduler.list_available())
def test_every_momentum_scheduler(name: str) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0, momentum=0.9)
    params = Params({"type": name, "cool_down": 1, "warm_up": 1})
    MomentumScheduler.from_params(params, optimizer=optimizer).step()
    assert 0 < optimizer.param_groups[0]["momentum"] < 1


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_forked_data_workers(workers: int, train: Any) -> None:
    loader = {"num_workers": workers, "start_method": "fork"}
    if workers:
        loader["max_instances_in_memory"] = 8
    train(data_loader=loader)


@pytest.mark.slow
def test_multi_optimizer_is_saved_and_recovered(train: Any, tmp_path: Path) -> None:
    groups = [
        [["_text_field_embedder"], {"optimizer_name": "slow"}],
        [["_classification"], {"optimizer_name": "default"}],
    ]
    optimizers = {"slow": {"type": "huggingface_adamw"}, "default": {"type": "sgd", "lr": 0.1}}
    optimizer = {"type": "multi", "optimizers": optimizers, "parameter_groups": groups}
    trainer = {"optimizer": optimizer, "num_epochs": 2}
    train(trainer=trainer)
    for path in (tmp_path / "out").glob("*_state_e2_b0.th"):
        path.unlink()
    train(trainer=trainer, recover=True)
    last_state(tmp_path / "out", epoch=2)


def test_amp_on_a_cpu_is_refused_by_allennlp(train: Any) -> None:
    with pytest.raises(Exception, match=r"AMP|cpu|CPU"):
        train(trainer={"use_amp": True})


def test_dry_run(train: Any, tmp_path: Path) -> None:
    assert train(dry_run=True) is None
    assert (tmp_path / "out" / "vocabulary" / "labels.txt").exists()
    assert not (tmp_path / "out" / "model.tar.gz").exists()


@pytest.fixture
def allennlp(monkeypatch: Any, capsys: Any) -> Any:
    """Return a function that runs the command with arguments and returns its output."""

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["allennlp", *arguments])
        main(prog="allennlp")
        return capsys.readouterr().out

    return run


@pytest.mark.slow
def test_archived_model_predicts_as_trained(train: Any, tmp_path: Path) -> None:
    from allennlp.predictors import Predictor

    trained = train()
    archive = load_archive(tmp_path / "out" / "model.tar.gz")
    assert archive.model is not None
    for name, value in trained.state_dict().items():
        torch.testing.assert_close(archive.model.state_dict()[name], value)
    predictor = Predictor.from_archive(archive, "text_classifier")
    assert sum(predictor.predict("the old house")["probs"]) == pytest.approx(1.0)


@pytest.mark.slow
def test_evaluate_and_predict_from_an_archive(
    train: Any, allennlp: Any, experiment: Any, rows: str, tmp_path: Path
) -> None:
    train()
    archive = str(tmp_path / "out" / "model.tar.gz")
    texts, output = tmp_path / "texts.jsonl", tmp_path / "predictions.jsonl"
    texts.write_text('{"sentence": "old house"}\n\n{"sentence": "cats sleep"}\n')
    to = ["--output-file", str(output), "--silent", "--batch-size", "2"]
    allennlp("predict", archive, str(texts), "--predictor", "text_classifier", *to)
    assert [set(json.loads(x)) >= {"label", "probs"} for x in output.open()] == [True] * 2
    reading = ["--use-dataset-reader", "--predictor", "text_classifier"]
    allennlp("predict", archive, rows, *reading, *to)
    assert len(output.read_text().splitlines()) == 12

    metrics = tmp_path / "evaluated.json"
    allennlp("evaluate", archive, rows, "--output-file", str(metrics))
    assert 0 <= json.loads(metrics.read_text())["accuracy"] <= 1

    config = tmp_path / "config.json"
    config.write_text(json.dumps(experiment()))
    assert "12" in allennlp("count-instances", str(config))
    allennlp("build-vocab", str(config), str(tmp_path / "vocab.tar.gz"))
    assert (tmp_path / "vocab.tar.gz").exists()


def test_find_lr(experiment: Any, tmp_path: Path, monkeypatch: Any) -> None:
    from allennlp.commands import find_learning_rate as command

    plotted: list[Any] = []
    monkeypatch.setattr(command, "_save_plot", lambda *args: plotted.append(args))
    params = Params(experiment())
    params.params["trainer"] |= {"type": "declutr", "read_every": 5}
    command.find_learning_rate_model(params, str(tmp_path / "lr"), num_batches=11)
    rates, losses, _ = plotted[0]
    assert len(rates) == len(losses) >= 3
