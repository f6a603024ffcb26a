"""What the arguments of `train` mean that AllenNLP has not got: training data, the transformer.

    declutr train simcse sentences.txt --transformer distilroberta-base -s output

is `declutr train simcse -s output` with the variable `TRANSFORMER_MODEL` set to the name, and
`-o '{"train_data_path": "sentences.txt"}'`. `declutr.bridge.configurations` adds them.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from declutr.bridge.component_names import short
from declutr.bridge.configurations import TRANSFORMER
from declutr.system import local_path, loggers_at, variable_set


@contextmanager
def arguments_of_allennlp(args: argparse.Namespace) -> Iterator[None]:
    """Express the arguments by those of AllenNLP, within this context.

    With data as arguments, the log goes to the file `out.log` of the run alone, unless
    `ALLENNLP_LOG_LEVEL` or `ALLENNLP_DEBUG` is set.

    # Parameters

    args : the parsed arguments of `train`; `overrides` is changed.

    # Raises

    `ConfigurationError` : data is given twice or would be removed, or the recipe does not take the
        transformer.
    """
    with overrides_with(args.param_path, args.overrides, args.data, args.transformer) as overrides:
        if not args.data:
            yield
            return
        _require_kept(args)
        args.overrides = overrides
        with _quiet(), _told_what_for(args.param_path):
            yield
    if not args.dry_run:
        print(_what_next(args.serialization_dir, args.data))


@contextmanager
def overrides_with(
    recipe: str, overrides: str, data: list[str], transformer: str | None
) -> Iterator[str]:
    """Return overrides with the training data, and set `TRANSFORMER_MODEL` within this context.

    # Parameters

    recipe : the path or the name of the recipe.
    overrides : other changes of it, as `-o` takes them.
    data : files, folders or globs of training texts; empty for those of the recipe.
    transformer : the transformer to start from; `None` for that of the recipe.

    # Raises

    `ConfigurationError` : data is given twice, or the recipe does not take the transformer.
    """
    changed = _with_data(overrides, data) if data else overrides
    if transformer is None:
        yield changed
        return
    # Shells leave `~` within quotes and after `=`; no name on the hub begins with it.
    transformer = os.path.expanduser(transformer)
    with variable_set(TRANSFORMER, transformer):
        _require_transformer(recipe, changed, transformer)
        yield changed


@contextmanager
def _told_what_for(recipe: str) -> Iterator[None]:
    """Let an error of data within this context say which data the recipe is for."""
    from declutr.corpus import SourceError
    from declutr.recipes.purposes import purposes

    try:
        yield
    except SourceError as error:
        names = (recipe, Path(recipe).stem)
        for name, have, _ in purposes():
            if name in names or name.rpartition("/")[2] in names:
                raise SourceError(f"{error} The recipe {name} is for: {have}.") from error
        raise


@contextmanager
def _quiet() -> Iterator[None]:
    """Show no more than warnings within this context, if the environment does not ask for more."""
    from declutr.runs.process_state import logging_to_file

    if any(os.environ.get(name) for name in ("ALLENNLP_LOG_LEVEL", "ALLENNLP_DEBUG")):
        yield
        return
    with loggers_at(logging.WARNING, "root"), logging_to_file():
        yield


def _what_next(folder: str, data: list[str]) -> str:
    """Return what can be done with a trained encoder; nothing for other models."""
    from declutr.corpus.source_files import source_files
    from declutr.corpus.text_files import file_format
    from declutr.runs.training_texts import TextFiles
    from declutr.system.files import json_object

    config = json_object(Path(folder, "config.json"))
    if short((config.get("model") or {}).get("type")) != "declutr":
        return f"Trained: {folder}"
    files = shlex.join(data)
    try:
        key = TextFiles(config.get("dataset_reader") or {}).texts_read[0]
    except ValueError:  # columns without names, which no command takes
        return f"Trained: {folder}"
    if key != "text" and any(file_format(file) != "text" for file in source_files(data)):
        files += f" --text-key {shlex.quote(key)}"
    return f"""Trained: {folder}. For example:
  declutr index {shlex.quote(folder)} {files} -o index
  declutr search index "..."
  declutr embed {shlex.quote(folder)} {files} -o embeddings"""


def _require_kept(args: argparse.Namespace) -> None:
    """Raise if `--force`, which empties the folder of the run, would remove its data."""
    from allennlp.common.checks import ConfigurationError

    folder = Path(args.serialization_dir).resolve()
    for one in args.data if args.force else ():
        if local_path(one).resolve().is_relative_to(folder):
            raise ConfigurationError(
                f"--force would remove '{one}', which lies in the folder of the run, "
                f"'{args.serialization_dir}'. Choose another folder."
            )


def _with_data(overrides: str, data: list[str]) -> str:
    """Return overrides with `train_data_path`."""
    from allennlp.common.checks import ConfigurationError
    from allennlp.common.params import parse_overrides

    changes = parse_overrides(overrides)
    if isinstance(changes, dict) and "train_data_path" in changes:
        raise ConfigurationError(
            f"Training data is given twice: {', '.join(data)}, and train_data_path in -o "
            f"({changes['train_data_path']}). Leave one out."
        )
    return json.dumps({**changes, "train_data_path": data[0] if len(data) == 1 else data})


def _require_transformer(recipe: str, overrides: str, transformer: str) -> None:
    """Raise if a recipe does not depend on the variable of the transformer."""
    from allennlp.common import Params
    from allennlp.common.checks import ConfigurationError

    from declutr.bridge.own_names import strings_in

    config = Params.from_file(recipe, overrides).params
    if not any(transformer in text for text in strings_in(config)):
        raise ConfigurationError(
            f"'{recipe}' does not take its transformer from {TRANSFORMER}, so that "
            f"--transformer {transformer} would have no effect. Leave it out, or name the "
            "transformer by its key with -o."
        )
