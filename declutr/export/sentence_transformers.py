"""A writer of sentence-transformers models that does not need the sentence-transformers package.

It uses configuration keys that releases 2 to 6 of sentence-transformers read.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from declutr.archives import CONFIG, LENGTHS, MODULES, SETTINGS
from declutr.archives.sentence_transformers_folder import POOLING_FLAGS, Dense
from declutr.export.exportable import Exportable

_PACKAGE = "sentence_transformers"


def write_modules(model: Exportable, folder: Path) -> None:
    """Write `modules.json`, the settings, and a folder for each module.

    The transformer is expected in `folder` itself, where `exporting.write_transformer` puts it.
    """
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    _write(folder / LENGTHS, {"max_seq_length": model.max_length, "do_lower_case": False})
    pooling: dict[str, Any] = {"word_embedding_dimension": model.width}
    pooling |= {flag: name == model.pooling for flag, name in POOLING_FLAGS.items()}
    _write(folder / "1_Pooling" / CONFIG, pooling)
    for layer in model.dense:
        name = f"{len(modules)}_Dense"
        _write_dense(layer, folder / name)
        modules.append(("Dense", name))
    if model.normalizes:
        name = f"{len(modules)}_Normalize"
        (folder / name).mkdir()
        modules.append(("Normalize", name))
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": f"{_PACKAGE}.models.{kind}"}
        for number, (kind, path) in enumerate(modules)
    ]
    _write(folder / MODULES, listed)
    settings = {
        "prompts": model.prompts.named,
        "default_prompt_name": model.prompts.default_name,
        "similarity_fn_name": model.similarity,
    }
    _write(folder / SETTINGS, settings)


def _write_dense(layer: Dense, folder: Path) -> None:
    linear, activation = layer.linear, type(layer.activation)
    settings = {
        "in_features": linear.in_features,
        "out_features": linear.out_features,
        "bias": linear.bias is not None,
        "activation_function": f"{activation.__module__}.{activation.__name__}",
    }
    _write(folder / CONFIG, settings)
    weights = linear.state_dict().items()
    tensors = {f"linear.{name}": tensor.contiguous() for name, tensor in weights}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    # Releases 2 of sentence-transformers read dense layers only from this file. It is a pickle of
    # nothing but tensors.
    torch.save(tensors, folder / "pytorch_model.bin")


def _write(file: Path, content: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
