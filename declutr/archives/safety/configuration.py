"""Checks of untrusted configurations: AllenNLP's `config.json` and settings of transformers.

AllenNLP evaluates `config.json` as Jsonnet, which can read files. Only plain JSON is accepted here.
"""

import os
import re
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Any

from declutr.archives import TRUST, KeyPath, UnsafeArchive, entries
from declutr.archives.safety.building import import_refused, is_registered
from declutr.archives.safety.overrides import Overrides, with_overrides
from declutr.archives.safety.plain_json import read_plain_json
from declutr.bridge.component_names import short
from declutr.bridge.registry import own_name

_READERS = ("dataset_reader", "validation_dataset_reader")
# Loading builds only these sections. Others may name files of the training machine, since nothing
# reads them. Of the vocabulary, only the type matters.
_BUILT = ("model", *_READERS)
_BUILT_FOR_EVALUATION = ("data_loader", "validation_data_loader", "evaluation")
_SECTIONS = (*_BUILT, "vocabulary")
_AUGMENTING = (
    "augmented",
    "glue",
    "semi_supervised",
    "text_pairs",
)  # readers that take an augmentation
_READ_BY_AUGMENTATIONS = {("eda", "synonyms"), ("masked_lm", "transformer")}
_STRIPPED = ("initializer", "pretrained_file")  # by AllenNLP's `remove_keys_from_params`
_FILE_KEY = re.compile(r"(^images|(^|_)((file|path|dir|directory|folder)s?|file_?names?))$")
# Keys under which registered classes take the name of a transformer, or its folder.
_TRANSFORMER_KEY = re.compile(r"(^|_)(model_name|bert_model|pretrained_model|transformer_model)$")
# Arguments of transformers' `from_pretrained` under these keys may be the following.
_ARGUMENTS = ("transformer_kwargs", "tokenizer_kwargs", "auto_config_kwargs")
_KNOWN_ARGUMENT = re.compile(
    # How numbers are computed, and what is returned.
    r"(torch_)?dtype|_?attn_implementation|low_cpu_mem_usage|gradient_checkpointing|use_cache"
    r"|output_(hidden_states|attentions)|return_dict|local_files_only|initializer_range"
    # The size and shape of a transformer.
    r"|.*(dropout|dropout_prob|droprate)|layer_?drop|.*_(size|eps|dim|layers|heads|labels)"
    r"|hidden_act(ivation)?|max_position_embeddings|position_embedding_type|.*attention_window"
    r"|rope_(scaling|theta|parameters)|is_decoder|add_(cross_attention|pooling_layer)|reference_compile"
    # How texts are tokenized.
    r"|use_fast|do_(lower_case|basic_tokenize|word_tokenize|subword_tokenize)|strip_accents"
    r"|tokenize_chinese_chars|add_(prefix_space|special_tokens|bos_token|eos_token)|trim_offsets"
    r"|(model_)?max_length|max_len|(padding|truncation)_side|legacy|normalization"
    r"|(additional|extra)_special_tokens|(bos|eos|unk|sep|pad|cls|mask)_token(_id)?"
    r"|clean_up_tokenization_spaces|split_special_tokens|never_split"
    # These are judged by their values.
    r"|use_safetensors|trust_remote_code|allow_all_kernels|use_kernels|auto_map|mecab_kwargs"
)
_COMPILE = ("mode", "dynamic", "fullgraph", "disable")
# AllenNLP lets spaCy import the package of this name, or else download and install it.
_LANGUAGE = re.compile(r"[a-z]{2,3}(_[a-z]+_[a-z]+_(sm|md|lg|trf))?")
_CODE_SWITCHES = ("trust_remote_code", "allow_all_kernels", "use_kernels")

_OUTSIDE = re.compile(r"[/\\~]|[A-Za-z]:[/\\]|\.{1,2}([/\\]|$)")


def check_configuration(
    file: Path,
    transformers: set[str],
    archives: set[str],
    *,
    overrides: Overrides = None,
    evaluation: bool = False,
) -> set[str]:
    """Refuse a configuration that names code or anything outside its archive.

    # Parameters

    file : a `config.json`.
    transformers : the names of the transformers that the archive carries.
    archives : the names of the trained archives that the archive carries.
    overrides : changes by the user, which are not judged.
    evaluation : whether to judge the sections as well that are built after loading, to evaluate:
        the data loaders and the evaluator.

    # Returns

    The names of transformers on the hub that the configuration uses and the archive does not carry.

    # Raises

    `UnsafeArchive` : if it is not plain JSON, or names a class that would have to be imported,
        another archive, remote code, compiler options that can run programs, or local files.
    """
    own = read_plain_json(file)
    if not isinstance(own, dict):
        raise UnsafeArchive(f"{file.name} holds no JSON object. Expected a configuration.")
    config, vouched = with_overrides(own, overrides)
    types: dict[KeyPath, Any] = {}
    own_readers = {(reader,) for reader in _READERS if _is_own_reader(config.get(reader))}
    for path, value in entries(config):
        if isinstance(value, dict):
            types[path] = short(value.get("type"))
        if path in vouched:
            continue
        refuse_if(_remote_code(path, value) or _nested_archive(path, value), path, file.name)
        _check_type(path, value, file.name, evaluation)

    def _is_carried(path: KeyPath, name: str) -> bool:
        """Return whether loading replaces `name` at `path` by a folder of the archive."""
        if path[0] not in _BUILT:  # loading leaves the data loaders as they are
            return False
        if path[-1] == "archive" and types.get(path[:-1]) == "declutr":
            return name in archives
        return path[-1] == "model_name" and name in transformers

    named = set()
    for section in (*_BUILT, *(_BUILT_FOR_EVALUATION if evaluation else ())):
        for path, value in entries(config.get(section), (section,)):
            if path in vouched or _is_stripped(path):
                continue
            refuse_if(_argument_of_loading(path, value), path, file.name)
            if isinstance(value, str):
                of_training = _is_of_augmentation(path, types) or _is_of_objective(path, types)
                if of_training or _is_carried(path, value):
                    continue
                if _names_transformer(path) and value:
                    named.add(value)
            # `read` uses it, loading does not: readers of this package drop it.
            if path[-1] == "cache_dir" and path[:-1] in own_readers and isinstance(value, str):
                continue
            refuse_if(_options_that_run(path, value) or _outside(path, value), path, file.name)
    return named


def refuse_if(reason: str | None, path: KeyPath, file: str) -> None:
    """Raise `UnsafeArchive` about the value at `path` in `file` if there is a reason to."""
    if reason:
        raise UnsafeArchive(f"{file}: '{dotted(path)}' {reason}. {TRUST}")


def _check_type(path: KeyPath, value: Any, file: str, evaluation: bool) -> None:
    """Refuse a type that AllenNLP would have to import.

    Names without a dot import nothing, and pass, as in `"rope_scaling": {"type": "yarn"}`. What is
    built after loading is not watched (`declutr.archives.safety.building`), so every string there
    counts as a type.
    """
    is_type = path[-1] == "type" or (len(path) == 1 and path[0] in _SECTIONS)
    is_type = is_type or (evaluation and path[0] in _BUILT_FOR_EVALUATION)
    if is_type and isinstance(value, str) and "." in value and not is_registered(value):
        raise import_refused(file, f"'{dotted(path)}'", value)


def _nested_archive(path: KeyPath, value: Any) -> str | None:
    root = len(path) == 1 and path[0] in _SECTIONS
    if value == "from_archive" and (path[-1] == "type" or root):
        return "loads another archive"
    if path[-1] in ("archive_file", "_pretrained"):
        return "names another archive"
    if path[0] in _BUILT_FOR_EVALUATION and path[1:] in (("reader",), ("data_path",)):
        return "is in place of what the command is given"
    return None


def _options_that_run(path: KeyPath, value: Any) -> str | None:
    if path[-1] == "compile" and isinstance(value, dict):
        others = sorted(set(value) - set(_COMPILE))
        if others:
            return f"gives torch.compile {others}, which can name programs to run"
    if path[-1] == "language" and isinstance(value, str) and not _is_language(value):
        return f"is '{value}', a package that spaCy would import. Expected one of spaCy's models"
    if path[-1] == "mecab_option" and value:
        return f"is {value!r}; options of MeCab can name files"
    return None


def _is_language(value: str) -> bool:
    """Return whether spaCy takes `value` for one of its models, and not for something here."""
    if not _LANGUAGE.fullmatch(value) or os.path.exists(value) or os.path.exists(f"{value}.py"):
        return False
    return "_" in value or find_spec(value) is None


def _argument_of_loading(path: KeyPath, value: Any) -> str | None:
    """Return why transformers must not be given `value`, if it is an argument of its loading.

    Some arguments let it unpickle, or take files and code from elsewhere.
    """
    if path[-1] in _ARGUMENTS and value is not None and not isinstance(value, dict):
        return f"is {value!r}; expected a dictionary"
    if len(path) < 2 or path[-2] not in _ARGUMENTS:
        return None
    key = str(path[-1])
    if not _KNOWN_ARGUMENT.fullmatch(key):
        return f"sets '{key}', which is not among the arguments known to be harmless"
    if key == "use_safetensors" and value not in (True, None):
        return f"is {value!r}, which has pickles loaded in place of safetensors"
    return None


def _outside(path: KeyPath, value: Any) -> str | None:
    if not isinstance(value, str) or not value:
        return None
    if path[-1] == "archive":
        return f"is '{value}', another archive, of which this one carries nothing"
    if _names_transformer(path):
        # transformers prefers a local folder of this name to a model on the hub.
        if not leads_outside(value) and not os.path.exists(value):
            return None
        return f"is '{value}', a place outside the archive, which does not carry this transformer"
    leads = leads_outside(value) or ("/" in value and os.path.exists(value))
    # Punctuation alone is not a path but a separator at which tokenizers split.
    leads = leads and any(character.isalnum() for character in value)
    if leads or any(_FILE_KEY.search(key) for key in path if isinstance(key, str)):
        return f"names a place outside the archive, '{value}'"
    return None


def _names_transformer(path: KeyPath) -> bool:
    return isinstance(path[-1], str) and bool(_TRANSFORMER_KEY.search(path[-1]))


def _is_stripped(path: KeyPath) -> bool:
    """Return whether AllenNLP drops this key of a model on loading, which it does outside lists."""
    keys = path[1:] if path[0] == "model" else ()
    return any(key in _STRIPPED for key in takewhile(lambda key: isinstance(key, str), keys))


def _is_own_reader(config: Any) -> bool:
    return isinstance(config, dict) and own_name("DatasetReader", config.get("type")) is not None


def _is_of_augmentation(path: KeyPath, types: dict[KeyPath, Any]) -> bool:
    """Return whether `path` leads to what an augmentation reads, alone or in a chain.

    It keeps only the name, and its reader does not augment in an untrusted archive
    (`is_untrusted`). Other types may read a file under the same key, so only these are exempt.
    """
    if path[0] not in _READERS or path[1:2] != ("augmentation",):
        return False
    for end in range(2, len(path) - 1, 2):
        if types.get(path[:end]) != "chain" or path[end] != "augmentations":
            return False
    read = (types.get(path[:-1]), path[-1]) in _READ_BY_AUGMENTATIONS
    return read and types.get(path[:1]) in _AUGMENTING


def _is_of_objective(path: KeyPath, types: dict[KeyPath, Any]) -> bool:
    """Return whether a path is that of a teacher's embeddings, which nothing but training opens."""
    wrapped = types.get(("model", "loss")) == "matryoshka"
    objective = ("model", "loss", "loss") if wrapped else ("model", "loss")
    known = types.get(("model",)) == "declutr" and types.get(objective) == "distillation"
    return known and path == (*objective, "targets")


def check_no_remote_code(content: Any, file: str) -> None:
    """Refuse settings that make transformers run code other than its own.

    # Parameters

    content : settings as a JSON value; all nested values are checked.
    file : the name of the file for messages.

    # Raises

    `UnsafeArchive` : if there is an `auto_map`, which names Python files beside a transformer; a
        switch that allows such files to run; or an attention implementation from the hub.
    """
    for path, value in entries(content):
        refuse_if(_remote_code(path, value), path, file)


def _remote_code(path: KeyPath, value: Any) -> str | None:
    key = nearest_key(path)
    if key == "auto_map" and value:
        return "names Python code that transformers would run"
    # Any other value could be true in an `if`, as the string "false" is.
    if key in _CODE_SWITCHES and value not in (False, None):
        return f"is {value!r}, which lets code from the web run"
    chooses_attention = any("attn_implementation" in str(part) for part in path)
    if chooses_attention and isinstance(value, str) and "/" in value:
        return f"is {value!r}: attention from there is code, loaded from the web"
    return None


def dotted(path: KeyPath) -> str:
    """Return a path in the notation of AllenNLP's overrides.

    >>> dotted(("model", "encoders", 0, "type"))
    'model.encoders.0.type'
    """
    return ".".join(str(key) for key in path)


def nearest_key(path: KeyPath) -> str:
    """Return the last key of a path, ignoring positions in lists; `""` if it has no key."""
    return next((key for key in reversed(path) if isinstance(key, str)), "")


def leads_outside(value: str) -> bool:
    """Return whether a string is a URL or a path that leaves its folder."""
    return bool(_OUTSIDE.match(value) or "://" in value or ".." in re.split(r"[/\\]", value))
