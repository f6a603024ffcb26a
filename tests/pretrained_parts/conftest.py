"""Fixtures of parts: an archive without a transformer, and nothing that stays open."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from allennlp.commands.train import train_model
from allennlp.common import Params, cached_transformers

from declutr.pretrained_parts import opened
from tests.conftest import run_config


def moved_away(run: Path, source: Path) -> Path:
    """Move the archive of a run, remove all that it was made of, and forget what was opened."""
    place = run.parent / "moved.tar.gz"
    shutil.move(run / "model.tar.gz", place)
    for folder in (source, run):
        shutil.rmtree(folder)
    opened._opened.cache_clear()
    cached_transformers._clear_caches()
    return place


@pytest.fixture(autouse=True)
def nothing_opened() -> Iterator[None]:
    """Forget all opened archives, as in a new process."""
    opened._opened.cache_clear()
    yield
    opened._opened.cache_clear()


@pytest.fixture(scope="module")
def of_words(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path, corpus_file: Path) -> Path:
    """Train a model without a transformer: white-space tokens and word vectors of width 12."""
    config = run_config(checkpoint, corpus_file)
    for key in ("tokenizer", "token_indexers"):
        del config["dataset_reader"][key]
    config["model"] = {
        "type": "declutr",
        "text_field_embedder": {
            "token_embedders": {"tokens": {"type": "embedding", "embedding_dim": 12}}
        },
        "loss": {"type": "nt_xent"},
    }
    del config["vocabulary"]
    folder = tmp_path_factory.mktemp("words") / "run"
    train_model(Params(config), str(folder))
    return folder
