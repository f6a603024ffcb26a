"""Early releases of sentence-transformers and this package read the modules of an export."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from declutr.export import export_model
from declutr.inference.encoder import Encoder
from tests.export.conftest import largest_difference

pytestmark = pytest.mark.slow

TEXTS = ["", "kalo mitu", "resa nove pidu " * 60, "  odd\u2003white\x1cspace\n"]


def read(folder: Path, name: str):
    return json.loads((folder / name).read_text())


def test_early_releases_find_their_modules_and_keys(exported) -> None:
    folder = exported.folder
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    assert read(folder, "modules.json") == [
        {"idx": n, "name": str(n), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for n, (place, kind) in enumerate(kinds.items())
    ]
    limit = {"max_seq_length": 128, "do_lower_case": False}
    assert read(folder, "sentence_bert_config.json") == limit
    pooling = read(folder, "1_Pooling/config.json")
    assert pooling.pop("word_embedding_dimension") == 32
    assert [name for name, chosen in pooling.items() if chosen] == ["pooling_mode_mean_tokens"]


def test_whitening_and_scaling_are_modules(whitened: Path, tmp_path: Path) -> None:
    folder = export_model(whitened, tmp_path / "out", normalize=True, onnx=False).folder
    kinds = [module["type"].rpartition(".")[2] for module in read(folder, "modules.json")]
    assert kinds == ["Transformer", "Pooling", "Dense", "Normalize"]
    assert read(folder, "2_Dense/config.json") == {
        "in_features": 32,
        "out_features": 8,
        "bias": True,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    tensors = load_file(folder / "2_Dense" / "model.safetensors")
    old = torch.load(folder / "2_Dense" / "pytorch_model.bin", weights_only=True)
    assert tensors.keys() == old.keys() == {"linear.weight", "linear.bias"}
    assert all(torch.equal(tensors[name], old[name]) for name in old)
    expected = Encoder(whitened, dtype="float32", normalize=True)(TEXTS)
    given = Encoder(folder, dtype="float32")(TEXTS)
    assert given.shape == (4, 8)
    assert largest_difference(given, expected) < 1e-5
    np.testing.assert_allclose(np.linalg.norm(given, axis=1), 1, atol=1e-6)
    # Without the whitening, embeddings are those of another model.
    plain = export_model(whitened, tmp_path / "plain", whiten=False, onnx=False).folder
    assert Encoder(plain, dtype="float32")(TEXTS).shape == (4, 32)


def test_sentence_transformers_embeds_equally(exported, trained: Path) -> None:
    package = pytest.importorskip("sentence_transformers")
    encoder = package.SentenceTransformer(str(exported.folder), device="cpu")
    assert encoder.max_seq_length == 128
    expected = Encoder(trained, dtype="float32")(TEXTS)
    assert largest_difference(encoder.encode(TEXTS), expected) < 1e-5
