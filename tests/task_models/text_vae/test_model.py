"""Tests of the model "text_vae": training, annealing, resuming and metrics."""

import copy
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Instance
from allennlp.models import load_archive

from declutr.task_models.text_vae import TextLinesReader, TextVae
from declutr.task_models.text_vae.layers import kl_to_prior
from tests.task_models import models
from tests.task_models.models import tensors
from tests.task_models.text_vae.lines import LINES, TOKENS, model_config, run_config, write_lines
from tests.training.test_exact_resume import differences, keep_until, metrics_of

IMPLICIT = {"type": "implicit", "dual_size": 16, "particles": 8}


def instance_of(text: str) -> Instance:
    reader = TextLinesReader()
    instance = reader.text_to_instance(text)
    reader.apply_token_indexers(instance)
    return instance


def made(**changes: Any) -> tuple[TextVae, list[Instance]]:
    """Return a model with seeded weights, and the instances of the lines."""
    instances = [instance_of(line) for line in LINES]
    model = models.built(model_config(**copy.deepcopy(changes)), instances)
    assert isinstance(model, TextVae)
    return model, instances


def without_noise(_: list[Instance], **changes: Any) -> TextVae:
    """Return a model whose noise is 0."""
    model, _ = made(**{"free_bits": 0.01, **changes})
    model.latent.noise = lambda like, *shape, stream=0: like.new_zeros(shape)  # type: ignore
    return model


def implicit_without_noise(instances: list[Instance]) -> TextVae:
    return without_noise(instances, free_bits=0, posterior=IMPLICIT)


def same_codes(*found: TextVae) -> bool:
    one, other = (each.eval().forward_on_instance(instance_of(LINES[0])) for each in found)
    assert one["latent"].shape == (4,)
    return one["latent"].tolist() == other["latent"].tolist()


@pytest.mark.parametrize(
    "changes",
    [
        {"decoder_cell": "lstm"},
        {"decoder_cell": "gru"},
        {"posterior": IMPLICIT, "decoder_embedder": model_config()["text_field_embedder"]},
        {"posterior": {**IMPLICIT, "penalty": "aggregate", "layers": 1}},
    ],
)
def test_every_parameter_has_a_finite_gradient(changes: dict[str, Any]) -> None:
    model, instances = made(word_dropout=0.4, dropout=0.1, **changes)
    output = model(**tensors(model, instances))
    assert output["latent"].shape == (6, 4)
    output["loss"].backward()
    models.assert_finite_gradients(model)


def test_the_bound_of_a_text_does_not_depend_on_its_batch() -> None:
    """It depends neither on padding nor on other texts; only the sample differs."""
    model, instances = made()
    model.latent._parameters_of.bias.data[4:] = -60  # next to no noise
    model.eval()
    together = model(**tensors(model, instances))
    alone = [model(**tensors(model, [instance])) for instance in instances]
    for name in ("latent", "reconstruction", "kl"):
        assert torch.allclose(together[name], torch.cat([each[name] for each in alone]), atol=1e-4)


def test_measures_are_those_of_all_texts() -> None:
    model, instances = made()
    model.latent._parameters_of.bias.data[4:] = -60
    model.eval()
    parts = [model(**tensors(model, instances[start : start + 4])) for start in (0, 4)]
    found = model.get_metrics(reset=True)
    elbo = [v.item() for part in parts for v in part["reconstruction"] + part["kl"]]
    assert found["negative_elbo"] == pytest.approx(sum(elbo) / 6, rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(sum(elbo) / TOKENS), rel=1e-4)
    assert model.get_metrics() == {}
    weights = torch.tensor([4, 2])
    mean = (torch.stack([part["loss"] for part in parts]) * weights).sum() / 6
    assert found["negative_elbo"] == pytest.approx(mean.item(), rel=1e-5)


def test_loss_in_training_is_annealed() -> None:
    model, instances = made(annealing_steps=2, initial_kl_weight=0.2)
    for weight in (0.2, 0.6, 1, 1):
        output = model(**tensors(model, instances))
        expected = output["reconstruction"].mean() + weight * output["kl"].mean()
        assert output["loss"].item() == pytest.approx(expected.item(), rel=1e-6)
    model.eval()
    output = made(annealing_steps=2)[0].eval()(**tensors(model, instances))
    expected = output["reconstruction"].mean() + output["kl"].mean()
    assert output["loss"].item() == pytest.approx(expected.item()), "validation has the whole bound"


def test_free_bits_are_not_penalized() -> None:
    """Dimensions whose mean KL is below the free bits cost these bits, and have no gradient."""
    model, instances = made(free_bits=0.5)
    with torch.no_grad():
        model.latent._parameters_of.weight.zero_()
        model.latent._parameters_of.bias.zero_()
        model.latent._parameters_of.bias[0] = 2.0  # a mean, so a KL of 2
    output = model(**tensors(model, instances))
    term = output["loss"] - output["reconstruction"].mean()
    assert term.item() == pytest.approx(2 + 3 * 0.5, rel=1e-4)
    gradient = torch.autograd.grad(term, model.latent._parameters_of.bias)[0]
    assert gradient.tolist() == pytest.approx([2, 0, 0, 0, 0, 0, 0, 0], abs=1e-5)


def test_dropped_words_leave_the_start() -> None:
    model, _ = made(word_dropout=1.0)
    vectors = torch.randn(3, 5, 16)
    inputs = model._decoder_inputs(vectors)
    assert torch.equal(inputs[:, 0], vectors[:, 0])
    assert (inputs[:, 1:] == model._dropped_word).all() and inputs.shape == (3, 4, 16)
    assert torch.equal(model.eval()._decoder_inputs(vectors), vectors[:, :-1])


def test_overfits() -> None:
    """The decoder reproduces a few lines word by word from their codes."""
    model, instances = made(annealing_steps=10_000)
    batch = tensors(model, instances)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(120):
        optimizer.zero_grad()
        model(**batch)["loss"].backward()
        optimizer.step()
    model.eval()
    model.get_metrics(reset=True)
    model(**batch)
    found = model.get_metrics(reset=True)
    assert found["reconstruction"] < 0.5, "of about 20 at the start"
    assert found["mutual_information"] > 0.9 * math.log(len(LINES))
    assert found["active_units"] >= 2


@pytest.mark.slow
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    file = write_lines(tmp_path)
    config = run_config(file, annealing_steps=3, cycle_steps=4, word_dropout=0.3)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    model = train_model(Params(copy.deepcopy(config)), str(whole))
    keep_until(whole, killed, 0, 2)
    shutil.copy(whole / "config.json", killed)
    shutil.copytree(whole / "vocabulary", killed / "vocabulary")
    train_model(Params(copy.deepcopy(config)), str(killed), recover=True)
    states = [
        torch.load(run / "model_state_e2_b0.th", weights_only=True) for run in (whole, killed)
    ]
    assert differences(*states) == []
    assert states[0]["_kl_weight.done"] == 6
    assert metrics_of(whole, 1) == metrics_of(killed, 1)
    metrics = json.loads((whole / "metrics.json").read_text())
    assert metrics["validation_loss"] == pytest.approx(metrics["validation_negative_elbo"])
    assert same_codes(model, load_archive(whole / "model.tar.gz").model)


@pytest.mark.slow
def test_regularised_by_reclaim(tmp_path: Path) -> None:
    """The model trains as the task of "reclaim", and its archive gives the same model."""
    config = run_config(write_lines(tmp_path))
    model, bare, metrics = models.trained_with_reclaim(config, tmp_path, len(LINES), u="latent")
    assert {"validation_active_units", "validation_mutual_information"} <= set(metrics)
    assert type(bare) is TextVae and same_codes(model, bare)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"latent_size": 0}, "latent_size and decoder_size must be at least 1, got 0 and 32"),
        ({"word_dropout": 1.5}, r"word_dropout in \[0, 1\].*got 1.5 and 0"),
        ({"free_bits": -1}, "free_bits of 0 or more, got 0.0 and -1"),
        ({"decoder_cell": "rnn"}, "Unknown cell 'rnn'"),
        ({"annealing_steps": -3}, "annealing_steps of 0 or more .* got -3"),
        ({"importance_samples": -1}, "importance_samples must be 0 or more, got -1"),
        ({"posterior": {"type": "implicit"}, "free_bits": 1}, "free_bits of 1 .* to 0, or the"),
    ],
)
def test_wrong_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        made(**changes)


@pytest.mark.parametrize("shape", [(2, 1), (2, 3, 4)])
def test_ids_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    model, _ = made()
    with pytest.raises(ConfigurationError, match=r"expected \(n, L\).*text_lines"):
        model(tokens={"tokens": {"tokens": torch.ones(shape, dtype=torch.long)}})


@pytest.mark.slow
@pytest.mark.parametrize("make", [without_noise, implicit_without_noise])
def test_two_processes_equal_one(make: Callable[[list[Instance]], TextVae]) -> None:
    _, instances = made()
    models.assert_two_processes_equal_one(make, instances, of_batches=["mutual_information"])


@pytest.mark.parametrize("kind", ["gaussian", "implicit"])
def test_the_loss_of_any_posterior(kind: str) -> None:
    """In training reconstruction and the weighted KL, though networks learn from more than that."""
    changes = {"posterior": {**IMPLICIT, "type": kind} if kind == "implicit" else {"type": kind}}
    model, instances = made(kl_weight=0.5, importance_samples=3, **changes)
    batch = tensors(model, instances)
    output = model(**batch)
    expected = output["reconstruction"].mean() + 0.5 * output["kl"].mean()
    assert output["loss"].item() == pytest.approx(expected.item(), rel=1e-5)
    model.get_metrics(reset=True)
    output = model.eval()(**batch)
    found = model.get_metrics(reset=True)
    assert output["loss"].item() == pytest.approx(found["negative_elbo"], rel=1e-5)
    nll = found["importance_weighted_nll"]
    assert found["importance_weighted_perplexity"] == pytest.approx(math.exp(6 * nll / TOKENS))


def test_the_output_has_the_kl_of_each_text() -> None:
    model, instances = made()
    batch = tensors(model, instances)
    output, words = model(**batch), model.word_embeddings(batch["tokens"])
    features = model._seq2vec_encoder(words, batch["tokens"]["tokens"]["tokens"] > 0)
    code = model.latent(features)
    expected = kl_to_prior(code.mean, code.log_variance).sum(dim=1)
    assert torch.allclose(output["kl"], expected)
