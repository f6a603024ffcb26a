"""The Hugging Face part: `config.json`, `model.safetensors`, tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from declutr.export.exportable import Exportable


def write_transformer(model: Exportable, folder: Path) -> None:
    """What `AutoModel`, `AutoModelForMaskedLM` (if there is a head) and `AutoTokenizer` load."""
    model.transformer.save_pretrained(folder)
    # Where it was trained concerns nobody, and that folder may be gone.
    _change(folder / "config.json", remove=("_name_or_path", "auto_map"))
    model.tokenizer.save_pretrained(folder)
    changes: dict[str, Any] = {"model_input_names": model.inputs}
    if model.plain_white_space:
        # The class of a family would build its own normaliser, without ours; this one, which all
        # releases know, takes tokenizer.json as it is.
        changes["tokenizer_class"] = "PreTrainedTokenizerFast"
    _change(
        folder / "tokenizer_config.json",
        changes,
        remove=("name_or_path", "_name_or_path", "vocab_file", "tokenizer_file", "auto_map"),
    )


def _change(
    file: Path, changes: dict[str, Any] | None = None, remove: tuple[str, ...] = ()
) -> None:
    content = json.loads(file.read_text(encoding="utf-8"))
    kept = {name: value for name, value in content.items() if name not in remove}
    text = json.dumps(kept | (changes or {}), indent=2, ensure_ascii=False, sort_keys=True)
    file.write_text(text + "\n", encoding="utf-8")
