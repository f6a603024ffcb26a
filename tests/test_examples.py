"""The plugins and scripts under `examples`, as their users run them."""

import json
import os
import random
import re
import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.forked_commands import ForkedCommand

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
    given = {**os.environ, "PYTHONPATH": str(EXAMPLE), **environment}
    own = ("--include-package", "topic_classifier")
    return ForkedCommand(*arguments, *own, environment=given).finished()


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
        file.write_text("\n".join(documents))
        return ["--texts", str(file)]
    words = sorted({word for document in documents for word in document.split()})
    if kind == "labels":
        file = folder / "rows.csv"
        rows = [
            (" ".join(rng.choices(own, k=6)), topic)
            for topic, own in TOPICS.items()
            for _ in "x" * 15
        ]
        rng.shuffle(rows)
        file.write_text("text,label\n" + "".join(f"{text},{topic}\n" for text, topic in rows))
        return ["--rows", str(file)]
    file = folder / "pairs.jsonl"
    pairs = [" ".join(rng.sample(words, 4)) for _ in range(80)]
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


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def naive_bilstm_max(state: dict[str, torch.Tensor], x: np.ndarray) -> np.ndarray:
    """The maximum over the outputs of an LSTM in both directions, word by word, in float64."""
    found = []
    for suffix, words in (("", x), ("_reverse", x[::-1])):
        names = [f"enc_lstm.{kind}_l0{suffix}" for kind in ("weight_ih", "weight_hh")]
        names += [name.replace("weight", "bias") for name in names]
        w, u, b, c = (state[name].double().numpy() for name in names)
        cell = hidden = np.zeros(u.shape[1])
        outputs = []
        for word in words:
            i, f, g, o = np.split(w @ word + b + u @ hidden + c, 4)
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            hidden = sigmoid(o) * np.tanh(cell)
            outputs.append(hidden)
        found.append(np.max(outputs, axis=0))
    return np.concatenate(found)


@pytest.fixture
def infersent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    """Tiny files of both versions where `encoders.py` looks for them; return weights."""
    monkeypatch.setenv("INFERSENT", str(tmp_path))
    monkeypatch.syspath_prepend(str(EXAMPLE.parent / "infersent"))
    for name in ("encoders", "bilstm_max"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in ("encoder", "GloVe", "fastText"):
        (tmp_path / name).mkdir()
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(6, 5, bidirectional=True)
    state = {f"enc_lstm.{name}": weight.data for name, weight in lstm.named_parameters()}
    for version in (1, 2):
        torch.save(state, tmp_path / f"encoder/infersent{version}.pkl")
    rows = np.random.default_rng(0).normal(size=(17, 6)).round(4)
    words = [word for topic in TOPICS.values() for word in topic] + ["<s>", "</s>"]
    lines = [f"{w} {' '.join(map(str, row))}\n" for w, row in zip(words, rows, strict=True)]
    (tmp_path / "GloVe/glove.840B.300d.txt").write_text("".join(lines))
    lines = [line.replace("s>", "p>") for line in lines]
    (tmp_path / "fastText/crawl-300d-2M.vec").write_text("17 6\n" + "".join(lines))
    return state


def test_infersent_is_the_plain_computation(infersent: dict, tmp_path: Path) -> None:
    from declutr.inference.sources import open_encoder

    table = {}
    for line in (tmp_path / "GloVe/glove.840B.300d.txt").read_text().splitlines():
        word, *numbers = line.split()
        table[word] = np.array(numbers, float)
    texts = ["kalo mitu unknown tuka", "", "tuka", "resa nove pidu loka sami", "never seen"]
    for version in (1, 2):
        encoder = open_encoder(f"encoders:version{version}")
        found = encoder(texts)
        for text, row in zip(texts, found, strict=True):
            words = [word for word in ("<s>", *text.split(), "</s>") if word in table]
            expected = naive_bilstm_max(infersent, np.array([table[word] for word in words]))
            assert np.abs(row - expected).max() < 1e-6
        assert np.abs(encoder(texts[::-1])[::-1] - found).max() < 1e-6 and encoder.dimension == 10

    from bilstm_max import BiLSTMMax

    files = tmp_path / "encoder/infersent1.pkl", tmp_path / "GloVe/glove.840B.300d.txt"
    zero = BiLSTMMax(*files, zero_in_maximum=True)
    assert np.array_equal(zero(texts), found.clip(min=0)) and (found < 0).any()
    prints = {zero.fingerprint, BiLSTMMax(*files).fingerprint, BiLSTMMax(*files, 2).fingerprint}
    torch.save({name: 2 * weight for name, weight in infersent.items()}, files[0])
    assert len(prints | {BiLSTMMax(*files).fingerprint}) == 4
    with pytest.warns(UserWarning, match="1 texts have no known word"):
        assert not BiLSTMMax(*files, version=2)(["never seen"]).any()
    wide = {name: w.repeat(1, 2) if "weight_ih" in name else w for name, w in infersent.items()}
    wrong = {"has vectors of 6 numbers, .* expects 12": wide}
    wrong["has a, expected enc_lstm.weight_ih_l0 and"] = {"a": torch.ones(1)}
    for message, content in wrong.items():
        torch.save(content, files[0])
        with pytest.raises(ValueError, match=message):
            BiLSTMMax(*files)(texts)
    files[0].unlink()
    with pytest.raises(ValueError, match=r"Found no file '.*infersent1.pkl', expected weights"):
        _ = BiLSTMMax(*files).fingerprint


def test_infersent_from_start_to_report(
    infersent: dict, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    from allennlp.commands import main

    questions = tmp_path / "data/downstream/TREC"
    questions.mkdir(parents=True)
    rng, words = random.Random(0), [word for topic in TOPICS.values() for word in topic]
    labels = {"ABBR": 0, "DESC": 2, "ENTY": 4, "HUM": 6, "LOC": 8, "NUM": 10}
    for name, rows in (("train_5500.label", 20), ("TREC_10.label", 10)):
        own = {label: words[at : at + 2] for label, at in labels.items()}
        rows_of_each = [(label, rng.choices(own[label], k=4)) for label in [*labels] * rows]
        lines = [f"{label}:fine {' '.join(text)} ?\n" for label, text in rows_of_each]
        (questions / name).write_text("".join(lines))
    encoders = ["InferSent1=encoders:version1", "InferSent2=encoders:version2"]
    command = ["declutr", "evaluate-embeddings", str(tmp_path / "data"), *encoders]
    command += ["-o", str(tmp_path / "out"), "--tasks", "TREC", "--classifier", "sklearn"]
    command += ["--device", "cpu", "--no-plots"]
    monkeypatch.setattr(sys, "argv", command)
    main()
    told = capsys.readouterr().out
    assert re.search(r"InferSent1: \d+ sentences embedded, 0 taken from ", told)
    results = json.loads((tmp_path / "out" / "results.json").read_text())["encoders"]
    for name in ("InferSent1", "InferSent2"):
        scores = results[name]["tasks"]["TREC"]["scores"]
        assert scores["accuracy"]["value"] > 60, "chance is a sixth"
    assert "| InferSent1 | InferSent2 |" in (tmp_path / "out" / "report.md").read_text()
