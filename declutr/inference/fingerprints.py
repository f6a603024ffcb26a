"""Fingerprints of the files that a model was read from, which change when the files do."""

import hashlib
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from declutr.archives import CONFIG, MODULES, SETTINGS
from declutr.corpus.file_digests import file_digests
from declutr.inference import EncoderError
from declutr.system.cache_folder import default_cache_dir

_MODEL_FILES = {
    ".json", ".safetensors", ".bin", ".pt", ".th", ".txt", ".model", ".npy", ".npz",
    ".codes", ".spm", ".tokenizer", ".tiktoken",  # of slow tokenizers, such as BERTweet's bpe.codes
}  # fmt: skip
_NOT_OF_THE_MODEL = {
    "optimizer.pt", "scheduler.pt", "scaler.pt", "training_args.bin", "trainer_state.json",
}  # fmt: skip


def files_fingerprint(files: Sequence[Path], root: Path | None = None) -> str:
    """Return a fingerprint of the names and contents of files.

    It does not depend on the times of the files, nor on where `root` lies. Unchanged files are not
    read again: `declutr.corpus.file_digests` stores the digests of their contents, where it can.

    # Parameters

    files : the files.
    root : the folder below which the files lie and to which their names are relative; without it,
        names do not count, but the order of the files does.
    """
    # In the cache of the hub, the files of a model are links; digests are stored of their targets.
    cache = default_cache_dir()
    with suppress(OSError):  # a home folder may be read-only, or not be there
        cache.mkdir(parents=True, exist_ok=True)
    digests = file_digests([file.resolve() for file in files], cache)
    names = {
        str(file.relative_to(root)) if root else str(number): digests[file.resolve()][0]
        for number, file in enumerate(files)
    }
    return hashlib.sha256(json.dumps(names, sort_keys=True).encode()).hexdigest()[:32]


def model_fingerprint(place: str, revision: str | None = None) -> str:
    """Return a fingerprint of a model in a folder, or in the cache of the Hugging Face hub.

    Configuration, weights and tokenizer count, in subfolders too; logs, the optimizer's state and
    training checkpoints do not.

    # Parameters

    place : a folder, or a name on the hub that has been downloaded.
    revision : the branch, tag or commit of a name on the hub.

    # Raises

    `EncoderError` : there is no such folder, and the cache of the hub has no such name.
    """
    folder = Path(place)
    if not folder.is_dir():
        return f"revision {_hub_revision(place, revision)}"
    return files_fingerprint(_model_files(folder), folder)


def code_fingerprint(folder: Path) -> str | None:
    """Return a fingerprint of the Python files in a folder; `None` if there are none."""
    files = sorted(folder.rglob("*.py"))
    return files_fingerprint(files, folder) if files else None


def _model_files(folder: Path) -> list[Path]:
    found = []
    lists = [folder / name for name in (MODULES, "router_config.json")]
    named = "".join(file.read_text("utf-8", "replace") for file in lists if file.is_file())
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            # Modules of sentence-transformers, most often called 0_Transformer, 1_Pooling, 2_Dense.
            if path.name[:1].isdigit() or re.search(rf'["/]{re.escape(path.name)}["/]', named):
                found += _model_files(path)
        elif path.suffix in _MODEL_FILES and path.name not in _NOT_OF_THE_MODEL:
            found.append(path)
    return found


def _hub_revision(name: str, revision: str | None) -> str:
    """Return the commit that the cache of the hub holds."""
    from huggingface_hub import try_to_load_from_cache

    for file in (MODULES, CONFIG, SETTINGS):
        found = try_to_load_from_cache(name, file, revision=revision)
        if isinstance(found, str):
            return Path(found).parent.name
    raise EncoderError(f"'{name}' is neither a folder nor in the cache of the Hugging Face hub.")
