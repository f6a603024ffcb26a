"""Configurations from which AllenNLP rebuilds trained models and exported folders."""

import json
from pathlib import Path
from typing import Any

from allennlp.common.checks import ConfigurationError

from declutr.archives import CONFIG, Kind, NoModel, kind_of
from declutr.archives.sentence_transformers_folder import NotFollowed, read_modules
from declutr.system import raised_as

_POOLERS: dict[str, dict[str, Any] | None] = {
    "mean": None,
    "cls": {"type": "cls_pooler"},
    **{
        pooling: {"type": "declutr-token_pooling", "pooling": pooling}
        for pooling in ("max", "mean-sqrt-length", "last")
    },
}


def trained_configuration(folder: Path) -> dict[str, Any]:
    """Return the training configuration of an extracted archive or serialization directory.

    A folder of Hugging Face transformers or sentence-transformers, such as `declutr export` writes,
    has none. For it, return the configuration of a model "declutr" around its transformer, with the
    pooling that the folder specifies (the mean by default).

    # Raises

    `ConfigurationError` : if there is no configuration, or an exported folder has modules or a
        pooling that no AllenNLP module of this package implements.
    """
    with raised_as(ConfigurationError, NoModel):
        kind = kind_of(folder)
    if kind is not Kind.TRAINED:
        return _around_transformer(folder)
    return json.loads((folder / CONFIG).read_text())


def _around_transformer(folder: Path) -> dict[str, Any]:
    try:
        modules = read_modules(str(folder))
    except NotFollowed as error:
        raise ConfigurationError(
            f"{error} Parts can be had from the archive that a folder was exported from."
        ) from error
    if modules.pooling not in _POOLERS:
        raise ConfigurationError(
            f"The pooling of '{folder}' is '{modules.pooling}'; parts are made for "
            f"{', '.join(_POOLERS)}. Use the token vectors, with a pooler of your own."
        )
    if len(modules.dense) or modules.lower_case or modules.prompt:
        raise ConfigurationError(
            f"'{folder}' has dense layers (such as a whitening), lower case or a default prompt, "
            "for which there is no part. Use the archive that it was exported from."
        )
    if modules.truncate_dim is not None:
        raise ConfigurationError(
            f"'{folder}' keeps {modules.truncate_dim} dimensions (truncate_dim in its "
            "config_sentence_transformers.json), and parts have all of them. Remove that setting."
        )
    transformer = folder / modules.transformer_folder
    named = {"type": "pretrained_transformer", "model_name": str(transformer)}
    mlm = "declutr-pretrained_transformer_mlm"
    embedder = {**named, "type": mlm, "masked_language_modeling": False}
    length = {} if modules.max_length is None else {"max_length": modules.max_length}
    model: dict[str, Any] = {
        "type": "declutr-declutr",
        "text_field_embedder": {"type": "declutr-mlm", "token_embedders": {"tokens": embedder}},
        "loss": {"type": "nt_xent"},  # the model requires a loss, which is never computed
    }
    if (pooler := _POOLERS[modules.pooling]) is not None:
        model["seq2vec_encoder"] = pooler
    return {
        "dataset_reader": {
            "type": "declutr-declutr",
            "tokenizer": {**named, **length},
            "token_indexers": {"tokens": named},
        },
        "vocabulary": {"type": "empty"},
        "model": model,
    }
