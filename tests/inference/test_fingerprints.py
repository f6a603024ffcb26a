"""Tests of what counts for the fingerprint of a model in a folder."""

from pathlib import Path

import pytest

from declutr.inference.fingerprints import model_fingerprint


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        *((name, True) for name in ("vocab.txt", "spiece.model", "tokenizer.json", "1_Dense/a.pt")),
        *((name, True) for name in ("bpe.codes", "source.spm", "prophetnet.tokenizer")),
        *((name, False) for name in ("README.md", "run.log", "optimizer.pt", "checkpoint/a.pt")),
    ],
)
def test_files_of_the_model_count(name: str, counts: bool, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("one")
    before = model_fingerprint(str(tmp_path))
    file.write_text("another")
    assert (model_fingerprint(str(tmp_path)) != before) is counts
