"""Tests of the model "image_text": training, recall over a whole set, and two processes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Batch, Vocabulary
from allennlp.models import Model, load_archive

import declutr.plugin  # noqa: F401
from declutr.task_models.image_text import ImageText, ImageTextReader
from declutr.task_models.image_text.matching import recalls, retrieval_ranks
from tests import two_processes
from tests.task_models.image_text.pairs import WIDTH, model_config, run_config, write_pairs


def built(file: Path, **changes: Any) -> tuple[ImageText, list[Any]]:
    """Return a model with seeded weights, and its instances."""
    return made(list(ImageTextReader().read(str(file))), **changes)


def made(instances: list[Any], **changes: Any) -> tuple[ImageText, list[Any]]:
    vocab = Vocabulary.from_instances(instances)
    torch.manual_seed(0)
    model = Model.from_params(Params(model_config(**changes)), vocab=vocab)
    assert isinstance(model, ImageText)
    return model, instances


def tensors(model: ImageText, instances: list[Any]) -> dict[str, Any]:
    batch = Batch(instances)
    batch.index_instances(model.vocab)
    return batch.as_tensor_dict()


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
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


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
    model = train_model(Params(run_config(file)), str(tmp_path / "run"))
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
    objective = {"type": "reclaim", "instances": 16, "num_negatives": 3}
    config = run_config(
        write_pairs(tmp_path),
        dataset_reader={"type": "image_text", "with_ids": True},
        model={
            "type": "reclaim",
            "model": model_config(),
            "v": "image_features",
            "objective": objective,
        },
    )
    config["trainer"]["num_epochs"] = 3
    model = train_model(Params(config), str(tmp_path / "run"))
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["training_reclaim_loss"] > 0 and metrics["validation_rsum"] > 0
    bare = load_archive(tmp_path / "run" / "model.tar.gz", overrides={"model.bare": True}).model
    assert type(bare) is ImageText
    image = torch.randn(3, WIDTH)
    found = [each.eval()(image=image)["image_embeddings"] for each in (model, bare)]
    assert torch.equal(*found)


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


def step_of_process(
    instances: list[Any], ids: bool
) -> tuple[float, dict[str, torch.Tensor], dict[str, Any]]:
    """Return the loss, the averaged gradient and the recalls of one process for its pairs."""
    import torch.distributed as dist

    model, _ = made(instances)
    model.double()
    rank, processes = (dist.get_rank(), 2) if dist.is_initialized() else (0, 1)
    share = len(instances) // processes
    batch = tensors(model, instances[rank * share : (rank + 1) * share])
    batch["image"] = batch["image"].double()
    if not ids:
        del batch["image_ids"]
    loss = model(**batch)["loss"]
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    if processes > 1:
        for gradient in gradients.values():
            dist.all_reduce(gradient)
            gradient /= processes
    with torch.no_grad():
        model.eval()(**batch)
    return loss.item(), gradients, model.get_metrics(reset=True)


@pytest.mark.slow
@pytest.mark.parametrize("ids", [True, False])
def test_two_processes_equal_one(tmp_path: Path, ids: bool) -> None:
    _, instances = built(write_pairs(tmp_path))
    loss, gradients, metrics = step_of_process(instances, ids)
    assert bool(metrics) == ids
    for their_loss, their_gradients, their_metrics in two_processes.run(
        step_of_process, instances, ids
    ):
        assert their_loss == pytest.approx(loss, abs=1e-12)
        assert their_metrics == pytest.approx(metrics)
        for name, gradient in gradients.items():
            assert torch.allclose(their_gradients[name], gradient, atol=1e-12), name
