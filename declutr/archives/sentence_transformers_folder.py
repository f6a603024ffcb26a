"""What a folder of the sentence-transformers package says, without that package.

Its `modules.json` lists modules by class; each has a folder of its own with a `config.json`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from declutr.archives import LENGTHS, MODULES, SETTINGS
from declutr.archives.model_files import ModelFiles, NotFollowed

POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean-sqrt-length",
    "pooling_mode_lasttoken": "last",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
"""Keys of its releases before 6, which later ones read, and what they mean here."""

_MODES = {
    "mean": "mean",
    "cls": "cls",
    "max": "max",
    "mean_sqrt_len_tokens": "mean-sqrt-length",
    "lasttoken": "last",
}

_ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "Sigmoid", "SiLU")


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
    prompts: dict[str, str] = field(default_factory=dict)
    """By name."""
    default_prompt_name: str | None = None
    """Of the prompt that is put before texts where none is asked for."""
    pools_prompt: bool = True
    """Whether the tokens of a prompt are pooled with those of the text."""
    similarity: str | None = None
    """What embeddings are compared by, as the folder calls it: `cosine`, `dot`, ..."""
    normalizes: bool = False
    dense: torch.nn.ModuleList = field(default_factory=torch.nn.ModuleList)

    @property
    def prompt(self) -> str:
        """The text of the default prompt."""
        return self.prompts.get(self.default_prompt_name or "", "")


def read_modules(place: str, revision: str | None = None) -> ModuleList:
    """Return the modules of a folder or of a name on the hub; mean pooling if it has no list.

    # Raises

    `NotFollowed` : a module, or a setting of one, that we do not have; files that are broken.
    """
    files = ModelFiles(place, revision)
    listed = _listed(files)
    if listed is None:
        return ModuleList()
    modules = ModuleList()
    for number, (kind, folder) in enumerate(listed):
        if kind == "Transformer" and number == 0:
            _read_transformer(modules, files, folder)
        elif kind == "Pooling" and number == 1:
            settings = files.settings(f"{folder}/config.json")
            modules.pooling = _pooling(settings, place)
            modules.pools_prompt = settings.get("include_prompt") is not False
        elif kind == "Dense" and number > 1 and not modules.normalizes:
            modules.dense.append(_dense(files, folder, place))
        elif kind == "Normalize":
            modules.normalizes = True
        else:
            raise _not_ours(place, f"module {number}, {kind}")
    _read_prompts(modules, files)
    return modules


def transformer_folder(place: str, revision: str | None = None) -> str:
    """Return where below a folder or a name on the hub its transformer lies; `""` is the place.

    # Raises

    `NotFollowed` : a list of modules that is broken.
    """
    listed = _listed(ModelFiles(place, revision))
    return listed[0][1] if listed else ""


def _listed(files: ModelFiles) -> list[tuple[str, str]] | None:
    """Return kind and folder of each module, in order; `None` if there is no list."""
    listed = files.json(MODULES)
    if listed is None:
        return None
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise NotFollowed(f"'{files.place}': modules.json should hold a list of modules.")
    return [
        (
            str(entry.get("type", "")).rpartition(".")[2] or str(entry),
            files.inside(entry.get("path", "")),
        )
        for entry in listed
    ]


def _read_transformer(modules: ModuleList, files: ModelFiles, folder: str) -> None:
    modules.transformer_folder = folder
    name = f"{folder}/{LENGTHS}"
    settings = files.settings(name)
    length = settings.get("max_seq_length")
    if length is not None and (not isinstance(length, int) or length < 1):
        raise NotFollowed(
            f"'{files.place}': {name.lstrip('/')} has max_seq_length {length!r}; expected a "
            "number of tokens."
        )
    modules.max_length = length
    modules.lower_case = bool(settings.get("do_lower_case"))


def _read_prompts(modules: ModuleList, files: ModelFiles) -> None:
    settings = files.settings(SETTINGS)
    prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
    if not isinstance(prompts, dict) or any(
        not isinstance(text, str) for text in prompts.values() if text is not None
    ):
        raise NotFollowed(
            f"'{files.place}': the prompts in {SETTINGS} should be texts by their names."
        )
    modules.prompts = {key: text or "" for key, text in prompts.items()}
    # The package knows the names of the sides of a search without being told.
    if default is not None and default not in (*prompts, "query", "document"):
        raise NotFollowed(
            f"'{files.place}': {SETTINGS} has the default_prompt_name {default!r}, which is none "
            f"of its prompts ({', '.join(map(repr, prompts)) or 'there are none'}). Correct it "
            "there."
        )
    modules.default_prompt_name = default
    similarity = settings.get("similarity_fn_name")
    modules.similarity = similarity if isinstance(similarity, str) else None


def _pooling(config: dict[str, Any], place: str) -> str:
    if "pooling_mode" in config:
        given = config["pooling_mode"]
        modes = given if isinstance(given, list) else [given]
        names = [_MODES.get(mode) if isinstance(mode, str) else None for mode in modes]
    else:
        modes = [flag for flag in POOLING_FLAGS if config.get(flag)] or ["pooling_mode_mean_tokens"]
        names = [POOLING_FLAGS[flag] for flag in modes]
    if len(names) != 1 or names[0] not in _MODES.values():
        raise _not_ours(place, f"pooling {', '.join(map(str, modes))}")
    assert names[0] is not None
    return names[0]


def _dense(files: ModelFiles, folder: str, place: str) -> Dense:
    config = files.settings(f"{folder}/config.json")
    weights = files.find(f"{folder}/model.safetensors")
    activation = str(config.get("activation_function", "")).rpartition(".")[2]
    # By name from a list: what another's folder says is not called without a look.
    if weights is None or activation not in _ACTIVATIONS:
        raise _not_ours(place, f"a dense layer with activation {activation!r} in '{folder}'")
    return Dense(_linear(weights).requires_grad_(False), getattr(torch.nn, activation)())


def _linear(file: Path) -> torch.nn.Linear:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(file)
        weight, bias = tensors["linear.weight"], tensors.get("linear.bias")
        linear = torch.nn.Linear(weight.size(1), weight.size(0), bias=bias is not None)
        linear.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
    except (SafetensorError, KeyError, IndexError, RuntimeError) as error:
        raise NotFollowed(
            f"'{file}' holds no linear layer (linear.weight, linear.bias): {error}. Get it anew."
        ) from error
    return linear


def _not_ours(place: str, what: str) -> NotFollowed:
    return NotFollowed(
        f"'{place}' has {what}, which is not followed here. Encoder(…, pooling=\"mean\") embeds "
        f"with its transformer alone; evaluate-embeddings takes st:{place}."
    )
