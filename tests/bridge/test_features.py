"""AllenNLP's own features work under the bridge, tested on a classifier over a tiny BERT.

Optimizers, schedulers and options of the trainer are in `tests/test_resumed_runs.py`, commands in
`tests/commands/test_commands_of_allennlp.py`.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.models import load_archive
from allennlp.predictors import Predictor
from transformers import AutoModel

EMBEDDERS: dict[str, dict[str, Any]] = {
    "frozen": {"train_parameters": False},
    "scalar mix": {"last_layer_only": False},
    "evaluation mode": {"eval_mode": True},
    "gradient checkpointing": {"gradient_checkpointing": True},
    "folding": {"max_length": 8},
    "without weights": {"load_weights": False},
    "last layer anew": {"reinit_modules": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("feature", EMBEDDERS)
def test_options_of_the_embedder(feature: str, train: Any, bert: str) -> None:
    embedder = {"type": "pretrained_transformer", "model_name": bert, **EMBEDDERS[feature]}
    changes: dict[str, Any] = {
        "model": {"text_field_embedder": {"token_embedders": {"tokens": embedder}}}
    }
    if feature == "folding":
        indexer = {"type": "pretrained_transformer", "model_name": bert, "max_length": 8}
        changes["dataset_reader"] = {"token_indexers": {"tokens": indexer}}
    model = train(**changes)
    reference = AutoModel.from_pretrained(bert).state_dict()
    weights = dict(model.named_parameters())
    name = "encoder.layer.0.attention.self.query.weight"
    trained = next(weight for key, weight in weights.items() if key.endswith(name))
    assert torch.equal(trained.detach(), reference[name]) is (feature == "frozen")


@pytest.mark.slow
def test_forked_data_workers(train: Any) -> None:
    train(data_loader={"num_workers": 2, "start_method": "fork", "max_instances_in_memory": 8})


def test_dry_run(train: Any, tmp_path: Path) -> None:
    assert train(dry_run=True) is None
    assert (tmp_path / "out" / "vocabulary" / "labels.txt").exists()
    assert not (tmp_path / "out" / "model.tar.gz").exists()


@pytest.mark.slow
def test_archived_model_predicts_as_trained(train: Any, tmp_path: Path) -> None:
    trained = train()
    archive = load_archive(tmp_path / "out" / "model.tar.gz")
    assert archive.model is not None
    for name, value in trained.state_dict().items():
        torch.testing.assert_close(archive.model.state_dict()[name], value)
    predictor = Predictor.from_archive(archive, "text_classifier")
    assert sum(predictor.predict("the old house")["probs"]) == pytest.approx(1.0)
