"""A check of the keys of dataset readers that pass some on to a reader they extend."""

import inspect
from collections.abc import Mapping
from typing import Any

from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader

_NO_KEYS = ("others", "unknown", "serialization_dir")  # parameters that are no keys


def require_known_keys(
    kind: type[DatasetReader], base: type[DatasetReader], unknown: Mapping[str, Any]
) -> None:
    """Raise if there are unknown keys, as AllenNLP does for a class without `**kwargs`.

    # Parameters

    kind : the reader that was configured.
    base : the reader that takes the keys that `kind` does not name.
    unknown : the keys that neither of them takes, with their values.

    # Raises

    `ConfigurationError` : there are any. The message suggests similar keys.
    """
    if not unknown:
        return
    from declutr.system.nearest import of_wrong_keys

    classes = (kind, base)
    known = dict.fromkeys(key for one in classes for key in inspect.signature(one).parameters)
    told = of_wrong_keys(unknown, [key for key in known if key not in _NO_KEYS])
    raise ConfigurationError(f"Extra parameters passed to {kind.__name__}: {unknown}. {told}")
