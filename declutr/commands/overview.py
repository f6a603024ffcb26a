"""The list of all commands, as `declutr --help` prints it, without importing AllenNLP.

AllenNLP imports all of itself, torch included, before it can list its commands.
"""

from __future__ import annotations

import importlib.util
import textwrap
from collections.abc import Mapping
from pathlib import Path

from declutr.bridge.names import own_first

OF_MODELS = {
    "embed": "embed files",
    "evaluate-embeddings": "score embeddings",
    "export": "export a model to transformers, sentence-transformers and ONNX",
    "index": "make lines searchable by meaning",
    "leaderboard": "compare results of several evaluations",
    "mine-negatives": "find hard negatives of pairs",
    "sample-spans": "look at spans",
    "search": "search lines by meaning",
    "split-sentences": "split documents into sentences",
    "static-vectors": "make the first vectors of a static encoder",
    "whiten": "fit a whitening and store it with a model",
}
"""The commands that this package registers with AllenNLP, each with one line on what it does."""

OF_ALLENNLP = {
    "build-vocab": "build a vocabulary from a recipe",
    "cached-path": "download files to the cache of AllenNLP",
    "checklist": "run a trained model through a checklist suite",
    "count-instances": "count the training instances of a recipe",
    "diff": "show the difference between two checkpoints of a model",
    "evaluate": "evaluate a trained model on a data set",
    "find-lr": "find a range of learning rates",
    "predict": "make predictions with a trained model",
    "print-results": "print metrics of several serialization directories",
    "push-to-hf": "push a trained model to the Hugging Face hub",
    "test-install": "test the installation of AllenNLP",
    "train": "train a model from a recipe",
}
"""The commands of AllenNLP 2.10.1, its last release."""

_PLUGIN_FILES = (".allennlp_plugins", "~/.allennlp/plugins")
_KNOWN_PLUGINS = ("allennlp_models", "allennlp_semparse", "allennlp_server")
_WIDTH, _INDENT = 88, 23


def overview(alone: Mapping[str, tuple[str, str]]) -> str:
    """Return the usage and all commands.

    Commands of other packages are listed if there are plugins of AllenNLP here besides this
    package; these are then imported.

    # Parameters

    alone : the commands that run without AllenNLP, as in `declutr.__main__.COMMANDS`.
    """
    parts = [
        "usage: declutr COMMAND ...   (declutr COMMAND --help explains one)",
        "       declutr --version",
        "",
        "Self-supervised sentence embeddings, with the AllenNLP command line. For a beginning:",
        "  declutr train static_declutr docs.txt -s output",
        "  declutr index output docs.txt -o index",
        '  declutr search index "..."',
        *_section("Environment and recipes", {name: line for name, (_, line) in alone.items()}),
        *_section("Embeddings and models", OF_MODELS),
        *_section("AllenNLP", OF_ALLENNLP),
        *_section("Other plugins", _of_other_plugins()),
    ]
    if importlib.util.find_spec("allennlp") is None:
        parts += ["", "AllenNLP is not installed yet; `declutr setup` does it."]
    return "\n".join(parts)


def _section(title: str, commands: Mapping[str, str]) -> list[str]:
    if not commands:
        return []
    lines = ["", f"{title}:"]
    for name, line in sorted(commands.items()):
        start = f"  {name:<{_INDENT - 3}} "
        lines += textwrap.wrap(start + line, _WIDTH, subsequent_indent=" " * _INDENT)
    return lines


def other_plugins() -> set[str]:
    """Return the names of other packages' plugins of AllenNLP, as far as it would import them."""
    files = [file for name in _PLUGIN_FILES if (file := Path(name).expanduser()).is_file()]
    named = {name for file in files for name in file.read_text().split()}
    named |= {name for name in _KNOWN_PLUGINS if importlib.util.find_spec(name)}
    return named - {"declutr.plugin", "declutr"}


def _of_other_plugins() -> dict[str, str]:
    """Return the commands of other packages' plugins, which have to be imported to know them."""
    if not other_plugins() or importlib.util.find_spec("allennlp") is None:
        return {}
    from allennlp.commands.subcommand import Subcommand
    from allennlp.common.plugins import import_plugins

    import_plugins()
    with own_first():  # as in this program
        others = set(Subcommand.list_available()) - {*OF_MODELS, *OF_ALLENNLP}
    return {name: f"declutr {name} --help explains it" for name in others}
