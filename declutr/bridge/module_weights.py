"""Repair of AllenNLP's own transformer modules, which read the files of weights themselves."""

import json
import logging
import os
import re
from types import ModuleType
from typing import Any

logger = logging.getLogger("declutr.bridge")

_NAMES = (
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "model.safetensors",
    "model.safetensors.index.json",
)


def checkpoint_files(module: ModuleType) -> bool:
    """Let `TransformerModule.from_pretrained_module` read safetensors, and weights in shards.

    AllenNLP reads only `pytorch_model.bin`, which transformers 5 no longer writes. Can be removed
    when AllenNLP reads the others.
    """
    cls = module.TransformerModule
    original = cls.__dict__["_get_pretrained_state_dict"].__func__

    def _get_pretrained_state_dict(
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

    cls._get_pretrained_state_dict = classmethod(_get_pretrained_state_dict)
    return True


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
