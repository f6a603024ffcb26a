"""`declutr predict` and `declutr evaluate` run no code of an archive; `--trust` lifts that."""

import json
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.models import Model
from allennlp.models.archival import load_archive
from allennlp.predictors import Predictor

import declutr.plugin  # noqa: F401
from declutr.archives.safety import UnsafeArchive, safely_loaded_archive
from declutr.commands.errors import TRACEBACK
from tests import hostile_archives as hostile
from tests.foreign_archives import Commands, text_classifier

SECRET = "the-secret-of-this-machine"
TOKENS = ("model", "text_field_embedder", "token_embedders", "tokens")


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the archive of a text classifier of AllenNLP's own."""
    return text_classifier(tmp_path_factory.mktemp("classifier"))


@pytest.fixture
def commands(monkeypatch: Any, capsys: Any) -> Commands:
    monkeypatch.delenv(TRACEBACK)
    return Commands(monkeypatch, capsys)


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: Any) -> Any:
    """Return the folder that the code of a hostile archive creates; a secret lies beside it."""
    mark, modules = tmp_path / "marker", tmp_path / "modules"
    modules.mkdir()
    (modules / "hostile_module.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    (tmp_path / "secret.json").write_text(json.dumps({"secret": SECRET}))
    monkeypatch.syspath_prepend(str(modules))
    yield mark
    sys.modules.pop("hostile_module", None)


def made(honest: Path, folder: Path, change: Callable[[Path], Any]) -> Path:
    """Return a copy of an archive with one thing changed."""
    content = hostile.changed(honest, folder / "content", change)
    return hostile.packed(content, folder / "hostile.tar.gz")


def setting(*keys: str, value: Any) -> Callable[[Path], Callable[[Path], None]]:
    return lambda marker: hostile.with_config(*keys, value=value)


def leading_out(*keys: str, **settings: Any) -> Callable[[Path], Callable[[Path], None]]:
    """Set a dictionary in which the text SECRET stands for the file with the secret."""

    def change(marker: Path) -> Callable[[Path], None]:
        file = str(marker.with_name("secret.json"))
        value = {key: file if text == SECRET else text for key, text in settings.items()}
        return hostile.with_config(*keys, value=value)

    return change


IMPORTED = "which AllenNLP would import and run. Expected a registered name."
# One for each step of the check, and what the commands add to it; `tests/archives/safety` has all.
ATTACKS: dict[str, tuple[Callable[[Path], Callable[[Path], None]], str]] = {
    "a function as reader": (
        lambda marker: hostile.with_config(
            "dataset_reader", value={"type": "os.mkdir", "path": str(marker)}
        ),
        f"'dataset_reader.type' is 'os.mkdir', {IMPORTED}",
    ),
    "a module as part": (
        setting("model", "seq2vec_encoder", value="hostile_module.Encoder"),
        f"A Seq2VecEncoder is 'hostile_module.Encoder', {IMPORTED}",
    ),
    "a module as sampler": (
        setting("validation_data_loader", value={"batch_sampler": "hostile_module.Sampler"}),
        f"'validation_data_loader.batch_sampler' is 'hostile_module.Sampler', {IMPORTED}",
    ),
    "other data": (
        leading_out("data_loader", batch_size=1, data_path=SECRET),
        "'data_loader.data_path' is in place of what the command is given.",
    ),
    "another reader": (
        setting("data_loader", value={"batch_size": 1, "reader": "text_lines"}),
        "'data_loader.reader' is in place of what the command is given.",
    ),
    "Jsonnet that reads": (
        lambda marker: (
            lambda folder: (folder / "config.json").write_text(
                f'{{"model": importstr "{marker.with_name("secret.json")}"}}'
            )
        ),
        "config.json is not plain JSON: line 1 has the Jsonnet `importstr`",
    ),
    "options of ELMo": (
        leading_out(*TOKENS, type="elmo_token_embedder", options_file=SECRET, weight_file="x"),
        "options_file' names a place outside the archive",
    ),
}
BROUGHT: dict[str, tuple[Callable[[Path], Callable[[Path], None]], str]] = {
    "a pickle as weights": (
        lambda marker: hostile.with_torch_pickle("weights.th", marker),
        "weights.th should hold tensors only, but names posix.mkdir",
    ),
}


PROGRAMS = ("declutr predict", "declutr evaluate", "allennlp predict", "allennlp evaluate")
# All programs open archives by one function, so one attack stands for all of them in each program.
CASES = [(name, PROGRAMS[number % 4]) for number, name in enumerate([*ATTACKS, *BROUGHT])]


@pytest.mark.parametrize(
    ("name", "program"), [*CASES, *(("a module as part", program) for program in PROGRAMS)]
)
def test_untrusted_archives_are_refused(
    name: str, program: str, honest: Path, marker: Path, tmp_path: Path, commands: Commands
) -> None:
    make, message = {**ATTACKS, **BROUGHT}[name]
    archive = made(honest, tmp_path, make(marker))
    told = commands.refusal(*program.split(), archive, honest.with_name("texts.jsonl"))
    assert message in told and SECRET not in told
    assert ("--trust (trust=True)" in told) == (name in ATTACKS)
    assert not marker.exists() and "hostile_module" not in sys.modules


def test_plain_allennlp_runs_what_an_archive_names(
    honest: Path, marker: Path, tmp_path: Path, commands: Commands
) -> None:
    """The attack works: it is the rules that stop it."""
    make, _ = ATTACKS["a function as reader"]
    archive = made(honest, tmp_path, make(marker))
    with pytest.raises(Exception, match=r".") as error:
        commands.run("allennlp", "predict", archive, "texts.jsonl", safe=False)
    assert not isinstance(error.value, UnsafeArchive) and marker.exists()


def test_an_archive_that_climbs_out_is_refused(tmp_path: Path, commands: Commands) -> None:
    archive = hostile.tar_of(tmp_path / "model.tar.gz", [hostile.regular("../escaped")])
    assert "climbs out" in commands.refusal("declutr", "predict", archive, "texts.jsonl")
    assert "climbs out" in commands.refusal("declutr", "predict", archive, "x", "--trust")
    assert not list(tmp_path.rglob("escaped"))


def predicted(commands: Commands, archive: Path, *options: str, **others: bool) -> list[str]:
    texts = archive.with_name("sentences.jsonl")
    printed = commands.run("declutr", "predict", archive, texts, *options, **others)
    return [line for line in printed.splitlines() if line.startswith("prediction:")]


def test_archives_of_allennlp_predict_and_evaluate_as_ever(
    honest: Path, tmp_path: Path, commands: Commands
) -> None:
    by_rules = predicted(commands, honest)
    assert len(by_rules) == 3 and by_rules == predicted(commands, honest, safe=False)
    for safe in (True, False):
        file = tmp_path / f"{safe}.json"
        arguments = ("evaluate", honest, honest.with_name("texts.jsonl"), "--output-file", file)
        commands.run("allennlp", *arguments, safe=safe)
    metrics = json.loads((tmp_path / "True.json").read_text())
    assert metrics == json.loads((tmp_path / "False.json").read_text()) and "accuracy" in metrics


@pytest.mark.slow
def test_archives_of_ours_predict_as_ever(
    trained: Path, tmp_path: Path, commands: Commands
) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"text": "a good film"}\n')
    arguments = ("predict", trained / "model.tar.gz", texts)
    by_rules = commands.run("declutr", *arguments)
    assert "embeddings" in by_rules
    assert by_rules == commands.run("allennlp", *arguments, safe=False)


DOTTED = "allennlp.data.dataset_readers.TextClassificationJsonReader"


def test_trust_opens_what_is_refused(honest: Path, tmp_path: Path, commands: Commands) -> None:
    archive = made(honest, tmp_path, hostile.with_config("dataset_reader", "type", value=DOTTED))
    (tmp_path / "sentences.jsonl").write_bytes(honest.with_name("sentences.jsonl").read_bytes())
    texts = honest.with_name("texts.jsonl")
    assert DOTTED in commands.refusal("declutr", "predict", archive, texts)
    assert predicted(commands, archive, "--trust") == predicted(commands, honest)
    assert DOTTED in commands.refusal("declutr", "evaluate", archive, texts)
    commands.run("declutr", "evaluate", archive, texts, "--trust")
    assert DOTTED in commands.refusal("declutr", "predict", archive, texts)  # it does not stay


def test_the_user_vouches_for_what_the_command_names(
    honest: Path, tmp_path: Path, commands: Commands
) -> None:
    """Overrides in Jsonnet with a module in them, weights, a predictor and the reader."""
    overrides = f"local name = '{DOTTED}'; {{'dataset_reader.type': name}}"
    assert predicted(commands, honest, "-o", overrides) == predicted(commands, honest)
    predictor = "allennlp.predictors.TextClassifierPredictor"
    assert predicted(commands, honest, "--predictor", predictor) == predicted(commands, honest)
    with tarfile.open(honest) as tar:
        tar.extractall(tmp_path, filter="data")
    weights = torch.load(tmp_path / "weights.th", weights_only=True)
    torch.save({name: torch.zeros_like(value) for name, value in weights.items()}, tmp_path / "w")
    zeros = predicted(commands, honest, "--weights-file", str(tmp_path / "w"))
    assert all('"probs": [0.5, 0.5]' in line for line in zeros) and len(zeros) == 3
    read = commands.run(
        *("declutr", "predict", honest, honest.with_name("texts.jsonl")),
        *("--use-dataset-reader", "--dataset-reader-choice", "train"),
    )
    assert read.count("prediction:") == 3


def test_weights_of_the_user_hold_tensors_only(
    honest: Path, marker: Path, tmp_path: Path, commands: Commands
) -> None:
    hostile.with_torch_pickle("w.th", marker)(tmp_path)
    options = ("--weights-file", tmp_path / "w.th")
    told = commands.refusal("declutr", "predict", honest, "texts.jsonl", *options)
    assert "w.th should hold tensors only" in told and not marker.exists()


def test_wrong_overrides_are_told(honest: Path, commands: Commands) -> None:
    overrides = ("-o", '{"model.nothing.there": 1}')
    told = commands.refusal("declutr", "predict", honest, "texts.jsonl", *overrides)
    assert "The overrides do not fit the archive: " in told and "model.nothing.there" in told


def test_the_rules_hold_in_python(
    honest: Path, marker: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    make, _ = ATTACKS["a function as reader"]
    archive = made(honest, tmp_path, make(marker))
    monkeypatch.setenv("DECLUTR_SAFE", "1")
    for load in (load_archive, Predictor.from_path, Model.from_archive, safely_loaded_archive):
        with pytest.raises(UnsafeArchive, match=r"os\.mkdir"):
            load(str(archive))  # type: ignore[operator]
    assert not marker.exists()
    with pytest.raises(Exception, match=r".") as error:
        safely_loaded_archive(archive, trust=True)
    assert not isinstance(error.value, UnsafeArchive) and marker.exists()
    assert load_archive(honest, -1, '{"trainer.num_epochs": 2}').config["trainer"]["num_epochs"]
