"""Functions that find a submodule of an AllenNLP model, and the width of its outputs."""

import difflib

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.modules import Seq2VecEncoder, TextFieldEmbedder
from transformers import PreTrainedModel

_POOLER = "_seq2vec_encoder"  # the attribute name in AllenNLP's own models


def require_submodule(model: torch.nn.Module, name: str, key: str) -> torch.nn.Module:
    """Return the submodule of a dotted name.

    # Parameters

    model : the model that should have it.
    name : the dotted name, such as `"_text_field_embedder"`.
    key : the configuration key that gives the name, for the error message.

    # Raises

    `ConfigurationError` : there is no such submodule. The message suggests similar names.
    """
    modules = {path: module for path, module in model.named_modules() if path}
    if name in modules:
        return modules[name]
    ends = [path for path in modules if path.endswith(f".{name}")]
    close = (ends or difflib.get_close_matches(name, modules, n=3))[:3]
    hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    parts = [path for path in modules if "." not in path]
    raise ConfigurationError(
        f"{key} is '{name}', but {type(model).__name__} has no submodule of that name.{hint} Its "
        f"parts are {', '.join(parts) or 'none'}; parts of those have dotted names."
    )


def pooler_name(model: torch.nn.Module) -> str:
    """Return the name of the pooler: `_seq2vec_encoder`, or else the only Seq2VecEncoder.

    # Raises

    `ConfigurationError` : the model has no Seq2VecEncoder, or several.
    """
    if isinstance(getattr(model, _POOLER, None), torch.nn.Module):
        return _POOLER
    return _only(model, Seq2VecEncoder, "u")


def word_embeddings_name(model: torch.nn.Module) -> str:
    """Return the name of the submodule that embeds words or word pieces.

    It is the input embeddings of the first Hugging Face transformer, or else the only
    TextFieldEmbedder.

    # Raises

    `ConfigurationError` : the model has no transformer, and no TextFieldEmbedder or several.
    """
    return input_embeddings_name(model) or _only(model, TextFieldEmbedder, "v")


def input_embeddings_name(model: torch.nn.Module) -> str | None:
    """Return the name of the input embeddings of the first Hugging Face transformer, or `None`."""
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            words = module.get_input_embeddings()
            return next(path for path, part in model.named_modules() if part is words)
    return None


def _only(model: torch.nn.Module, kind: type[torch.nn.Module], key: str) -> str:
    """Return the name of the only submodule of a class, ignoring those inside of another one."""
    found: list[str] = []
    for path, module in model.named_modules():
        inside = any(path.startswith(f"{outer}.") for outer in found)
        if path and isinstance(module, kind) and not inside:
            found.append(path)
    if len(found) == 1:
        return found[0]
    got = f"several ({', '.join(found)})" if found else "none"
    raise ConfigurationError(
        f"By default {key} is what the {kind.__name__} of a model gives, of which "
        f"{type(model).__name__} has {got}. Set '{key}' to the dotted name of a submodule."
    )


def output_width(module: torch.nn.Module) -> int | None:
    """Return the width of the outputs of a module; `None` if it has no such attribute."""
    get_output_dim = getattr(module, "get_output_dim", None)
    if callable(get_output_dim):
        try:
            return int(get_output_dim())
        except NotImplementedError:
            return None
    config = getattr(module, "config", None)
    widths = (
        getattr(module, "embedding_dim", None),
        getattr(module, "out_features", None),
        getattr(config, "hidden_size", None),
    )
    return next((width for width in widths if isinstance(width, int)), None)
