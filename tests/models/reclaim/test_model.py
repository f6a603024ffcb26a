"""RECLAIM with task models that are not written for it."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params, cached_transformers
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.models import BasicClassifier, load_archive
from allennlp.nn.util import get_text_field_mask
from allennlp.predictors import Predictor, TextClassifierPredictor
from torch.nn.parallel import DistributedDataParallel

from declutr.models.reclaim.model import ReclaimModel
from declutr.objectives.memories.reclaim import Reclaim
from declutr.system.distributed import is_distributed, process_rank, world_size
from tests import two_processes
from tests.built_task_models import (
    OBJECTIVE,
    PairModel,
    build,
    classifier,
    data_file,
    pair_model,
    read_batch,
    reader_config,
    reclaim,
)

TWO_FIELDS = {"texts": ["text", "second"], "combine": False}


@pytest.fixture(params=["transformer", "plain", "pair"])
def case(
    request: pytest.FixtureRequest, checkpoint: Path, tmp_path: Path
) -> tuple[dict[str, Any], Vocabulary, dict[str, Any]]:
    """A task model's configuration, a vocabulary and a batch of all rows."""
    if request.param == "transformer":
        vocab, batch = read_batch(tmp_path, reader_config(checkpoint))
        build(classifier(checkpoint), vocab)  # what its checkpoint lacks is drawn once, and kept
        return classifier(checkpoint), vocab, batch
    if request.param == "plain":
        return classifier(), *read_batch(tmp_path, reader_config())
    return pair_model(), *read_batch(tmp_path, reader_config(**TWO_FIELDS))


@pytest.fixture
def plain(tmp_path: Path) -> tuple[Vocabulary, dict[str, Any]]:
    return read_batch(tmp_path, reader_config())


def without_ids(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: field for name, field in batch.items() if name != "ids"}


def gradients(model: torch.nn.Module, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def assert_same_tensors(found: dict, expected: dict, atol: float = 0.0) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.allclose(found[name], value, rtol=0, atol=atol), name


def test_adds_its_term_in_training(case: tuple) -> None:
    """The loss is the sum of the task loss and the objective on features computed by hand."""
    config, vocab, batch = case
    model = build(reclaim(config, weight=0.5), vocab).eval()
    task = build(config, vocab).eval()  # without dropout, to compare
    assert all(torch.equal(p, model.model.state_dict()[n]) for n, p in task.state_dict().items())
    model.training = model._objective.training = True
    # The banks of before do not matter: in the second step they have neighbours.
    objective = copy.deepcopy(model._objective)
    for _ in range(2):
        output = model(**batch)
        expected = task(**without_ids(batch))
        if isinstance(task, PairModel):
            u = torch.stack(task.calls).mean(dim=0)
            texts = [batch["premise"], batch["hypothesis"]]
            table = task.embedder.token_embedder_tokens
        else:
            texts = [batch["tokens"]]
            masks = get_text_field_mask(texts[0])
            u = task._seq2vec_encoder(task._text_field_embedder(texts[0]), mask=masks)
            table = task._text_field_embedder.token_embedder_tokens
        if hasattr(table, "transformer_model"):
            table = table.transformer_model.get_input_embeddings()
        means = []
        for text in texts:
            (ids,) = (t for n, t in text["tokens"].items() if n in ("tokens", "token_ids"))
            kept = get_text_field_mask(text).unsqueeze(-1)
            means.append((table(ids) * kept).sum(dim=1) / kept.sum(dim=1))
        v = torch.stack(means).mean(dim=0)
        term = objective(u, v, ids=batch["ids"])
        assert output["loss"].item() == pytest.approx((expected["loss"] + 0.5 * term).item())
        assert torch.equal(output["logits"], expected["logits"])
    assert term.item() > 1  # there are negatives
    own, whole = (gradients(m, o["loss"]) for m, o in ((task, expected), (model, output)))
    moved = {n for n, g in own.items() if not torch.allclose(g, whole[f"model.{n}"], atol=1e-7)}
    assert any("embedder" in name for name in moved), "of the embedding table"
    assert any("encoder" in name or "layer.1" in name for name in moved)
    assert not any("classif" in name for name in moved)
    assert any(name.startswith("_objective.critic") for name in whole)


def test_a_weight_of_zero_leaves_the_gradients_of_the_task(case: tuple) -> None:
    config, vocab, batch = case
    model, task = build(reclaim(config, weight=0.0), vocab), build(config, vocab)
    torch.manual_seed(1)
    whole = gradients(model, model(**batch)["loss"])
    torch.manual_seed(1)
    own = gradients(task, task(**without_ids(batch))["loss"])
    assert own
    assert_same_tensors({name: whole.get(f"model.{name}") for name in own}, own)


def test_outside_training_it_is_the_task_model(
    case: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, vocab, batch = case
    model, task = build(reclaim(config), vocab).eval(), build(config, vocab).eval()
    hooked: list[Any] = []
    monkeypatch.setattr(
        torch.nn.Module, "register_forward_hook", lambda *a, **k: hooked.append(a) or None
    )
    before = copy.deepcopy(model.state_dict())
    for given in (batch, without_ids(batch)):
        output, expected = model(**given), task(**without_ids(batch))
        assert_same_tensors(output, expected)
    assert hooked == []
    assert_same_tensors(model.state_dict(), before)
    assert model.get_metrics() == task.get_metrics()
    readable = task.make_output_human_readable(expected)
    assert model.make_output_human_readable(output).keys() == readable.keys()


def test_metrics_have_the_unweighted_term_in_training_only(plain: tuple) -> None:
    vocab, batch = plain
    model = build(reclaim(classifier()), vocab)
    terms = []
    for _ in range(3):
        task = model.model(**without_ids(batch))["loss"]  # a model without dropout
        terms.append((model(**batch)["loss"] - task).item() / 0.1)
    metrics = model.get_metrics()
    assert metrics["reclaim_loss"] == pytest.approx(sum(terms) / 3, rel=1e-4)
    assert set(metrics) == {"accuracy", "reclaim_loss"}
    assert model.training_means.compute() == {"reclaim_loss": metrics["reclaim_loss"]}
    assert model.get_metrics(reset=True) == metrics
    assert set(model.get_metrics()) == {"accuracy"}
    model(**batch)
    assert set(model.eval().get_metrics(reset=True)) == {"accuracy"}


def test_methods_and_attributes_are_those_of_the_task_model(plain: tuple, tmp_path: Path) -> None:
    regularizer = {"regexes": [["classify.weight", {"type": "l2", "alpha": 1.0}]]}
    vocab, batch = read_batch(tmp_path, reader_config(**TWO_FIELDS))
    model = build(reclaim(pair_model(regularizer=regularizer)), vocab)
    weight = model.model.classify.weight
    assert model.get_regularization_penalty().item() == pytest.approx(weight.square().sum().item())
    assert model.accuracy is model.model.accuracy
    with pytest.raises(AttributeError, match="'PairModel' object has no attribute 'nothing'"):
        _ = model.nothing
    twin = copy.deepcopy(model)
    assert twin.model.classify.weight is not weight
    assert twin(**batch)["loss"].item() == model(**batch)["loss"].item()
    keys = [name for name in model.state_dict() if not name.startswith("_objective.")]
    assert keys == [f"model.{name}" for name in model.model.state_dict()]
    size = model.embedder.token_embedder_tokens.num_embeddings
    vocab.add_token_to_namespace("never-seen")
    model.extend_embedder_vocab()
    assert model.embedder.token_embedder_tokens.num_embeddings == size + 1


def test_ids_reach_a_model_that_takes_them(plain: tuple) -> None:
    seen = []

    class TakesIds(BasicClassifier):
        def forward(self, tokens, label=None, ids=None):  # type: ignore[no-untyped-def,override]
            seen.append(ids)
            return super().forward(tokens, label)

    vocab, batch = plain
    parts = build(classifier(), vocab)
    task = TakesIds(vocab, parts._text_field_embedder, parts._seq2vec_encoder, num_labels=2)
    objective: Any = type("Given", (), {"construct": lambda self, **sizes: Reclaim(6, **sizes)})()
    model = ReclaimModel(vocab, task, objective)
    for mode in (True, False):
        model.train(mode)(**batch)
        assert torch.equal(seen.pop(), batch["ids"])


def test_identical_texts_are_no_negatives(tmp_path: Path) -> None:
    vocab, batch = read_batch(tmp_path, reader_config())
    token_ids = batch["tokens"]["tokens"]["tokens"]
    token_ids[1] = token_ids[0]
    found = {}
    for masks in (False, True):
        model = build(reclaim(classifier(), mask_identical_texts=masks), vocab)
        model(**batch)
        bank = model._objective.u_bank
        texts = bank.texts if masks else None
        slots, there = bank.nearest(bank.rows(batch["ids"]), batch["ids"], 1, texts)
        assert bool(there.all())
        found[masks] = slots[0].item()
    assert found[False] == 1 and found[True] != 1


def test_instances_with_the_same_number_are_no_negatives(plain: tuple) -> None:
    """For example, captions of an image. If the field is missing, the error names the fields."""
    vocab, batch = plain
    model = build(reclaim(classifier(), same="image_ids"), vocab).train()
    images = torch.tensor([3, 3, 3, 3, 3, 8])
    model.model.forward = with_images(model.model.forward)
    model(**batch, image_ids=images)
    assert torch.equal(model._objective.u_bank.texts[batch["ids"]], images)
    with pytest.raises(ConfigurationError, match=r"same is 'image_ids', but no field.* has tokens"):
        model(**batch)
    with pytest.raises(ConfigurationError, match="no field of one whole number an instance"):
        model(**batch, image_ids=images.float())
    with pytest.raises(ConfigurationError, match="both say which instances are no negatives"):
        build(reclaim(classifier(), same="image_ids", mask_identical_texts=True), vocab)


def with_images(forward: Any) -> Any:
    return lambda image_ids=None, **fields: forward(**fields)


def test_identical_texts_cannot_be_found_without_token_ids(
    plain: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocab, batch = plain
    model = build(reclaim(classifier(), mask_identical_texts=True), vocab).train()
    monkeypatch.setattr("declutr.models.reclaim.model.text_keys", lambda fields: None)
    with pytest.raises(ConfigurationError, match=r"no text field has any\. The batch has tokens"):
        model(**batch)


def test_features_without_gradient_are_warned_of_once(
    plain: tuple, caplog: pytest.LogCaptureFixture
) -> None:
    vocab, batch = plain
    model = build(reclaim(classifier()), vocab).train()
    model(**batch)
    assert "has a gradient" not in caplog.text
    for name, parameter in model.model.named_parameters():
        parameter.requires_grad_("classification" in name)
    for _ in range(2):
        model(**batch)
    assert caplog.text.count("Neither u ('_seq2vec_encoder') nor v (") == 1


@pytest.mark.parametrize(
    ("negatives", "weight", "told"), [(None, 1, 1), (None, 0, 0), ("all", 1, 0)]
)
def test_a_weight_of_a_task_without_a_loss_is_told(
    negatives: str | None, weight: float, told: int, caplog: pytest.LogCaptureFixture
) -> None:
    embedder = {"token_embedders": {"tokens": {"type": "embedding", "embedding_dim": 4}}}
    task = {
        "type": "image_text",
        "text_field_embedder": embedder,
        "seq2vec_encoder": {"type": "boe", "embedding_dim": 4},
        "image_width": 3,
        "negatives": negatives,
    }
    build(reclaim(task, u="_seq2vec_encoder", v="image_features", task_weight=weight), Vocabulary())
    assert caplog.text.count("task_weight 1 changes nothing") == told


# ------------------------------------------------------------------------------------ training


def run_config(folder: Path, checkpoint: Path | None, epochs: int = 2, **model: Any) -> dict:
    file = str(data_file(folder))
    return {
        "dataset_reader": reader_config(checkpoint),
        "train_data_path": file,
        "validation_data_path": file,
        "model": reclaim(classifier(checkpoint, dropout=0.1), **model),
        "data_loader": {"batch_size": 3},
        "trainer": {
            "optimizer": {"type": "huggingface_adamw", "lr": 1e-2},
            "num_epochs": epochs,
            "cuda_device": -1,
            "run_confidence_checks": False,
            "checkpointer": {"type": "atomic"},
            "callbacks": [{"type": "exact_resume"}],
        },
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("reclaim")
    train_as_in_a_new_process(run_config(folder, checkpoint), folder / "run")
    return folder / "run"


def train_as_in_a_new_process(config: dict, folder: Path, recover: bool = False) -> None:
    """Train without the transformers that AllenNLP keeps: loading one draws random numbers."""
    cached_transformers._clear_caches()
    train_model(Params(config), str(folder), recover=recover)


@pytest.mark.slow
def test_trains_and_resumes_bit_for_bit(run: Path, tmp_path: Path, checkpoint: Path) -> None:
    """Memory banks too. The term is in the metrics of training, not in those of validation."""
    metrics = json.loads((run / "metrics.json").read_text())
    assert "training_reclaim_loss" in metrics and "validation_reclaim_loss" not in metrics
    folder = tmp_path / "run"
    train_as_in_a_new_process(run_config(tmp_path, checkpoint, epochs=1), folder)
    file = folder / "config.json"
    file.write_text(file.read_text().replace('"num_epochs": 1', '"num_epochs": 2'))
    train_as_in_a_new_process(json.loads(file.read_text()), folder, recover=True)
    expected, resumed = (
        load_archive(run / "model.tar.gz", weights_file=str(newest(each))).model.state_dict()
        for each in (run, folder)
    )
    assert int(expected["_objective.steps"]) == 4
    assert bool(expected["_objective.u_bank.visited"].all())
    assert_same_tensors(resumed, expected)


def newest(run: Path) -> Path:
    return max(run.glob("model_state_e*.th"), key=lambda file: file.name)


@pytest.mark.slow
def test_an_archive_also_loads_as_the_task_model(run: Path, tmp_path: Path) -> None:
    archive = run / "model.tar.gz"
    whole = load_archive(archive).model
    assert type(whole) is ReclaimModel and int(whole._objective.steps) > 0
    bare = load_archive(archive, overrides={"model.bare": True}).model
    assert type(bare) is BasicClassifier
    assert_same_tensors(whole.model.state_dict(), bare.state_dict())
    not_bare = load_archive(archive, overrides={"model.bare": False}).model
    assert type(not_bare) is ReclaimModel


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [{}, {"model.bare": True}])
def test_predicts_by_the_task_models_predictor(run: Path, overrides: dict) -> None:
    archive = load_archive(run / "model.tar.gz", overrides=overrides)
    predictor = Predictor.from_archive(archive)
    assert type(predictor) is TextClassifierPredictor
    assert predictor._model is archive.model
    prediction = predictor.predict("ka lo mi")
    expected = load_archive(run / "model.tar.gz").model.model
    again = TextClassifierPredictor(expected, archive.dataset_reader).predict("ka lo mi")
    assert prediction == again and prediction["label"] in ("a", "b")


def test_a_task_model_without_a_predictor_gets_the_plain_one(tmp_path: Path) -> None:
    vocab, _ = read_batch(tmp_path, reader_config(**TWO_FIELDS))
    model = build(reclaim(pair_model()), vocab)
    kind: Any = Predictor.by_name("reclaim")
    reader: Any = None
    predictor = kind(model, reader, frozen=False)
    assert type(predictor) is Predictor and model.training


# --------------------------------------------------------------------------- several processes


def rows_of(batch: dict[str, Any], rows: slice) -> dict[str, Any]:
    return {
        name: field[rows] if isinstance(field, torch.Tensor) else rows_of(field, rows)
        for name, field in batch.items()
    }


def steps(config: dict, vocab: Vocabulary, batch: dict[str, Any]) -> dict[str, Any]:
    """Two steps in float64 on this process's share of a batch, and what they leave behind."""
    model = build(config, vocab).double()
    trained = DistributedDataParallel(model) if is_distributed() else model
    size = -(-len(batch["ids"]) // world_size())  # the last process may have fewer
    share = rows_of(batch, slice(process_rank() * size, (process_rank() + 1) * size))
    found = []
    for _ in range(2):
        output = trained(**share)
        found.append(gradients(model, output["loss"]))
    return {
        "gradients": found,
        "state": model.state_dict(),
        "reclaim_loss": model.get_metrics()["reclaim_loss"],
    }


@pytest.mark.slow
def test_two_processes_equal_one(plain: tuple) -> None:
    vocab, batch = plain
    config = reclaim(classifier(), weight=1.0, mask_identical_texts=True)
    expected = steps(config, vocab, batch)
    for result in two_processes.run(steps, config, vocab, batch):
        assert result["reclaim_loss"] == pytest.approx(expected["reclaim_loss"], rel=1e-12)
        for one, two in zip(expected["gradients"], result["gradients"], strict=True):
            assert_same_tensors(two, one, atol=1e-12)
        assert_same_tensors(result["state"], expected["state"], atol=1e-12)


@pytest.mark.slow
def test_two_processes_with_batches_of_different_sizes(plain: tuple) -> None:
    """The last batches of an epoch differ in size. Both processes give the critic all rows."""
    vocab, batch = plain
    five = rows_of(batch, slice(5))
    config = reclaim(classifier(), weight=1.0)
    expected = steps(config, vocab, five)
    for result in two_processes.run(steps, config, vocab, five):
        assert result["reclaim_loss"] == pytest.approx(expected["reclaim_loss"], rel=1e-12)
        assert_same_tensors(result["state"], expected["state"], atol=1e-12)
        for gradients_of_both in zip(expected["gradients"], result["gradients"], strict=True):
            one, two = ({n: g for n, g in of.items() if "critic" in n} for of in gradients_of_both)
            assert len(one) == 10
            assert_same_tensors(two, one, atol=1e-12)


# ------------------------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight": -1.0}, "weight must be 0 or more, got -1.0"),
        ({"task_weight": -1.0}, "task_weight must be 0 or more, got -1.0"),
        ({"objective": {"type": "nt_xent"}}, "Expected an objective of type 'reclaim', got NTXent"),
        ({"u": "_seq2vec_encodr"}, "u is '_seq2vec_encodr', but BasicClassifier has no submodule"),
    ],
)
def test_wrong_settings_are_refused(plain: tuple, changes: dict, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build(reclaim(classifier(), **changes), plain[0])


def test_batches_without_ids_or_loss_are_refused(plain: tuple) -> None:
    vocab, batch = plain
    model = build(reclaim(classifier()), vocab)
    readers = r"needs 'ids', the row .* readers \"glue\", .* \"text_lines\""
    with pytest.raises(ConfigurationError, match=readers):
        model(**without_ids(batch))
    for ids in (batch["ids"].unsqueeze(1), batch["ids"].float()):
        with pytest.raises(ConfigurationError, match=r"Expected ids \(n,\) of whole numbers"):
            model(**{**batch, "ids": ids})
    with pytest.raises(ConfigurationError, match="BasicClassifier gave no 'loss', but logits, pr"):
        model(tokens=batch["tokens"], ids=batch["ids"])
    vectors = r"gave a tensor \(6, 4\), expected vectors \(4, d"
    with pytest.raises(ConfigurationError, match=vectors):
        model(**{**batch, "ids": batch["ids"][:4]})
    with pytest.raises(ValueError, match="Expected ids from 0 to 5"):
        model(**{**batch, "ids": batch["ids"] + 100})
    assert not any(module._forward_hooks for module in model.modules())
    assert OBJECTIVE["instances"] == 6
