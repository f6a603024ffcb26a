"""Tests of Sentence-BERT's objectives against numbers by hand and loops, and of the recipes of
labelled pairs from file to loss."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Vocabulary
from allennlp.models import Model
from hypothesis import strategies as st
from torch import Tensor

import declutr.plugin  # noqa: F401
from declutr.data.data_loader import DeCLUTRDataLoader
from declutr.modules.text_batches import part
from declutr.objectives import (
    CosineRegression,
    PairSoftmax,
    cosine_regression_loss,
    pair_logits,
    pair_softmax_loss,
    sup_con_loss,
    triplet_loss,
)
from declutr.recipes import recipe_path
from tests.models.test_declutr import fitted
from tests.objectives import laws
from tests.objectives.oracles import (
    assert_reductions,
    cosine,
    doubles,
    drawn,
    log_sum_exp,
    normal,
    some_labels,
    views,
)

ALL_PARTS = ["u", "v", "difference", "product"]
U, V = doubles([[1, 2], [3, 4]]), doubles([[3, 1], [4, 3]])

# ------------------------------------------------------------------------- the softmax classifier


def test_classes_by_hand() -> None:
    """Compare with logits by hand: 1 and 4 of (1, 2; 3, 1; 2, 1), 3 and 8 of (3, 4; 4, 3; 1, 1)."""
    weight = doubles([[1, 0, 0, 0, 0, 0], [0, 1, 0, 1, 0, 1]])
    logits = pair_logits(U, V, weight)
    assert logits.tolist() == [[1, 4], [3, 8]]
    terms = pair_softmax_loss(logits, torch.tensor([0, 1]), "none")
    expected = [3.048587351573742, 0.006715348489118]  # log(1 + e^3), log(1 + e^-5)
    assert terms.tolist() == pytest.approx(expected, abs=1e-12)
    objective = PairSoftmax(2, 2).double()
    objective.classifier.weight.data.copy_(weight)
    loss = objective(U, V, torch.tensor([0, 1]))
    assert loss.item() == pytest.approx(sum(expected) / 2, abs=1e-12)
    assert objective.last_metrics["class_accuracy"].item() == 0.5
    product = pair_logits(U, V, doubles([[1.0, 10.0]]), ["product"])
    assert product.tolist() == [[1 * 3 + 10 * 2 * 1], [3 * 4 + 10 * 4 * 3]]
    with pytest.raises(ValueError, match="Unknown part 'w': expected some of u, v, difference"):
        pair_logits(U, V, torch.ones(2, 2), ["w"])


@drawn(
    40,
    n=st.integers(1, 6),
    width=st.integers(1, 4),
    parts=st.lists(st.sampled_from(ALL_PARTS), min_size=1, unique=True),
)
def test_classes_equal_loops(n: int, width: int, seed: int, parts: list[str]) -> None:
    u, v = views(n, width, seed)
    objectives = {way: PairSoftmax(3, width, parts, way).double() for way in ("mean", "sum")}
    objectives["sum"].load_state_dict(objectives["mean"].state_dict())
    weight, labels = objectives["mean"].classifier.weight.tolist(), some_labels(n, seed=seed)
    terms = []
    for i, label in enumerate(labels.tolist()):
        pairs = list(zip(u[i].tolist(), v[i].tolist(), strict=True))
        of_part = {
            "u": [a for a, _ in pairs],
            "v": [b for _, b in pairs],
            "difference": [abs(a - b) for a, b in pairs],
            "product": [a * b for a, b in pairs],
        }
        features = [value for part in parts for value in of_part[part]]
        logits = [sum(w * x for w, x in zip(row, features, strict=True)) for row in weight]
        terms.append(log_sum_exp(logits) - logits[label])
    assert_reductions(lambda way: objectives[way](u, v, labels), terms, "mean sum")
    assert 0 <= objectives["mean"].last_metrics["class_accuracy"] <= 1


@pytest.mark.parametrize("parts", [None, ALL_PARTS])
def test_gradients_and_precision_of_the_classifier(parts: list[str] | None) -> None:
    weight = normal(3, 4 * len(parts or "uvd"), seed=5)
    labels, options = some_labels(5), {} if parts is None else {"concatenation": parts}

    def loss(u: Tensor, v: Tensor, w: Tensor = weight) -> Tensor:
        return pair_softmax_loss(pair_logits(u, v, w, **options), labels[: len(u)])

    laws.assert_gradients(loss, *views(5), weight)
    laws.assert_finite(loss)
    # W in bfloat16 is converted to the dtype of the rows.
    laws.assert_full_precision(lambda u, v: loss(u, v, weight.bfloat16()), *views(5))


@pytest.mark.parametrize("activation", ["linear", "tanh"])
def test_a_classifier_of_several_layers_by_hand(activation: str) -> None:
    """InferSent's, of all four parts: its activations stand between layers."""
    u, v = views(5, 3)
    torch.manual_seed(0)
    settings: Any = {"hidden_dims": [6, 4], "activation": activation}
    objective = PairSoftmax(3, 3, ALL_PARTS, **settings).double()
    layers = objective.classifier._linear_layers
    assert [tuple(layer.weight.shape) for layer in layers] == [(6, 12), (4, 6), (3, 4)]
    x = torch.cat([u, v, (u - v).abs(), u * v], dim=1)
    for number, layer in enumerate(layers):
        x = x @ layer.weight.T + layer.bias
        if activation == "tanh" and number < 2:
            x = x.tanh()
    labels = some_labels(5)
    expected = torch.stack([x[i].logsumexp(0) - x[i, label] for i, label in enumerate(labels)])
    assert objective(u, v, labels).item() == pytest.approx(expected.mean().item(), abs=1e-12)
    laws.assert_gradients(lambda *batch: objective(*batch, labels), u, v)
    single = copy.deepcopy(objective).float()
    laws.assert_full_precision(
        lambda a, b: single(a, b, labels), *views(5, 3), exact=lambda a, b: objective(a, b, labels)
    )
    with pytest.raises(
        ValueError, match=r"Expected rows of width 3 \(embedding_size\), got \(5, 4\)"
    ):
        objective(*views(5, 4), labels)
    for wrong in ({"hidden_dims": [0]}, {"hidden_dims": [2], "activation": "thanh"}):
        with pytest.raises(ConfigurationError, match="expected widths of at least 1, and one of"):
            PairSoftmax(3, 3, **wrong)


# ---------------------------------------------------------------------------------- regression


def test_scores_by_hand() -> None:
    """Compare with cosines by hand: 24/25 of (3, 4) and (4, 3), 0 at a right angle, -1 opposite."""
    u, v = doubles([[3, 4], [2, 0], [1, 1]]), doubles([[4, 3], [0, 5], [-2, -2]])
    scores = doubles([0.5, -0.2, -1])
    terms = cosine_regression_loss(u, v, scores, "none")
    assert terms.tolist() == pytest.approx([0.46**2, 0.04, 0], abs=1e-12)
    assert CosineRegression()(u, v, scores).item() == pytest.approx(0.2516 / 3, abs=1e-12)
    assert CosineRegression("sum")(u, v, scores.float()).item() == pytest.approx(0.2516, abs=1e-7)


@drawn(30, n=st.integers(1, 6), width=st.integers(1, 4))
def test_scores_equal_loops(n: int, width: int, seed: int) -> None:
    u, v = views(n, width, seed)
    scores = normal(n, seed=seed + 2).tanh()
    terms = [(cosine(a, b) - score.item()) ** 2 for a, b, score in zip(u, v, scores, strict=True)]
    assert_reductions(lambda way: cosine_regression_loss(u, v, scores, way), terms)


def test_no_pair_gives_zero_and_one_pair_has_a_loss() -> None:
    u, v = (view.requires_grad_() for view in views(1))
    softmax = PairSoftmax(3, 4).double(), torch.tensor([1])
    for loss, labels in (softmax, (CosineRegression(), doubles([0.5]))):
        assert loss(u, v, labels).item() > 0
        laws.assert_zero_with_a_graph(loss(u[:0], v[:0], labels[:0]), u, v)


# --------------------------------------------------------------------------- from file to loss

PREMISES = ["ka lo mi", "tu re", "sa no ve pi"]
HYPOTHESES = ["lo mi", "re du", "pi ka"]
CLASS_NAMES = ["entailment", "neutral", "contradiction"]
INFERENCE = [
    (premise, f"{hypothesis} {name[:2]}", name)
    for premise, hypothesis in zip(PREMISES, HYPOTHESES, strict=True)
    for name in CLASS_NAMES
]
TABLES: dict[str, list[tuple]] = {
    "sbert_softmax": [("premise", "hypothesis", "label"), *INFERENCE],
    "simcse_supervised": [("premise", "hypothesis", "label"), *INFERENCE],
    "sbert_regression": [
        ("anchor", "positive", "label"),
        *((premise, HYPOTHESES[i], 5.0 - i) for i, premise in enumerate(PREMISES)),
        *((premise, HYPOTHESES[i - 1], 0.5 * i) for i, premise in enumerate(PREMISES)),
    ],
    "sbert_triplet": [
        ("anchor", "positive", "negative"),
        *((premise, HYPOTHESES[i], HYPOTHESES[i - 1]) for i, premise in enumerate(PREMISES)),
    ],
    "sup_con": [
        ("text", "label"),
        *((text, i % 2) for i, text in enumerate(PREMISES + HYPOTHESES)),
    ],
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
STILL = {"model.text_field_embedder.token_embedders.tokens.transformer_kwargs": NO_DROPOUT}


@pytest.fixture
def built(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that builds the model and first batch of a recipe from a small table."""
    monkeypatch.setenv("TRANSFORMER_MODEL", str(checkpoint))

    def build(name: str, **changes: Any) -> tuple[Any, dict, dict]:
        file = tmp_path / f"{name}.tsv"
        file.write_text("".join("\t".join(map(str, row)) + "\n" for row in TABLES[name]))
        changes = {"model.precision": "float32", **changes}
        if name == "sbert_softmax":
            changes["model.loss.embedding_size"] = 32
        recipe = str(recipe_path(name))
        config = Params.from_file(recipe, json.dumps(changes)).as_dict(quiet=True)
        parts = Params(copy.deepcopy(config))  # AllenNLP takes configurations apart
        reader = DatasetReader.from_params(parts["dataset_reader"])
        loader = DeCLUTRDataLoader(reader, str(file), batch_size=len(TABLES[name]), quiet=True)  # type: ignore[arg-type]
        loader.index_with(Vocabulary.empty())
        (batch,) = list(loader)
        torch.manual_seed(0)
        model = Model.from_params(parts["model"], vocab=Vocabulary.empty()).train()
        return model, batch, config

    return build


def embedded(model: Any, texts: dict) -> Tensor:
    """Return the embeddings `(B * K, d)` of a field of texts."""
    with torch.no_grad():
        return model.embed({"tokens": {k: t.flatten(0, -2) for k, t in texts["tokens"].items()}})


def test_settings_of_the_papers(built: Any) -> None:
    for name in ("sbert_softmax", "sbert_regression", "sbert_triplet"):
        model, _, config = built(name)
        assert config["data_loader"]["batch_size"] == 16
        assert config["trainer"]["optimizer"]["lr"] == 2e-5
        assert config["trainer"]["learning_rate_scheduler"]["warmup_share"] == 0.1
        assert config["dataset_reader"]["max_length"] == 130
        assert model._seq2vec_encoder._averaged
    assert config["model"]["loss"] == {"type": "triplet", "margin": 1.0}
    _, batch, config = built("simcse_supervised")
    assert config["data_loader"]["batch_size"] == 512
    assert config["trainer"]["optimizer"]["lr"] == 5e-5 and config["trainer"]["num_epochs"] == 3
    assert batch["negatives"]["tokens"]["mask"].shape[:2] == (3, 1)


def test_negatives_and_classes_of_the_data_reach_the_loss(built: Any) -> None:
    model, batch, _ = built("sbert_triplet", **STILL)
    rows = [embedded(model, batch[name]) for name in ("anchors", "positives", "negatives")]
    expected = triplet_loss(*rows).item()
    assert model(**batch)["loss"].item() == pytest.approx(expected, rel=1e-4)
    model, batch, _ = built("sup_con", **STILL)
    assert torch.equal(*(batch[name]["tokens"]["token_ids"] for name in ("anchors", "positives")))
    rows, labels = embedded(model, batch["anchors"]), batch["labels"].repeat(2)
    expected = sup_con_loss(torch.cat([rows, rows]), labels).item()
    assert model(**batch)["loss"].item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("name", "below"), [("sbert_softmax", 0.1), ("sbert_regression", 0.01)])
def test_training_fits_a_few_pairs(name: str, below: float, built: Any) -> None:
    model, batch, _ = built(name, **STILL)
    first = model(**batch)["loss"].item()
    assert fitted(model, batch, 30, lr=5e-3)[-1] < below < first / 5
    model.get_metrics(reset=True)
    model(**batch)
    metrics = model.get_metrics()
    assert metrics.get("class_accuracy") == (1.0 if name == "sbert_softmax" else None)
    assert metrics["contrastive_loss"] < below
    model.eval()
    with torch.no_grad():
        held_out = model(**batch)["loss"].item()
    assert held_out == pytest.approx(metrics["contrastive_loss"], rel=1e-3)
    if name == "sbert_regression":
        cosines = torch.cosine_similarity(
            embedded(model, batch["anchors"]), embedded(model, batch["positives"])
        )
        assert (cosines - batch["labels"]).abs().max() < 0.25


def test_missing_labels_raise(built: Any) -> None:
    model, batch, _ = built("sbert_regression")
    del batch["labels"]
    message = r'CosineRegression needs labels.*"text_pairs" does'
    with pytest.raises(ConfigurationError, match=message):
        model(**batch)


def test_metrics_are_means_over_pairs(built: Any) -> None:
    """Check that means are not over batches, which may differ in size."""
    model, batch, _ = built("sbert_softmax", **STILL)
    texts, labels = {name: batch[name] for name in ("anchors", "positives")}, batch["labels"]
    model.eval()
    with torch.no_grad():
        model(**batch)
        whole = model.get_metrics(reset=True)["class_accuracy"]
        for rows in (slice(2), slice(2, None)):
            some = {name: part(fields, rows) for name, fields in texts.items()}
            model(**some, labels=labels[rows])
    assert model.get_metrics()["class_accuracy"] == pytest.approx(whole, abs=1e-6)
