"""Repairs of how AllenNLP reads the files of weights into its modules and models."""

import json
import logging
import os
import re
from collections import OrderedDict
from types import ModuleType
from typing import Any

from declutr.bridge.repairs import replaces

logger = logging.getLogger("declutr.bridge")

_NAMES = (
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "model.safetensors",
    "model.safetensors.index.json",
)

_GONE = (
    r"(^|\.)position_ids$",
    r"(^|\.)(attn|attention)\.(masked_)?bias$",
    r"(^|\.)rotary_emb\.inv_freq$",
)
"""Patterns of the names of buffers that transformers stored once."""


def checkpoint_files(module: ModuleType) -> None:
    """Let `TransformerModule.from_pretrained_module` read safetensors, and weights in shards.

    AllenNLP reads only `pytorch_model.bin`, which transformers 5 no longer writes. Can be removed
    when AllenNLP reads the others.
    """

    @replaces(module.TransformerModule)
    def _get_pretrained_state_dict(
        original: Any,
        cls: Any,
        model_name: str,
        weights_path: Any = None,
        relevant_module: Any = None,
        ignore: list[str] | None = None,
    ) -> Any:
        path = str(weights_path or _found(model_name) or "")
        if not path.endswith((".safetensors", ".json")):
            return original(cls, model_name, path or None, relevant_module, ignore)
        logger.info("Reading state dict from %s", path)
        state = _with_tied(_read(path, model_name), model_name)
        ignored = cls._pretrained_ignore if ignore is None else ignore
        for key in list(state):
            if any(re.match(pattern, key) for pattern in ignored or ()):
                del state[key]
        return cls._get_relevant_submodule_state(state, relevant_module=relevant_module)


def missing_weights(module: ModuleType) -> None:
    """Let `Model.load` refuse weights that lack a part of the model.

    A module can list patterns of the names that its weights may lack, in `authorized_missing_keys`.
    AllenNLP cuts the beginning off the pattern in place of the name, and forgets all other missing
    names of the model. `PretrainedTransformerEmbedder` has such a list, so a model with one loaded
    from any weights without unknown names, and kept random ones for the rest. Can be removed when
    AllenNLP matches the patterns with what follows the module's own name.
    """
    module.util = _ReadingStoredWeights(module.util)  # type: ignore[attr-defined]

    @replaces(module.Model)
    def load_state_dict(
        original: Any, self: Any, state_dict: Any, *args: Any, **kwargs: Any
    ) -> Any:
        result = original(self, state_dict, *args, **kwargs)
        if isinstance(state_dict, _StoredWeights):
            missing = [key for key in result.missing_keys if not _may_be_missing(self, key)]
            if missing and (missing := _in_no_other_place(self, missing, state_dict)):
                raise RuntimeError(
                    f"Error loading state dict for {type(self).__name__}\n\t"
                    f"Missing keys: {missing}\n\t"
                    f"Unexpected keys: {list(result.unexpected_keys)}\n"
                    "What is missing would stay random. Give all weights of this model, or the "
                    "configuration that they were trained with. To begin a training with weights "
                    'of a part, name them in an initializer of the type "pretrained".'
                )
        return result


def gone_buffers(module: ModuleType) -> None:
    """Let models load weights that hold buffers which today's transformers no longer have.

    transformers before 4.31 stored the positions of embeddings and the causal masks of GPT-2 and
    others, and AllenNLP refused them as unknown names. They are constants. Can be removed when
    archives of such releases are not opened any more.
    """

    @replaces(module.Model)
    def load_state_dict(
        original: Any, self: Any, state_dict: Any, *args: Any, **kwargs: Any
    ) -> Any:
        return original(self, _without_gone_buffers(self, state_dict), *args, **kwargs)


def _without_gone_buffers(model: Any, state_dict: Any) -> Any:
    """Return a state dict without what transformers in the model once stored, and lack now.

    Beside known buffers, these are the names that a class of transformers lists itself.
    """
    import torch

    own = torch.nn.Module.state_dict(model)  # that of a class may check what is in it
    unknown = state_dict.keys() - own.keys()
    if not unknown:
        return state_dict
    patterns = {
        f"{name}." if name else "": (*_GONE, *(part._keys_to_ignore_on_load_unexpected or ()))
        for name, part in model.named_modules()
        if hasattr(part, "_keys_to_ignore_on_load_unexpected")  # a `PreTrainedModel`
    }
    gone = {
        key
        for key in unknown
        for prefix, ignored in patterns.items()
        if key.startswith(prefix) and any(re.search(p, key[len(prefix) :]) for p in ignored)
    }
    if not gone:
        return state_dict
    logger.info("Left out, as transformers no longer has them: %s", ", ".join(sorted(gone)))
    kept = state_dict.copy()
    for key in gone:
        del kept[key]
    if hasattr(state_dict, "_metadata"):
        kept._metadata = state_dict._metadata
    return kept


class _StoredWeights(OrderedDict[str, Any]):
    """A state dict that `Model._load` has read, the weights of a whole model."""


class _ReadingStoredWeights:
    """The module `allennlp.nn.util`, but `read_state_dict` marks what it returns."""

    def __init__(self, util: ModuleType) -> None:
        self._util = util

    def __getattr__(self, name: str) -> Any:
        return getattr(self._util, name)

    def read_state_dict(self, *args: Any, **kwargs: Any) -> _StoredWeights:
        return _StoredWeights(self._util.read_state_dict(*args, **kwargs))


def _may_be_missing(model: Any, key: str) -> bool:
    for name, part in model.named_modules():
        prefix = f"{name}." if name else ""
        patterns = getattr(type(part), "authorized_missing_keys", None) or ()
        if key.startswith(prefix) and any(re.search(p, key[len(prefix) :]) for p in patterns):
            return True
    return False


def _in_no_other_place(model: Any, missing: list[str], read: Any) -> list[str]:
    """Return the names without those whose tensor was read under another name."""
    own = {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }
    tensors = {id(own[key]) for key in read if key in own}
    return [key for key in missing if id(own.get(key)) not in tensors]


def _found(model_name: str) -> str | None:
    """Return the path of a checkpoint's weights, or of the list of its shards.

    # Raises

    `FileNotFoundError` : the folder has no weights. For a name of the hub, AllenNLP reports it.
    """
    paths = (_cached(model_name, name) for name in _NAMES)
    found = next((path for path in paths if path), None)
    if found is None and os.path.isdir(model_name):
        raise FileNotFoundError(
            f"There are no weights in '{model_name}'. Expected one of {', '.join(_NAMES)}. Save a "
            "transformer there with save_pretrained(), or give `weights_path`."
        )
    return found


def _cached(model_name: str, name: str) -> str | None:
    from transformers.utils import cached_file

    quiet = ("gated_repo", "missing_entries", "connection_errors")
    options = {f"_raise_exceptions_for_{what}": False for what in quiet}
    try:
        return cached_file(model_name, name, **options)
    except OSError:  # the hub does not know the name
        return None


def _read(path: str, model_name: str) -> dict[str, Any]:
    import torch
    from safetensors.torch import load_file

    if path.endswith(".safetensors"):
        return load_file(path)
    if not path.endswith(".json"):
        return torch.load(path, map_location="cpu", weights_only=True)
    with open(path, encoding="utf-8") as file:
        shards = sorted(set(json.load(file)["weight_map"].values()))
    state: dict[str, Any] = {}
    for shard in shards:
        beside = os.path.join(os.path.dirname(path), shard)
        place = beside if os.path.exists(beside) else _cached(model_name, shard)
        if place is None:
            raise FileNotFoundError(
                f"'{path}' names the shard '{shard}', which is not there. Fetch the files again."
            )
        state.update(_read(place, model_name))
    return state


def _with_tied(state: dict[str, Any], model_name: str) -> dict[str, Any]:
    """Add the other names of tensors that a model uses in several places.

    safetensors has each tensor once; `pytorch_model.bin` had it under all of its names. Which names
    are one tensor is told by the model itself, built without memory.
    """
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(model_name, trust_remote_code=False)
    cls = getattr(transformers, next(iter(config.architectures or ()), ""), None)
    if cls is None:
        return state
    with torch.device("meta"):
        model = cls(config)
    places: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        places.setdefault(id(parameter), []).append(name)
    for names in places.values():
        kept = next((name for name in names if name in state), None)
        if kept is not None:
            state.update({name: state[kept] for name in names if name not in state})
    return state
