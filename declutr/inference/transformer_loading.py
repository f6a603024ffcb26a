"""Tokenizer and transformer of a place, looked at before they are loaded."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, AutoTokenizer

from declutr.archives.safety import (
    UnsafeArchive,
    check_transformer,
    parameters_in_proportion,
)
from declutr.archives.safety.files import weights_bytes
from declutr.inference import EncoderError
from declutr.system.imports import loggers_at
from declutr.transformer.architectures import keep_adapter_dtypes


def loaded_transformer(
    place: str, revision: str | None, folder: str, pooling: str, trust: bool
) -> tuple[Any, Any]:
    """Tokenizer and model.

    # Raises

    `EncoderError` : there is none, or weights that matter are not in the checkpoint.
    `declutr.archives.safety.UnsafeArchive` : it is not safe, and not trusted.
    """
    # Trust is said outright: otherwise transformers asks on standard input, where texts may come
    # from.
    at: dict[str, Any] = {"trust_remote_code": trust, "subfolder": folder}
    if revision:
        at["revision"] = revision
    # Without the table of weights that were not found: a pooler nobody uses would be in it.
    quiet = loggers_at(logging.ERROR, "transformers")
    try:
        # Weights that the checkpoint lacks are drawn at random; that is no business of others.
        with _checked(place, revision, folder, trust), torch.random.fork_rng(devices=[]), quiet:
            tokenizer = AutoTokenizer.from_pretrained(place, **at)
            # float32: transformers 5 would keep what the checkpoint was saved in.
            model, info = AutoModel.from_pretrained(
                place, dtype=torch.float32, output_loading_info=True, **at
            )
    except (UnsafeArchive, MemoryError):
        raise
    except Exception as error:  # a broken file can raise nearly anything
        raise EncoderError(
            f"No transformer could be loaded from '{place}'; expected a name on the Hugging Face "
            f"hub, or a folder with a config.json, weights and a tokenizer. {_said(error)}"
        ) from error
    if getattr(model.config, "is_encoder_decoder", False):
        model = model.get_encoder()
    missing = sorted(info["missing_keys"])
    used = [key for key in missing if pooling == "pooler" or not _of_the_pooler(key)]
    if used:
        raise EncoderError(
            f"The checkpoint '{place}' lacks {len(used)} weights that {pooling} pooling needs, "
            f"the first is {used[0]!r}. Expected a checkpoint of {type(model).__name__}"
            + ("; use another pooling." if all(map(_of_the_pooler, used)) else ".")
        )
    if pooling == "pooler":
        if getattr(model, "pooler", None) is None:
            raise EncoderError(f"{type(model).__name__} has no pooler; use another pooling.")
    elif getattr(model, "pooler", None) is not None:
        model.pooler = None  # its output is not used
    keep_adapter_dtypes(model)
    return tokenizer, model


def _checked(
    place: str, revision: str | None, folder: str, trust: bool
) -> AbstractContextManager[None]:
    """Check the files of a transformer unless it is trusted; inside, bound what is built."""
    if trust:
        return nullcontext()
    check_transformer(place, folder=folder, revision=revision)
    if not Path(place).is_dir():
        return nullcontext()
    return parameters_in_proportion(weights_bytes(Path(place, folder)))


def _said(error: Exception) -> str:
    """What an error of transformers says, but not that pickles be run."""
    if "weights_only" in str(error):
        return "Its weights hold more than tensors: a pickle could run anything."
    return f"{type(error).__name__}: {error}"


def _of_the_pooler(key: str) -> bool:
    return "pooler." in key
