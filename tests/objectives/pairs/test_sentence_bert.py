"""Sentence-BERT's objectives against numbers by hand, loops and their laws; the recipes of labelled
pairs from file to loss."""

import copy
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Vocabulary
from allennlp.models import Model
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import declutr.plugin  # noqa: F401
from declutr.data.data_loader import DeCLUTRDataLoader
from declutr.objectives import (
    CosineRegression,
    Objective,
    PairSoftmax,
    cosine_regression_loss,
    pair_logits,
    pair_softmax_loss,
    sup_con_loss,
    triplet_loss,
)
from declutr.recipes import recipe_path
from tests.objectives.laws import (
    assert_finite_where_it_is_hard,
    assert_full_precision,
    assert_gradients,
    assert_zero_with_a_graph,
    doubles,
    hard_batches,
    normal,
    permuted,
    rescaled,
    views,
)

ALL_PARTS = ["u", "v", "difference", "product"]
U, V = doubles([[1, 2], [3, 4]]), doubles([[3, 1], [4, 3]])


def classes(rows: int, count: int = 3, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(count, (rows,), generator=generator)


def softmax_of(
    rows: int, width: int = 4, parts: Any = None, reduction: str = "mean"
) -> tuple[PairSoftmax, Tensor]:
    torch.manual_seed(0)
    return PairSoftmax(3, width, parts, reduction), classes(rows)


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


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 6),
    width=st.integers(1, 4),
    seed=st.integers(0, 10**6),
    parts=st.lists(st.sampled_from(ALL_PARTS), min_size=1, unique=True),
)
def test_classes_equal_loops(n: int, width: int, seed: int, parts: list[str]) -> None:
    u, v = views(n, width, seed)
    objective = PairSoftmax(3, width, parts).double()
    weight, labels = objective.classifier.weight.tolist(), classes(n, seed=seed)
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
        terms.append(math.log(sum(map(math.exp, logits))) - logits[label])
    assert objective(u, v, labels).item() == pytest.approx(sum(terms) / n, rel=1e-9, abs=1e-12)
    summed = PairSoftmax(3, width, parts, "sum").double()
    summed.load_state_dict(objective.state_dict())
    assert summed(u, v, labels).item() == pytest.approx(sum(terms), rel=1e-9, abs=1e-12)
    assert 0 <= objective.last_metrics["class_accuracy"] <= 1


def test_the_order_of_pairs_does_not_matter_but_that_of_texts_does() -> None:
    u, v = views(6)
    objective, labels = softmax_of(6)
    objective.double()
    expected = objective(u, v, labels).item()
    assert objective(*permuted(6, 1, u, v, labels)).item() == pytest.approx(expected)
    assert objective(v, u, labels).item() != pytest.approx(expected, rel=1e-3)
    alike, _ = softmax_of(6, parts=["difference", "product"])
    alike.double()
    assert alike(u, v, labels).item() == pytest.approx(alike(v, u, labels).item())


@pytest.mark.parametrize("parts", [None, ALL_PARTS])
def test_laws_of_the_classifier(parts: list[str] | None) -> None:
    weight = normal(3, 4 * len(parts or "uvd"), seed=5)
    labels, options = classes(5), {} if parts is None else {"concatenation": parts}

    def loss(u: Tensor, v: Tensor) -> Tensor:
        return pair_softmax_loss(pair_logits(u, v, weight, **options), labels[: len(u)])

    def float_loss(u: Tensor, v: Tensor) -> Tensor:
        """Compute the loss with W in bfloat16, which is converted to the dtype of the rows."""
        logits = pair_logits(u, v, weight.bfloat16(), **options)
        return pair_softmax_loss(logits, labels[: len(u)])

    assert_gradients(loss, *views(5))
    u, v = views(5)
    leaf = weight.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda w: pair_softmax_loss(pair_logits(u, v, w, **options), labels), (leaf,)
    )
    assert_finite_where_it_is_hard(loss)
    assert_full_precision(float_loss, *views(5))


def test_the_classifier_gets_finite_gradients_from_hard_batches() -> None:
    """Check that W has a finite gradient for every hard batch."""
    for name, (u, v) in hard_batches().items():
        objective, labels = softmax_of(len(u))
        objective(u.float(), v.float(), labels).backward()
        assert objective.classifier.weight.grad.isfinite().all(), name
        assert list(objective.state_dict()) == ["classifier.weight"]


# ---------------------------------------------------------------------------------- regression


def test_scores_by_hand() -> None:
    """Compare with cosines by hand: 24/25 of (3, 4) and (4, 3), 0 at a right angle, -1 opposite."""
    u, v = doubles([[3, 4], [2, 0], [1, 1]]), doubles([[4, 3], [0, 5], [-2, -2]])
    scores = doubles([0.5, -0.2, -1])
    terms = cosine_regression_loss(u, v, scores, "none")
    assert terms.tolist() == pytest.approx([0.46**2, 0.04, 0], abs=1e-12)
    assert CosineRegression()(u, v, scores).item() == pytest.approx(0.2516 / 3, abs=1e-12)
    assert CosineRegression("sum")(u, v, scores.float()).item() == pytest.approx(0.2516, abs=1e-7)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 6), width=st.integers(1, 4), seed=st.integers(0, 10**6))
def test_scores_equal_loops(n: int, width: int, seed: int) -> None:
    u, v = views(n, width, seed)
    scores = normal(n, seed=seed + 2).tanh()
    expected = 0.0
    for a, b, score in zip(u.tolist(), v.tolist(), scores.tolist(), strict=True):
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        expected += (dot / math.hypot(*a) / math.hypot(*b) - score) ** 2 / n
    assert cosine_regression_loss(u, v, scores).item() == pytest.approx(expected, abs=1e-12)
    moved = permuted(n, seed, *rescaled(seed, u, v), scores)
    assert cosine_regression_loss(*moved).item() == pytest.approx(expected, abs=1e-9)
    assert cosine_regression_loss(v, u, scores).item() == pytest.approx(expected, abs=1e-12)


def test_laws_of_the_regression() -> None:
    scores = doubles([1, 0.3, -1, 0, 0.9])

    def loss(u: Tensor, v: Tensor) -> Tensor:
        return cosine_regression_loss(u, v, scores[: len(u)])

    assert_gradients(loss, *views(5))
    assert_finite_where_it_is_hard(loss)
    assert_full_precision(lambda u, v: cosine_regression_loss(u, v, scores.float()), *views(5))


# ----------------------------------------------------------------------------------------- both


def test_one_pair_has_a_loss_and_no_pair_gives_zero() -> None:
    u, v = (view.requires_grad_() for view in views(1))
    objective, labels = softmax_of(1)
    objective.double()
    for loss, given_labels in ((objective, labels), (CosineRegression(), doubles([0.5]))):
        assert loss.min_pairs == 1
        assert loss.inputs == {"anchors": True, "positives": True, "labels": True}
        assert loss(u, v, given_labels).item() > 0
        assert_zero_with_a_graph(loss(u[:0], v[:0], given_labels[:0]), u, v)


def test_registered_names() -> None:
    built = Objective.from_params(
        Params({"type": "pair_softmax", "num_labels": 4, "embedding_size": 5})
    )
    assert isinstance(built, PairSoftmax) and built.classifier.weight.shape == (4, 15)
    assert built.concatenation == ("u", "v", "difference") and built.classifier.bias is None
    given_parts = {"concatenation": ["product", "u"], "num_labels": 2, "embedding_size": 5}
    built = Objective.from_params(Params({"type": "pair_softmax", **given_parts}))
    assert built.concatenation == ("product", "u") and built.classifier.weight.shape == (2, 10)
    built = Objective.from_params(Params({"type": "cosine_regression", "reduction": "sum"}))
    assert isinstance(built, CosineRegression) and built.reduction == "sum"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0, 3]), r"classes from 0 to 2 \(num_labels is 3\), got 0 to 3"),
        (torch.tensor([-1, 1]), r"classes from 0 to 2 \(num_labels is 3\), got -1 to 1"),
        (
            torch.tensor([0.0, 1.0]),
            r"the class \(int64\) of each of the 2 pairs, got torch.float32",
        ),
        (torch.tensor([0]), r"each of the 2 pairs, got torch.int64 \(1,\)"),
    ],
)
def test_labels_that_are_not_classes_raise(labels: Tensor, message: str) -> None:
    objective, _ = softmax_of(2, width=2)
    with pytest.raises(ValueError, match=message):
        objective(U.float(), V.float(), labels)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            torch.tensor([0.1, 4.5]),
            r"scores from -1 to 1, as cosines are, got 0.1 to 4.5. Set max_s",
        ),
        (torch.tensor([0.1, math.nan]), r"scores from -1 to 1, as cosines are, got nan to nan"),
        (torch.tensor([0, 1]), r"the score \(float32\) of each of the 2 pairs, got torch.int64"),
        (torch.tensor([0.5]), r"each of the 2 pairs, got torch.float32 \(1,\)"),
    ],
)
def test_labels_that_are_not_scores_raise(labels: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CosineRegression()(U, V, labels)


def test_invalid_settings_raise() -> None:
    objective, labels = softmax_of(2, width=3)
    with pytest.raises(ValueError, match=r"rows of width 3 \(embedding_size\), got \(2, 2\)"):
        objective(U.float(), V.float(), labels)
    for refused in (
        lambda: objective(U, V[:1], labels),
        lambda: CosineRegression()(U, V[:1], U[0]),
    ):
        with pytest.raises(ValueError, match=r"must both be \(N, d\).* \(2, 2\) and \(1, 2\)"):
            refused()
    with pytest.raises(ValueError, match="Unknown part 'w': expected some of u, v, difference"):
        pair_logits(U, V, torch.ones(2, 2), ["w"])
    for options, message in (
        ({"num_labels": 1}, "num_labels must be at least 2, got 1"),
        ({"embedding_size": 0}, "embedding_size must be above 0, got 0"),
        ({"concatenation": ["w"]}, "Unknown part of the concatenation 'w': expected one of u, v"),
        ({"concatenation": ["u", "u"]}, r"each once; got \['u', 'u'\]"),
        ({"concatenation": []}, r"concatenation must name some of u, v, .*; got \[\]"),
        ({"reduction": "none"}, "Unknown reduction 'none': expected one of mean, sum"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            PairSoftmax(**{"num_labels": 3, "embedding_size": 2, **options})
    with pytest.raises(ConfigurationError, match="Unknown reduction 'none'"):
        CosineRegression("none")


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
STILL = {
    "model.text_field_embedder.token_embedders.tokens.transformer_kwargs": {
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
}


@pytest.fixture
def built(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that builds the model and first batch of a recipe from a small table."""
    monkeypatch.setitem(os.environ, "TRANSFORMER_MODEL", str(checkpoint))

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


@pytest.mark.parametrize("name", TABLES)
def test_every_recipe_takes_a_step(name: str, built: Any) -> None:
    model, batch, _ = built(name)
    before = {key: value.clone() for key, value in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(**batch)["loss"].backward()
    assert [key for key, value in model.named_parameters() if value.grad is None] == []
    optimizer.step()
    moved = {key for key, value in model.named_parameters() if not torch.equal(value, before[key])}
    assert any("word_embeddings" in key for key in moved)
    assert ("_loss.classifier.weight" in moved) == (name == "sbert_softmax")
    assert model.eval()(batch["anchors"])["embeddings"].shape[1] == 32


def test_settings_of_the_papers(built: Any) -> None:
    for name in ("sbert_softmax", "sbert_regression", "sbert_triplet"):
        model, _, config = built(name)
        assert config["data_loader"]["batch_size"] == 16
        assert config["trainer"]["optimizer"]["lr"] == 2e-5
        assert config["trainer"]["learning_rate_scheduler"]["warmup_share"] == 0.1
        assert config["dataset_reader"]["tokenizer"]["max_length"] == 128
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
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(30):
        optimizer.zero_grad()
        loss = model(**batch)["loss"]
        loss.backward()
        optimizer.step()
    assert loss.item() < below < first / 5
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
    with pytest.raises(
        ConfigurationError, match=r'CosineRegression needs labels.*"text_pairs" does'
    ):
        model(**batch)


def test_metrics_are_means_over_pairs(built: Any) -> None:
    """Check that means are not over batches, which may differ in size."""
    model, batch, _ = built("sbert_softmax", **STILL)
    model.eval()

    def part(rows: slice) -> dict:
        texts = {
            name: {"tokens": {key: t[rows] for key, t in batch[name]["tokens"].items()}}
            for name in ("anchors", "positives")
        }
        return {**texts, "labels": batch["labels"][rows]}

    with torch.no_grad():
        model(**batch)
        whole = model.get_metrics(reset=True)["class_accuracy"]
        model(**part(slice(2)))
        model(**part(slice(2, None)))
    assert model.get_metrics()["class_accuracy"] == pytest.approx(whole, abs=1e-6)
