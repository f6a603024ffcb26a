"""Archives that load on other machines.

A recipe names its transformer by a hub name or a folder, and AllenNLP's archives hold only that
name. Here the transformer's configuration and tokenizer go into the archive as well (its weights
are in there anyway), and loading takes them from there: no hub, no folder of the training machine,
and weights are loaded once instead of twice. The same goes for trained archives of which a recipe
uses parts (`declutr.pretrained_parts`).
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

from declutr.archives.configuration import trained_configuration
from declutr.archives.layout import ARCHIVES, CONFIG, NAMES, TRANSFORMERS, VOCABULARY, WHITENING
from declutr.archives.places import local_place
from declutr.system.torch_files import damage_of

logger = logging.getLogger(__name__)

_WITHOUT_WEIGHTS = (
    "pretrained_transformer",
    "pretrained_transformer_mismatched",
    "pretrained_transformer_mlm",
)


def is_ours(config: dict[str, Any]) -> bool:
    """Whether a training configuration uses this package's model, its reader, or trained parts."""
    return any(
        isinstance(config.get(part), dict) and config[part].get("type") == "declutr"
        for part in ("model", "dataset_reader")
    ) or any(True for _ in _archive_names(config))


def archive_transformer(serialization_dir: str) -> list[str]:
    """Save configuration and tokenizer of every transformer that `config.json` names, and trained
    archives without their weights.

    They come to lie in `serialization_dir/transformer`. Called when a run begins and before it is
    archived; does nothing for runs that are not of this package, and nothing twice. Returns what to
    include in the archive.
    """
    folder = Path(serialization_dir)
    config_file, target = folder / CONFIG, folder / TRANSFORMERS
    if not config_file.exists():  # AllenNLP says so itself
        return []
    config = json.loads(config_file.read_text())
    if not is_ours(config):
        return []
    _remove_stale_whitening(folder)
    if (target / NAMES).exists() or _save_what_is_named(config, target):
        return [TRANSFORMERS]
    return []


def require_whole_weights(file: str) -> None:
    """Look at weights before they are archived.

    # Raises

    `ConfigurationError` : they are not what was written.
    """
    if not Path(file).exists():  # AllenNLP says so itself
        return
    damage = damage_of(file)
    if damage is not None:
        raise ConfigurationError(
            f"The weights to archive, {file}, are damaged: {damage}. Put a copy in its place and "
            "run the same command with --recover: what was trained is in the checkpoints."
        )


def use_archived_transformer(config: Params, serialization_dir: str) -> Params:
    """`config` with the transformers of an archive in place of those it was trained from.

    A name that the user changed by overrides is left alone.
    """
    folder = Path(serialization_dir) / TRANSFORMERS
    if not (folder / NAMES).exists():
        return config
    transformers, archives = _places(folder, NAMES), _places(folder, ARCHIVES)
    return Params(_replaced(config.as_dict(quiet=True), transformers, archives))


def save_without_weights(place: Path, target: Path) -> None:
    """What a trained archive is built from, weights apart: `target` becomes such a folder.

    # Raises

    `declutr.archives.safety.UnsafeArchive` : content that is not safe to open.
    """
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


def _remove_stale_whitening(folder: Path) -> None:
    """Of embeddings as they were before this training."""
    stale = folder / WHITENING
    if stale.exists():
        stale.unlink()
        logger.warning(
            "'%s' was fitted to weights that are trained on, and is removed. Fit it again "
            "afterwards: declutr whiten.",
            stale,
        )


def _save_what_is_named(config: dict[str, Any], target: Path) -> bool:
    """Whether `config` names anything."""
    from transformers import AutoConfig, AutoTokenizer

    names = _numbered(_model_names(config))
    archives = _numbered(_archive_names(config), "archive")
    if not names and not archives:
        return False
    trusted = set(_trusted_names(config))
    for name, number in names.items():
        for auto_class in (AutoConfig, AutoTokenizer):
            found = auto_class.from_pretrained(name, trust_remote_code=name in trusted)
            found.save_pretrained(target / number)
    for name, number in archives.items():
        save_without_weights(local_place(name), target / number)
    if archives:
        (target / ARCHIVES).write_text(json.dumps(archives, indent=2) + "\n")
    # Last, for it says that the rest is there.
    (target / NAMES).write_text(json.dumps(names, indent=2) + "\n")
    return True


def _numbered(names: Iterable[str], prefix: str = "") -> dict[str, str]:
    return {name: f"{prefix}{number}" for number, name in enumerate(sorted(set(names)))}


def _places(folder: Path, file: str) -> dict[str, str]:
    """The folders of what a file in `folder` names, by name."""
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
    # Embedders share type names with tokenizers and indexers, which have no weights to leave out.
    new = {
        key: _replaced(item, transformers, archives, embedders or key == "token_embedders")
        for key, item in value.items()
    }
    name = value.get("model_name")
    place = transformers.get(name) if isinstance(name, str) else None
    if place is not None:
        new["model_name"] = place
        if embedders and value.get("type") in _WITHOUT_WEIGHTS:
            new["load_weights"] = False
    if _is_part(value) and value["archive"] in archives:
        new["archive"] = archives[value["archive"]]
        new["load_weights"] = False
    return new


def _is_part(value: dict[str, Any]) -> bool:
    """Whether this is the configuration of a part of a trained archive."""
    return value.get("type") == "declutr" and isinstance(value.get("archive"), str)


def _archive_names(value: Any) -> Iterator[str]:
    for item in _dictionaries(value):
        if _is_part(item):
            yield item["archive"]


def _model_names(value: Any) -> Iterator[str]:
    for item in _dictionaries(value):
        ours = str(item.get("type", "")).startswith("pretrained_transformer")
        if ours and isinstance(item.get("model_name"), str):
            yield item["model_name"]


def _trusted_names(value: Any) -> Iterator[str]:
    """Transformers whose own code a recipe says to run."""
    for item in _dictionaries(value):
        kwargs = (item.get("transformer_kwargs"), item.get("tokenizer_kwargs"))
        trusts = any(isinstance(one, dict) and one.get("trust_remote_code") for one in kwargs)
        if trusts and isinstance(item.get("model_name"), str):
            yield item["model_name"]


def _dictionaries(value: Any) -> Iterator[dict[str, Any]]:
    """Every dictionary of a configuration, however deep."""
    if isinstance(value, dict):
        yield value
    if isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _dictionaries(item)
