"""Fixtures with models of every kind that is exported."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from allennlp.commands.train import train_model
from allennlp.common import Params, cached_transformers

from declutr.export import Exported, export_model
from declutr.inference.encoder import Encoder
from declutr.inference.whitening import Whitening
from tests import families
from tests.conftest import make_documents, run_config

TYPED = ("bert", "albert", "electra")
"""The families of transformers with token types."""

FAMILY_TEXTS = [f"{text} {other}" for text in families.TEXTS for other in families.TEXTS]


@pytest.fixture(scope="session")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Return the export of the tiny RoBERTa archive, with ONNX if its packages are installed."""
    return export_model(trained / "model.tar.gz", tmp_path_factory.mktemp("export") / "tiny")


@pytest.fixture
def train_family(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that trains one of `tests.families` and returns the folder of the run.

    Its keyword arguments are changes of the configuration of the model.
    """

    def train(family: str, reader: dict[str, Any] | None = None, **model: Any) -> Path:
        start = families.build(family, tmp_path / family)
        if family in TYPED:  # Releases 4 and 5 of transformers differ in this default.
            file = start / "tokenizer_config.json"
            names = ["input_ids", "token_type_ids", "attention_mask"]
            settings = json.loads(file.read_text()) | {"model_input_names": names}
            file.write_text(json.dumps(settings))
        corpus = tmp_path / "corpus.txt"
        corpus.write_text("\n".join(" ".join(FAMILY_TEXTS) for _ in range(8)))
        config = run_config(start, corpus)
        config["model"]["feedforward"]["input_dim"] = 16
        config["dataset_reader"] |= {"max_span_len": 16, "min_span_len": 4, **(reader or {})}
        embedder = model.pop("embedder", {})
        config["model"]["text_field_embedder"]["token_embedders"]["tokens"] |= embedder
        config["model"] |= model
        config["trainer"]["optimizer"]["lr"] = 1e-3
        train_model(Params(json.loads(json.dumps(config))), str(tmp_path / "run"))
        cached_transformers._clear_caches()
        return tmp_path / "run"

    return train


@pytest.fixture
def whitened(trained: Path, tmp_path: Path) -> Path:
    """Return the serialization directory of a model with a whitening to 8 dimensions."""
    folder = shutil.copytree(trained, tmp_path / "whitened")
    embeddings = Encoder(trained, dtype="float32")(make_documents(200, 12, seed=3))
    Whitening.fit([embeddings], 8).save(folder)
    return folder


def largest_difference(one: np.ndarray, other: np.ndarray) -> float:
    assert one.shape == other.shape
    return float(np.abs(one - other).max())
