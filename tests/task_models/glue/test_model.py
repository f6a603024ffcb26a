"""The Model "glue" on written files: its loss, unlabelled texts, scores, parts, and RECLAIM."""

import argparse
import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.commands.evaluate import evaluate_from_archive
from allennlp.commands.predict import _predict
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Instance, Vocabulary
from allennlp.data.fields import TensorField
from allennlp.models import Model, load_archive
from scipy.stats import pearsonr, spearmanr
from torch.nn.functional import cross_entropy

import declutr.plugin  # noqa: F401
from declutr.corpus.text_pairs import NLI_CLASSES
from declutr.task_models.glue import GlueReader
from tests.conftest import RECIPES
from tests.recipe_data import RecipeData
from tests.task_models.glue.published_files import published
from tests.task_models.models import assert_two_processes_equal_one, tensors

SMALL: dict[str, Any] = {
    "type": "glue",
    "text_field_embedder": {
        "token_embedders": {"tokens": {"type": "embedding", "embedding_dim": 6}}
    },
    "seq2vec_encoder": {"type": "bag_of_embeddings", "embedding_dim": 6},
}
LABELLED = [f"ka lo\t{n % 2}" if n % 3 else f"mi {'tu ' * n}\t" for n in range(8)]


def make(instances: list[Instance]) -> Model:
    """A model of the kind of the instances' labels; importable, for other processes."""
    labels = "score" if isinstance(instances[0]["label"], TensorField) else "class"
    # Not of the instances: once they are indexed, a vocabulary of them has no classes.
    vocab = Vocabulary({"labels": {"1": 3, "0": 2}, "tokens": dict.fromkeys(("ka", "lo", "mi"), 1)})
    torch.manual_seed(0)
    return Model.from_params(Params({**copy.deepcopy(SMALL), "labels": labels}), vocab=vocab)


def read(folder: Path, labels: str) -> list[Instance]:
    file = folder / "rows.tsv"
    file.write_text("\n".join(["text\tlabel", *LABELLED]) + "\n")
    reader = GlueReader(texts="text", label="label", labels=labels, keep_unlabelled=True)
    instances = list(reader.read(file))
    for instance in instances:
        reader.apply_token_indexers(instance)
    return instances


@pytest.mark.parametrize("labels", ["class", "score"])
def test_texts_without_a_label_have_no_loss(labels: str, tmp_path: Path) -> None:
    instances = read(tmp_path, labels)
    model = make(instances)
    batch = tensors(model, instances)
    output = model(**batch)
    known = torch.tensor([bool(n % 3) for n in range(8)])
    gold = torch.tensor([float(n % 2) for n in range(8)])
    if labels == "class":
        expected = cross_entropy(output["logits"][known], 1 - gold[known].long())  # "1" comes first
    else:
        expected = ((output["score"] - gold)[known] ** 2).mean()
    assert output["loss"].item() == pytest.approx(expected.item())
    assert all(-1 <= value <= 1 for value in model.get_metrics(reset=True).values())
    alone = tensors(model, [instances[0], instances[3]])
    loss = model(**alone)["loss"]
    loss.backward()
    assert loss == 0 and all(p.grad is not None for p in model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("labels", [pytest.param("class", marks=pytest.mark.long), "score"])
def test_two_processes_with_different_numbers_of_labels(labels: str, tmp_path: Path) -> None:
    assert_two_processes_equal_one(make, read(tmp_path, labels))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task": "mlni"}, "No task 'mlni'.*Did you mean 'mnli'"),
        ({"task": "sts-b", "labels": "class"}, "'sts-b' has scores, but labels is 'class'"),
        ({"labels": "rank"}, "Unknown labels 'rank'"),
        ({"metrics": ["pearson"]}, "Unknown metrics of classes: pearson. Expected some of acc"),
        ({"task": "mrpc"}, "F1 is about the class '1', but the classes are a, b. Set positive"),
    ],
)
def test_what_is_refused(settings: dict[str, Any], message: str) -> None:
    vocab = Vocabulary({"labels": {"a": 1, "b": 1}, "tokens": {"ka": 1}})
    with pytest.raises(ConfigurationError, match=message):
        Model.from_params(Params({**copy.deepcopy(SMALL), **settings}), vocab=vocab)
    with pytest.raises(ConfigurationError, match="no classes in the namespace 'labels'"):
        Model.from_params(Params(copy.deepcopy(SMALL)), vocab=Vocabulary())


@pytest.fixture
def recipe(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A recipe of RECLAIM for another task, in small."""
    monkeypatch.setenv("TRANSFORMER_MODEL", str(checkpoint))
    data = RecipeData(tmp_path)

    def small(name: str, task: str) -> dict[str, Any]:
        file = tmp_path / f"{name}.jsonnet"
        path = RECIPES / "reclaim" / name
        file.write_text(f'(import "{path}.jsonnet") {{ task:: "{task}" }}')
        return data.small(file, num_epochs=2)

    return small


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("reclaim", "reclaim_task_alone"),
        pytest.param("reclaim_fraction_unlabelled", marks=pytest.mark.long),
    ],
)
def test_scores_train_with_and_without_reclaim(name: str, recipe: Any, tmp_path: Path) -> None:
    """Their archive has no weights besides its own, and its correlations are scipy's."""
    config = recipe(name, "sts-b")
    train_model(Params(config), str(tmp_path / "run"))
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    bare = {} if "alone" in name else {"model.bare": True}
    archive = load_archive(tmp_path / "run" / "model.tar.gz", overrides=bare)
    model, reader = archive.model.eval(), archive.validation_dataset_reader
    instances = list(reader.read(config["validation_data_path"]))
    for instance in instances:
        reader.apply_token_indexers(instance)
    scores = [float(one["score"]) for one in model.forward_on_instances(instances)]
    gold = [float(one["label"].tensor) for one in instances]
    assert metrics["best_validation_pearson"] == pytest.approx(pearsonr(scores, gold)[0], abs=1e-4)
    best = metrics["best_validation_spearman"]
    assert best == pytest.approx(spearmanr(scores, gold)[0], abs=1e-3)
    assert len({round(score, 6) for score in scores}) > len(scores) / 2
    if "alone" in name:
        *_, first, second = (line.split("\t") for line in submission(tmp_path, "sts-b test"))
        assert (first[0], second[0]) == ("0", "1")
        assert all(0 <= float(score) <= 5 and len(score) == 5 for _, score in (first, second))


@pytest.mark.slow
def test_both_parts_of_mnli_are_in_the_metrics(recipe: Any, tmp_path: Path) -> None:
    config = recipe("reclaim", "mnli")
    for part, labels in (("matched", "neutral"), ("mismatched", "contradiction")):
        text = published("mnli dev").replace("neutral" if part != "matched" else "-", labels)
        (tmp_path / f"dev_{part}.tsv").write_text(text)
    config["validation_data_path"] = [
        str(tmp_path / f"dev_{p}.tsv") for p in ("matched", "mismatched")
    ]
    train_model(Params(config), str(tmp_path / "run"))
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    parts = [metrics[f"validation_{part}_accuracy"] for part in ("matched", "mismatched")]
    assert metrics["validation_accuracy"] == pytest.approx(sum(parts) / 2)
    found = evaluate_from_archive(tmp_path / "run", str(tmp_path / "dev_m*.tsv"), cuda_device=-1)
    assert {"accuracy", "matched_accuracy", "mismatched_accuracy"} <= found.keys()
    submitted = submission(tmp_path, "mnli test")
    assert submitted[0] == "index\tprediction" and len(submitted) == 3
    for number, line in enumerate(submitted[1:]):
        assert line.split("\t")[0] == str(number) and line.split("\t")[1] in NLI_CLASSES
    with pytest.raises(ConfigurationError, match=r"line 3 has 2 column\(s\), expected 10 as in"):
        submission(tmp_path, "mnli test", "x\tbroken\n")


def submission(folder: Path, kind: str, row: str = "") -> list[str]:
    """The lines of a submission by the command, for a test file with one more row in the middle."""
    lines = published(kind).splitlines(keepends=True)
    (folder / "test.tsv").write_text("".join([*lines[:2], row, *lines[2:]]))
    output = folder / "submission.tsv"
    args = argparse.Namespace(
        archive_file=folder / "run",
        input_file=str(folder / "test.tsv"),
        output_file=str(output),
        predictor="glue_submission",
        predictor_args="",
        use_dataset_reader=True,
        dataset_reader_choice="validation",
        silent=True,
        batch_size=1 if row else 2,
        **{"weights_file": None, "cuda_device": -1, "overrides": "{}", "multitask_head": None},
        file_friendly_logging=False,
    )
    _predict(args)
    return output.read_text().splitlines()
