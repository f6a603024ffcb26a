"""Every recipe under training_config, however deep, trains, is resumed, and embeds."""

import copy
import dataclasses
import json
import os
import re
import shutil
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from allennlp.commands.train import TrainModel, train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import prepare_environment
from allennlp.data import Batch, DatasetReader
from allennlp.models.archival import load_archive
from allennlp.predictors import Predictor
from allennlp.training import NoOpTrainer
from allennlp.training.learning_rate_schedulers import LearningRateScheduler
from allennlp.training.optimizers import Optimizer

import declutr.plugin  # noqa: F401
from declutr.data.row_reader import RowReader
from declutr.inference.encoder import Encoder
from declutr.models.declutr import DeCLUTR
from declutr.recipes import recipe_names, recipe_path
from declutr.training.checkpointer import AtomicCheckpointer
from tests.conftest import RECIPES
from tests.forked_commands import ForkedCommand
from tests.recipe_data import BATCH, INSTANCES, RecipeData
from tests.training.test_exact_resume import differences, metrics_of

pytestmark = pytest.mark.slow  # together they take long

RECIPE_FILES = [RECIPES / f"{name}.jsonnet" for name in recipe_names()]
TRAINED = [recipe for recipe in RECIPE_FILES if recipe.parent.name != "untrained"]

# Runs of each kind that are resumed in `make test`; the others are in `make test-long`. Objectives
# differ by what they remember, with which each goes on in `objectives/test_laws.py`.
KINDS = {
    *("declutr", "static/static_declutr", "static/static_distilled"),
    *("labelled/infersent", "labelled/uda", "with_evaluation/scd_selected"),
    *("sentences/byol", "sentences/cross_batch_memory", "sentences/tsdae"),
    *("reclaim/reclaim", "reclaim/reclaim_text_ivae", "reclaim/scan_reclaim_flickr30k"),
}
RESUMED = [RECIPES / f"{name}.jsonnet" for name in sorted(KINDS)]
OTHERS = [pytest.param(one, marks=pytest.mark.long) for one in TRAINED if one not in RESUMED]

# They differ in numbers alone, which `test_reclaim_page.py` compares. Their step is a long test.
ALIKE = {
    f"reclaim/ablations/{name}"
    for name in (
        *("negatives_1", "negatives_10", "weight_0.5", "weight_1", "bert_large"),
        *("fraction_0.05", "fraction_0.2", "fraction_0.3", "fraction_0.5"),
    )
}

NORMALISATIONS = (torch.nn.LayerNorm, torch.nn.RMSNorm, torch.nn.modules.batchnorm._NormBase)

STEP = 6  # where a run is killed: within its first epoch
EPOCHS = 2  # of eight steps


def name_of(recipe: Path) -> str:
    return recipe.relative_to(RECIPES).as_posix().removesuffix(".jsonnet")


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> RecipeData:
    return RecipeData(tmp_path_factory.mktemp("recipe_data"))


@pytest.fixture(autouse=True)
def transformer(monkeypatch: pytest.MonkeyPatch, checkpoint: Path) -> None:
    monkeypatch.setitem(os.environ, "TRANSFORMER_MODEL", str(checkpoint))


def build(recipe: Path, data: RecipeData, folder: Path) -> TrainModel:
    return built(data.small(recipe), folder)


def long_where_alike(recipe: Path) -> Any:
    return pytest.param(recipe, marks=[pytest.mark.long] * (name_of(recipe) in ALIKE))


def built(config: dict[str, Any], folder: Path) -> TrainModel:
    params = Params(copy.deepcopy(config))
    prepare_environment(params)  # the seeds of a recipe: what a test shows is the same every time
    return TrainModel.from_params(params, serialization_dir=str(folder), local_rank=0)


def test_the_recipes_of_the_readme_are_there() -> None:
    names = {recipe.stem for recipe in RECIPE_FILES}
    assert names >= {
        *("declutr", "declutr_small", "declutr_base", "contrastive_only", "mlm_only"),
        *("declutr_projection", "declutr_memory_bank"),
        *("transformer_mean", "transformer_cls", "quickstart"),
        *("simcse", "simcse_roberta", "simcse_mlm", "simcse_supervised", "infersent"),
        *("simcse_selected", "simcse_supervised_selected"),
        *("scd", "scd_roberta", "scd_readme", "scd_self_contrast", "scd_decorrelation"),
        *("scd_selected", "barlow_twins", "moco", "mochi", "byol", "simsiam", "swav", "cutoff"),
        *("info_nce", "n_pair", "nce", "debiased", "hard_negative", "align_uniform"),
        *("clip", "swav_views", "info_nce_views"),
        *("soft_nearest_neighbours", "lifted_structured", "triplet", "contrastive"),
        *("cross_batch_memory", "metric_learning", "weighted_sum"),
        *("reclaim", "reclaim_fraction", "reclaim_task_alone", "reclaim_large_bank"),
        *("reclaim_views", "reclaim_levels", "reclaim_image_text", "reclaim_text_vae"),
        *("scan_flickr30k", "scan_coco", "scan_both_directions", "scan_reclaim_flickr30k"),
        *("scan_reclaim_coco", "scan_reclaim_added", "scan_vanilla_contrastive"),
        *("text_vae", "text_vae_beta", "text_vae_cyclical", "text_ivae", "text_ivae_mi"),
        *("reclaim_text_ivae", "text_ivae_in_batch"),
        *("negatives_1", "negatives_10", "negatives_300", "in_batch", "random_bank"),
        *("no_lipschitz", "random_bank_lipschitz", "weight_0.01", "weight_0.5", "weight_1"),
        *("in_batch_lipschitz", "fraction_0.01", "bert_large", "bert_large_task_alone"),
        *("neighbours", "quick_thoughts", "is_bert", "instance_discrimination"),
        *("cpc", "cutoff_classifier", "uda", "static_declutr", "static_scd"),
        *("static_simcse_supervised", "static_distilled"),
        *("contrastive_tension", "contrastive_tension_in_batch", "deep_cluster"),
    }


@pytest.mark.parametrize("recipe", [*map(long_where_alike, RECIPE_FILES)], ids=name_of)
def test_recipe_trains_one_step(recipe: Path, data: RecipeData, tmp_path: Path) -> None:
    config = data.small(recipe)
    run = built(config, tmp_path)
    trainer = run.trainer
    if isinstance(trainer, NoOpTrainer):
        trainer.train()
        assert (tmp_path / "best.th").exists()
        return
    assert_decay_spares_norms_and_biases(run.model, trainer.optimizer)
    if config["dataset_reader"]["type"] in READERS:
        assert_optimised_as_documented(recipe, config)
    trainer.data_loader.index_with(run.model.vocab)
    batch = next(iter(trainer.data_loader))
    before = [p.detach().clone() for p in run.model.parameters()]
    loss = trainer.batch_outputs(batch, for_training=True)["loss"]
    assert torch.isfinite(loss)
    loss.backward()
    without = [n for n, p in run.model.named_parameters() if p.requires_grad and p.grad is None]
    assert without == [], "parameters without a gradient stop distributed training"
    if trainer._learning_rate_scheduler is not None:
        for update in (1, 2):  # the first update of a warm-up is at rate 0
            trainer._learning_rate_scheduler.step_batch(update)
    trainer.optimizer.step()
    moved = [not torch.equal(b, p) for b, p in zip(before, run.model.parameters(), strict=True)]
    assert any(moved)


def assert_decay_spares_norms_and_biases(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    groups = [group for group in optimizer.param_groups if group.get("weight_decay")]
    decayed = {id(parameter) for group in groups for parameter in group["params"]}
    names = {name for name, p in model.named_parameters() if id(p) in decayed}
    assert not {name for name in names if "bias" in name}
    norms = [module for module in model.modules() if isinstance(module, NORMALISATIONS)]
    assert not decayed & {id(parameter) for norm in norms for parameter in norm.parameters()}


def assert_resumes(
    config: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, dict[str, Any]]:
    """Train, and go on from a checkpoint of it; return the model, and the state of the weights."""
    whole, killed = folder / "whole", folder / "killed"
    with monkeypatch.context() as patched:
        save = AtomicCheckpointer.save_checkpoint

        def saved(checkpointer: AtomicCheckpointer, trainer: Any) -> None:
            save(checkpointer, trainer)
            if trainer._total_batches_completed == STEP:
                shutil.copytree(whole, killed)

        patched.setattr(AtomicCheckpointer, "save_checkpoint", saved)
        model = train_model(Params(copy.deepcopy(config)), str(whole))
    train_model(Params(copy.deepcopy(config)), str(killed), recover=True)

    last = f"model_state_e{EPOCHS}_b0.th"
    states = [torch.load(run / last, weights_only=True) for run in (whole, killed)]
    assert differences(*states) == []
    return model, states[0]


CHECKPOINTS = {"type": "atomic", "save_every_num_batches": STEP}


def test_sparse_gradients_of_a_table_resume_as_well(
    data: RecipeData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tmp_path / "static" / "recipe.jsonnet"
    recipe.parent.mkdir()
    keys = "sparse:: true, dimensions:: [8], token_dropout:: 0.2"
    recipe.write_text(f'(import "{recipe_path("static_declutr")}") {{ {keys} }}')
    config = data.small(recipe, num_epochs=EPOCHS, checkpointer=CHECKPOINTS)
    config["model"]["loss"]["loss"] = {"type": "nce", "learn_scale": True}
    assert config["trainer"]["optimizer"]["type"] == "dense_sparse_adam"
    model, _ = assert_resumes(config, tmp_path, monkeypatch)
    rows = Encoder(tmp_path / "whole", truncate_dim=8)(["ka lo mi tu"])
    whole = Encoder(tmp_path / "whole")(["ka lo mi tu"])
    assert np.array_equal(rows, whole[:, :8]) and model.embedding_dim == 32


@pytest.mark.parametrize("recipe", [*RESUMED, *OTHERS], ids=name_of)
def test_recipe_trains_resumes_and_embeds(
    recipe: Path, data: RecipeData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is killed in between ends as one that is not, and its archive is its model."""
    config = data.small(recipe, num_epochs=EPOCHS, checkpointer=CHECKPOINTS)
    config["dataset_reader"]["max_instances"] = 8 * BATCH
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    model, state = assert_resumes(config, tmp_path, monkeypatch)
    assert all(torch.isfinite(t).all() for t in state.values() if torch.is_tensor(t))
    for epoch in range(EPOCHS):
        metrics = [metrics_of(run, epoch) for run in (whole, killed)]
        assert metrics[0] == metrics[1]
        assert ("validation_loss" in metrics[0]) == bool(config["validation_data_path"])
    if config["dataset_reader"]["type"] == "text_lines":
        assert_writes_the_same(whole, killed)
    if not isinstance(model, DeCLUTR):  # of a task, and no encoder
        assert_predicts(whole, config["validation_data_path"] or config["train_data_path"])
        return
    record = json.loads((whole / "run.json").read_text())
    assert record["batches_per_epoch"] >= 8
    texts = ["ka lo mi tu", "", "re sa no ve pi du ka" * 6]  # the last is cut in training alone
    rows = Encoder(whole, device="cpu", dtype="float32")(texts)
    assert rows.shape == (3, model.embedding_dim) and rows[0].tolist() != rows[2].tolist()
    expected = embedded_by(model, config["dataset_reader"], texts)
    assert np.allclose(rows, expected, atol=1e-5)


def assert_writes_the_same(*runs: Path) -> None:
    """Both archives, by their own predictor."""
    request = {"from": "ka lo mi tu", "to": "re sa no", "steps": 3, "temperature": 1, "seed": 2}
    one, other = (Predictor.from_path(str(run)).predict_json(dict(request)) for run in runs)
    assert one == other and len(one["texts"]) == 3 and "@" not in "".join(one["texts"])


def assert_predicts(run: Path, data: str) -> None:
    """The archive of a task model gives an output for each row, as `allennlp predict` has it."""
    predictor = Predictor.from_archive(load_archive(run / "model.tar.gz"))
    reader = predictor._dataset_reader
    instances = list(islice(reader.read(data), 3))
    for instance in instances:
        reader.apply_token_indexers(instance)
    outputs = predictor.predict_batch_instance(instances)
    assert len(outputs) == 3 and all(outputs)
    json.dumps(outputs)


def embedded_by(model: DeCLUTR, reader: dict[str, Any], texts: list[str]) -> np.ndarray:
    """The embeddings of texts, through AllenNLP's own tensors."""
    built = DatasetReader.from_params(Params(copy.deepcopy(reader)))
    assert isinstance(built, RowReader)
    with built.no_sample():
        instances = [built.text_to_instance(text) for text in texts]
    for instance in instances:
        built.apply_token_indexers(instance)
    batch = Batch(instances)
    batch.index_instances(model.vocab)
    with torch.no_grad():
        return model.eval()(**batch.as_tensor_dict())["embeddings"].numpy()


def test_an_archive_of_reclaim_predicts_as_the_bare_classifier(
    data: RecipeData, tmp_path: Path
) -> None:
    """By the command, with what the recipe says of validation and nothing else."""
    config = data.small(recipe_path("reclaim"), num_epochs=1)
    model = train_model(Params(copy.deepcopy(config)), str(tmp_path / "run"))
    file, output = config["validation_data_path"], tmp_path / "predictions.jsonl"
    options = ["--use-dataset-reader", "--silent", "--output-file", str(output)]
    options += ["-o", '{"model.bare": true}']
    command = ("predict", str(tmp_path / "run"), file, *options)
    ForkedCommand(*command, environment=dict(os.environ)).finished()
    rows = [json.loads(line)["probs"] for line in output.read_text().splitlines()]
    reader = DatasetReader.from_params(Params(config["validation_dataset_reader"]))
    instances = list(reader.read(file))
    for instance in instances:
        reader.apply_token_indexers(instance)
    expected = [o["probs"] for o in model.model.eval().forward_on_instances(instances)]
    assert len(rows) == INSTANCES and np.allclose(rows, expected, atol=1e-6)


def test_reclaim_alone_differs_in_nothing_else(data: RecipeData) -> None:
    whole, alone = (data.small(recipe_path(f"reclaim{kind}")) for kind in ("", "_task_alone"))
    assert whole["dataset_reader"].pop("with_ids") and not alone["dataset_reader"].pop("with_ids")
    assert whole.pop("model")["model"] == alone.pop("model")
    assert whole == alone


def test_reclaims_settings() -> None:
    """Of the paper's section 5.1 and appendix C."""
    config = Params.from_file(str(recipe_path("reclaim"))).as_dict(quiet=True)
    objective = {"type": "reclaim", "instances": 67349, "num_negatives": 100}
    assert config["model"]["objective"] == objective and config["model"]["weight"] == 0.1
    assert config["data_loader"]["batch_size"] == 32
    assert config["trainer"]["num_epochs"] == 3
    assert config["trainer"]["optimizer"]["lr"] == 2e-5
    images = Params.from_file(str(recipe_path("reclaim_image_text"))).as_dict(quiet=True)
    assert images["data_loader"]["batch_size"] == 128
    assert images["trainer"]["num_epochs"] == 30 and images["trainer"]["grad_norm"] == 2
    assert images["trainer"]["optimizer"]["lr"] == 2e-4
    images = Params.from_file(str(recipe_path("scan_reclaim_coco"))).as_dict(quiet=True)
    assert images["trainer"]["num_epochs"] == 20 and images["trainer"]["optimizer"]["lr"] == 5e-4
    assert images["trainer"]["learning_rate_scheduler"]["step_size"] == 10
    assert images["model"]["task_weight"] == 0 and images["model"]["weight"] == 1


def test_settings_of_text_vaes(tmp_path: Path) -> None:
    """Of the public code of iVAE, and what the rows of table 4 change."""

    def config(name: str, settings: str = "") -> dict[str, Any]:
        file = tmp_path / "recipe.jsonnet"
        file.write_text(f'(import "{recipe_path(name)}") {{ {settings} }}')
        return Params.from_file(str(file)).as_dict(quiet=True)

    vae, implicit, bank = map(config, ("text_vae", "text_ivae", "reclaim_text_ivae"))
    sizes = vae["model"]["seq2vec_encoder"], vae["model"]["latent_size"], vae["model"]["dropout"]
    assert sizes == ({"type": "lstm", "input_size": 256, "hidden_size": 256}, 32, 0.5)
    assert (vae["trainer"]["num_epochs"], vae["trainer"]["grad_norm"]) == (40, 5)
    groups = implicit["trainer"]["optimizer"].pop("parameter_groups")
    assert groups == [[["_dual"], {"lr": 5e-5}]] and implicit["trainer"]["optimizer"]["lr"] == 1e-3
    assert implicit["model"].pop("posterior")["type"] == "implicit"
    assert vae["model"].pop("posterior") == {"type": "gaussian"}
    assert vae["trainer"]["optimizer"].pop("parameter_groups") is None and vae == implicit
    in_batch = config("text_ivae_in_batch")
    keys = ("candidates", "num_negatives", "lipschitz")
    own = [[one["model"]["objective"].pop(key) for key in keys] for one in (in_batch, bank)]
    assert own == [["batch", None, False], ["bank", 100, True]] and in_batch == bank
    assert config("reclaim_text_ivae", 'contrast:: "batch"') == config("text_ivae_in_batch")
    yelp = config("text_vae_beta", 'corpus:: "yelp"')
    assert yelp["model"]["kl_weight"] == 0.4 and yelp["dataset_reader"]["labelled"]
    assert yelp["vocabulary"]["oov_token"] == "_UNK" and yelp["model"]["decoder_size"] == 1024


def test_a_recipe_of_reclaim_for_another_task(tmp_path: Path) -> None:
    def config(settings: str) -> dict[str, Any]:
        file = tmp_path / "recipe.jsonnet"
        file.write_text(f'(import "{recipe_path("reclaim")}") {{ {settings} }}')
        return Params.from_file(str(file)).as_dict(quiet=True)

    mrpc = config('task:: "mrpc"')
    readers = mrpc["dataset_reader"], mrpc["validation_dataset_reader"]
    assert [reader["task"] for reader in readers] == ["mrpc", "mrpc"]
    assert mrpc["model"]["objective"]["instances"] == 4076
    with pytest.raises(RuntimeError, match=r"Set instances:: to the rows of .*: 'trec' is not of"):
        config('task:: "trec"')
    trec = config('task:: "trec", instances:: 5452')
    assert trec["model"]["objective"]["instances"] == 5452


@pytest.mark.parametrize("name", ["declutr", "declutr_small", "declutr_base", "contrastive_only"])
def test_the_papers_settings(name: str) -> None:
    config = Params.from_file(str(recipe_path(name))).as_dict(quiet=True)
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


def test_figure_s1_of_the_papers_first_version() -> None:
    """Spans in a queue of 512, without a projector; and a projector, without a queue."""
    declutr, bank, head = (
        Params.from_file(str(recipe_path(name))).as_dict(quiet=True)
        for name in ("declutr", "declutr_memory_bank", "declutr_projection")
    )
    memory = bank["model"].pop("loss")
    assert (memory["type"], memory["memory_size"]) == ("cross_batch_memory", 512)
    layers = {"type": "projector", "hidden_dims": [128, 128], "batch_norm": False}
    assert head["model"].pop("head") == layers
    assert memory["loss"] == head["model"].pop("loss") == declutr["model"].pop("loss")
    for config in (bank, head):
        assert config["dataset_reader"].pop("placement") == "uniform_v1"
        assert config == declutr


def test_nt_xent_of_pytorch_metric_learning_trains_the_same(
    data: RecipeData, tmp_path: Path
) -> None:
    config = data.small(recipe_path("declutr"))
    library = {"loss": "NTXentLoss", "loss_args": {"temperature": 0.05}}
    gradients = []
    for number, loss in enumerate(({}, {"type": "pytorch_metric_learning", **library})):
        config["model"]["loss"] = loss or config["model"]["loss"]
        torch.manual_seed(0)
        run = built(config, tmp_path / str(number))
        run.trainer.data_loader.index_with(run.model.vocab)
        batch = next(iter(run.trainer.data_loader))
        torch.manual_seed(0)
        run.trainer.batch_outputs(batch, for_training=True)["loss"].backward()
        gradients.append([p.grad for p in run.model.parameters() if p.grad is not None])
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*gradients, strict=True))


READERS = ("declutr", "sentences", "text_pairs", "augmented")
SCHEDULES = {
    '{"type": "linear_decay"}': "linear to 0, no warm-up",
    '{"type": "linear_decay", "warmup_share": 0.1}': "linear to 0, warm-up over 0.1 of the steps",
    '{"cut_frac": 0.1, "ratio": 32, "type": "slanted_triangular"}': "slanted triangle, cut at 0.1",
    '{"t_initial": 50, "type": "cosine"}': "cosine by epochs",
    '{"boundaries": [500, 1000, 1500, 2000], "factors": [1, 0.8, 0.6, 0.4, 0.2], '
    '"type": "piecewise_constant"}': "constant by steps: 1, 0.8, 0.6, 0.4, 0.2",
    '{"decay": 0.99, "shrink": 5, "type": "shrinking_decay"}': "0.99 an epoch, a fifth of it "
    "where accuracy does not rise",
    "null": "constant",
}


@cache
def documented() -> dict[str, list[str]]:
    """What docs/OBJECTIVES.md says of the optimizer and schedule of each recipe, once."""
    page = (RECIPES.parent / "docs" / "OBJECTIVES.md").read_text()
    rows = page.partition("| recipes | optimizer |")[2].partition("\n\n")[0].splitlines()[2:]
    found: dict[str, list[str]] = {}
    for row in rows:
        recipes, *settings = [cell.strip() for cell in row.strip("|").split("|")]
        for name in re.findall(r"`(\w+)`", recipes):
            assert name not in found
            found[name] = settings[:-1]
    return found


def assert_optimised_as_documented(recipe: Path, config: dict[str, Any]) -> None:
    assert described(config["trainer"]) == documented()[recipe.stem]
    assert config["trainer"]["grad_norm"] == clipping(recipe)
    comments = [line for line in recipe.read_text().splitlines() if line.startswith("// Optimizer")]
    expected = 0 if config["dataset_reader"]["type"] == "declutr" else 1
    assert len(comments) == expected, f"{recipe.name}: lines that begin with '// Optimizer: '"


def test_no_optimizer_is_documented_of_a_recipe_that_is_not_there() -> None:
    assert documented().keys() <= {recipe.stem for recipe in RECIPE_FILES}


def clipping(recipe: Path) -> float | None:
    """The norm to which a recipe clips gradients, which docs/OBJECTIVES.md says in a sentence."""
    if recipe.stem.startswith("static_"):
        return None
    others = {"quick_thoughts": 5, "infersent": 5, "contrastive_tension": False, "cert": False}
    return others.get(recipe.stem, 1)


@pytest.mark.parametrize("name", ["cert", "contrastive_tension", "moco"])
def test_gradients_are_clipped_as_in_public_codes(name: str) -> None:
    """CERT's (UCSD-AI4H/CERT, MOCO.py, commit 13631ad7fa) clips nothing.

    It trains by SGD, with which clipping changes how far every step goes. That of Contrastive
    Tension (FreddeFrallan/Contrastive-Tension, Training.py, commit 75293a8833) clips nothing
    either.
    """
    recipe = recipe_path(name)
    trainer = Params.from_file(str(recipe)).as_dict(quiet=True)["trainer"]
    assert trainer["grad_norm"] == clipping(recipe)
    page = " ".join((RECIPES.parent / "docs" / "OBJECTIVES.md").read_text().split())
    assert (
        "clipped to a norm of 1 (`quick_thoughts` and `infersent`: 5; `contrastive_tension`, "
        "`cert` and those of static encoders: not at all)" in page
    )


@pytest.mark.parametrize("name", ["reclaim", "reclaim_task_alone", "bert_large", "eda_classifier"])
def test_tasks_of_glue_are_fine_tuned_as_by_the_public_code(name: str) -> None:
    """By the defaults of run_glue.py of transformers 2.5.1, as in RECLAIM's section 5.1."""
    config = Params.from_file(str(recipe_path(name))).as_dict(quiet=True)
    trainer = config["trainer"]
    assert described(trainer) == documented()["simcse"]
    settings = trainer["optimizer"]["lr"], trainer["num_epochs"], trainer["grad_norm"]
    assert (config["data_loader"]["batch_size"], *settings) == (32, 2e-5, 3, 1)


def test_contrastive_tension_in_batch_trains_as_sentence_transformers_does() -> None:
    """As train_ct-improved_from_file.py of release 2.0.0 calls `fit`."""
    name = "contrastive_tension_in_batch"
    config = Params.from_file(str(recipe_path(name))).as_dict(quiet=True)
    assert config["data_loader"]["batch_size"] == 128
    assert config["dataset_reader"]["max_length"] == 75
    warmed = "linear to 0, warm-up over 0.1 of the steps"
    row = ["AdamW", "0.9, 0.999", "1e-06", "yes", "0.01", warmed]
    assert described(config["trainer"]) == documented()[name] == row
    assert config["trainer"]["optimizer"]["lr"] == 5e-5
    loss = config["model"]["loss"]
    assert loss["symmetric"] and loss["learn_temperature"] and loss["temperature"] == 1 / 20


def described(trainer: dict[str, Any]) -> list[str]:
    """A row of the table for the trainer of a recipe."""
    optimizer = trainer["optimizer"]
    schedule = SCHEDULES[json.dumps(trainer["learning_rate_scheduler"], sort_keys=True)]
    decay = f"{optimizer.get('weight_decay', 0):g}"
    if optimizer["type"] == "sgd":
        return [f"SGD, momentum {optimizer['momentum']}", "", "", "", decay, schedule]
    if optimizer["type"] == "rmsprop":
        mean = f"RMSprop, mean by {optimizer['alpha']}"
        return [mean, "", f"{optimizer['eps']:g}", "", decay, schedule]
    assert optimizer["type"] == "huggingface_adamw"
    betas = ", ".join(map(str, optimizer.get("betas", (0.9, 0.999))))
    correct = "yes" if optimizer["correct_bias"] else "no"
    return ["AdamW", betas, f"{optimizer['eps']:g}", correct, decay, schedule]


@pytest.mark.parametrize("name", ["simcse", "scd", "simcse_supervised"])
def test_steps_of_the_public_codes_are_those_of_transformers_trainer(name: str) -> None:
    """A hundred updates of a toy, by torch's AdamW and the schedule of `TrainingArguments`."""
    default = {f.name: f.default for f in dataclasses.fields(transformers.TrainingArguments)}
    trainer = Params.from_file(str(recipe_path(name))).as_dict(quiet=True)["trainer"]
    assert trainer["grad_norm"] == default["max_grad_norm"]
    rate = trainer["optimizer"]["lr"]
    ours, theirs = (torch.nn.Parameter(torch.linspace(-1, 1, 5)) for _ in range(2))
    optimizer = Optimizer.from_params(
        Params(trainer["optimizer"]), model_parameters=[["x.weight", ours]]
    )
    schedule = LearningRateScheduler.from_params(
        Params(trainer["learning_rate_scheduler"]),
        optimizer=optimizer,
        num_epochs=2,
        num_steps_per_epoch=60,
    )
    betas = default["adam_beta1"], default["adam_beta2"]
    oracle = torch.optim.AdamW(
        [theirs], rate, betas, default["adam_epsilon"], default["weight_decay"]
    )
    kind, warmup = default["lr_scheduler_type"], default["warmup_steps"]
    oracle_schedule = transformers.get_scheduler(kind, oracle, warmup, 120)
    torch.manual_seed(0)
    moved = 0.0
    for update in range(1, 101):
        ours.grad = torch.randn(5) + 0.5
        theirs.grad = ours.grad.clone()
        before = ours.detach().clone()
        schedule.step_batch(update)
        for one in (optimizer, oracle, oracle_schedule):
            one.step()
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-3 * rate)
        moved = max(moved, (ours - before).abs().max().item())
    assert 0.9 * rate < moved < 1.05 * rate  # without bias correction: up to 6.6 times the rate


def test_the_scheduler_knows_the_number_of_steps(data: RecipeData, tmp_path: Path) -> None:
    run = build(RECIPES / "declutr.jsonnet", data, tmp_path)
    scheduler = run.trainer._learning_rate_scheduler
    assert scheduler.num_steps_per_epoch == len(run.trainer.data_loader) == INSTANCES // BATCH


def test_training_and_validation_share_a_reader(data: RecipeData, tmp_path: Path) -> None:
    """So that `-o '{"dataset_reader.max_span_len": …}'` changes both."""
    run = build(RECIPES / "declutr.jsonnet", data, tmp_path)
    loader, validation = run.trainer.data_loader, run.trainer._validation_data_loader
    assert validation.reader is loader.reader
    assert (loader.resample, validation.resample) == (True, False)


def test_a_subset_is_of_the_training_data_alone(tmp_path: Path) -> None:
    file = tmp_path / "recipe.jsonnet"
    subset = "data_loader+: { subset: { fraction: 0.1 } }"
    file.write_text(f'(import "{RECIPES / "declutr.jsonnet"}") {{ {subset} }}')
    config = Params.from_file(str(file)).as_dict(quiet=True)
    assert config["data_loader"]["subset"] == {"fraction": 0.1}
    assert "subset" not in config["validation_data_loader"]


@pytest.mark.parametrize("part", ["model", "dataset_reader", "data_loader", "trainer"])
def test_a_misspelt_key_is_named(part: str, data: RecipeData, tmp_path: Path) -> None:
    params = Params(data.small(RECIPES / "declutr.jsonnet"))
    params[part]["temprature"] = 1
    for seed in ("random_seed", "numpy_seed", "pytorch_seed"):
        params.pop(seed)
    with pytest.raises(ConfigurationError, match=r"Extra parameters passed to .*temprature"):
        TrainModel.from_params(params, serialization_dir=str(tmp_path), local_rank=0)


def test_bad_validation_documents_stop_before_the_first_step(
    data: RecipeData, tmp_path: Path
) -> None:
    run = build(RECIPES / "declutr.jsonnet", data, tmp_path)
    run.trainer._validation_data_loader.data_path = str(tmp_path / "nowhere.txt")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigurationError, match=r"nowhere\.txt"):
        run.run()
    assert run.trainer._total_batches_completed == 0


@pytest.mark.parametrize(
    "name, kind, told",
    [
        ("/nowhere", FileNotFoundError, r"no transformer at .*nowhere.*TRANSFORMER"),
        (
            "nobody/nothing",
            OSError,
            r"^The transformer 'nobody/nothing' cannot be loaded: .* cache .*Set TRANSFORMER_MODEL",
        ),
    ],
)
def test_a_transformer_that_is_nowhere_is_named(
    name: str, kind: type, told: str, monkeypatch: Any, data: RecipeData, tmp_path: Path
) -> None:
    monkeypatch.setitem(os.environ, "TRANSFORMER_MODEL", name)
    with pytest.raises(kind, match=told):
        build(RECIPES / "declutr.jsonnet", data, tmp_path)


@pytest.mark.parametrize("name", ["transformer_mean", "transformer_cls"])
def test_an_untrained_transformer_of_any_length_embeds_as_it_is(
    name: str, checkpoint: Path, tmp_path: Path
) -> None:
    """It draws no spans, so 128 positions are enough."""
    train_model(Params.from_file(name), str(tmp_path / "run"))
    texts = ["ka lo mi tu", "", "re sa no ve pi du " * 40]
    pooling = name.removeprefix("transformer_")
    expected = Encoder(checkpoint, pooling=pooling, device="cpu", dtype="float32")(texts)
    found = Encoder(tmp_path / "run", device="cpu", dtype="float32")(texts)
    assert np.array_equal(found, expected)
