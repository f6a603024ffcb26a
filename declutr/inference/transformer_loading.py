"""Loading of the tokenizer and model of a pretrained transformer, after a check of its files."""

import logging
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, AutoTokenizer

from declutr.archives import safety
from declutr.archives.safety.files import weights_bytes
from declutr.bridge.deferral import scipy_optimize
from declutr.inference import EncoderError
from declutr.system import loggers_at
from declutr.transformer.architectures import embedding_part, mend, remove_pooler

with scipy_optimize():
    import transformers.modeling_utils  # noqa: F401 - otherwise imported with the first model


def loaded_transformer(
    place: str,
    revision: str | None,
    folder: str,
    pooling: str,
    trust: bool,
    encoder_alone: bool = True,
) -> tuple[Any, Any]:
    """Return the tokenizer and the model of a pretrained transformer.

    # Parameters

    place : a name on the Hugging Face hub, or a folder.
    revision : a branch, tag or commit of a name on the hub.
    folder : the subfolder of the transformer; `""` if it lies directly at that place.
    pooling : the pooling that the model is loaded for; all weights that it needs must be stored.
    trust : open files without checking them, and run the Python code that they bring.
    encoder_alone : of every encoder with a decoder, return the encoder. False returns what
        sentence-transformers and training take, which is BART as a whole (`embedding_part`).

    # Raises

    `EncoderError` : there is no transformer at that place, or weights that the pooling needs are
        not stored.
    `declutr.archives.safety.UnsafeArchive` : the transformer is not safe, and not trusted.
    """
    # Always passed: without `trust_remote_code`, transformers asks on standard input, which may be
    # the texts to embed.
    at: dict[str, Any] = {"trust_remote_code": trust, "subfolder": folder}
    if revision:
        at["revision"] = revision
    # Hides the table of missing weights, which lists a pooler even if it is not used. Missing
    # weights that are used raise an error below.
    quiet = loggers_at(logging.ERROR, "transformers")
    try:
        # Missing weights are drawn at random, which must not change the caller's random state.
        with _checked(place, revision, folder, trust), torch.random.fork_rng(devices=[]), quiet:
            tokenizer = AutoTokenizer.from_pretrained(place, **at)
            # By default, transformers 5 would keep the dtype that the weights were saved in.
            how = {"dtype": torch.float32, "output_loading_info": True}
            whole, info = AutoModel.from_pretrained(place, **how, **at)
    except (safety.UnsafeArchive, MemoryError):
        raise
    except Exception as error:  # a broken file can raise nearly anything
        raise EncoderError(
            f"No transformer could be loaded from '{place}'; expected a name on the Hugging Face "
            f"hub, or a folder with a config.json, weights and a tokenizer. {_said(error)}"
        ) from error
    decodes = encoder_alone and getattr(whole.config, "is_encoder_decoder", False)
    model = whole.get_encoder() if decodes else embedding_part(whole)
    vars(model).setdefault("config", whole.config)  # FSMT's encoder has none
    part = {id(parameter) for parameter in model.parameters()}
    unused = {key for key, value in whole.named_parameters() if id(value) not in part}
    missing = sorted(set(info["missing_keys"]) - unused)  # a decoder need not be stored
    used = [key for key in missing if pooling == "pooler" or not _of_the_pooler(key)]
    if used:
        raise EncoderError(
            f"The checkpoint '{place}' lacks {len(used)} weights that {pooling} pooling needs, "
            f"the first is {used[0]!r}. Expected a checkpoint of {type(whole).__name__}"
            + ("; use another pooling." if all(map(_of_the_pooler, used)) else ".")
        )
    if pooling == "pooler":
        if getattr(model, "pooler", None) is None:
            raise EncoderError(f"{type(model).__name__} has no pooler; use another pooling.")
    else:
        remove_pooler(model)
    mend(model)
    return tokenizer, model


def _checked(
    place: str, revision: str | None, folder: str, trust: bool
) -> AbstractContextManager[None]:
    """Check the files of a transformer, and return a context that limits the size of its model.

    Nothing is checked or limited if the transformer is trusted; names on the hub have no limit.
    """
    if trust:
        return nullcontext()
    safety.check_transformer(place, folder=folder, revision=revision)
    if not Path(place).is_dir():
        return nullcontext()
    return safety.parameters_in_proportion(weights_bytes(Path(place, folder)))


def _said(error: Exception) -> str:
    """Return what an error of transformers says, without its advice to load pickles unsafely."""
    if "weights_only" in str(error):
        return "Its weights hold more than tensors: a pickle could run anything."
    return f"{type(error).__name__}: {error}"


def _of_the_pooler(key: str) -> bool:
    return "pooler." in key
