"""The ONNX part: token ids in, embeddings out."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from declutr.transformer.pooling import pooled

FILE = "onnx/model.onnx"
PACKAGES = ("onnx", "onnxruntime")
_OPSET = 17
_EXAMPLE_LENGTH = 7


class EmbeddingGraph(torch.nn.Module):
    """A transformer with everything after it, `(n, length)` tokens -> `(n, d)`.

    # Parameters

    transformer : without a head.
    pooling : see `declutr.transformer.pooling`.
    dense : linear layers after pooling.
    normalizes : scale to length 1.
    inputs : names of its inputs, in their order.
    """

    def __init__(
        self,
        transformer: torch.nn.Module,
        pooling: str,
        dense: Sequence[torch.nn.Module],
        normalizes: bool,
        inputs: Sequence[str],
    ) -> None:
        super().__init__()
        self.transformer, self.dense = transformer, torch.nn.ModuleList(dense)
        self.pooling, self.normalizes, self.inputs = pooling, normalizes, tuple(inputs)

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        given = dict(zip(self.inputs, tensors, strict=True))
        vectors = self.transformer(**given, return_dict=True).last_hidden_state
        mask = given["attention_mask"]
        if self.pooling == "last":  # by an index that tracing does not take for a constant
            last = (mask.sum(dim=1) - 1)[:, None, None].expand(-1, 1, vectors.size(-1))
            embeddings = vectors.gather(1, last).squeeze(1)
        else:
            embeddings = pooled(vectors, mask.bool(), self.pooling)
        for layer in self.dense:
            embeddings = layer(embeddings)
        if self.normalizes:
            embeddings = torch.nn.functional.normalize(embeddings, dim=1)
        return embeddings


def missing_packages() -> list[str]:
    """Those of the extra "onnx" that are not installed."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


def write_onnx(graph: EmbeddingGraph, file: Path) -> None:
    """Inputs int64 of any number and length of texts, output `sentence_embedding` in float32.

    Weights of more than 2 GB come to lie beside the file.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    shape = (2, _EXAMPLE_LENGTH)
    # The second text is shorter: with nothing masked, some transformers leave the mask out.
    mask = torch.ones(shape, dtype=torch.long)
    mask[1, -2:] = 0
    example = {
        "input_ids": torch.full(shape, 5),  # any token
        "attention_mask": mask,
        "token_type_ids": torch.zeros(shape, dtype=torch.long),
    }
    axes: dict[str, Any] = {name: {0: "texts", 1: "tokens"} for name in graph.inputs}
    with warnings.catch_warnings(), torch.no_grad():
        # Of tracing: shapes that become constants. The comparison after it shows whether any does.
        warnings.simplefilter("ignore")
        # The other exporter (dynamo=True) gives the same numbers, takes ten times as long, and
        # needs onnxscript.
        torch.onnx.export(
            graph.eval(),
            tuple(example[name] for name in graph.inputs),
            str(file),
            input_names=list(graph.inputs),
            output_names=["sentence_embedding"],
            dynamic_axes=axes | {"sentence_embedding": {0: "texts"}},
            opset_version=_OPSET,
            dynamo=False,
        )
