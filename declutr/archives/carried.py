"""Self-contained archives, which load on other machines than the one that trained the model.

A recipe names its transformer by a hub name or a folder, and an archive of AllenNLP holds only
that name. This module puts the configuration and the tokenizer of the transformer into the archive
as well (its weights are there anyway), and loading takes them from there. Loading then needs
neither the hub nor folders of the training machine, and reads the weights once instead of twice.
Trained archives whose parts a recipe uses (`declutr.pretrained_parts`) are treated alike.
"""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

from declutr.archives import (
    ARCHIVES,
    CONFIG,
    NAMES,
    TRANSFORMERS,
    VOCABULARY,
    entries,
    local_place,
    weights_of,
)
from declutr.archives.static_folder import is_static, read_static, write_tokenizer
from declutr.bridge.component_names import short
from declutr.bridge.registry import own_name

# The base classes of the parts of a trained archive that other models take.
_BASES_OF_PARTS = (
    "Seq2VecEncoder",
    "TextFieldEmbedder",
    "TokenEmbedder",
    "TokenIndexer",
    "Tokenizer",
)

_OWN = ("token_embedding_bag", "classification_pooler")
"""The names of the parts of this package that take `load_weights` wherever they stand."""

_WITHOUT_WEIGHTS = (
    "pretrained_transformer",
    "pretrained_transformer_mismatched",
    "pretrained_transformer_mlm",
)


def is_ours(config: dict[str, Any]) -> bool:
    """Return whether a training configuration uses this package.

    It does if its model or reader is of type "declutr", if a model of any type (one that the user
    derives from ours) has our embedder, or if it uses parts of a trained archive.
    """
    return any(
        isinstance(config.get(part), dict) and own_name(base, config[part].get("type")) == "declutr"
        for part, base in (("model", "Model"), ("dataset_reader", "DatasetReader"))
    ) or any(_is_part(one) or _is_embedder(one) for one in _dictionaries(config))


def archive_transformer(serialization_dir: str, weights: str | None = None) -> list[str]:
    """Save the transformers and archives that a run was trained from, without their weights.

    The configuration and the tokenizer of each one that `config.json` names are written below
    `serialization_dir/transformer`. This is called when a run begins and before it is archived; it
    does nothing for runs that do not use this package, nor if the files are there already.

    A stored whitening is archived with the weights that it was fitted to. One of other weights is
    removed, and so is one that does not note its weights, as those of releases up to 2.4.7.

    # Parameters

    serialization_dir : the folder of the run.
    weights : the file of weights to archive; by default those of the folder.

    # Returns

    The names in the serialization directory that the archive should include.
    """
    from declutr.archives.fitted_weights import fitting_whitening  # not needed to open an archive

    folder = Path(serialization_dir)
    config_file, target = folder / CONFIG, folder / TRANSFORMERS
    if not config_file.exists():  # AllenNLP itself reports this
        return []
    config = json.loads(config_file.read_text())
    if not is_ours(config):
        return []
    own = weights_of(folder)
    whitening = fitting_whitening(folder, own if weights is None else Path(weights), own)
    if (target / NAMES).exists() or _save_what_is_named(config, target):
        return [TRANSFORMERS, *whitening]
    return whitening


def require_whole_weights(file: str) -> None:
    """Raise `ConfigurationError` if a weight file that is about to be archived is damaged."""
    from declutr.system.files import damage_of

    if not Path(file).exists():  # AllenNLP itself reports this
        return
    damage = damage_of(file)
    if damage is not None:
        raise ConfigurationError(
            f"The weights to archive, {file}, are damaged: {damage}. Put a copy in its place and "
            "run the same command with --recover: what was trained is in the checkpoints."
        )


def use_archived_transformer(config: Params, serialization_dir: str) -> Params:
    """Replace the names in a configuration by the folders that an archive carries for them.

    Transformers are built without loading their pretrained weights, as the archive holds the
    trained ones. A name that the user changed by overrides is left alone.

    # Parameters

    config : the configuration of the archive, with overrides applied.
    serialization_dir : the folder of the extracted archive.

    # Returns

    A new configuration, or `config` itself if the archive carries nothing.
    """
    folder = Path(serialization_dir) / TRANSFORMERS
    if not (folder / NAMES).exists():
        return config
    transformers, archives = _places(folder, NAMES), _places(folder, ARCHIVES)
    return Params(_replaced(config.as_dict(quiet=True), transformers, archives))


def save_without_weights(place: Path, target: Path) -> None:
    """Copy everything that a trained archive is built from, except its weights.

    # Parameters

    place : an archive, a serialization directory, or an exported folder.
    target : the folder to write configuration, vocabulary and transformers to.

    # Raises

    `declutr.archives.safety.UnsafeArchive` : if the content of `place` is not safe to open.
    """
    from declutr.archives.configuration import trained_configuration
    from declutr.archives.safety import opened_archive

    with opened_archive(place) as folder:
        config = trained_configuration(folder)
        if (folder / VOCABULARY).is_dir():
            shutil.copytree(folder / VOCABULARY, target / VOCABULARY, dirs_exist_ok=True)
        if (folder / TRANSFORMERS / NAMES).exists():
            shutil.copytree(folder / TRANSFORMERS, target / TRANSFORMERS, dirs_exist_ok=True)
        else:
            _save_what_is_named(config, target / TRANSFORMERS)
    (target / CONFIG).write_text(json.dumps(config, indent=2) + "\n")


def _save_what_is_named(config: dict[str, Any], target: Path) -> bool:
    """Save the transformers and archives that `config` names; return whether there are any."""
    from transformers import AutoConfig, AutoTokenizer

    parts = _dictionaries(config)
    archives = _numbered((part["archive"] for part in parts if _is_part(part)), "archive")
    transformers = [part for part in parts if isinstance(part.get("model_name"), str)]
    names = _numbered(
        part["model_name"]
        for part in transformers
        if str(short(part.get("type"))).startswith("pretrained_transformer")
    )
    if not names and not archives:
        return False
    trusted = {part["model_name"] for part in transformers if _trusts_code(part)}
    for name, number in names.items():
        if is_static(Path(name)):
            write_tokenizer(read_static(Path(name)), target / number)
            continue
        for auto_class in (AutoConfig, AutoTokenizer):
            found = auto_class.from_pretrained(name, trust_remote_code=name in trusted)
            found.save_pretrained(target / number)
    for name, number in archives.items():
        save_without_weights(local_place(name), target / number)
    if archives:
        (target / ARCHIVES).write_text(json.dumps(archives, indent=2) + "\n")
    # This file is written last, because its existence tells that the others are complete.
    (target / NAMES).write_text(json.dumps(names, indent=2) + "\n")
    return True


def _numbered(names: Iterable[str], prefix: str = "") -> dict[str, str]:
    return {name: f"{prefix}{number}" for number, name in enumerate(sorted(set(names)))}


def _places(folder: Path, file: str) -> dict[str, str]:
    """Return the paths of the folders that `file` in `folder` maps names to."""
    if not (folder / file).exists():
        return {}
    names = json.loads((folder / file).read_text())
    return {name: str(folder / number) for name, number in names.items()}


def _replaced(
    value: Any, transformers: dict[str, str], archives: dict[str, str], embedders: bool = False
) -> Any:
    if isinstance(value, list):
        return [_replaced(item, transformers, archives, embedders) for item in value]
    if not isinstance(value, dict):
        return value
    # Embedders share registered names with tokenizers and indexers, which take no `load_weights`.
    new = {
        key: _replaced(item, transformers, archives, embedders or key == "token_embedders")
        for key, item in value.items()
    }
    name = value.get("model_name")
    place = transformers.get(name) if isinstance(name, str) else None
    if place is not None:
        new["model_name"] = place
        kind = short(value.get("type"))
        if kind in _OWN or (embedders and kind in _WITHOUT_WEIGHTS):
            new["load_weights"] = False
    if _is_part(value) and value["archive"] in archives:
        new["archive"] = archives[value["archive"]]
        new["load_weights"] = False
    return new


def _is_part(value: dict[str, Any]) -> bool:
    """Return whether `value` is the configuration of a part of a trained archive."""
    name = value.get("type")
    return isinstance(value.get("archive"), str) and any(
        own_name(base, name) == "declutr" for base in _BASES_OF_PARTS
    )


def _is_embedder(value: dict[str, Any]) -> bool:
    """Return whether `value` is the configuration of a transformer embedder of this package."""
    return own_name("TokenEmbedder", value.get("type")) == "pretrained_transformer_mlm"


def _trusts_code(value: dict[str, Any]) -> bool:
    """Return whether a recipe allows a transformer to run code of its own."""
    kwargs = (value.get("transformer_kwargs"), value.get("tokenizer_kwargs"))
    return any(isinstance(one, dict) and bool(one.get("trust_remote_code")) for one in kwargs)


def _dictionaries(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every dictionary in a configuration, itself included."""
    return [config, *(value for _, value in entries(config) if isinstance(value, dict))]
