"""What AllenNLP is taught about this package: its plugin, its predictors' lines, its archives.

Not cures of a version, but made in the same way and under the same switch. Each takes the module
right after it ran and returns whether it changed anything.
"""

import functools
import importlib
import importlib.util
import inspect
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

PLUGIN = "declutr.plugin"
ARCHIVES = "declutr.archives"


def own_plugin(module: ModuleType) -> bool:
    """Let `discover_plugins` find `declutr.plugin`, so that any `allennlp` command knows us.

    Can go when AllenNLP finds plugins by entry points.
    """
    if not _can_be_found(PLUGIN):
        return False
    original = module.discover_plugins

    @functools.wraps(original)
    def discover_plugins() -> Iterator[str]:
        listed = False
        for name in original():
            listed = listed or name == PLUGIN
            yield name
        if not listed:
            yield PLUGIN

    module.discover_plugins = discover_plugins  # type: ignore[attr-defined]
    return True


def blank_lines(module: ModuleType) -> bool:
    """Let `predict` pass blank lines to a predictor that has `keeps_blank_lines`: a row per line.

    Can go when AllenNLP lets a predictor decide.
    """
    cls = module._PredictManager
    original = cls._get_json_data

    @functools.wraps(original)
    def _get_json_data(self: Any) -> Iterator[Any]:
        if not getattr(self._predictor, "keeps_blank_lines", False):
            yield from original(self)
        elif self._input_file == "-":
            yield from map(self._predictor.load_line, module.sys.stdin)
        else:
            with module.open_compressed(module.cached_path(self._input_file)) as lines:
                yield from map(self._predictor.load_line, lines)

    cls._get_json_data = _get_json_data
    return True


def one_draw_warning(module: ModuleType) -> bool:
    """Say so when this loader keeps the instances of a reader that wants to draw them anew.

    Can go when the loader asks the reader.
    """
    cls = module.MultiProcessDataLoader
    original = cls.__init__

    @functools.wraps(original)
    def __init__(self: Any, reader: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("max_instances_in_memory") is None and getattr(reader, "draws_anew", False):
            warnings.warn(
                "This data loader keeps every instance in memory, so spans are drawn once and are "
                'the same in every epoch. Set "type": "declutr" on the data_loader (or '
                "max_instances_in_memory) to draw fresh ones.",
                stacklevel=2,
            )
        original(self, reader, *args, **kwargs)

    cls.__init__ = __init__
    return True


def archived_transformers(module: ModuleType) -> bool:
    """Let archives carry the files of their transformer and load with them (`declutr.archives`).

    Can go when AllenNLP archives the files that a model's parts are built from.
    """
    load_readers, load_model = module._load_dataset_readers, module._load_model

    @functools.wraps(load_readers)
    def _load_dataset_readers(config: Any, serialization_dir: str) -> Any:
        return load_readers(_use_archived(config, serialization_dir), serialization_dir)

    @functools.wraps(load_model)
    def _load_model(
        config: Any, weights_path: Any, serialization_dir: str, cuda_device: int
    ) -> Any:
        config = _use_archived(config, serialization_dir)
        return load_model(config, weights_path, serialization_dir, cuda_device)

    archive = module.archive_model
    signature = inspect.signature(archive)

    @functools.wraps(archive)
    def archive_model(*args: Any, **kwargs: Any) -> str:
        arguments = signature.bind(*args, **kwargs).arguments
        carried = _archive(arguments["serialization_dir"])
        if carried:
            included = arguments.get("include_in_archive") or []
            arguments["include_in_archive"] = [*included, *carried]
        return archive(**arguments)

    module._load_dataset_readers = _load_dataset_readers  # type: ignore[attr-defined]
    module._load_model = _load_model  # type: ignore[attr-defined]
    module.archive_model = archive_model  # type: ignore[attr-defined]
    return True


def _archive(serialization_dir: Any) -> list[str]:
    if not _can_be_found(ARCHIVES):
        return []
    return importlib.import_module(ARCHIVES).archive_transformer(str(serialization_dir))


def _use_archived(config: Any, serialization_dir: Any) -> Any:
    if not _can_be_found(ARCHIVES):
        return config
    archives = importlib.import_module(ARCHIVES)
    return archives.use_archived_transformer(config, str(serialization_dir))


def _can_be_found(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its package is not there
        return False
