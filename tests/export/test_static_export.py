"""The export of a static encoder says of it what is so: prompts, similarity, scores, rounding."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from declutr.archives.static_folder import read_static, write_static
from declutr.export import export_model
from declutr.inference.encoder import Encoder
from tests.archives.test_static_folder import TABLE

pytestmark = pytest.mark.slow  # together they take seconds


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A table with a default prompt and another similarity, and a token without a vector."""
    vectors = TABLE.vectors.copy()
    vectors[TABLE.loaded.token_to_id("[UNK]")] = 0
    prompts = {"query": "sano: ", "document": ""}
    settings = {"prompts": prompts, "default_prompt_name": "query", "similarity": "dot"}
    write_static(replace(TABLE, vectors=vectors, **settings), tmp_path / "table")
    return tmp_path / "table"


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_prompts_and_similarity_survive_the_export(place: Path, tmp_path: Path, dtype: str) -> None:
    made = export_model(place, tmp_path / "out", dtype=dtype)
    assert not made.comparison.failed
    before, after = (read_static(folder) for folder in (place, made.folder))
    assert after.similarity == before.similarity == "dot"
    assert (after.prompts, after.default_prompt_name) == (before.prompts, "query")
    written = json.loads((made.folder / "config_sentence_transformers.json").read_text())
    assert written["similarity_fn_name"] == "dot"


def test_the_card_tells_rounding_scores_and_training(place: Path, tmp_path: Path) -> None:
    write_static(replace(read_static(place), prompts={}, default_prompt_name=None), place)
    task = {"main": "spearman", "scores": {"spearman": {"value": 55.5}}}
    encoder = {"description": Encoder(place).describe(), "tasks": {"STS12": task}}
    (tmp_path / "results.json").write_text(json.dumps({"encoders": {"mine": encoder}}))
    made = export_model(place, tmp_path / "out", dtype="int8", onnx=False, scores=tmp_path)
    card = (made.folder / "README.md").read_text()
    assert "| STS12 | 55.50 |" in card and "those of the model before rounding" in card
    assert "the model was not exported from a training run" in card
    # Texts of nothing but unknown characters have the embedding 0 before and after.
    assert "The cosine of an embedding with the model's is 0.99" in made.notes[-1]
    assert made.notes[-1] in card and "The largest differences from the rounded vectors" in card
    ours, theirs = (Encoder(folder)(["kalo mitu"]) for folder in (place, made.folder))
    assert np.abs(ours - theirs).max() > made.comparison.limit
