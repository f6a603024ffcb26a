"""The ONNX model of an export, which maps token ids to sentence embeddings."""

import importlib.util
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from declutr.transformer.pooling import pooled

FILE = "onnx/model.onnx"
"""The path of the ONNX model in an exported folder."""
PACKAGES = ("onnx", "onnxruntime")
"""The packages that writing and comparing an ONNX model needs."""
_OPSET = 17
_EXAMPLE_LENGTH = 7


class EmbeddingGraph(torch.nn.Module):
    """A module from token ids `(n, length)` to sentence embeddings `(n, d)`, for tracing.

    Its second output, the vectors of tokens, is for tools that pool by themselves: the backend
    "onnx" of sentence-transformers, and optimum, which want it by its name.

    # Parameters

    transformer : a transformer without a head.
    pooling : one of `declutr.transformer.pooling.POOLINGS`.
    dense : the linear layers after pooling.
    normalizes : whether to scale embeddings to length 1.
    inputs : the names of the arguments of `forward`, in order.
    """

    outputs = ("sentence_embedding", "last_hidden_state")

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

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return embeddings `(n, d)` and vectors `(n, length, h)` of tokens, of `(n, length)` ids.

        The tensors are given in the order of `inputs`.
        """
        given = dict(zip(self.inputs, tensors, strict=True))
        vectors = self.transformer(**given, return_dict=True).last_hidden_state
        mask = given["attention_mask"]
        # `pooled` computes an index for this pooling that tracing would make a constant.
        if self.pooling == "last":
            last = (mask.sum(dim=1) - 1)[:, None, None].expand(-1, 1, vectors.size(-1))
            embeddings = vectors.gather(1, last).squeeze(1)
        else:
            embeddings = pooled(vectors, mask.bool(), self.pooling)
        for layer in self.dense:
            embeddings = layer(embeddings)
        if self.normalizes:
            embeddings = torch.nn.functional.normalize(embeddings, dim=1)
        return embeddings, vectors


def missing_packages() -> list[str]:
    """Return the packages of the extra "onnx" that are not installed."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


def write_onnx(graph: torch.nn.Module, file: Path) -> None:
    """Write an ONNX model that takes any number of texts of any length.

    Its inputs are int64 tensors `(n, length)`. Its first output is `sentence_embedding`, `(n, d)`
    in float32.

    # Parameters

    graph : the module to trace, whose `inputs` and `outputs` are the names of its arguments and of
        what it returns; it is put into evaluation mode.
    file : the path to write; weights of more than 2 GB are written to separate files beside it.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    shape = (2, _EXAMPLE_LENGTH)
    # The second text is shorter because some transformers drop the mask if it masks nothing, and
    # the traced graph would then ignore it.
    mask = torch.ones(shape, dtype=torch.long)
    mask[1, -2:] = 0
    example = {
        "input_ids": torch.full(shape, 5),  # any token
        "attention_mask": mask,
        "token_type_ids": torch.zeros(shape, dtype=torch.long),
    }
    inputs: Any = graph.inputs
    outputs: Any = graph.outputs
    axes: dict[str, Any] = {name: {0: "texts", 1: "tokens"} for name in (*inputs, *outputs)}
    axes["sentence_embedding"] = {0: "texts"}
    with warnings.catch_warnings(), torch.no_grad():
        # Tracing warns of shapes that could become constants. The comparison with the original
        # model shows whether any does.
        warnings.simplefilter("ignore")
        # The newer exporter (dynamo=True) gives the same numbers, takes ten times as long, and
        # needs onnxscript.
        torch.onnx.export(
            graph.eval(),
            tuple(example[name] for name in inputs),
            str(file),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes=axes,
            opset_version=_OPSET,
            dynamo=False,
        )
