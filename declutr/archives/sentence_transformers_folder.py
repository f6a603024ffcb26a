"""A reader of sentence-transformers models that does not need the sentence-transformers package.

The `modules.json` of such a model lists modules by class; each module has a folder of its own with
a `config.json`.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from declutr.archives import SETTINGS
from declutr.archives.model_files import (
    ModelFiles,
    NotFollowed,
    listed_modules,
    read_prompts,
    read_truncation,
)

POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean-sqrt-length",
    "pooling_mode_lasttoken": "last",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
"""Poolings of this package by the configuration key of sentence-transformers before release 6.

Later releases still read these keys.
"""

_MODES = {
    "mean": "mean",
    "cls": "cls",
    "max": "max",
    "mean_sqrt_len_tokens": "mean-sqrt-length",
    "lasttoken": "last",
}

_KINDS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
_SETTINGS = [f"sentence_{kind}_config.json" for kind in _KINDS]
"""The files that may hold the settings of a transformer, in the order of sentence-transformers."""

_FOLLOWED = {"transformer_task": "feature-extraction", "module_output_name": "token_embeddings"}
_OF_TEXTS = {"method": "forward", "method_output_name": "last_hidden_state"}
_ARGUMENTS = [
    f"{of}_{name}"
    for of in ("model", "tokenizer", "processor", "config")
    for name in ("args", "kwargs")
]
# Arguments that change embeddings by the rounding of a dtype at most.
_HARMLESS = {
    *("padding", "padding_side", "pad_to_multiple_of", "return_tensors", "return_attention_mask"),
    *("dtype", "torch_dtype", "attn_implementation", "add_pooling_layer", "device_map"),
    *("low_cpu_mem_usage", "use_safetensors", "use_cache", "use_fast", "trust_remote_code"),
}
_ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "Sigmoid", "SiLU")


class Dense(torch.nn.Module):
    """A linear layer followed by an activation, from `(n, d)` to `(n, k)`."""

    def __init__(self, linear: torch.nn.Linear, activation: torch.nn.Module) -> None:
        super().__init__()
        self.linear, self.activation = linear, activation

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the activations `(n, k)` of `vectors` `(n, d)`."""
        return self.activation(self.linear(vectors))


@dataclass
class ModuleList:
    """The modules and settings by which a sentence-transformers model embeds texts.

    # Parameters

    pooling : one of `declutr.transformer.pooling.POOLINGS`.
    transformer_folder : the folder of the transformer, relative to that of the model.
    max_length : the maximum number of tokens of a text, or `None`.
    lower_case : whether texts are lowercased.
    prompts : the prompts by name.
    default_prompt_name : the name of the prompt for texts without an explicit one.
    pools_prompt : whether the tokens of a prompt are pooled along with those of the text.
    similarity : the similarity function by its sentence-transformers name (`cosine`, `dot`, ...).
    normalizes : whether embeddings are scaled to length 1.
    dense : the `Dense` layers after the pooling.
    listed : whether there is a `modules.json`.
    """

    pooling: str = "mean"
    transformer_folder: str = ""
    max_length: int | None = None
    lower_case: bool = False
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    pools_prompt: bool = True
    similarity: str | None = None
    truncate_dim: int | None = None
    normalizes: bool = False
    dense: torch.nn.ModuleList = field(default_factory=torch.nn.ModuleList)
    listed: bool = False

    @property
    def prompt(self) -> str:
        """The text of the default prompt."""
        return self.prompts.get(self.default_prompt_name or "", "")


def read_modules(place: str, revision: str | None = None) -> ModuleList:
    """Return the modules of a sentence-transformers model.

    # Parameters

    place : a folder, or a name on the hub.
    revision : the branch, tag or commit of a repository on the hub.

    # Returns

    The modules in `modules.json`; mean pooling alone if there is no such file.

    # Raises

    `NotFollowed` : if a module or a setting is not supported, or a file is malformed.
    """
    files = ModelFiles(place, revision)
    listed = listed_modules(files)
    if listed is None:
        return ModuleList()
    modules = ModuleList(listed=True)
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
    modules.prompts, modules.default_prompt_name = read_prompts(files)
    similarity = files.settings(SETTINGS).get("similarity_fn_name")
    modules.similarity = similarity if isinstance(similarity, str) else None
    modules.truncate_dim = read_truncation(files)
    return modules


def transformer_folder(place: str, revision: str | None = None) -> str:
    """Return the folder of the transformer relative to that of its model; often it is `""`.

    # Parameters

    place : a folder, or a name on the hub.
    revision : the branch, tag or commit of a repository on the hub.

    # Raises

    `NotFollowed` : if `modules.json` is malformed.
    """
    listed = listed_modules(ModelFiles(place, revision))
    return listed[0][1] if listed else ""


def _read_transformer(modules: ModuleList, files: ModelFiles, folder: str) -> None:
    modules.transformer_folder = folder
    places = [f"{folder}/{name}".lstrip("/") for name in _SETTINGS]
    name, settings = next(
        ((place, found) for place in places if (found := files.settings(place))), (places[0], {})
    )
    given = _object(settings.get("processing_kwargs"))
    calls = {**_object(given.get("common")), **_object(given.get("text"))}
    _require_followed(settings, calls, files.place)
    key = "max_length" if "max_length" in calls else "max_seq_length"
    length = calls.get(key, settings.get(key))
    if length is not None and (not isinstance(length, int) or length < 1):
        raise NotFollowed(
            f"'{files.place}': {name} has {key} {length!r}; expected a number of tokens."
        )
    modules.max_length = length
    modules.lower_case = bool(settings.get("do_lower_case"))


def _require_followed(settings: dict[str, Any], calls: dict[str, Any], place: str) -> None:
    """Raise `NotFollowed` for settings of a transformer that change embeddings in other ways.

    # Parameters

    settings : all of them.
    calls : those of calls of the tokenizer for texts.
    place : the model, for messages.
    """
    kinds = _object(settings.get("modality_config", {"text": _OF_TEXTS}))
    followed = {key: settings.get(key, value) == value for key, value in _FOLLOWED.items()}
    # With a chat template, each text becomes a message.
    followed["modality_config"] = "message" not in kinds and kinds.get("text") == _OF_TEXTS
    followed["processing_kwargs"] = calls.keys() <= {*_HARMLESS, "max_length", "truncation"}
    followed |= {key: _object(settings.get(key)).keys() <= _HARMLESS for key in _ARGUMENTS}
    for key, known in followed.items():
        if not known:
            raise _not_ours(place, f"{key} {settings[key]} among the settings of its transformer")


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


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
    names = (config.get("module_input_name"), config.get("module_output_name"))
    if config.get("use_residual") or any(n not in (None, "sentence_embedding") for n in names):
        raise _not_ours(place, f"a dense layer beside which its input goes on, in '{folder}'")
    activation = str(config.get("activation_function", "")).rpartition(".")[2]
    # The folder may be untrusted, so it may name only the activations of a fixed list.
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
