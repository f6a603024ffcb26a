"""What is told of the modules of a sentence-transformers model that training starts from."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.conftest import as_sentence_transformers
from tests.test_given import plain_model

CLS: Any = {"type": "cls_pooler", "embedding_dim": 32}


def told(place: Path, caplog: pytest.LogCaptureFixture, pooler: Any = None) -> str:
    """The warnings of the beginning of a training."""
    model = plain_model(place, seq2vec_encoder=pooler, loss={"type": "nt_xent"})
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    tracker = SimpleNamespace(tracked_metrics=[])
    caplog.clear()
    model.attach(SimpleNamespace(optimizer=optimizer, data_loader=None, _metric_tracker=tracker))
    return "\n".join(record.getMessage() for record in caplog.records)


def test_pooling_and_dense_layers(checkpoint: Path, tmp_path: Path, caplog: Any) -> None:
    place = as_sentence_transformers(shutil.copytree(checkpoint, tmp_path / "model"), 32)
    assert told(place, caplog) == ""
    assert "its pooling, which is mean" in told(place, caplog, CLS)

    pooling = place / "1_Pooling/config.json"
    pooling.write_text(json.dumps({"pooling_mode": "cls"}))
    message = told(place, caplog)
    assert message.startswith(f"Of '{place}', a sentence-transformers model, training takes the t")
    assert 'its pooling, which is cls (the model\'s seq2vec_encoder {"type": "token_p' in message
    for pooler in (CLS, {"type": "token_pooling", "pooling": "cls"}):
        assert told(place, caplog, pooler) == ""
    assert "its pooling" in told(place, caplog, {**CLS, "cls_is_last_token": True})

    modules = json.loads((place / "modules.json").read_text())
    dense = {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"}
    (place / "modules.json").write_text(json.dumps([*modules, dense]))
    (place / "2_Dense").mkdir()
    activation = {"activation_function": "torch.nn.modules.activation.Tanh"}
    (place / "2_Dense/config.json").write_text(json.dumps(activation))
    save_file({"linear.weight": torch.ones(4, 32)}, place / "2_Dense/model.safetensors")
    message = told(place, caplog, CLS)
    assert "It leaves out its 1 dense layer(s) behind the pooling." in message
    pooling.write_text(json.dumps({"pooling_mode": "weightedmean"}))
    assert "pooling weightedmean, which is not followed here" in told(place, caplog)


def test_prompts(checkpoint: Path, prompted: Path, caplog: Any) -> None:
    assert "It leaves out its prompts (query, passage): texts are" in told(prompted, caplog)
    assert told(checkpoint, caplog) == ""
