"""Additions to AllenNLP's archives: they carry their transformer, and are extracted safely.

They do not work around a change of a library, but are applied in the same way and switched off
together with the bridge. Each function takes a module of AllenNLP right after its body ran and
returns whether it changed anything.
"""

import contextlib
import importlib
import inspect
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from declutr.bridge.repairs import replaces

# Modules of a package that builds on the bridge, imported only when AllenNLP needs them.
CARRIED = "declutr.archives.carried"
SAFETY = "declutr.archives.safety"


def archived_transformers(module: ModuleType) -> bool:
    """Let archives carry and use the files of their transformer, and refuse damaged weights.

    See `declutr.archives.carried`. Can be removed when AllenNLP archives the files that the parts
    of a model are built from.
    """

    def with_archived(config: Any, serialization_dir: str) -> Any:
        carried = importlib.import_module(CARRIED)
        return carried.use_archived_transformer(config, str(serialization_dir))

    @replaces(module)
    def _load_dataset_readers(original: Any, config: Any, serialization_dir: str) -> Any:
        return original(with_archived(config, serialization_dir), serialization_dir)

    @replaces(module)
    def _load_model(
        original: Any, config: Any, weights_path: Any, serialization_dir: str, cuda_device: int
    ) -> Any:
        config = with_archived(config, serialization_dir)
        return original(config, weights_path, serialization_dir, cuda_device)

    @replaces(module)
    def archive_model(original: Any, *args: Any, **kwargs: Any) -> str:
        carried = importlib.import_module(CARRIED)
        arguments = inspect.signature(original).bind(*args, **kwargs).arguments
        folder = str(arguments["serialization_dir"])
        weights = arguments.get("weights", module._DEFAULT_WEIGHTS)
        carried.require_whole_weights(os.path.join(folder, weights))
        if files := carried.archive_transformer(folder):
            included = arguments.get("include_in_archive") or []
            arguments["include_in_archive"] = [*included, *files]
        return original(**arguments)

    return True


def checked_extraction(module: ModuleType) -> bool:
    """Extract archives by the rules of `declutr.archives.safety`, only into a new folder.

    AllenNLP extracts every member, also paths with `../`, links and devices. Can be removed when it
    gives tarfile a filter and limits the size.
    """

    @contextlib.contextmanager
    def extracted_archive(resolved_archive_file: Any, cleanup: bool = True) -> Iterator[str]:
        extract = importlib.import_module(SAFETY).extract
        folder = tempfile.mkdtemp()
        try:
            extract(Path(resolved_archive_file), Path(folder))
        except BaseException:  # AllenNLP does not know the folder yet, so it cannot remove it
            shutil.rmtree(folder, ignore_errors=True)
            raise
        try:
            yield folder
        finally:
            if cleanup:
                shutil.rmtree(folder, ignore_errors=True)

    module.extracted_archive = extracted_archive  # type: ignore[attr-defined]
    return True
