"""The source files of installed packages, located without importing them."""

import importlib.util
import logging
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

logger = logging.getLogger(__name__)

STANDARD_LIBRARY = "stdlib"
"""The name of Python's standard library in a list of packages."""

DEFAULT_PACKAGES = (
    STANDARD_LIBRARY,
    *("numpy", "scipy", "torch", "transformers", "sklearn", "allennlp", "datasets", "spacy"),
    *("nltk", "pandas", "pyarrow", "h5py", "matplotlib", "sympy", "mpmath", "networkx", "joblib"),
    *("huggingface_hub", "tokenizers", "safetensors", "pytorch_metric_learning", "thinc", "srsly"),
    *("pytest", "_pytest", "hypothesis", "mypy", "pip", "setuptools", "pydantic", "narwhals"),
    *("rich", "pygments", "typer", "click", "tqdm", "jinja2", "fsspec", "aiohttp", "httpx"),
    *("requests", "urllib3", "anyio", "boto3", "botocore", "s3transfer", "google", "cryptography"),
    *("dill", "multiprocess", "tensorboardX", "torchgen", "functorch", "weasel", "markdown_it"),
    *("cached_path", "smart_open", "cloudpathlib", "packaging", "dateutil", "regex", "wrapt"),
)
"""Packages with many docstrings that this project or its development tools install."""

_LEFT_OUT_FOLDERS = frozenset(
    {"test", "tests", "_test", "_tests"}
    | {"vendor", "_vendor", "vendored", "_vendored", "extern", "externals", "third_party"}
)


class Source(NamedTuple):
    """A module's dotted name and its file."""

    module: str
    path: Path


def find_sources(packages: Sequence[str]) -> list[Source]:
    """Return the modules of `packages`, in the order given and sorted by name within each package.

    Raises:
        ValueError: if none of the packages is installed, or one is not a top-level package.
        TypeError: if `packages` is one string.
    """
    if isinstance(packages, str):
        raise TypeError(f"packages must be a list of names, not one string; use [{packages!r}].")
    found = {package: _sources(package) for package in dict.fromkeys(packages)}
    missing = [package for package, sources in found.items() if not sources]
    if len(missing) == len(found):
        raise ValueError(
            f"no Python source found for any of: {', '.join(missing) or '(no package named)'}. "
            f"Give import names of installed packages (sklearn, not scikit-learn), or "
            f"{STANDARD_LIBRARY!r} for the standard library."
        )
    if missing:
        logger.info("No Python source found for: %s", ", ".join(missing))
    return [source for sources in found.values() for source in sources]


def _sources(package: str) -> list[Source]:
    """Return the modules of one package, sorted by name.

    The list is empty if the package is not installed or has no Python files.
    """
    if package == STANDARD_LIBRARY:
        return list(_walk(Path(sysconfig.get_path("stdlib")), ""))
    if "." in package:
        raise ValueError(f"{package!r} is not a top-level package; use {package.split('.')[0]!r}.")
    try:
        spec = importlib.util.find_spec(package)
    except ValueError:  # Raised for a module without a spec, such as __main__.
        spec = None
    if spec is None:
        return []
    folders = spec.submodule_search_locations
    if folders is not None:
        return [source for folder in folders for source in _walk(Path(folder), package)]
    origin = spec.origin or ""
    return [Source(package, Path(origin))] if origin.endswith(".py") else []


def _walk(folder: Path, name: str) -> Iterator[Source]:
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            if path.name.isidentifier() and path.name not in _LEFT_OUT_FOLDERS:
                yield from _walk(path, f"{name}.{path.name}" if name else path.name)
        elif path.suffix == ".py" and not _is_test(path.stem):
            module = name if path.stem == "__init__" else f"{name}.{path.stem}".lstrip(".")
            yield Source(module, path)


def _is_test(stem: str) -> bool:
    return stem.startswith("test_") or stem.endswith("_test") or stem == "conftest"
