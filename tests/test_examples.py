"""The plugins and scripts under `examples`, as their users run them."""

import json
import os
import random
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parent.parent / "examples" / "topic_classifier"
RECIPES = sorted((EXAMPLE / "training_config").glob("*.jsonnet"))
TOPICS = {
    "sport": ["kalo", "mitu", "resa", "nove", "pidu"],
    "music": ["tuka", "loka", "sami", "vere", "dupi"],
    "trade": ["nono", "mika", "pire", "satu", "velo"],
}


SCRIPTS = sorted(EXAMPLE.parent.glob("domain_adaptation_from_*.py"))


def written(file: Path, rows_of_each: int, seed: int) -> Path:
    """Lines of a topic each: five words of its own, and two that all have in common."""
    rng = random.Random(seed)
    rows = []
    for topic in [topic for topic in TOPICS for _ in range(rows_of_each)]:
        words = [*rng.choices(TOPICS[topic], k=5), *rng.choices(["ka", "lo"], k=2)]
        rows.append(f"{topic}\t{' '.join(words)}\n")
    rng.shuffle(rows)
    file.write_text("\n".join(rows))  # with blank lines between
    return file


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of made-up texts that tell their topic."""
    folder = tmp_path_factory.mktemp("topics")
    for name, rows, seed in (("train", 32, 0), ("validation", 8, 1), ("test", 16, 2)):
        written(folder / f"{name}.tsv", rows, seed)
    return folder


def allennlp(*arguments: str, **environment: str) -> str:
    """What the command says, run where the example is not installed but can be imported."""
    command = [sys.executable, "-m", "allennlp", *arguments]
    given = {**os.environ, "PYTHONPATH": str(EXAMPLE), "OMP_NUM_THREADS": "1", **environment}
    command += ["--include-package", "topic_classifier"]
    done = subprocess.run(command, env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def transformer(run: Path, prefix: str) -> dict[str, torch.Tensor]:
    """The encoder in the best weights of a run, by the names of its own."""
    state = torch.load(run / "best.th", weights_only=True).items()
    return {name.removeprefix(prefix): t for name, t in state if name.startswith(prefix)}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_train_move_evaluate_and_predict(
    recipe: Path, data: Path, trained: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    shutil.copytree(trained, source)
    names = {"ARCHIVE": str(source), "TRAIN": f"{data}/train.tsv"}
    names["VALIDATION"] = f"{data}/validation.tsv"
    changes: dict[str, Any] = {"trainer.cuda_device": -1}
    if recipe.stem == "fine_tuned":  # the transformer is tiny and so are the data
        changes["trainer.num_epochs"] = 12
        changes["trainer.optimizer.parameter_groups"] = [[["_text_field_embedder"], {"lr": 1e-3}]]
        changes["trainer.optimizer.lr"] = 1e-2
    run, overrides = tmp_path / "run", json.dumps(changes)
    allennlp("train", str(recipe), "-s", str(run), "-o", overrides, **names)

    before, after = (
        transformer(run, f"_text_field_embedder.token_embedder_tokens.{name}.")
        for run, name in (
            (trained, "transformer_model.roberta"),
            (run, "transformer.transformer_model"),
        )
    )
    assert before.keys() == after.keys() and len(before) > 30
    same = [torch.equal(before[name], after[name]) for name in before]
    assert all(same) if recipe.stem == "frozen" else sum(same) <= 2, sum(same)

    if recipe.stem == "frozen":  # as after a crash between the last epoch and the archive
        for name in ("model.tar.gz", "metrics.json"):
            (run / name).unlink()
        shutil.rmtree(run / "transformer")
        allennlp("train", str(recipe), "-s", str(run), "-o", overrides, "--recover", **names)

    moved = tmp_path / "elsewhere.tar.gz"
    shutil.move(run / "model.tar.gz", moved)
    shutil.rmtree(source)
    shutil.rmtree(run)
    scores = tmp_path / "scores.json"
    allennlp("evaluate", str(moved), f"{data}/test.tsv", "--output-file", str(scores))
    assert json.loads(scores.read_text())["accuracy"] > 0.8, "chance is a third"
    if recipe.stem != "frozen":
        return
    (tmp_path / "in.jsonl").write_text(json.dumps({"sentence": "vere dupi loka tuka"}) + "\n")
    out = tmp_path / "out.jsonl"
    allennlp("predict", str(moved), str(tmp_path / "in.jsonl"), "--output-file", str(out))
    predicted = json.loads(out.read_text())
    assert predicted["label"] == "music" and predicted["tokens"][0] == "<s>"


def test_a_line_without_a_tab(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from allennlp.common.checks import ConfigurationError
    from allennlp.data.tokenizers import WhitespaceTokenizer

    monkeypatch.syspath_prepend(str(EXAMPLE))
    from topic_classifier import TabSeparatedReader

    (tmp_path / "data.tsv").write_text("sport\tka lo\n\nno label here\n")
    rows = TabSeparatedReader(WhitespaceTokenizer(), {}).read(str(tmp_path / "data.tsv"))
    assert next(iter(rows))["label"].label == "sport"
    message = r"line 3: expected a label, a tab and a text, got"
    with pytest.raises(ConfigurationError, match=message):
        list(rows)


def test_its_own_project_file() -> None:
    """What `pip install` reads."""
    text = (EXAMPLE / "pyproject.toml").read_text()
    assert 'packages = ["topic_classifier"]' in text and '"declutr"' in text
    assert (EXAMPLE / ".allennlp_plugins").read_text().split() == ["topic_classifier"]


def made_data(kind: str, folder: Path, documents: list[str]) -> list[str]:
    """The arguments by which a script reads made-up data that there is something to learn from."""
    rng = random.Random(0)
    if kind == "texts":
        file = folder / "docs.txt"
        file.write_text("\n".join(documents * 2))
        return ["--texts", str(file)]
    words = sorted({word for document in documents for word in document.split()})
    if kind == "labels":
        file = folder / "rows.csv"
        rows = [
            (" ".join(rng.choices(own, k=6)), topic)
            for topic, own in TOPICS.items()
            for _ in "x" * 30
        ]
        rng.shuffle(rows)
        file.write_text("text,label\n" + "".join(f"{text},{topic}\n" for text, topic in rows))
        return ["--rows", str(file)]
    file = folder / "pairs.jsonl"
    pairs = [" ".join(rng.sample(words, 4)) for _ in range(200)]
    lines = [{"anchor": text, "positive": f"{text} {rng.choice(words)}"} for text in pairs]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return ["--pairs", str(file)]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem.rpartition("_")[2])
def test_domain_adaptation(
    script: Path, documents: list, checkpoint: Path, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    arguments = made_data(script.stem.rpartition("_")[2], tmp_path, documents)
    arguments += ["--model", str(checkpoint), "--output", str(tmp_path / "out")]
    arguments += ["--epochs", "2", "--learning-rate", "1e-3"]
    told: list[str] = []
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", [script.name, *arguments])
        runpy.run_path(str(script), run_name="__main__")
        told.append(capsys.readouterr().out)
    assert re.search(r"\nbefore \d+\.\d%, after \d+\.\d%\n$", told[0])
    assert told[0] == told[1], "the second time, the run is finished and opened"
    assert str(script.name) in (EXAMPLE.parent / "README.md").read_text()
