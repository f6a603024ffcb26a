"""What a folder of the sentence-transformers package says, without that package.

Its `modules.json` lists modules by class; each has a folder of its own with a `config.json`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

_FLAGS = {  # of its releases before 6
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean-sqrt-length",
    "pooling_mode_lasttoken": "last",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
_MODES = {
    "mean": "mean",
    "cls": "cls",
    "max": "max",
    "mean_sqrt_len_tokens": "mean-sqrt-length",
    "lasttoken": "last",
}

_ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "Sigmoid", "SiLU")


class NotFollowed(ValueError):
    """A folder with modules or settings that we do not have."""


class Dense(torch.nn.Module):
    """A linear layer and its activation, `(n, d)` -> `(n, k)`."""

    def __init__(self, linear: torch.nn.Linear, activation: torch.nn.Module) -> None:
        super().__init__()
        self.linear, self.activation = linear, activation

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return self.activation(self.linear(vectors))


@dataclass
class ModuleList:
    """What stands between the tokens of a transformer and an embedding."""

    pooling: str = "mean"
    transformer_folder: str = ""
    """Below the place."""
    max_length: int | None = None
    lower_case: bool = False
    prompt: str = ""
    """Put before every text."""
    normalizes: bool = False
    dense: torch.nn.ModuleList = field(default_factory=torch.nn.ModuleList)


def read_modules(place: str, revision: str | None = None) -> ModuleList:
    """The modules of a folder or of a name on the hub; plain mean pooling if it has no list.

    # Raises

    `NotFollowed` : a module, or a setting of one, that we do not have.
    """
    files = _Files(place, revision)
    listed = files.json("modules.json")
    if listed is None:
        return ModuleList()
    modules = ModuleList()
    for number, entry in enumerate(listed):
        kind, folder = str(entry.get("type", "")).rpartition(".")[2], entry.get("path", "")
        if kind == "Transformer" and number == 0:
            _read_transformer(modules, files, folder)
        elif kind == "Pooling" and number == 1:
            modules.pooling = _pooling(files.json(f"{folder}/config.json") or {}, place)
        elif kind == "Dense" and number > 1 and not modules.normalizes:
            modules.dense.append(_dense(files, folder, place))
        elif kind == "Normalize":
            modules.normalizes = True
        else:
            raise _not_ours(place, f"module {number}, {kind or entry}")
    settings = files.json("config_sentence_transformers.json") or {}
    name = settings.get("default_prompt_name")
    modules.prompt = (settings.get("prompts") or {}).get(name) or "" if name else ""
    return modules


class _Files:
    """Those of a folder, or of a repository on the hub."""

    def __init__(self, place: str, revision: str | None) -> None:
        self._place, self._revision = place, revision

    def find(self, name: str) -> Path | None:
        if Path(self._place).is_dir():
            file = Path(self._place, name)
            return file if file.is_file() else None
        from transformers.utils import cached_file

        try:
            found = cached_file(
                self._place,
                name,
                revision=self._revision,
                _raise_exceptions_for_missing_entries=False,
                _raise_exceptions_for_connection_errors=False,
            )
        except (OSError, ValueError):  # no such repository: loading the transformer says so better
            return None
        return Path(found) if found else None

    def json(self, name: str) -> Any:
        file = self.find(name.lstrip("/"))
        if file is None:
            return None
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise NotFollowed(f"'{file}' is not JSON: {error}") from error


def _read_transformer(modules: ModuleList, files: _Files, folder: str) -> None:
    modules.transformer_folder = folder
    settings = files.json(f"{folder}/sentence_bert_config.json") or {}
    modules.max_length = settings.get("max_seq_length")
    modules.lower_case = bool(settings.get("do_lower_case"))


def _pooling(config: dict[str, Any], place: str) -> str:
    if config.get("include_prompt") is False:
        raise _not_ours(place, "a pooling that leaves the prompt out")
    if "pooling_mode" in config:
        given = config["pooling_mode"]
        modes = [given] if isinstance(given, str) else list(given)
        names = [_MODES.get(mode) for mode in modes]
    else:
        modes = [flag for flag in _FLAGS if config.get(flag)] or ["pooling_mode_mean_tokens"]
        names = [_FLAGS[flag] for flag in modes]
    if len(names) != 1 or names[0] not in _MODES.values():
        raise _not_ours(place, f"pooling {', '.join(map(str, modes))}")
    assert names[0] is not None
    return names[0]


def _dense(files: _Files, folder: str, place: str) -> Dense:
    config = files.json(f"{folder}/config.json") or {}
    weights = files.find(f"{folder}/model.safetensors")
    activation = str(config.get("activation_function", "")).rpartition(".")[2]
    # By name from a list: what another's folder says is not called without a look.
    known = activation in _ACTIVATIONS
    if weights is None or not known:
        raise _not_ours(place, f"a dense layer with activation {activation!r} in '{folder}'")
    from safetensors.torch import load_file

    tensors = load_file(weights)
    weight, bias = tensors["linear.weight"], tensors.get("linear.bias")
    linear = torch.nn.Linear(weight.size(1), weight.size(0), bias=bias is not None)
    with torch.no_grad():
        linear.weight.copy_(weight)
        if bias is not None:
            linear.bias.copy_(bias)
    return Dense(linear.requires_grad_(False), getattr(torch.nn, activation)())


def _not_ours(place: str, what: str) -> NotFollowed:
    return NotFollowed(
        f"'{place}' has {what}, which is not followed here. Encoder(…, pooling=\"mean\") embeds "
        f"with its transformer alone; evaluate-embeddings takes st:{place}."
    )
