"""Parameters of registered classes that take files are refused when an archive sets them."""

import contextlib
import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from allennlp.common import Registrable

import declutr.components  # noqa: F401
from declutr.archives.safety import UnsafeArchive
from declutr.archives.safety.configuration import check_configuration

# What the names of parameters look like that take a file, a folder, an archive or a transformer.
TAKES_FILE = re.compile(
    r"file|path|dir(s|ectory|ectories)?$|_dir_|folder|tarball|archive|ur[il]s?$|corpus|checkpoints?$"
    r"|pretrained|model_name|(bert|transformer)_model|^images$"
)
OF_TEXT = re.compile(r"str|PathLike|Path\b|Any")
# Loading and evaluating build none of these.
NOT_BUILT = {
    *("Checkpointer", "Predictor", "SaliencyInterpreter", "Subcommand", "Trainer", "TrainModel"),
    *("TrainerCallback", "Attacker", "InfluenceInterpreter", "TaskSuite", "Initializer"),
    *("Vocabulary",),  # of which only the type is used
    *("DataLoader",),  # whose `data_path` has a message of its own
}
# Parameters of text that are no files, and what they are.
HARMLESS = {"filed_name": "of a field, misspelt in AllenNLP"}


def parameters() -> Iterator[tuple[str, str, str]]:
    """Yield base, registered name and parameter of all that may take a file."""
    for base, names in list(Registrable._registry.items()):
        if base.__name__ in NOT_BUILT:
            continue
        for name, (cls, constructor) in list(names.items()):
            function: Any = getattr(cls, constructor) if constructor else cls
            try:
                signature = inspect.signature(function)
            except (TypeError, ValueError):
                continue
            for parameter in signature.parameters.values():
                is_text = OF_TEXT.search(str(parameter.annotation))
                if is_text and TAKES_FILE.search(parameter.name):
                    yield base.__name__, name, parameter.name


def import_all(package: str) -> None:
    found = importlib.import_module(package)
    for module in pkgutil.walk_packages(found.__path__, f"{package}.", onerror=lambda name: None):
        if re.search(r"checklist|sanity|testing|fairscale", module.name) is None:
            with contextlib.suppress(ImportError):  # of a library that one of them needs
                importlib.import_module(module.name)


def accepted(folder: Path) -> set[tuple[str, str, str]]:
    """Return the parameters for which an archive may name a file in the current folder."""
    (folder / "secret.txt").write_text("secret")
    file, found = folder / "config.json", set()
    for base, name, parameter in set(parameters()):
        if parameter in HARMLESS:
            continue
        config = {"model": {"parts": [{"type": name, parameter: "secret.txt"}]}}
        file.write_text(json.dumps(config))
        try:
            check_configuration(file, set(), set())
        except UnsafeArchive:
            continue
        found.add((base, name, parameter))
    return found


def test_of_allennlp_and_this_package(tmp_path: Path, monkeypatch: Any) -> None:
    for part in ("data", "models", "modules", "training", "evaluation"):
        importlib.import_module(f"allennlp.{part}")
    monkeypatch.chdir(tmp_path)
    taken = set(parameters())
    assert ("TokenEmbedder", "elmo_token_embedder", "options_file") in taken
    assert ("Seq2VecEncoder", "bert_pooler", "pretrained_model") in taken
    assert ("DatasetReader", "image_text", "images") in taken
    assert not accepted(tmp_path)


@pytest.mark.long
def test_of_allennlp_models(tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("allennlp_models", exc_type=ImportError)
    monkeypatch.chdir(tmp_path)
    import_all("allennlp_models")
    taken = set(parameters())
    assert ("Model", "srl_bert", "bert_model") in taken
    assert not accepted(tmp_path)
