"""Tests of writing texts, and of the Predictor "text_vae"."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.commands import main
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.models import Model
from allennlp.predictors import Predictor

from declutr.task_models.text_vae import TextLinesReader, TextVae
from declutr.task_models.text_vae.predictor import TextVaePredictor
from declutr.task_models.text_vae.writing import Writing
from tests.task_models import models
from tests.task_models.text_vae.lines import LINES, model_config, run_config, write_lines

SPECIAL = ("@@PADDING@@", "@@UNKNOWN@@", "@start@")


@pytest.fixture(scope="module")
def vae() -> TextVae:
    """A model whose random decoder likes special tokens best."""
    reader = TextLinesReader()
    instances = [reader.text_to_instance(line) for line in LINES]
    for instance in instances:
        reader.apply_token_indexers(instance)
    model = models.built(model_config(dropout=0.5), instances)
    assert isinstance(model, TextVae)
    bias: Any = model._decoder._output.bias
    with torch.no_grad():
        model._decoder._output.weight.mul_(8)
        for token in SPECIAL:
            bias[model.vocab.get_token_index(token)] = 5
        bias[model.vocab.get_token_index("@end@")] = 0.4
    return model


@pytest.fixture(scope="module")
def predictor(vae: TextVae) -> TextVaePredictor:
    return TextVaePredictor(vae.eval(), TextLinesReader())


def greedy_by_loop(model: TextVae, code: torch.Tensor, most: int) -> str:
    """Decode every prefix from its beginning."""
    index = model.vocab.get_token_index
    ids, never = [index("@start@")], [index(token) for token in SPECIAL]
    while len(ids) <= most:
        vectors = model.word_embeddings({"tokens": {"tokens": torch.tensor([ids])}})
        logits = model._decoder(vectors, code.unsqueeze(0))[0, -1]
        best = max((value, number) for number, value in enumerate(logits) if number not in never)
        ids.append(best[1])
        if ids[-1] == index("@end@"):
            break
    words = [model.vocab.get_token_from_index(number) for number in ids[1:]]
    return " ".join(word for word in words if word != "@end@")


def test_greedy_texts_are_those_of_a_loop(vae: TextVae) -> None:
    torch.manual_seed(1)
    codes = 3 * torch.randn(8, 4)
    vae.train()
    found = vae.write(codes, Writing(max_tokens=12))
    assert vae.training, "writing is without dropout, and gives training back"
    vae.eval()
    assert found == [greedy_by_loop(vae, code, 12) for code in codes]
    lengths = {len(text.split()) for text in found}
    assert max(lengths) <= 12 and len(lengths) > 1, "some end before, none goes on"


def test_draws_follow_the_distribution() -> None:
    logits = torch.tensor([1.0, 0.5, -torch.inf, 0.2, -3.0]).expand(40_000, 5)
    generator = torch.Generator().manual_seed(0)
    for top_k, kept in ((None, [0, 1, 3, 4]), (2, [0, 1]), (9, [0, 1, 3, 4])):
        writing = Writing(temperature=0.7, top_k=top_k)
        drawn = writing.chosen(logits.clone(), generator)
        expected = torch.zeros(5)
        expected[kept] = (logits[0, kept] / 0.7).softmax(dim=0)
        assert torch.allclose(drawn.bincount(minlength=5) / 40_000, expected, atol=0.01)
    alone = Writing(temperature=5, top_k=1).chosen(logits, generator)
    assert torch.equal(alone, Writing().chosen(logits, generator))


def test_a_text_is_bounded_and_has_no_special_tokens(predictor: TextVaePredictor) -> None:
    asked = {"prior": 30, "temperature": 3.0, "seed": 4, "max_tokens": 9}
    texts = predictor.predict_json(asked)["texts"]
    assert texts == predictor.predict_json(asked)["texts"] and len(texts) == 30
    assert texts != predictor.predict_json({**asked, "seed": 5})["texts"]
    words = {word for text in texts for word in text.split()}
    assert words <= {word for line in LINES for word in line.split()} and len(words) > 10
    assert max(len(text.split()) for text in texts) <= 9


def test_a_sentence_and_ways_between_two(predictor: TextVaePredictor) -> None:
    one, other = ({"sentence": line, "max_tokens": 7} for line in LINES[:2])
    ends = [predictor.predict_json(row)["reconstruction"] for row in (one, other)]
    found = predictor.predict_batch_json(
        [{"from": LINES[0], "to": LINES[1], "steps": 4, "max_tokens": 7}, one]
    )
    assert len(found[0]["texts"]) == 4 and found[0]["from"] == LINES[0]
    assert [found[0]["texts"][place] for place in (0, -1)] == ends
    assert found[1] == {**one, "reconstruction": ends[0]}
    assert len(predictor.predict_json({"from": "a", "to": "", "max_tokens": 2})["texts"]) == 11
    reader = TextLinesReader()
    outputs = predictor.predict_instance(reader.text_to_instance(LINES[0]))
    assert {"loss", "latent", "kl"} <= outputs.keys(), "as with --use-dataset-reader"
    code = {"code": outputs["latent"], "max_tokens": 7}
    assert predictor.predict_json(code)["text"] == ends[0]


@pytest.mark.parametrize(
    "row, message",
    [
        ({}, r'Expected \{"sentence": "..."\}, .*"prior": 3.* got \{\}'),
        ([1], r"got \[1\]"),
        ({"sentence": "a", "prior": 1}, 'got {"sentence": "a", "prior": 1}'),
        ({"sentence": "a", "steps": 2}, 'Beside "sentence" there may be max_tokens, .* got steps'),
        ({"sentence": 5}, 'Expected a string under "sentence", got 5'),
        ({"from": "a"}, 'Expected a string under "to", got None'),
        ({"from": "a", "to": "b", "steps": 1}, "steps to be a whole number of at least 2, got 1"),
        ({"prior": 0}, "prior to be a whole number of at least 1, got 0"),
        ({"prior": True}, "prior to be .* got True"),
        ({"code": [0.5]}, 'Expected 4 numbers under "code", got 1'),
        ({"code": "a"}, "Expected 4 numbers under \"code\", got 'a'"),
        ({"code": [1, 2, "b", 3]}, 'Expected 4 numbers under "code": '),
        ({"prior": 1, "temperature": -1}, "Expected a temperature of 0 .* got -1"),
        ({"prior": 1, "temperature": "1"}, "Expected a temperature of 0 .* got '1'"),
        ({"prior": 1, "top_k": 5}, "at a temperature of 0 nothing is drawn: set the temperature"),
        ({"prior": 1, "temperature": 1, "top_k": 0}, "top_k to be .* at least 1, got 0"),
        ({"prior": 1, "max_tokens": 0}, "max_tokens to be .* at least 1, got 0"),
        ({"prior": 1, "seed": -1}, "seed to be .* at least 0, got -1"),
    ],
)
def test_other_lines_are_refused(row: Any, message: str, predictor: TextVaePredictor) -> None:
    with pytest.raises(ValueError, match=message):
        predictor.predict_json(predictor.load_line(json.dumps(row)))


def test_what_is_no_json_is_refused(predictor: TextVaePredictor) -> None:
    with pytest.raises(ValueError, match=r'Expected \{"sentence".* got .a b.*Expecting value'):
        predictor.load_line("a b\n")


def test_words_of_other_embedders_and_vocabularies_are_refused(vae: TextVae) -> None:
    tokens = {name: {"type": "embedding", "embedding_dim": 8} for name in ("tokens", "more")}
    config = model_config(text_field_embedder={"token_embedders": tokens})
    model: Any = Model.from_params(Params(config), vocab=vae.vocab)
    with pytest.raises(
        ConfigurationError, match=r"one token embedder of single ids.* tokens, more"
    ):
        model.write(torch.zeros(1, 4), Writing())
    model._namespace = "others"
    with pytest.raises(ConfigurationError, match="'others' has no @start@ and @end@"):
        model.write(torch.zeros(1, 4), Writing())


@pytest.mark.slow
def test_the_command_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, run, output = write_lines(tmp_path), tmp_path / "run", tmp_path / "written.jsonl"
    train_model(Params(run_config(file, posterior={"type": "implicit"})), str(run))
    rows = [{"sentence": LINES[0]}, {"from": "a", "to": "b", "steps": 3}, {"prior": 2, "seed": 1}]
    requests = tmp_path / "requests.jsonl"
    requests.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    command = ["allennlp", "predict", str(run), str(requests), "--output-file", str(output)]
    options = ["--predictor-args", '{"temperature": 1, "top_k": 5, "max_tokens": 6}', "--silent"]
    monkeypatch.setattr(sys, "argv", [*command, *options])
    main()
    found = [json.loads(line) for line in output.read_text().splitlines()]
    alone = Predictor.from_path(str(run), predictor_name="text_vae")
    settings = {"temperature": 1, "top_k": 5, "max_tokens": 6}
    assert [{**row, **settings} for row in found] == [
        alone.predict_json({**row, **settings}) for row in rows
    ]
