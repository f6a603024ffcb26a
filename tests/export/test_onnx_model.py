"""The ONNX model equals the transformer for any number and length of texts."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from declutr.export.onnx_model import EmbeddingGraph, write_onnx
from tests import families

pytestmark = pytest.mark.slow  # together they take long

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")


def write(family: str, folder: Path, pooling: str = "mean", normalizes: bool = False):
    families.build(family, folder)
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    types = getattr(model.config, "type_vocab_size", 1) > 1
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if types else [])]
    dense = [torch.nn.Linear(16, 5).eval()]
    graph = EmbeddingGraph(model, pooling, dense, normalizes, names)
    write_onnx(graph, folder / "model.onnx")
    session = onnxruntime.InferenceSession(
        str(folder / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    return graph, session


@torch.inference_mode()
def compare(graph: EmbeddingGraph, session, padding: int) -> None:
    rng = np.random.default_rng(0)
    vocabulary = graph.transformer.config.vocab_size
    for texts in (1, 2, 3, 5):
        for length in (1, 2, 7, 16, 63, 64):
            mask = np.ones((texts, length), dtype=np.int64)
            for row in range(texts):
                mask[row, max(1, length - row * 5) :] = 0
            ids = np.where(mask, rng.integers(5, vocabulary, mask.shape), padding)
            inputs = {"input_ids": ids, "attention_mask": mask}
            if "token_type_ids" in graph.inputs:
                inputs["token_type_ids"] = np.zeros_like(ids)
            tensors = [torch.from_numpy(inputs[name]) for name in graph.inputs]
            outputs = session.run(None, inputs)
            for given, expected in zip(outputs, graph(*tensors), strict=True):
                assert given.shape == expected.shape and given.dtype == np.float32
                np.testing.assert_allclose(given, expected.numpy(), atol=3e-6)


@pytest.mark.parametrize("family", families.FAMILIES)
def test_every_family_embeds_equally_at_every_shape(family: str, tmp_path: Path) -> None:
    graph, session = write(family, tmp_path)
    compare(graph, session, graph.transformer.config.pad_token_id)
    assert [i.type for i in session.get_inputs()] == ["tensor(int64)"] * len(graph.inputs)
    assert [i.name for i in session.get_inputs()] == list(graph.inputs)
    # Tools that take the first output get embeddings; those that pool by themselves want the other.
    names = [output.name for output in session.get_outputs()]
    assert names == ["sentence_embedding", "last_hidden_state"]


@pytest.mark.parametrize("pooling", ["cls", "max", "mean-sqrt-length", "last"])
def test_every_pooling_embeds_equally(pooling: str, tmp_path: Path) -> None:
    graph, session = write("bert", tmp_path, pooling, normalizes=True)
    compare(graph, session, 0)
