"""The recipe "infersent": its steps are those of a plain loop, and what it trains embeds texts."""

import copy
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allennlp.commands import main
from allennlp.commands.train import TrainModel, train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from torch import Tensor

import declutr.plugin  # noqa: F401
from declutr.inference.encoder import Encoder
from declutr.recipes import recipe_path
from tests.recipe_data import RecipeData

EPOCHS = 2  # of ten steps each
CLASSIFIER = "_loss.classifier._linear_layers"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> RecipeData:
    return RecipeData(tmp_path_factory.mktemp("data"))


@pytest.fixture
def config(data: RecipeData) -> dict[str, Any]:
    """The recipe in small, over words of letters alone."""
    return data.small(recipe_path("infersent"), num_epochs=EPOCHS)


@pytest.mark.slow
def test_steps_are_those_of_the_public_codes_logic(config: dict, tmp_path: Path) -> None:
    """Losses of 20 steps, rates of two epochs, and the weights afterwards."""
    params = Params(copy.deepcopy(config))
    for seed in ("random_seed", "numpy_seed", "pytorch_seed"):
        params.pop(seed)
    torch.manual_seed(0)
    run = TrainModel.from_params(params, serialization_dir=str(tmp_path), local_rank=0)
    trainer, model = run.trainer, run.model
    plain = Plain(model.state_dict(), config, model.vocab)
    trainer.data_loader.index_with(model.vocab)
    trainer._validation_data_loader.index_with(model.vocab)
    before = copy.deepcopy(plain.weights)
    trainer.train()
    orders = [list(trainer.data_loader.batches(epoch)) for epoch in range(EPOCHS)]
    found = plain.trained(orders)
    for epoch, loss in enumerate(found):
        metrics = json.loads((tmp_path / f"metrics_epoch_{epoch}.json").read_text())
        assert metrics["training_loss"] == pytest.approx(loss, abs=1e-5)
    (group,) = trainer.optimizer.param_groups
    assert group["lr"] == pytest.approx(plain.rate * 0.99, rel=1e-9)
    # The weights of the trainer are now those of the best epoch, as in the public code.
    for name, weight in plain.best.items():
        assert torch.allclose(model.state_dict()[name].double(), weight, atol=1e-5), name
        assert not torch.equal(before[name], weight)


class Plain:
    """InferSent's network and training loop in float64, text by text, on the weights of a model."""

    def __init__(self, state: dict[str, Tensor], config: dict[str, Any], vocabulary: Any) -> None:
        self.weights = {name: weight.double().requires_grad_() for name, weight in state.items()}
        self.best: dict[str, Tensor] = {}
        lines = Path(config["train_data_path"]).read_text().splitlines()
        self.pairs = [json.loads(line) for line in lines]
        self.vocabulary, self.rate, self.most = vocabulary, 0.1, -1.0
        prefix = "_seq2vec_encoder.encoder._module."
        size = config["model"]["seq2vec_encoder"]["encoder"]
        lstm = torch.nn.LSTM(size["input_size"], size["hidden_size"], bidirectional=True).double()
        named = {name.removeprefix(prefix): w for name, w in self.weights.items()}
        self.encode = lambda x: torch.func.functional_call(
            lstm, {name: named[name] for name, _ in lstm.named_parameters()}, x
        )[0]

    def trained(self, epochs: list[list[np.ndarray]]) -> list[float]:
        """The mean loss of each epoch."""
        return [self._epoch(number, batches) for number, batches in enumerate(epochs, start=1)]

    def _epoch(self, number: int, batches: list[np.ndarray]) -> float:
        self.rate = self.rate * 0.99 if number > 1 else self.rate
        losses = [self._step([self.pairs[row] for row in rows]) for rows in batches]
        with torch.no_grad():
            right = sum(self._logits(pair).argmax().item() == of(pair) for pair in self.pairs)
        if right > self.most:
            self.most = right
            self.best = {name: weight.detach().clone() for name, weight in self.weights.items()}
        else:
            self.rate = self.rate / 5
        return sum(losses) / len(losses)

    def _step(self, pairs: list[dict]) -> float:
        logits = torch.stack([self._logits(pair) for pair in pairs])
        targets = torch.tensor([of(pair) for pair in pairs])
        loss = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
        gradients = torch.autograd.grad(loss, list(self.weights.values()))
        gradients = [gradient / len(pairs) for gradient in gradients]
        norm = sum(gradient.norm() ** 2 for gradient in gradients).sqrt()
        rate = self.rate * (5 / norm if norm > 5 else 1)
        with torch.no_grad():
            for weight, gradient in zip(self.weights.values(), gradients, strict=True):
                weight -= rate * gradient
        return loss.item() / len(pairs)

    def _logits(self, pair: dict) -> Tensor:
        u, v = (self._embedding(pair[name]) for name in ("premise", "hypothesis"))
        x = torch.cat([u, v, (u - v).abs(), u * v])
        for layer in range(3):
            x = self.weights[f"{CLASSIFIER}.{layer}.weight"] @ x
            x = x + self.weights[f"{CLASSIFIER}.{layer}.bias"]
        return x

    def _embedding(self, text: str) -> Tensor:
        words = ["<s>", *re.findall(r"[^\W\d_]+", text), "</s>"]
        ids = [self.vocabulary.get_token_index(word) for word in words]
        table = self.weights["_text_field_embedder.token_embedder_tokens.weight"]
        return self.encode(table[ids][:, None])[:, 0].amax(dim=0)


def of(pair: dict) -> int:
    return ["entailment", "neutral", "contradiction"].index(pair["label"])


@pytest.mark.slow
def test_word_vectors_of_a_file_are_kept_and_texts_are_embedded(
    config: dict, data: RecipeData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the command `predict` and by `Encoder`, of words with vectors and others."""
    rng, known = np.random.default_rng(0), ["<s>", "</s>"]
    for pair in map(json.loads, Path(config["train_data_path"]).read_text().splitlines()):
        known += pair["premise"].split()[:2]
    vectors = {word: rng.normal(size=12).round(3) for word in dict.fromkeys(known)}
    file = tmp_path / "vectors.txt"
    file.write_text("".join(f"{w} {' '.join(map(str, v))}\n" for w, v in vectors.items()))
    recipe = tmp_path / "recipe.jsonnet"
    recipe.write_text(f'(import "{recipe_path("infersent")}") {{ word_vectors:: "{file}" }}')
    config = data.small(recipe, num_epochs=1)
    model = train_model(Params(copy.deepcopy(config)), str(tmp_path / "run"))
    table = model._text_field_embedder.token_embedder_tokens.weight
    assert len(table) == len(vectors) + 2, "and the unknown word, and padding"
    for word, vector in vectors.items():
        assert np.allclose(table[model.vocab.get_token_index(word)].numpy(), vector)

    file.unlink()  # an archive has its vectors
    texts = ["ka lo", " ".join([*known[2:5], "qqq", "xyzzy"]), "", known[2] + ", 12!"]
    lines = tmp_path / "texts.jsonl"
    lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    archive, output = tmp_path / "run" / "model.tar.gz", tmp_path / "predictions.jsonl"
    command = ["allennlp", "predict", str(archive), str(lines), "--silent", "--batch-size", "4"]
    monkeypatch.setattr(sys, "argv", [*command, "--output-file", str(output)])
    main()
    rows = [json.loads(line)["embeddings"] for line in output.read_text().splitlines()]
    encoder = Encoder(archive, device="cpu", dtype="float32")
    assert encoder.dimension == 48 and np.allclose(encoder(texts), rows, atol=1e-6)
    alone = np.concatenate([encoder([text]) for text in texts])
    assert np.allclose(alone, rows, atol=1e-6)


def test_training_without_validation_data_is_refused(config: dict, tmp_path: Path) -> None:
    params = Params({**copy.deepcopy(config), "validation_data_path": None})
    for seed in ("random_seed", "numpy_seed", "pytorch_seed"):
        params.pop(seed)
    with pytest.raises(ConfigurationError, match=r"ShrinkingDecay looks at .* set valida"):
        TrainModel.from_params(params, serialization_dir=str(tmp_path), local_rank=0)


def test_settings_of_the_public_code() -> None:
    config = Params.from_file(str(recipe_path("infersent"))).as_dict(quiet=True)
    model, trainer = config["model"], config["trainer"]
    encoder = model["seq2vec_encoder"]["encoder"]
    assert (encoder["input_size"], encoder["hidden_size"], encoder["bidirectional"]) == (
        300,
        2048,
        True,
    )
    assert model["seq2vec_encoder"]["pooling"] == "max"
    assert model["loss"]["embedding_size"] == 4096 and model["loss"]["hidden_dims"] == [512, 512]
    optimizer = {"type": "sgd", "lr": 0.1, "momentum": 0, "weight_decay": 0}
    assert trainer["optimizer"] == optimizer and trainer["grad_norm"] == 5
    schedule = {"type": "shrinking_decay", "decay": 0.99, "shrink": 5}
    assert trainer["learning_rate_scheduler"] == schedule
    assert config["data_loader"]["batch_size"] == 64 and trainer["num_epochs"] == 20
