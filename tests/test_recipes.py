"""Every recipe under training_config, however deep, can be built and takes a training step."""

import json
import os
from pathlib import Path

import pytest
import torch
from allennlp.commands.train import TrainModel
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.training import NoOpTrainer

import declutr.plugin  # noqa: F401
from tests.conftest import RECIPES

RECIPE_FILES = sorted(RECIPES.rglob("*.jsonnet"))

SENTENCES = {
    *("simcse", "scd", "scd_roberta", "scd_readme", "scd_self_contrast", "scd_decorrelation"),
    *("barlow_twins", "moco", "byol", "cutoff"),
}
# Only sizes: a tiny transformer and short documents.
SMALL = {
    f"{part}.{key}": value
    for part in ("dataset_reader",)
    for key, value in {"max_span_len": 32, "min_span_len": 8}.items()
} | {
    f"{part}.{key}": value
    for part in ("data_loader", "validation_data_loader")
    for key, value in {"batch_size": 4, "num_workers": 0}.items()
}


def small(recipe: Path, corpus: Path) -> Params:
    """The recipe for the tiny checkpoint and the tiny corpus."""
    overrides = {
        **SMALL,
        "train_data_path": str(corpus),
        "validation_data_path": str(corpus),
    }
    if recipe.stem in SENTENCES:
        del overrides["dataset_reader.max_span_len"], overrides["dataset_reader.min_span_len"]
        config = Params.from_file(str(recipe)).as_dict(quiet=True)
        for part in ("head", "predictor"):
            if "hidden_dims" in config["model"].get(part, {}):
                overrides[f"model.{part}.hidden_dims"] = [24, 16]
        if recipe.stem == "moco":
            overrides |= {"model.loss.embedding_size": 16, "model.loss.queue_size": 20}
    if not recipe.name.startswith("transformer_"):
        overrides["trainer.cuda_device"] = -1
    return Params.from_file(str(recipe), json.dumps(overrides))


@pytest.fixture(autouse=True)
def transformer(monkeypatch: pytest.MonkeyPatch, checkpoint: Path) -> None:
    monkeypatch.setitem(os.environ, "TRANSFORMER_MODEL", str(checkpoint))


def build(recipe: Path, corpus: Path, folder: Path) -> TrainModel:
    params = small(recipe, corpus)
    for seed in ("random_seed", "numpy_seed", "pytorch_seed"):
        params.pop(seed)
    return TrainModel.from_params(params, serialization_dir=str(folder), local_rank=0)


def test_the_recipes_of_the_readme_are_there() -> None:
    names = {recipe.stem for recipe in RECIPE_FILES}
    assert names >= {
        *("declutr", "declutr_small", "declutr_base", "contrastive_only", "mlm_only"),
        *("transformer_mean", "transformer_cls", "quickstart"),
        *SENTENCES,
    }


@pytest.mark.parametrize("recipe", RECIPE_FILES, ids=lambda recipe: recipe.stem)
def test_recipe_trains_one_step(recipe: Path, corpus_file: Path, tmp_path: Path) -> None:
    run = build(recipe, corpus_file, tmp_path)
    trainer = run.trainer
    if isinstance(trainer, NoOpTrainer):
        trainer.train()
        assert (tmp_path / "best.th").exists()
        return
    trainer.data_loader.index_with(run.model.vocab)
    batch = next(iter(trainer.data_loader))
    before = [p.detach().clone() for p in run.model.parameters()]
    loss = trainer.batch_outputs(batch, for_training=True)["loss"]
    assert torch.isfinite(loss)
    loss.backward()
    without = [n for n, p in run.model.named_parameters() if p.requires_grad and p.grad is None]
    assert without == [], "parameters without a gradient stop distributed training"
    trainer.optimizer.step()
    moved = [not torch.equal(b, p) for b, p in zip(before, run.model.parameters(), strict=True)]
    assert any(moved)


@pytest.mark.parametrize("name", ["declutr", "declutr_small", "declutr_base", "contrastive_only"])
def test_the_papers_settings(name: str, corpus_file: Path) -> None:
    config = Params.from_file(str(RECIPES / f"{name}.jsonnet")).as_dict(quiet=True)
    reader = config["dataset_reader"]
    assert (reader["num_anchors"], reader["num_positives"]) == (2, 2)
    assert (reader["min_span_len"], reader["max_span_len"]) == (32, 512)
    assert config["model"]["loss"] == {"type": "nt_xent", "temperature": 0.05}
    assert config["data_loader"]["batch_size"] == 16
    trainer = config["trainer"]
    assert trainer["grad_norm"] == 1.0
    assert trainer["optimizer"]["lr"] == 5e-5
    assert trainer["optimizer"]["weight_decay"] == 0.1
    assert trainer["learning_rate_scheduler"]["type"] == "slanted_triangular"
    assert trainer["num_epochs"] == (3 if name == "declutr_base" else 1)


def test_no_decay_on_biases_and_normalisation(corpus_file: Path, tmp_path: Path) -> None:
    run = build(RECIPES / "declutr.jsonnet", corpus_file, tmp_path)
    decay = {}
    for group in run.trainer.optimizer.param_groups:
        for parameter in group["params"]:
            decay[parameter] = group["weight_decay"]
    by_name = {name: decay[parameter] for name, parameter in run.model.named_parameters()}
    exempt = {n for n, value in by_name.items() if value == 0}
    expected = {n for n in by_name if n.endswith("bias") or "LayerNorm" in n or "layer_norm" in n}
    assert exempt == expected
    assert set(by_name.values()) == {0, 0.1}


def test_the_scheduler_knows_the_number_of_steps(corpus_file: Path, tmp_path: Path) -> None:
    run = build(RECIPES / "declutr.jsonnet", corpus_file, tmp_path)
    scheduler = run.trainer._learning_rate_scheduler
    assert scheduler.num_steps_per_epoch == len(run.trainer.data_loader) == 24 // 4


def test_training_and_validation_share_a_reader(corpus_file: Path, tmp_path: Path) -> None:
    """So that `-o '{"dataset_reader.max_span_len": …}'` changes both."""
    run = build(RECIPES / "declutr.jsonnet", corpus_file, tmp_path)
    loader, validation = run.trainer.data_loader, run.trainer._validation_data_loader
    assert validation.reader is loader.reader
    assert (loader.resample, validation.resample) == (True, False)


@pytest.mark.parametrize("part", ["model", "dataset_reader", "data_loader"])
def test_a_misspelt_key_is_named(part: str, corpus_file: Path, tmp_path: Path) -> None:
    params = small(RECIPES / "declutr.jsonnet", corpus_file)
    params[part]["temprature"] = 1
    for seed in ("random_seed", "numpy_seed", "pytorch_seed"):
        params.pop(seed)
    with pytest.raises(ConfigurationError, match=r"Extra parameters passed to .*temprature"):
        TrainModel.from_params(params, serialization_dir=str(tmp_path), local_rank=0)


def test_bad_validation_documents_stop_before_the_first_step(
    corpus_file: Path, tmp_path: Path
) -> None:
    run = build(RECIPES / "declutr.jsonnet", corpus_file, tmp_path)
    run.trainer._validation_data_loader.data_path = str(tmp_path / "nowhere.txt")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigurationError, match=r"nowhere\.txt"):
        run.run()
    assert run.trainer._total_batches_completed == 0


def test_a_transformer_that_is_nowhere_is_named(
    monkeypatch: pytest.MonkeyPatch, corpus_file: Path, tmp_path: Path
) -> None:
    monkeypatch.setitem(os.environ, "TRANSFORMER_MODEL", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match=r"no transformer at .*nowhere.*TRANSFORMER"):
        build(RECIPES / "declutr.jsonnet", corpus_file, tmp_path)


def test_an_undefined_transformer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(os.environ, "TRANSFORMER_MODEL")
    with pytest.raises(RuntimeError, match="TRANSFORMER_MODEL"):
        Params.from_file(str(RECIPES / "declutr.jsonnet"))
