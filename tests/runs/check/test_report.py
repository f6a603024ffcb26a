"""The check of every shipped recipe, and of the data and batches of some."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from allennlp.common import Params

from declutr.recipes import recipe_names, recipe_path
from declutr.runs.check.idle_settings import idle_settings
from declutr.runs.check.lengths import lengths_of
from declutr.runs.check.report import Report, check_recipe
from declutr.runs.check.settings import walk_through
from declutr.runs.check.sources import COMPUTED
from declutr.runs.known_keys import RecipeError
from tests.recipe_data import BATCH, INSTANCES, RecipeData

pytestmark = pytest.mark.slow  # together they take long


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> RecipeData:
    return RecipeData(tmp_path_factory.mktemp("recipe_data"))


@pytest.fixture(autouse=True)
def transformer(monkeypatch: pytest.MonkeyPatch, checkpoint: Path) -> None:
    monkeypatch.setitem(os.environ, "TRANSFORMER_MODEL", str(checkpoint))


def checked(name: str, data: RecipeData, folder: Path, **changes: Any) -> Report:
    """The check of a recipe with small data."""
    config = data.small(recipe_path(name))
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    return check_recipe(file, json.dumps(changes))


def test_nothing_is_wrong_with_the_recipes() -> None:
    for name in recipe_names():
        config = Params.from_file(str(recipe_path(name))).as_dict(quiet=True)
        walk = walk_through(config)
        assert walk.findings == [] and list(idle_settings(walk.settings, True)) == [], name


@pytest.mark.parametrize("name", ["nce", "transformer_cls"])
def test_values_of_recipes_have_a_source(name: str) -> None:
    report = check_recipe(name, with_data=False)
    paths = [finding.path for finding in report.findings]
    assert set(paths) <= {"train_data_path"}
    assert [one.path for one in report.settings if one.source == COMPUTED] == []


def test_data_steps_and_memory_of_a_recipe(data: RecipeData, tmp_path: Path) -> None:
    report = checked("declutr", data, tmp_path, **{"trainer.num_epochs": 3})
    assert report.findings == []
    assert report.data is not None and report.memory is not None and report.rates is not None
    assert (report.data.rows, report.data.kept, report.data.skipped) == (INSTANCES, INSTANCES, {})
    assert report.data.spans is not None and report.data.spans.startswith("2 anchor(s) and 4")
    assert (report.steps, report.epochs) == (INSTANCES // BATCH, 3)
    assert report.rates.peak == pytest.approx(5e-5)
    assert report.rates.warm_up_steps == int(0.1 * 30) - 1  # the rate is that of the step's end
    assert len(report.data.tokens) == report.steps
    assert all(one.texts == 6 * BATCH for one in report.data.tokens)
    assert all(0 < one.useful < one.padded for one in report.data.tokens)
    assert report.memory.peak < report.memory.process
    sources = {one.path: one.source for one in report.settings}
    assert sources["trainer.num_epochs"] == "-o"
    assert sources["model.loss.reduction"] == "default of NTXent"
    assert sources["model.loss.temperature"].startswith("config.json:")


def test_parts_may_be_their_type_alone(data: RecipeData, tmp_path: Path) -> None:
    alone = {"trainer.optimizer": "adam", "trainer.learning_rate_scheduler": "constant"}
    report = checked("simcse", data, tmp_path, **alone)
    assert report.findings == [] and report.memory is not None
    assert checked("simcse", data, tmp_path, trainer="no_op").findings == []


def test_rows_of_any_reader_are_counted(data: RecipeData, tmp_path: Path) -> None:
    neighbours = checked("neighbours", data, tmp_path)
    assert neighbours.data is not None and neighbours.validation_data is not None
    assert neighbours.data.skipped == {"blank": 3, "too short, or without a next sentence": 4}
    task = checked("reclaim", data, tmp_path)
    assert task.data is not None and task.memory is not None
    assert task.data.kept == INSTANCES and task.data.batches == INSTANCES // BATCH
    assert any("40 of them with a label" in note for note in task.data.notes)
    assert task.findings == neighbours.findings == []


def test_a_random_subset_is_counted(data: RecipeData, tmp_path: Path) -> None:
    report = checked("declutr", data, tmp_path, **{"data_loader.subset": {"fraction": 0.5}})
    assert report.data is not None and report.validation_data is not None
    assert report.data.skipped == {"not in the random subset": INSTANCES // 2}
    assert (report.data.kept, report.validation_data.kept) == (INSTANCES // 2, INSTANCES)
    assert report.steps == INSTANCES // 2 // BATCH and report.findings == []


def test_several_processes_share_a_batch(data: RecipeData, tmp_path: Path) -> None:
    alone = checked("declutr", data, tmp_path)
    both = checked("declutr", data, tmp_path, distributed={"cuda_devices": [-1, -1]})
    assert alone.data is not None and both.data is not None
    assert both.steps == alone.steps // 2
    assert both.data.tokens[0].texts == alone.data.tokens[0].texts


def test_documents_that_are_all_skipped_are_shown(data: RecipeData, tmp_path: Path) -> None:
    report = checked("declutr", data, tmp_path, **{"dataset_reader.max_span_len": 120})
    assert report.data is not None and report.data.lengths is not None
    assert report.data.kept == 0
    assert report.data.skipped == {"shorter than 480 tokens": INSTANCES}
    paths = [finding.path for finding in report.findings]
    assert paths == ["train_data_path", "validation_data_path"]
    assert "none of the 40 documents is long enough" in report.findings[0].message


def test_all_that_is_wrong_is_told_at_once(data: RecipeData, tmp_path: Path) -> None:
    wrong = {"model.loss.temprature": 1, "trainr.num_epochs": 3, "trainer.optimizer.lrr": 1}
    report = checked("declutr", data, tmp_path, **wrong, train_data_path="nowhere.txt")
    paths = {finding.path for finding in report.findings}
    assert {*wrong, "train_data_path"} <= paths, "what is wrong elsewhere does not hide it"
    (message,) = (one.message for one in report.findings if one.path == "trainr.num_epochs")
    assert message.startswith("the recipe has no 'trainr' to change. Did you mean 'trainer'?")


@pytest.mark.parametrize(
    "name, path, value, finding, told",
    [
        ("declutr", "model.chunk_size", 0, "model", "chunk_size"),
        ("declutr", "trainer.cuda_device", 64, "trainer.cuda_device", ""),  # a GPU not here
        (
            "declutr",
            "distributed",
            {"cuda_devices": [-1, 64]},
            "distributed.cuda_devices",
            "asks for GPU 64",
        ),
        (
            "declutr",
            "distributed",
            {"cuda_devices": [-1, -1], "num_nodes": 2},
            "distributed.primary_port",
            "is 2, and there is no primary_port",
        ),
        ("infersent", "validation_data_path", None, "validation_data_path", "'shrinking_decay'"),
        ("deep_cluster", "model.loss.clusters", 500, "train_data_path", "texts for 500 clusters"),
        ("contrastive_tension", "data_loader.batch_size", 4, "train_data_path", "groups of 3"),
        (
            "simcse",
            "trainer.validation_metric",
            "accuracy",
            "trainer.validation_metric",
            "or - before the name of a metric, got 'accuracy'",
        ),
        ("simcse", "trainer.optimizer.betas", [0.9, 9], "trainer.optimizer", "Invalid beta"),
        ("simcse", "data_loader.num_workers", -1, "train_data_path", "num_workers at least 0"),
        ("simcse", "data_loader.seed", -1, "train_data_path", "expected non-negative integer"),
        ("simcse", "validation_data_path", "", "validation_data_path", "Got an empty path"),
        ("simcse", "trainer.cuda_device", "cpu", "trainer.cuda_device", "-1 for the CPU"),
        ("simcse", "trainer.cuda_device", [0, 1], "trainer.cuda_device", "expected a number"),
        ("metric_learning", "model.miner.miner_args", "abc", "model", "no attribute 'items'"),
        ("simcse", "vocabulary", None, "vocabulary", "got null: leave it out for 'Vocabulary'"),
    ],
)
def test_parts_that_do_not_fit_are_found(
    name: str, path: str, value: Any, finding: str, told: str, data: RecipeData, tmp_path: Path
) -> None:
    (found,) = checked(name, data, tmp_path, **{path: value}).findings
    assert found.path == finding and told in found.message


SHARDED = {"cuda_devices": [-1, -1], "ddp_accelerator": {"type": "fsdp"}}
AVERAGE = {"type": "exponential"}
READ_ANEW = {"batch_size": BATCH, "max_instances_in_memory": 8}


@pytest.mark.parametrize(
    ("name", "changes", "told"),
    [
        ("moco", {"distributed": SHARDED}, "momentum_encoder does not work with the accelerator"),
        ("nce", {"distributed": SHARDED}, "'_loss.log_scale' is a single number"),
        ("reclaim_levels", {"distributed": SHARDED}, "levels does not work with the accelerator"),
        ("simcse", {"distributed": SHARDED, "trainer.moving_average": AVERAGE}, "A moving_average"),
        ("simcse", {"trainer.use_amp": True}, "Using AMP requires a cuda device"),
        ("simcse", {"trainer.no_grad": [".*"]}, "optimizer got an empty parameter list"),
        ("simcse", {"data_loader": READ_ANEW}, "needs to know the number of steps"),
        ("simcse", {"validation_data_path": "train"}, "There is no validation loss"),
        ("simcse", {"trainer.optimizer": "huggingface_adafactor"}, "computes its learning rates"),
        ("deep_cluster", {"trainer.callbacks": []}, "DeepCluster needs clusters of all texts"),
    ],
)
def test_what_a_trainer_refuses_is_found(
    name: str, changes: dict[str, Any], told: str, data: RecipeData, tmp_path: Path
) -> None:
    """Training would stop at it before its first step."""
    if "validation_data_path" in changes:
        changes = {"validation_data_path": data.small(recipe_path(name))["train_data_path"]}
    (finding,) = checked(name, data, tmp_path, **changes).findings
    assert finding.path == "trainer" and told in finding.message


def test_what_changes_nothing_is_a_warning(data: RecipeData, tmp_path: Path) -> None:
    """The model and the trainer say so when they are built, and other callbacks are left out."""
    settings = {"model.mlm_weight": 0.5, "model.embed_with_first": True}
    others = {"trainer.callbacks": ["console_logger"], "trainer.no_grad": ["wieghts"]}
    report = checked("simcse", data, tmp_path, **settings, **others)
    assert report.findings == []
    told = " ".join(report.warnings)
    assert "mlm_weight changes nothing, as no tokens are masked" in told
    assert "embed_with_first changes nothing, as two_encoders is false" in told
    assert "'wieghts' in the trainer's no_grad matches no parameter" in told
    basic = {"model.text_field_embedder.type": "basic"}
    (told,) = (one for one in checked("declutr", data, tmp_path, **basic).warnings if "mlm" in one)
    assert told.startswith("masked_language_modeling of the token embedder changes nothing")
    assert not any("mlm" in one for one in checked("simcse", data, tmp_path, **basic).warnings)
    report = checked("info_nce", data, tmp_path, **{"model.loss.own_negative_logit": 1.0})
    told = " ".join(report.warnings)
    assert report.findings == [] and "own_negative_logit changes nothing, as the data ha" in told
    report = checked("simcse", data, tmp_path, **{"trainer.patience": 2})
    assert "patience changes nothing" in " ".join(report.warnings)
    report = check_recipe("declutr", '{"evaluate_on_test": true}', with_data=False)
    assert "evaluate_on_test changes nothing" in " ".join(report.warnings)


def test_what_is_frozen_takes_no_memory_of_an_optimizer(data: RecipeData, tmp_path: Path) -> None:
    """By `no_grad` or by `parameter_groups`, of which no pattern is told to match nothing."""
    frozen = ["word_embeddings", "layer"]
    whole = checked("simcse", data, tmp_path).memory
    groups = {"trainer.optimizer.parameter_groups": [[frozen, {"requires_grad": False}]]}
    found = [checked("simcse", data, tmp_path, **{"trainer.no_grad": frozen})]
    found.append(checked("simcse", data, tmp_path, **groups))
    for report in found:
        memory = report.memory
        assert whole is not None and memory is not None and report.findings == []
        assert memory.trained < whole.trained / 2 and memory.optimizer < whole.optimizer / 2
        assert not any("does not match" in one for one in report.warnings)


def test_models_that_ask_the_trainer_take_a_step(data: RecipeData, tmp_path: Path) -> None:
    report = checked("uda", data, tmp_path)
    assert report.findings == [] and report.memory is not None
    assert not any("failed" in one for one in report.warnings)


def test_a_step_that_fails_is_a_warning(data: RecipeData, tmp_path: Path) -> None:
    pooler = {"type": "cls_pooler", "embedding_dim": 48}  # the transformer is 32 wide
    other = {"model.model.seq2vec_encoder": pooler}
    report = checked("cutoff_classifier", data, tmp_path, **other)
    assert any("A step with the largest batch failed" in one for one in report.warnings)
    tokens = {"dataset_reader.token_indexers.tokens": "single_id"}
    (told,) = (
        one for one in checked("simcse", data, tmp_path, **tokens).warnings if "step with" in one
    )
    assert "unexpected keyword argument 'tokens'" in told


def test_the_device_of_a_loader_is_that_of_the_trainer(data: RecipeData, tmp_path: Path) -> None:
    report = checked("simcse", data, tmp_path, **{"data_loader.cuda_device": 64})
    assert report.findings == [] and report.memory is not None


def test_a_trainer_that_fails_is_a_warning(data: RecipeData, tmp_path: Path) -> None:
    schedule = {"type": "inverted_triangular", "cool_down": 2, "warm_up": 2}
    report = checked("simcse", data, tmp_path, **{"trainer.momentum_scheduler": schedule})
    (told,) = (one for one in report.warnings if one.startswith("The trainer could not be built"))
    assert "momentum missing" in told


def test_warnings_of_a_careful_colleague(data: RecipeData, tmp_path: Path) -> None:
    other = {
        "trainer.optimizer.lr": 0.01,
        "data_loader.batch_size": 15,
        "data_loader.max_tokens": None,
        "validation_data_path": None,
        "model.text_field_embedder.token_embedders.tokens.model_name": str(tmp_path / "other"),
    }
    told = " ".join(checked("declutr", data, tmp_path, **other).warnings)
    assert "There is no validation data" in told
    assert "The learning rate is 0.01" in told
    assert "Several transformers" in told
    assert "drop_last leaves out 10 of 40 documents" in told
    assert "The run has 2 step(s)" in told
    bag = {"model.text_field_embedder.model_name": str(tmp_path / "other")}
    of_bag = " ".join(checked("static_declutr", data, tmp_path, **bag).warnings)
    assert "Several transformers" in of_bag and "learning rate" not in of_bag
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "file").touch()
    taken = check_recipe("declutr", output=tmp_path / "run", with_data=False)
    assert any("is not empty: train needs --recover" in one for one in taken.warnings)


def test_a_batch_without_negatives_is_told(data: RecipeData, tmp_path: Path) -> None:
    report = checked("simcse", data, tmp_path, **{"data_loader.batch_size": 1})
    assert any("needs 2 for negatives" in one for one in report.warnings)


def test_training_without_an_epoch_is_told(data: RecipeData, tmp_path: Path) -> None:
    """The schedule of the recipe would divide by the number of steps."""
    for key in ("num_epochs", "num_gradient_accumulation_steps"):
        report = checked("declutr", data, tmp_path, **{f"trainer.{key}": 0})
        (finding,) = report.findings
        assert str(finding.path) == f"trainer.{key}"
        assert finding.message == "Expected 1 or more, got 0."


def test_null_for_numbers_is_told(data: RecipeData, tmp_path: Path) -> None:
    """They were errors of Python's, here and in training."""
    numbers = "trainer.num_epochs", "trainer.num_gradient_accumulation_steps"
    numbers += "model.loss.temperature", "trainer.optimizer.lr"
    report = checked("declutr", data, tmp_path, **dict.fromkeys(numbers))
    found = {one.path: one.message for one in report.findings}
    assert set(found) == set(numbers)
    message = "Expected a whole number for DeCLUTRTrainer, got null: leave it out for 20."
    assert found["trainer.num_epochs"] == message


def test_a_metric_that_no_epoch_has_is_told(data: RecipeData, tmp_path: Path) -> None:
    def told(*metrics: str) -> list[str]:
        changes = {"trainer.validation_metric": [*metrics]}
        warnings = checked("declutr", data, tmp_path, **changes).warnings
        return [one for one in warnings if "validation_metric" in one]

    assert told("-loss", "+retrieval_accuracy", "-mlm_loss", "+STS-B/cosine Spearman dev") == []
    (message,) = told("-loss", "+accuracy")
    assert "is '+accuracy', which a step does not have" in message
    assert "loss, alignment, contrastive_loss, mlm_accuracy, mlm_loss, retr" in message


def test_a_wrong_loader_of_no_data_is_a_warning(data: RecipeData, tmp_path: Path) -> None:
    wrong = {"validation_data_loader.batch_sise": 4}
    assert len(checked("declutr", data, tmp_path, **wrong).findings) == 1
    report = checked("declutr", data, tmp_path, **wrong, validation_data_path=None)
    assert not report.findings
    assert any("batch_sise: " in one and "no validation data" in one for one in report.warnings)


def test_what_cannot_be_evaluated_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecipeError, match="There is no recipe 'declutrr'"):
        check_recipe("declutrr")
    with pytest.raises(RecipeError, match=r"The overrides '\{' cannot be evaluated: STATIC ERROR"):
        check_recipe("declutr", "{")
    monkeypatch.delenv("MY_DATA", raising=False)
    with pytest.raises(RecipeError, match=r"MY_DATA \(1:\d+-\d+\)\. Set .* variable MY_DATA\.$"):
        check_recipe("declutr", '{"train_data_path": std.extVar("MY_DATA")}')
    with pytest.raises(RecipeError, match=r"Expected an object of keys for -o and in .*declutr"):
        check_recipe("declutr", "[1]")


def test_bins_of_a_histogram_hold_all_rows() -> None:
    lengths = np.array([0, 1, 5, 17, 400, 30_000] + [120] * 900)
    found = lengths_of(lengths)
    assert found is not None
    assert sum(number for _, _, number in found.bins) == len(lengths)
    assert found.bins[0][0] <= 0 and found.bins[-1][1] >= 30_000
    assert found.quantiles["50%"] == 120 and found.quantiles["100%"] == 30_000
    assert len(found.bins) <= 14 and lengths_of(lengths[:0]) is None


def test_seeds_at_the_top_alone_are_told() -> None:
    report = check_recipe("declutr", '{"pytorch_seed": 7}', with_data=False)
    assert any(one.startswith("pytorch_seed 7: ") for one in report.warnings)
    of_variable = check_recipe(
        "declutr", '{"pytorch_seed": "7", "train_data_path": "x"}', None, False
    )
    assert of_variable.findings == [] and any("seed 7: " in one for one in of_variable.warnings)
    assert not any("seed" in one for one in check_recipe("declutr", "", None, False).warnings)
