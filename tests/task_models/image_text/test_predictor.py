"""Tests of the predictor "image_text": captions for images, and images for captions."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.models import load_archive
from allennlp.predictors import Predictor

from declutr.task_models.image_text import ImageTextReader
from declutr.task_models.image_text.predictor import ImageTextPredictor
from tests.forked_commands import ForkedCommand
from tests.task_models import models
from tests.task_models.image_text.pairs import captions_of, scan_config, write_published
from tests.task_models.models import run_config, tensors

READER = {"captions_per_image": 5, "start_end": True}


@pytest.fixture
def predictor(tmp_path: Path) -> ImageTextPredictor:
    file = write_published(tmp_path, captions_of(4))
    reader = ImageTextReader(**READER)
    model = models.built(scan_config(), list(reader.read(file)))
    return ImageTextPredictor(model, reader, collection=str(file), top=3)


def test_ranks_are_those_of_the_similarity(predictor: ImageTextPredictor, tmp_path: Path) -> None:
    model: Any = predictor._model
    batch = tensors(model, list(ImageTextReader(**READER).read(tmp_path / "test_caps.txt")))
    with torch.no_grad():
        images = model.features_of_images(batch["image"][::5])
        scores = model.similarity(images, model.caption_features(batch["tokens"]))
    features = batch["image"][5].tolist()
    rows = [{"image": 1}, {"caption": "green thing 2"}, {"image": features}]
    first, second, third = predictor.predict_batch_json(rows)
    assert first["image"] == 1 and first["captions"] == third["captions"]
    best = scores[1].topk(3)
    for found, value, place in zip(first["captions"], *map(torch.Tensor.tolist, best), strict=True):
        assert found.pop("score") == pytest.approx(value, abs=1e-6)
        caption = captions_of(4)[place]
        assert found == {"caption": caption, "number": place, "image": place // 5}
    expected = scores[:, 7].topk(3).indices.tolist()
    assert [image["row"] for image in second["images"]] == expected
    assert [image["name"] for image in second["images"]] == [str(100 + row) for row in expected]
    assert predictor.predict_json({"image": 1}) == predictor.predict_json({"image": 1})


@pytest.mark.parametrize(
    "row, message",
    [
        ({"image": 4}, r"The image is 4, expected a row of '.*test_ims.npy', 0 to 3"),
        ({"image": "dog.jpg"}, "Expected a row or features .* got 'dog.jpg'"),
        ({"image": [1.0]}, r"Got images \(1, 1\), expected \(n, 6\)"),
        ({"caption": " "}, "Expected a text under \"caption\", got ' '"),
        ({}, 'Expected "caption" or "image", got neither'),
        ({"image": 1, "caption": "a"}, r"got \['caption', 'image'\]"),
    ],
)
def test_wrong_rows_are_refused(predictor: ImageTextPredictor, row: dict, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        predictor.predict_json(row)


def test_wrong_settings_are_refused(predictor: ImageTextPredictor) -> None:
    own = predictor._model, predictor._dataset_reader
    with pytest.raises(ConfigurationError, match="This model has no critic to score by"):
        ImageTextPredictor(*own, score="critic")
    with pytest.raises(ConfigurationError, match="top must be at least 1, got 0"):
        ImageTextPredictor(*own, top=0)
    with pytest.raises(ConfigurationError, match=r"nothing to search in\. Name captions"):
        ImageTextPredictor(*own).predict_json({"image": 1})


@pytest.mark.slow
def test_the_command_ranks_by_the_critic(tmp_path: Path) -> None:
    """By what RECLAIM alone trains; and by the cosines, if they are asked for."""
    file = write_published(tmp_path, captions_of(4))
    config = run_config("image_text", scan_config(negatives=None), file, 20, 1)
    config["dataset_reader"] |= {**READER, "with_ids": True}
    views = {"u": "caption_vectors", "v": "image_vectors", "same": "image_ids"}
    objective = {"type": "reclaim", "instances": 20, "num_negatives": 5}
    config["model"] = {"type": "reclaim", "model": config["model"], "objective": objective, **views}
    train_model(Params(config), str(tmp_path / "run"))
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"caption": "red thing 1"}\n{"image": 2}\n')
    output = tmp_path / "found.jsonl"
    given = json.dumps({"collection": str(file), "top": 4})
    command = ["predict", str(tmp_path / "run"), str(queries), "--predictor-args", given]
    command += ["--silent", "--output-file", str(output)]
    ForkedCommand(*command, environment=dict(os.environ)).finished()
    images, captions = [json.loads(line) for line in output.read_text().splitlines()]
    archive = load_archive(tmp_path / "run" / "model.tar.gz")
    whole: Any = archive.model
    loaded = Predictor.from_archive(archive, extra_args={"collection": str(file)})
    assert isinstance(loaded, ImageTextPredictor) and loaded._score == "critic"
    critic = whole._objective.critic.eval()
    for found in images["images"]:
        u = loaded._features([{"caption": "red thing 1"}])["vectors"]
        v = loaded._features([{"image": loaded._load().features_of(found["row"])}])["vectors"]
        assert found["score"] == pytest.approx(critic(u, v).item(), abs=1e-5)
    scores = [found["score"] for found in captions["captions"]]
    assert len(scores) == 4 and scores == sorted(scores, reverse=True)
