"""Tests of the model "scan": training, recall, RECLAIM in place of its loss, and two processes."""

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
from torch.nn.functional import normalize

from declutr.task_models.image_text import ImageTextReader, Scan
from declutr.task_models.image_text.matching import recalls, score_loss, score_ranks
from tests.task_models import models
from tests.task_models.image_text.pairs import (
    WIDTH,
    captions_of,
    scan_config,
    write_pairs,
    write_published,
)
from tests.task_models.models import run_config, tensors

READER = {"captions_per_image": 5, "start_end": True}


def made(instances: list[Instance], **changes: Any) -> Scan:
    model = models.built(scan_config(**changes), instances)
    assert isinstance(model, Scan)
    return model


def built(folder: Path, images: int = 4, **changes: Any) -> tuple[Scan, dict[str, Any]]:
    """Return a model with seeded weights and a batch of five captions for each image."""
    file = write_published(folder, captions_of(images))
    instances = list(ImageTextReader(**READER).read(file))
    model = made(instances, **changes)
    return model, tensors(model, instances)


def test_words_are_the_mean_of_both_directions(tmp_path: Path) -> None:
    """In float64, a GRU from `<start>` to `<end>` for each caption alone; SCAN's loss sums."""
    model, batch = built(tmp_path)
    model.double()
    gru, embed = model._seq2seq_encoder._module, model._text_field_embedder
    captions = model.caption_features(batch["tokens"])
    ids = batch["tokens"]["tokens"]["tokens"]
    vectors = embed(batch["tokens"])
    for row, length in enumerate((ids != 0).sum(dim=1).tolist()):
        words = gru(vectors[row : row + 1, :length])[0].view(length, 2, 12).mean(dim=1)
        expected = words / words.norm(dim=1, keepdim=True)
        assert torch.allclose(captions["words"][row, :length], expected, atol=1e-12)
        assert torch.allclose(captions["vectors"][row], words.mean(dim=0), atol=1e-12)
    image = batch["image"].double()
    regions = image @ model.image_features.weight.T
    assert model.image_features.bias.abs().max() == 0
    images = model.features_of_images(image)
    assert torch.allclose(images["regions"], normalize(regions, dim=-1))
    loss = model(batch["tokens"], image, batch["image_ids"])["loss"]
    scores = model._attentions[0].similarities(
        images["regions"], captions["words"], captions["mask"]
    )
    assert torch.equal(loss, score_loss(scores, batch["image_ids"], reduction="sum"))


def test_several_directions_are_averaged(tmp_path: Path) -> None:
    attentions = [{"cross_attn": "t2i"}, {"cross_attn": "i2t", "lambda_softmax": 4}]
    model, batch = built(tmp_path, attention=attentions)
    given = model.features_of_images(batch["image"]), model.caption_features(batch["tokens"])
    parts = [made_alone(model, one).similarity(*given) for one in (0, 1)]
    assert torch.allclose(model.similarity(*given), (parts[0] + parts[1]) / 2)
    model(**batch)["loss"].backward()
    models.assert_finite_gradients(model)
    assert model(image=batch["image"][:, 0])["image_embeddings"].shape == (20, 12)
    with pytest.raises(ConfigurationError, match="attention is an empty list"):
        built(tmp_path, attention=[])


def made_alone(model: Scan, direction: int) -> Scan:
    alone = made([])
    alone._attentions = [model._attentions[direction]]
    return alone


def test_recall_is_over_the_whole_set_and_over_folds(tmp_path: Path) -> None:
    """Whatever the batches are; folds are of consecutive images, and a rest is in none."""
    model, batch = built(tmp_path, images=5, fold_size=2)
    model.eval()
    with torch.no_grad():
        given = model.features_of_images(batch["image"]), model.caption_features(batch["tokens"])
        scores = model.similarity(*given)[::5]
        image_of = torch.arange(5).repeat_interleave(5)
        expected = recalls(score_ranks(lambda: [scores], image_of, 5, "later"))
        for fold in (0, 1):
            rows, columns = slice(2 * fold, 2 * fold + 2), slice(10 * fold, 10 * fold + 10)
            part = scores[rows, columns]
            for name, value in recalls(
                score_ranks(lambda part=part: [part], image_of[:10], 2, "later")
            ).items():
                key = f"folds_{name}"
                expected[key] = expected.get(key, 0) + value / 2
        for rows in torch.randperm(25).split(4):
            some = {"tokens": batch["tokens"]["tokens"]["tokens"][rows]}
            model({"tokens": some}, batch["image"][rows], batch["image_ids"][rows])
    assert model.get_metrics() == {}
    assert model.get_metrics(reset=True) == pytest.approx(expected)
    assert model.get_metrics(reset=True) == {}


@pytest.mark.slow
@pytest.mark.parametrize("replaces", [True, False])
def test_reclaim_replaces_the_loss_or_is_added(tmp_path: Path, replaces: bool) -> None:
    """Known 3: the critic ranks, too; the bare model has its own similarity alone."""
    file = write_published(tmp_path, captions_of(4))
    config = run_config("image_text", scan_config(), file, 20, 2 if replaces else 30)
    config["dataset_reader"] |= {**READER, "with_ids": True}
    objective = {"type": "reclaim", "instances": 20, "num_negatives": 5}
    views = {"u": "caption_vectors", "v": "image_vectors", "same": "image_ids"}
    replacing = {"weight": 1.0, "task_weight": 0.0} if replaces else {}
    task = config["model"] | ({"negatives": None} if replaces else {})
    config["model"] = {
        "type": "reclaim",
        "model": task,
        "objective": objective,
        **views,
        **replacing,
    }
    train_model(Params(config), str(tmp_path / "run"))
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert 0 < metrics["validation_critic_rsum"] <= 600
    if not replaces:
        assert metrics["validation_rsum"] > 500
    else:
        assert metrics["validation_loss"] == 0
        assert metrics["training_loss"] == pytest.approx(metrics["training_reclaim_loss"])
    whole = load_archive(tmp_path / "run" / "model.tar.gz").model
    bare = load_archive(tmp_path / "run" / "model.tar.gz", overrides={"model.bare": True}).model
    assert isinstance(bare, Scan) and bare.score_names() == ["similarity"]
    assert whole.score_names() == ["critic", "similarity"][:: 1 if replaces else -1]


def test_a_critic_of_other_features_does_not_rank(tmp_path: Path) -> None:
    model, _ = built(tmp_path)
    model.rank_by_critic(torch.nn.Linear(1, 1), "caption_vectors", "image_features")  # type: ignore[arg-type]
    assert model.score_names() == ["similarity"]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"negatives": "some"}, "Unknown negatives 'some'"),
        ({"reduction": "none"}, "Unknown reduction 'none': expected one of mean, sum"),
        ({"ties": "first"}, "Unknown ties 'first': expected one of half, later"),
        ({"fold_size": 0}, "fold_size must be at least 1, got 0"),
        ({"image_width": 0}, "image_width at least 1, got 0.2 and 0"),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        built(tmp_path, **changes)


def test_images_of_another_width_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"expected \(n, 6\) or .* Set image_width"):
        built(tmp_path)[0](image=torch.ones(2, 3, WIDTH + 1))


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path: Path) -> None:
    instances = list(ImageTextReader().read(write_pairs(tmp_path, regions=3)))
    _, metrics = models.assert_two_processes_equal_one(made, instances)
    assert metrics["rsum"] > 0
