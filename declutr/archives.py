"""Archives that load on other machines.

A recipe names its transformer by a hub name or a folder, and AllenNLP's archives hold only that
name. Here the transformer's configuration and tokenizer go into the archive as well (its weights
are in there anyway), and loading takes them from there: no hub, no folder of the training machine,
and weights are loaded once instead of twice.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from allennlp.common import Params

logger = logging.getLogger(__name__)

FOLDER = "transformer"
_NAMES = "names.json"
_WITHOUT_WEIGHTS = (
    "pretrained_transformer",
    "pretrained_transformer_mismatched",
    "pretrained_transformer_mlm",
)


def is_ours(config: dict[str, Any]) -> bool:
    """Whether a training configuration uses this package's model or reader."""
    return any(
        isinstance(config.get(part), dict) and config[part].get("type") == "declutr"
        for part in ("model", "dataset_reader")
    )


def archive_transformer(serialization_dir: str) -> list[str]:
    """Save configuration and tokenizer of every transformer that `config.json` names.

    They come to lie in `serialization_dir/transformer`. Called when a run begins and before it is
    archived; does nothing for runs that are not of this package, and nothing twice. Returns what to
    include in the archive.
    """
    folder = Path(serialization_dir)
    config_file, target = folder / "config.json", folder / FOLDER
    if not config_file.exists():  # AllenNLP says so itself
        return []
    config = json.loads(config_file.read_text())
    if not is_ours(config):
        return []
    if (target / _NAMES).exists():
        return [FOLDER]
    from transformers import AutoConfig, AutoTokenizer

    names = {}
    for number, name in enumerate(sorted(set(_model_names(config)))):
        AutoConfig.from_pretrained(name).save_pretrained(target / str(number))
        AutoTokenizer.from_pretrained(name).save_pretrained(target / str(number))
        names[name] = str(number)
    if not names:
        return []
    (target / _NAMES).write_text(json.dumps(names, indent=2) + "\n")
    return [FOLDER]


def use_archived_transformer(config: Params, serialization_dir: str) -> Params:
    """`config` with the transformers of an archive in place of those it was trained from.

    A name that the user changed by overrides is left alone.
    """
    folder = Path(serialization_dir) / FOLDER
    if not (folder / _NAMES).exists():
        return config
    names = json.loads((folder / _NAMES).read_text())
    places = {name: str(folder / number) for name, number in names.items()}
    return Params(_replaced(config.as_dict(quiet=True), places))


def _replaced(value: Any, places: dict[str, str], embedders: bool = False) -> Any:
    if isinstance(value, list):
        return [_replaced(item, places, embedders) for item in value]
    if not isinstance(value, dict):
        return value
    # Embedders share type names with tokenizers and indexers, which have no weights to leave out.
    new = {
        key: _replaced(item, places, embedders or key == "token_embedders")
        for key, item in value.items()
    }
    name = value.get("model_name")
    place = places.get(name) if isinstance(name, str) else None
    if place is not None:
        new["model_name"] = place
        if embedders and value.get("type") in _WITHOUT_WEIGHTS:
            new["load_weights"] = False
    return new


def _model_names(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        ours = str(value.get("type", "")).startswith("pretrained_transformer")
        if ours and isinstance(value.get("model_name"), str):
            yield value["model_name"]
        for item in value.values():
            yield from _model_names(item)
    elif isinstance(value, list):
        for item in value:
            yield from _model_names(item)
