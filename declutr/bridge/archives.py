"""What AllenNLP is taught about archives: to carry their transformers, and to be extracted safely.

Not cures of a version, but made in the same way and under the same switch. Each takes the module
right after it ran and returns whether it changed anything.
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

# Modules of a room above, imported when AllenNLP first needs them.
CARRIED = "declutr.archives.carried"
SAFETY = "declutr.archives.safety"


def archived_transformers(module: ModuleType) -> bool:
    """Let archives carry the files of their transformer and load with them
    (`declutr.archives.carried`), and never be made of damaged weights.

    Can go when AllenNLP archives the files that a model's parts are built from.
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
    """Extract archives by the rules of `declutr.archives.safety`: nothing outside a fresh folder.

    AllenNLP extracts whatever members there are: `../`, links, devices. Can go when it gives
    tarfile a filter and has a limit.
    """

    @contextlib.contextmanager
    def extracted_archive(resolved_archive_file: Any, cleanup: bool = True) -> Iterator[str]:
        extract = importlib.import_module(SAFETY).extract
        folder = tempfile.mkdtemp()
        try:
            extract(Path(resolved_archive_file), Path(folder))
        except BaseException:  # AllenNLP does not know the folder yet
            shutil.rmtree(folder, ignore_errors=True)
            raise
        try:
            yield folder
        finally:
            if cleanup:
                shutil.rmtree(folder, ignore_errors=True)

    module.extracted_archive = extracted_archive  # type: ignore[attr-defined]
    return True
