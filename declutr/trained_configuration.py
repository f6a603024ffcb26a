"""The configuration by which what was trained is built again: of an archive, or of a plain
transformer that is read as if it were one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from allennlp.common.checks import ConfigurationError

_POOLERS: dict[str, dict[str, Any] | None] = {"mean": None, "cls": {"type": "cls_pooler"}}
_MODES_OF_OLD = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_WITHOUT_WEIGHTS = ("Normalize",)  # lengths change, directions do not: left to who uses vectors


def trained_configuration(folder: Path) -> dict[str, Any]:
    """The training configuration of an opened archive or serialization folder.

    For a folder that Hugging Face or sentence-transformers load (`declutr export` writes such), the
    configuration of a model "declutr" around that transformer, with the folder's own pooling (the
    mean, where it says nothing).

    # Raises

    `ConfigurationError` : no configuration there, or an exported folder with modules or a pooling
        for which there is no part.
    """
    if is_exported(folder):
        return _around_transformer(folder)
    file = folder / "config.json"
    if not file.is_file():
        raise ConfigurationError(
            f"'{folder}' holds no config.json. Expected the folder that `allennlp train … -s "
            "FOLDER` wrote, its model.tar.gz, or a folder written by `declutr export`."
        )
    return json.loads(file.read_text())


def is_exported(folder: Path) -> bool:
    """Whether a folder is a plain transformer, rather than what a training run wrote."""
    if (folder / "modules.json").is_file():
        return True
    file = folder / "config.json"
    return file.is_file() and "model_type" in json.loads(file.read_text())


def _around_transformer(folder: Path) -> dict[str, Any]:
    transformer, pooling, max_length = folder, "mean", None
    if (folder / "modules.json").is_file():
        transformer, pooling, max_length = _sentence_transformers_modules(folder)
    if pooling not in _POOLERS:
        raise ConfigurationError(
            f"The pooling of '{folder}' is '{pooling}'; parts are made for "
            f"{' and '.join(_POOLERS)}. Use the token vectors, with a pooler of your own."
        )
    named = {"type": "pretrained_transformer", "model_name": str(transformer)}
    embedder = {**named, "type": "pretrained_transformer_mlm", "masked_language_modeling": False}
    tokenizer: dict[str, Any] = {**named}
    if max_length is not None:
        tokenizer["max_length"] = max_length
    model: dict[str, Any] = {
        "type": "declutr",
        "text_field_embedder": {"type": "mlm", "token_embedders": {"tokens": embedder}},
        "loss": {"type": "nt_xent"},  # a model has to have one; it is not computed
    }
    if _POOLERS[pooling] is not None:
        model["seq2vec_encoder"] = _POOLERS[pooling]
    return {
        "dataset_reader": {
            "type": "declutr",
            "tokenizer": tokenizer,
            "token_indexers": {"tokens": named},
        },
        "vocabulary": {"type": "empty"},
        "model": model,
    }


def _sentence_transformers_modules(folder: Path) -> tuple[Path, str, int | None]:
    """The transformer's folder, the pooling, and how many tokens a text may have."""
    modules = {
        str(module["type"]).rsplit(".", 1)[-1]: folder / module["path"]
        for module in json.loads((folder / "modules.json").read_text())
    }
    unknown = sorted(set(modules) - {"Transformer", "Pooling", *_WITHOUT_WEIGHTS})
    if "Transformer" not in modules or unknown:
        raise ConfigurationError(
            f"'{folder}' has the modules {', '.join(modules)}; expected Transformer, Pooling and "
            "Normalize. Use the archive that it was exported from."
        )
    transformer, pooling, limit = modules["Transformer"], "mean", None
    if "Pooling" in modules:
        pooling = _pooling(json.loads((modules["Pooling"] / "config.json").read_text()))
    settings = transformer / "sentence_bert_config.json"
    if settings.is_file():
        limit = json.loads(settings.read_text()).get("max_seq_length")
    return transformer, pooling, limit


def _pooling(config: dict[str, Any]) -> str:
    """The name of a pooling, of several joined by "+"; as sentence-transformers 2 to 6 write it."""
    modes = config.get("pooling_mode") or [
        mode for key, mode in _MODES_OF_OLD.items() if config.get(key)
    ]
    return modes if isinstance(modes, str) else "+".join(modes)
