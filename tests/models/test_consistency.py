"""The Model "consistency" around AllenNLP's classifier and others, against loops."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allennlp.commands.evaluate import evaluate_from_archive
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Batch, DatasetReader, Vocabulary
from allennlp.data.fields import LabelField
from allennlp.models import BasicClassifier, Model, load_archive
from allennlp.predictors import Predictor, TextClassifierPredictor

from declutr.data.augmentations import Augmentation
from declutr.models.consistency import ConsistencyModel
from declutr.models.cutoff import cut_texts
from tests.built_task_models import ROWS, build, classifier, data_file, pair_model, reader_config
from tests.objectives.test_consistency import naive_divergences, naive_softmax
from tests.task_models.models import assert_two_processes_equal_one

TENSORS = dict[str, Any]


@Augmentation.register("reversed_of_tests")
class Reversed(Augmentation):
    """Words the other way round, and one of them again."""

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        words = text.split()
        return " ".join([*words[::-1], words[int(rng.integers(len(words)))]])


@Model.register("probabilities_of_tests")
class Probabilities(BasicClassifier):
    """A classifier that gives no logits."""

    def forward(self, *args: Any, **kwargs: Any) -> TENSORS:
        output = super().forward(*args, **kwargs)
        del output["logits"]
        return output


def consistency(task: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"type": "consistency", "model": task, **changes}


def semi_supervised(**changes: Any) -> dict[str, Any]:
    reader = reader_config(with_ids=False, augmentation={"type": "reversed_of_tests"})
    return {**reader, "type": "semi_supervised", **changes}


def read(folder: Path, reader: dict[str, Any]) -> tuple[Vocabulary, TENSORS]:
    """The vocabulary of the data, and all instances as a batch."""
    made = DatasetReader.from_params(Params(copy.deepcopy(reader)))
    instances = list(made.read(data_file(folder)))
    for instance in instances:
        made.apply_token_indexers(instance)
    vocab = Vocabulary.from_instances(instances)
    batch = Batch(instances)
    batch.index_instances(vocab)
    return vocab, batch.as_tensor_dict()


def cut(checkpoint: Path) -> dict[str, Any]:
    """AllenNLP's classifier of a transformer whose input can be cut, without dropout."""
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    embedder = {
        "type": "pretrained_transformer_mlm",
        "model_name": str(checkpoint),
        "masked_language_modeling": False,
        "transformer_kwargs": still,
    }
    config = classifier(checkpoint)
    # The first token of a transformer with random weights knows little of the others.
    config["seq2vec_encoder"] = {"type": "bag_of_embeddings", "embedding_dim": 32, "averaged": True}
    config["text_field_embedder"] = {"type": "mlm", "token_embedders": {"tokens": embedder}}
    return config


def pronounced(model: Any, times: float = 20) -> Any:
    """A model whose predictions differ by more than rounding."""
    with torch.no_grad():
        model.model._classification_layer.weight.mul_(times)
    return model


def naive_cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> float:
    rows = [naive_softmax(row) for row in logits.tolist()]
    return -sum(
        math.log(row[label]) for row, label in zip(rows, labels.tolist(), strict=True)
    ) / len(rows)


def naive_jensen_shannon(views: list[torch.Tensor]) -> float:
    total = 0.0
    for rows in zip(*[view.tolist() for view in views], strict=True):
        each = [naive_softmax(row) for row in rows]
        middle = [sum(column) / len(each) for column in zip(*each, strict=True)]
        for p in each:
            total += sum(a * math.log(a / m) for a, m in zip(p, middle, strict=True)) / len(each)
    return total / len(views[0])


@pytest.mark.parametrize("kind", ["token", "span", "feature"])
def test_cutoff_equals_loops(kind: str, checkpoint: Path, tmp_path: Path) -> None:
    """Of two cuts: CE(x) + alpha * sum of CE(cut) + beta * the divergence of all three."""
    vocab, batch = read(tmp_path, reader_config(checkpoint, with_ids=False))
    views = {"type": "cutoff", "kind": kind, "rate": 0.3}
    weights = {"view_weight": 0.7, "divergence_weight": 3.0}
    config = consistency(cut(checkpoint), views=views, num_views=2, **weights)
    model = pronounced(build(config, vocab), times=2)
    torch.manual_seed(5)
    loss = model(**batch)["loss"]
    torch.manual_seed(5)
    task, embedder = model.model, model.model._text_field_embedder.token_embedder
    texts = [batch["tokens"], *(cut_texts(batch["tokens"], embedder, kind, 0.3) for _ in "12")]
    logits = [task(tokens)["logits"] for tokens in texts]
    assert not torch.equal(logits[0], logits[1]) and not torch.equal(logits[1], logits[2])
    each = [naive_cross_entropy(one, batch["label"]) for one in logits]
    divergence = naive_jensen_shannon(logits)
    expected = each[0] + 0.7 * (each[1] + each[2]) + 3 * divergence
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    metrics = model.get_metrics()
    assert metrics["view_loss"] == pytest.approx(each[1] + each[2], rel=1e-5)
    assert metrics["consistency_loss"] == pytest.approx(divergence, rel=1e-3) and divergence > 1e-4
    loss.backward()
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trained == {name for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("threshold", [0.0, 0.52])
def test_uda_equals_loops(threshold: float, tmp_path: Path) -> None:
    vocab, batch = read(tmp_path, semi_supervised(unlabelled=2, label_fraction=0.5))
    settings = {"divergence": "kl", "temperature": 0.4, "confidence": threshold}
    config = consistency(classifier(), view_weight=0.0, divergence_weight=2.0, **settings)
    model = pronounced(build(config, vocab))
    loss = model(**batch)["loss"]
    lists = [batch[f"{kind}unlabelled_tokens"]["tokens"] for kind in ("", "augmented_")]
    whole, changed = (
        model.model({"tokens": {name: ids.flatten(0, 1) for name, ids in texts.items()}})["logits"]
        for texts in lists
    )
    assert whole.size(0) == 2 * len(batch["label"])
    terms = naive_divergences(whole, changed, 0.4, threshold)
    assert any(terms) and (all(terms) or threshold)
    labelled = naive_cross_entropy(model.model(batch["tokens"])["logits"], batch["label"])
    assert loss.item() == pytest.approx(labelled + 2 * sum(terms) / len(terms), rel=1e-5)
    before = [p.grad for p in model.parameters()]
    loss.backward()
    assert not any(g is not None for g in before) and all(
        p.grad is not None for p in model.parameters()
    )


@pytest.mark.parametrize("task", [classifier(), classifier(type="probabilities_of_tests")])
def test_augmentations_of_the_reader_are_views(task: dict[str, Any], tmp_path: Path) -> None:
    """For classifiers without a transformer, and for those that give probabilities alone."""
    vocab, batch = read(tmp_path, semi_supervised(num_views=2))
    model = pronounced(build(consistency(task), vocab))
    ids = batch["augmented_tokens"]["tokens"]["tokens"]  # (n, 2, L)
    texts = [batch["tokens"], *({"tokens": {"tokens": view}} for view in ids.unbind(dim=1))]
    logits = [model.model(tokens)["probs"].log() for tokens in texts]
    each = [naive_cross_entropy(one, batch["label"]) for one in logits]
    expected = sum(each) + naive_jensen_shannon(logits)
    assert model(**batch)["loss"].item() == pytest.approx(expected, rel=1e-5)


def test_cut_views_of_unlabelled_texts(checkpoint: Path, tmp_path: Path) -> None:
    """The divergence is theirs, with a gradient on both sides, the cross entropy of the others."""
    given = {"type": "semi_supervised", "unlabelled": 1, "label_fraction": 0.5}
    vocab, batch = read(tmp_path, reader_config(checkpoint, with_ids=False, **given))
    model = build(consistency(cut(checkpoint), views={"type": "cutoff", "kind": "span"}), vocab)
    calls: list[int] = []
    model.model.register_forward_hook(lambda *call: calls.append(len(call[2]["logits"])))
    model(**batch)["loss"].backward()
    labelled, unlabelled = len(batch["label"]), len(batch["unlabelled_tokens"]["tokens"]["mask"])
    assert calls == [labelled, labelled, unlabelled, unlabelled]


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_the_same_texts_under_other_dropout_are_views(dropout: float, tmp_path: Path) -> None:
    vocab, batch = read(tmp_path, reader_config(with_ids=False))
    model = pronounced(build(consistency(classifier(dropout=dropout), views="dropout"), vocab))
    model(**batch)["loss"].backward()
    assert (model.get_metrics()["consistency_loss"] > 1e-3) == bool(dropout)


def test_views_of_a_pair_change_both_texts(tmp_path: Path) -> None:
    reader = semi_supervised(num_views=1, texts=["text", "second"], combine=False)
    vocab, batch = read(tmp_path, reader)
    loss = build(consistency(pair_model()), vocab)(**batch)["loss"]
    assert loss.isfinite()
    with pytest.raises(ConfigurationError, match=r"no texts 'augmented_\*'"):
        build(consistency(pair_model()), vocab)(
            **{name: field for name, field in batch.items() if not name.startswith("augmented_")}
        )


def test_the_classifiers_metrics_and_outputs_are_its_own(tmp_path: Path) -> None:
    vocab, batch = read(tmp_path, semi_supervised(num_views=1, unlabelled=1, label_fraction=0.5))
    model, task = build(consistency(classifier()), vocab), build(classifier(), vocab)
    own = {name: batch[name] for name in ("tokens", "label")}
    numbered = {**batch, "ids": torch.arange(len(batch["label"]))}  # which this task does not take
    output, expected = model(**numbered), task(**own)
    assert torch.equal(output["logits"], expected["logits"])
    found = model.get_metrics(reset=True)
    assert found["accuracy"] == task.get_metrics(reset=True)["accuracy"]
    assert set(found) == {"accuracy", "view_loss", "consistency_loss"}
    output, expected = model.eval()(**batch), task.eval()(**own)
    assert output.keys() == expected.keys() and torch.equal(output["loss"], expected["loss"])
    assert model.get_metrics(reset=True) == task.get_metrics(reset=True)


class OfThreeEpochs:
    """What a trainer tells of its steps."""

    data_loader, _num_epochs = range(2), 3


def test_annealing_leaves_out_what_is_predicted_well_enough(tmp_path: Path) -> None:
    """The threshold goes from a half to 1 over the passes, which checkpoints count."""
    vocab, batch = read(tmp_path, semi_supervised(num_views=1))
    config = consistency(classifier(), annealing="linear", view_weight=0.0, divergence_weight=0.0)
    model = build(config, vocab)
    with pytest.raises(ConfigurationError, match=r"call attach\(trainer\) before training"):
        model(**batch)
    model.attach(OfThreeEpochs())
    logits = model.model(batch["tokens"])["logits"]
    of_labels = [
        naive_softmax(row)[label]
        for row, label in zip(logits.tolist(), batch["label"].tolist(), strict=True)
    ]
    for number in range(7):
        limit = 0.5 + 0.5 * min(1.0, number / 6)
        counted = [math.log(p) for p in of_labels if p <= limit]
        expected = -sum(counted) / max(1, len(counted))
        assert model(**batch)["loss"].item() == pytest.approx(expected, rel=1e-5)
    assert any(p > 0.5 for p in of_labels)
    other = build(config, vocab)
    other.load_state_dict(model.state_dict())
    assert other._passes_done.value == 7

    class Endless(OfThreeEpochs):
        data_loader: Any = iter(())

    with pytest.raises(ConfigurationError, match="which this data loader does not tell"):
        model.attach(Endless())


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"num_views": 0}, "num_views must be above 0, got 0"),
        ({"views": "spans"}, "SpanViews makes no texts: set views to 'cutoff' or 'dropout'"),
        ({"view_weight": -1.0}, "view_weight must be 0 or above, got -1"),
        ({"divergence": "l2"}, "Unknown divergence 'l2': expected one of jensen_shannon, kl"),
        ({"temperature": 0.5}, "temperature and confidence belong to the divergence 'kl'"),
        ({"divergence": "kl", "confidence": 1.0}, r"confidence must lie in \[0, 1\), got 1"),
        ({"annealing": "cosine"}, "Unknown annealing 'cosine': expected one of linear, log, exp"),
    ],
)
def test_wrong_settings_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    vocab, _ = read(tmp_path, semi_supervised(num_views=1))
    with pytest.raises(ConfigurationError, match=message):
        build(consistency(classifier(), **changes), vocab)


def test_batches_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    vocab, batch = read(tmp_path, semi_supervised(num_views=1))
    with pytest.raises(ConfigurationError, match=r"brings views .*, and the model makes its own"):
        build(consistency(classifier(), views="dropout"), vocab)(**batch)
    with pytest.raises(ConfigurationError, match="label is 'class', but no field of one class an"):
        build(consistency(classifier(), label="class"), vocab)(**batch)
    unlabelled = {name: field for name, field in batch.items() if name != "label"}
    with pytest.raises(ConfigurationError, match=r"BasicClassifier gave no 'loss'.*have labels?"):
        build(consistency(classifier()), vocab)(**unlabelled)
    alone = {name: batch[name] for name in ("tokens", "label")}
    with pytest.raises(ConfigurationError, match="Cutoff works on a transformer's input"):
        build(consistency(classifier(), views="cutoff"), vocab)(**alone)


@pytest.mark.slow
def test_an_archive_predicts_and_evaluates_as_the_bare_classifier(tmp_path: Path) -> None:
    file = str(data_file(tmp_path))
    settings = {"divergence": "kl", "view_weight": 0.0, "annealing": "linear"}
    config = {
        "dataset_reader": semi_supervised(unlabelled=2, label_fraction=0.5),
        "validation_dataset_reader": reader_config(with_ids=False),
        "train_data_path": file,
        "validation_data_path": file,
        "model": consistency(classifier(dropout=0.1), **settings),
        "data_loader": {"batch_size": 2, "shuffle": True},
        "trainer": {"optimizer": "adam", "num_epochs": 2, "cuda_device": -1},
    }
    model = train_model(Params(config), str(tmp_path / "run"))
    assert isinstance(model, ConsistencyModel) and model._passes_done.value == model._all_passes
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert "training_consistency_loss" in metrics and "validation_accuracy" in metrics
    archive = tmp_path / "run" / "model.tar.gz"
    evaluated = [
        evaluate_from_archive(archive, file, cmd_overrides=overrides)
        for overrides in ("", '{"model.bare": true}')
    ]
    assert evaluated[0] == evaluated[1] and {"accuracy", "loss"} <= evaluated[0].keys()
    loaded = [load_archive(archive, overrides=each) for each in ({}, {"model.bare": True})]
    assert type(loaded[1].model) is BasicClassifier
    predictors = [Predictor.from_archive(each) for each in loaded]
    assert {type(each) for each in predictors} == {TextClassifierPredictor}
    one, other = (each.predict(ROWS[0]["text"]) for each in predictors)
    assert one == other and one["label"] in ("a", "b")


def annealed(instances: list[Any]) -> Model:
    """A model on its way through annealing, which draws nothing."""
    config = consistency(classifier(), divergence="kl", view_weight=0.5, annealing="linear")
    model = build(config, Vocabulary.from_instances(instances))
    model.attach(OfThreeEpochs())
    return pronounced(model)


def test_views_of_texts_without_a_label_have_no_cross_entropy(tmp_path: Path) -> None:
    """As the reader "glue" gives them with `keep_unlabelled`, of which a batch may be full."""
    vocab, batch = read(tmp_path, semi_supervised(num_views=1))
    model = build(consistency(classifier(), annealing="linear", divergence_weight=0.0), vocab)
    model.attach(OfThreeEpochs())
    views = model.model({"tokens": {"tokens": batch["augmented_tokens"]["tokens"]["tokens"][:, 0]}})
    for labelled in (1, 0):
        batch["label"][labelled:] = -100
        model(**batch)["loss"].backward()
        expected = naive_cross_entropy(views["logits"][:1], batch["label"][:1]) if labelled else 0
        assert model.get_metrics(reset=True)["view_loss"] == pytest.approx(expected, rel=1e-5)
        assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path: Path) -> None:
    """Also where annealing leaves out unequal numbers of texts, and where one has all labels."""
    reader = semi_supervised(num_views=2, unlabelled=2, label_fraction=0.5)
    made = DatasetReader.from_params(Params(reader))
    instances = list(made.read(data_file(tmp_path)))
    for instance in instances:
        made.apply_token_indexers(instance)
    assert_two_processes_equal_one(annealed, instances)
    for instance in instances[len(instances) // 2 :]:
        instance.add_field("label", LabelField(-100, skip_indexing=True))
    assert_two_processes_equal_one(annealed, instances)
