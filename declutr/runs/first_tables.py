"""The first table of a static encoder, made of the training texts where no other one is given.

The recipes of static encoders have `FIRST_TABLE` as their `default_transformer`. Before a run
begins, it is replaced by a folder in the cache, which is named by the digest of the texts: two runs
on the same texts count them once, and a run whose table was pruned makes the same one again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from allennlp.common.checks import ConfigurationError

from declutr.archives import CONFIG
from declutr.bridge.own_names import strings_in
from declutr.runs.training_texts import TextFiles
from declutr.system.cache_folder import STATIC_TABLES, default_cache_dir
from declutr.system.files import (
    CheckedFile,
    DamagedFile,
    file_checksums,
    json_object,
    locked,
    use_umask,
    write_whole,
)

FIRST_TABLE = f"{STATIC_TABLES}/first"
"""The name that stands in a recipe for the first table of its training texts."""

_META = "meta.json"
_CHECKSUMS = "checksums"
_LAYOUTS = (2, 1)
"""The present layout and earlier ones: a new one comes first when texts give another table."""
_MADE = re.compile(rf"[\\/]{STATIC_TABLES}[\\/][0-9a-f]{{32}}$")


def use_first_table(config: dict[str, Any], data: Any = None, run: Path | None = None) -> bool:
    """Replace `FIRST_TABLE` in the configuration of a run by the folder of a table, made if needed.

    A table that an earlier start of the run made, and that was removed from the cache or damaged
    since, is made again in its place.

    # Parameters

    config : the configuration, which is changed.
    data : what to read the texts from; by default, the `train_data_path` of the configuration.
    run : the folder of the run. If it has begun, its table stays in the cache where it lies.

    # Returns

    Whether the configuration names such a table.

    # Raises

    `ConfigurationError` : there are no texts, too few, or others than the table was made of.
    """
    named = _named_table(config)
    if named is None:
        return False
    data = config.get("train_data_path") if data is None else data
    if named == FIRST_TABLE:
        begun = _begun_with(run)
        reader = config.get("dataset_reader") or {}
        if begun is None:
            made = first_table(reader, data)
        else:
            made = first_table(reader, data, _cache_of(begun), begun.name)
        _replace(config, str(made))
    elif _damage(Path(named)) is not None:
        folder = Path(named)
        reader = config.get("dataset_reader") or {}
        made = first_table(reader, data, folder.parents[1], folder.name)
        if made.name != folder.name:
            raise ConfigurationError(
                f"The first table '{named}' of this run is gone or damaged, and the texts at "
                f"'{data}' are no longer those that it was made of. Begin anew, or put the texts "
                "back."
            )
    return True


def first_table(
    reader: dict[str, Any], data: Any, cache: Path | None = None, named: str | None = None
) -> Path:
    """Return the folder of the table that `declutr static-vectors` makes of texts by default.

    # Parameters

    reader : the configuration of the dataset reader of the texts.
    data : the path or paths of the texts.
    cache : the cache folder; by default the usual one.
    named : the name of the folder that a run of an earlier release began with. It is kept if these
        are its texts, for what is trained of its table lies in the checkpoints of the run.
    """
    from declutr.corpus.file_digests import file_digests
    from declutr.corpus.source_files import source_files

    if not data:
        raise ConfigurationError(
            "This recipe begins with a table of token vectors, which is made of the training "
            "texts. Name them: declutr train RECIPE docs.txt -s output. Or set TRANSFORMER_MODEL "
            "to a folder of `declutr static-vectors`."
        )
    cache = (cache or default_cache_dir()).absolute()
    (cache / STATIC_TABLES).mkdir(parents=True, exist_ok=True)
    files = source_files(data)
    digests = file_digests(files, cache)
    texts = TextFiles(reader)
    try:
        read = texts.texts_read
    except ValueError as error:
        raise ConfigurationError(
            "A first table is made of columns with names, and the recipe's reader has numbers. "
            "Name them in the first line of the files, or set TRANSFORMER_MODEL to the folder of a "
            "table (declutr static-vectors)."
        ) from error
    keys = [json.dumps([one, read, [digests[file][0] for file in files]]) for one in _LAYOUTS]
    names = [hashlib.sha256(key.encode()).hexdigest()[:32] for key in keys]
    folder = cache / STATIC_TABLES / (named if named in names else names[0])
    with locked(folder.with_name(f"{folder.name}.lock")):  # one of several processes counts
        damage = _damage(folder)
        if damage is None:
            print(f"First table: as before, from {folder}", file=sys.stderr)
            with suppress(OSError):  # it may belong to somebody else
                os.utime(folder)  # `declutr cache` tells when it was last used
        else:
            if folder.is_dir():
                print(f"First table: made anew, for {damage}", file=sys.stderr)
                shutil.rmtree(folder)
            _make(folder, texts, data, files)
    return folder


def _make(folder: Path, texts: TextFiles, data: Any, files: list[Path]) -> None:
    from declutr.archives.static_folder import write_static
    from declutr.corpus import SourceError
    from declutr.static_vectors.first_tables import table_of_texts
    from declutr.static_vectors.progress import TextPasses

    began = time.monotonic()
    print("First table: token vectors from the co-occurrences of the texts", file=sys.stderr)
    try:
        table = table_of_texts(TextPasses(lambda: texts.texts(data)))
    except SourceError:
        raise
    except ValueError as error:
        raise ConfigurationError(
            f"No first table can be made of the texts at '{data}'. {error} Another one is "
            "made by declutr static-vectors TEXTS --dimension 64 -o start, and given as "
            "--transformer start."
        ) from error
    with tempfile.TemporaryDirectory(prefix="unfinished-", dir=folder.parent) as beside:
        write_static(table, Path(beside))
        about = {
            "files": [str(file.absolute()) for file in files],
            "vectors": len(table.vectors),
            _CHECKSUMS: {
                file.name: file_checksums(file) for file in Path(beside).iterdir() if file.is_file()
            },
        }
        write_whole(Path(beside, _META), json.dumps(about) + "\n")
        use_umask([Path(beside), *Path(beside).iterdir()])
        os.replace(beside, folder)
    rows, width = table.vectors.shape
    spent = time.monotonic() - began
    print(
        f"First table: {rows:,} vectors of {width} numbers in {spent:.0f} s, kept in {folder}",
        file=sys.stderr,
    )


def _damage(folder: Path) -> str | None:
    """Return what is wrong with the folder of a table, or `None` if it is as it was written.

    Tables of release 2.4 have no checksums and are taken as they are.
    """
    if not folder.is_dir():
        return f"'{folder}' is gone"
    try:
        meta = json.loads((folder / _META).read_text("utf-8"))
        for name, checksums in meta.get(_CHECKSUMS, {}).items():
            CheckedFile(folder / name, checksums).require_all()
    except DamagedFile as error:
        return str(error)
    except (OSError, ValueError, AttributeError) as error:
        return f"'{folder}' is damaged ({error})"
    return None


def _begun_with(run: Path | None) -> Path | None:
    """Return the folder of the table that a run began with; `None` if it has not begun."""
    named = None if run is None else _named_table(json_object(run / CONFIG))
    return None if named is None or named == FIRST_TABLE else Path(named)


def _cache_of(table: Path) -> Path | None:
    """Return the cache folder of a table; `None` if it cannot be used."""
    cache = table.parents[1]
    with suppress(OSError):
        (cache / STATIC_TABLES).mkdir(parents=True, exist_ok=True)
    return cache if os.access(cache / STATIC_TABLES, os.W_OK) else None


def _named_table(config: Any) -> str | None:
    """Return the first string of a configuration that names a first table, or `None`."""
    names = (text for text in strings_in(config) if text == FIRST_TABLE or _MADE.search(text))
    return next(names, None)


def _replace(value: Any, folder: str) -> Any:
    """Put the name of a folder in the place of `FIRST_TABLE`, also inside lists and objects."""
    if isinstance(value, dict):
        for key, one in value.items():
            value[key] = _replace(one, folder)
    elif isinstance(value, list):
        value[:] = [_replace(one, folder) for one in value]
    return folder if value == FIRST_TABLE else value
