"""Tests of the model "image_text": training, recall over a whole set, and two processes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Instance
from allennlp.models import load_archive

from declutr.task_models.image_text import ImageText, ImageTextReader
from declutr.task_models.image_text.matching import recalls, retrieval_ranks
from tests.task_models import models
from tests.task_models.image_text.pairs import WIDTH, model_config, write_pairs
from tests.task_models.models import run_config, tensors


def built(file: Path, **changes: Any) -> tuple[ImageText, list[Instance]]:
    """Return a model with seeded weights, and its instances."""
    instances = list(ImageTextReader().read(str(file)))
    return made(instances, **changes), instances


def made(instances: list[Instance], **changes: Any) -> ImageText:
    model = models.built(model_config(**changes), instances)
    assert isinstance(model, ImageText)
    return model


@pytest.mark.parametrize("negatives", ["hardest", "all"])
@pytest.mark.parametrize("regions", [None, 3])
def test_every_parameter_has_a_finite_gradient(
    tmp_path: Path, negatives: str, regions: int | None
) -> None:
    model, instances = built(write_pairs(tmp_path, regions=regions), negatives=negatives, margin=2)
    output = model(**tensors(model, instances))
    assert torch.allclose(output["caption_embeddings"].norm(dim=1), torch.ones(16))
    assert torch.allclose(output["image_embeddings"].norm(dim=1), torch.ones(16))
    output["loss"].backward()
    models.assert_finite_gradients(model)


def test_regions_are_averaged(tmp_path: Path) -> None:
    model, _ = built(write_pairs(tmp_path))
    image = torch.randn(4, 3, WIDTH)
    of_regions = model(image=image)["image_embeddings"]
    assert torch.equal(of_regions, model(image=image.mean(dim=1))["image_embeddings"])


def test_recall_is_over_the_whole_set(tmp_path: Path) -> None:
    """Recall does not depend on batches, their order, or images repeated with each caption."""
    model, instances = built(write_pairs(tmp_path))
    model.eval()
    with torch.no_grad():
        whole = model(**tensors(model, instances))
        expected = recalls(
            retrieval_ranks(
                whole["image_embeddings"][::2],
                whole["caption_embeddings"],
                torch.arange(8).repeat_interleave(2),
            )
        )
        assert model.get_metrics() == {}
        assert model.get_metrics(reset=True) == expected
        torch.manual_seed(0)
        order = torch.randperm(16).tolist()
        for start in range(0, 16, 5):
            model(**tensors(model, [instances[i] for i in order[start : start + 5]]))
    assert model.get_metrics(reset=True) == pytest.approx(expected)
    assert model.get_metrics(reset=True) == {}


@pytest.mark.slow
def test_overfits_and_its_archive_is_the_model(tmp_path: Path) -> None:
    file = write_pairs(tmp_path)
    model = train_model(
        Params(run_config("image_text", model_config(), file, 16, 30, validation_metric="+rsum")),
        str(tmp_path / "run"),
    )
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["best_validation_rsum"] == 600
    assert metrics["best_validation_text_to_image_r1"] == 100
    loaded = load_archive(tmp_path / "run" / "model.tar.gz").model
    reader = ImageTextReader()
    instance = reader.text_to_instance("red thing 0", torch.ones(WIDTH).numpy())
    reader.apply_token_indexers(instance)
    outputs = [each.eval().forward_on_instance(instance) for each in (model, loaded)]
    assert outputs[0]["caption_embeddings"].shape == (12,)
    for name in ("caption_embeddings", "image_embeddings"):
        assert outputs[0][name].tolist() == outputs[1][name].tolist()
    assert loaded.get_metrics(reset=True) == {}, "predictions are not measured"


def test_captions_or_images_are_embedded_alone(tmp_path: Path) -> None:
    model, instances = built(write_pairs(tmp_path))
    batch = tensors(model, instances)
    assert set(model(tokens=batch["tokens"])) == {"caption_embeddings"}
    assert set(model(image=batch["image"])) == {"image_embeddings"}
    without_ids = model(tokens=batch["tokens"], image=batch["image"])
    apart = model(batch["tokens"], batch["image"], torch.arange(16))
    assert torch.equal(without_ids["loss"], apart["loss"])


@pytest.mark.slow
def test_regularised_by_reclaim(tmp_path: Path) -> None:
    """The model trains as the task of "reclaim", and its archive gives the same model."""
    config = run_config("image_text", model_config(), write_pairs(tmp_path), 16, 3)
    model, bare, metrics = models.trained_with_reclaim(config, tmp_path, 16, v="image_features")
    assert metrics["validation_rsum"] > 0
    assert type(bare) is ImageText
    image = torch.randn(3, WIDTH)
    assert torch.equal(*(each(image=image)["image_embeddings"] for each in (model, bare)))


@pytest.mark.parametrize("shape", [(2, WIDTH + 1), (2, 3, WIDTH - 1), (WIDTH,), (2, 2, 2, WIDTH)])
def test_images_of_another_shape_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    model, _ = built(write_pairs(tmp_path))
    with pytest.raises(ConfigurationError, match=r"expected \(n, 6\) or .* Set image_width"):
        model(image=torch.ones(shape))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"negatives": "some"}, "Unknown negatives 'some': expected one of hardest, all"),
        ({"margin": -1}, "margin must be 0 or more .* got -1 and 6"),
        ({"image_width": 0}, "image_width at least 1, got 0.2 and 0"),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        built(write_pairs(tmp_path), **changes)


@pytest.mark.slow
@pytest.mark.parametrize("ids", [True, False])
def test_two_processes_equal_one(tmp_path: Path, ids: bool) -> None:
    _, instances = built(write_pairs(tmp_path))
    without = () if ids else ("image_ids",)
    losses, metrics = models.assert_two_processes_equal_one(made, instances, without)
    assert bool(metrics) == ids
    assert losses == pytest.approx(losses[:1] * 3, abs=1e-12)
