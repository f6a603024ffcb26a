"""Writes the models of rivals for ONNX Runtime and OpenVINO.

`python rival_onnx.py MODEL FOLDER MAX_LENGTH`

It imports nothing of this package: optimum may need another environment than it does.
"""

import importlib.util
import json
import sys
from pathlib import Path

FLOAT32 = "onnx/model.onnx"
"""The file in float32; the one in int8 lies beside it."""

OPENVINO = "openvino/openvino_model.xml"
"""The file for OpenVINO, where `optimum-intel` and `openvino` can be imported."""


def write(model: str, folder: str, max_length: int) -> None:
    """Export a model by sentence-transformers and optimum, in float32 and dynamic int8.

    Args:
        model: a folder that sentence-transformers opens.
        folder: where the same model comes to lie with its ONNX files.
        max_length: tokens of a text; fastembed reads it in `tokenizer_config.json`.
    """
    from sentence_transformers import SentenceTransformer, export_dynamic_quantized_onnx_model

    opened = SentenceTransformer(
        model, backend="onnx", device="cpu", model_kwargs={"provider": "CPUExecutionProvider"}
    )
    opened.save_pretrained(folder)
    export_dynamic_quantized_onnx_model(opened, _processor(), folder)
    if importlib.util.find_spec("openvino"):
        SentenceTransformer(model, backend="openvino", device="cpu").save_pretrained(folder)
    file = Path(folder, "tokenizer_config.json")
    settings = json.loads(file.read_text(encoding="utf-8"))
    # Fastembed takes the lesser of the two, and the second one is left of the model's training.
    settings |= {"model_max_length": max_length, "max_length": max_length}
    file.write_text(json.dumps(settings), encoding="utf-8")


def _processor() -> str:
    """The one of sentence-transformers' names for processors that fits this one."""
    flags = set(Path("/proc/cpuinfo").read_text().split())
    names = {"avx512_vnni": "avx512_vnni", "avx512f": "avx512", "avx2": "avx2"}
    return next((name for flag, name in names.items() if flag in flags), "arm64")


if __name__ == "__main__":
    del sys.path[0]  # modules beside this file are not to be taken for libraries
    write(sys.argv[1], sys.argv[2], int(sys.argv[3]))
