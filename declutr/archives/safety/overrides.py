"""What of a configuration stems from the overrides of the user, who vouches for them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional, Union

from declutr.archives import KeyPath, entries
from declutr.archives.safety.plain_json import read_plain_json

Overrides = Optional[Union[str, Mapping[str, Any]]]
"""Changes of a configuration, as AllenNLP takes them: Jsonnet, a dictionary, or nothing."""


def with_overrides(
    own: dict[str, Any], overrides: Overrides
) -> tuple[dict[str, Any], set[KeyPath]]:
    """Apply overrides to the configuration of an archive, as AllenNLP does.

    # Returns

    The configuration that AllenNLP builds from, and the paths of all values in it that the archive
    does not have. A dictionary or list of the archive stays the archive's if the user changes
    something inside.

    # Raises

    `ConfigurationError` : if the archive has nothing that a key of the overrides could change.
    """
    if not overrides:
        return own, set()
    from allennlp.common import params  # Checks of transformers should not import AllenNLP.
    from allennlp.common.checks import ConfigurationError

    text = overrides if isinstance(overrides, str) else json.dumps(dict(overrides))
    try:
        merged = params.with_overrides(own, params.parse_overrides(text))
    except ValueError as error:
        raise ConfigurationError(f"The overrides do not fit the archive: {error}.") from None
    before = dict(entries(own))
    return merged, {path for path, value in entries(merged) if not _is_old(path, value, before)}


def names_in_overrides(file: Path, overrides: Overrides) -> frozenset[str]:
    """Return the names with a dot that only the overrides of the configuration in `file` hold.

    AllenNLP may import them, because the user chose them. A name that the archive holds as well is
    left out: it could stand where the archive chooses the arguments.
    """
    if not overrides:
        return frozenset()
    own = read_plain_json(file)
    merged, vouched = with_overrides(own, overrides)
    names = {value for path, value in entries(merged) if path in vouched and _is_dotted(value)}
    return frozenset(names - {value for _, value in entries(own) if isinstance(value, str)})


def _is_old(path: KeyPath, value: Any, before: dict[KeyPath, Any]) -> bool:
    if path not in before:
        return False
    containers = (dict, list)
    if isinstance(value, containers):
        return isinstance(before[path], containers)
    return bool(before[path] == value)


def _is_dotted(value: Any) -> bool:
    return isinstance(value, str) and "." in value
