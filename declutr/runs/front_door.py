"""The arguments that `train` takes beside AllenNLP's: training data, and the transformer.

    declutr train simcse sentences.txt --transformer distilroberta-base -s output

is the same as

    TRANSFORMER_MODEL=distilroberta-base \\
    declutr train simcse -o '{"train_data_path": "sentences.txt"}' -s output
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from declutr.recipes.evaluation import TRANSFORMER


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to the parser of `train`. Data may also stand after options."""
    for action in parser._actions:
        if action.dest == "param_path":
            action.metavar = "RECIPE"
            action.help = "the name of a recipe (`declutr recipes` lists them), or a file"
    about = "training texts, in place of the recipe's train_data_path: files, folders or globs"
    parser.add_argument("data", metavar="DATA", nargs="*", help=about)
    parser.add_argument(
        "--transformer",
        metavar="NAME",
        help=f"the transformer to start from: a folder, or a name on the hub (${TRANSFORMER})",
    )
    known = parser.parse_known_args

    def parse_known_args(args: Any = None, namespace: Any = None) -> Any:
        # argparse takes all positional arguments from before the first option.
        found, others = known(args, namespace)
        found.data = [*found.data, *(one for one in others if not one.startswith("-"))]
        return found, [one for one in others if one.startswith("-")]

    parser.parse_known_args = parse_known_args  # type: ignore[method-assign]


@contextmanager
def arguments_of_allennlp(args: argparse.Namespace) -> Iterator[None]:
    """Express the arguments by those of AllenNLP, within this context.

    # Parameters

    args : the parsed arguments of `train`; `overrides` is changed.

    # Raises

    `ConfigurationError` : data is given twice, or the recipe does not take the transformer.
    """
    if data := getattr(args, "data", None):
        args.overrides = _with_data(args.overrides, data)
    transformer, before = getattr(args, "transformer", None), os.environ.get(TRANSFORMER)
    if transformer is None:
        yield
        return
    os.environ[TRANSFORMER] = transformer
    try:
        _require_transformer(args, transformer)
        yield
    finally:
        os.environ.pop(TRANSFORMER)
        os.environ.update({} if before is None else {TRANSFORMER: before})


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


def _require_transformer(args: argparse.Namespace, transformer: str) -> None:
    """Raise if a recipe does not depend on the variable of the transformer."""
    from allennlp.common import Params
    from allennlp.common.checks import ConfigurationError

    from declutr.runs.recipe_parameters import strings_in

    config = Params.from_file(args.param_path, args.overrides).params
    if not any(transformer in text for text in strings_in(config)):
        raise ConfigurationError(
            f"'{args.param_path}' does not take its transformer from {TRANSFORMER}, so that "
            f"--transformer {transformer} would have no effect. Leave it out, or name the "
            "transformer by its key with -o."
        )
