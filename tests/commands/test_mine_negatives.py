"""Tests of `declutr mine-negatives`: what it reads and writes, and that recipes train on that."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from allennlp.commands import main
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

import declutr.commands.mine_negatives  # noqa: F401
from declutr.recipes import recipe_path
from declutr.search import build_index, mining_run
from tests.recipe_data import RecipeData
from tests.search.fakes import FakeEncoder
from tests.test_recipes import built

pytestmark = pytest.mark.slow

RECIPES = {
    "labelled/simcse_supervised": {
        "dataset_reader.format": None,
        "dataset_reader.negative": "negative",
    },
    "labelled/sbert_triplet": {},
}
"""Recipes with the overrides that the page on training gives them."""


@pytest.fixture
def run(monkeypatch, capsys):
    """Return a function that runs the command and returns its output."""

    def run(*arguments) -> str:
        monkeypatch.setattr(sys, "argv", ["allennlp", "mine-negatives", *map(str, arguments)])
        capsys.readouterr()
        main()
        return capsys.readouterr().out

    return run


@pytest.fixture
def bm25s() -> None:
    pytest.importorskip("bm25s")


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    rows = ["anchor\tpositive", "a cat\tthe cat", "a dog\tthe  dog", "a dog\tdogs", "birds\ttrees"]
    return written(tmp_path / "pairs.tsv", rows)


def written(file: Path, rows: list[str]) -> Path:
    file.write_text("\n".join(rows) + "\n")
    return file


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


def triplets(file: Path) -> list[tuple[str, ...]]:
    return [tuple(row.split("\t")) for row in file.read_text().splitlines()[1:]]


@pytest.mark.usefixtures("bm25s")
class TestBM25:
    def test_positives_are_the_candidates_by_default(self, run, tmp_path: Path) -> None:
        rows = ["anchor\tpositive", "the cat sat\ta cat sat", "a cat ran\tthe cat ran", "x\ty"]
        output = tmp_path / "triplets.tsv"
        told = run(written(tmp_path / "pairs.tsv", rows), "-o", output, "-n", 2)
        assert triplets(output) == [
            ("the cat sat", "a cat sat", "the cat ran"),
            ("a cat ran", "the cat ran", "a cat sat"),
        ]
        assert told.splitlines() == [
            f"2 triplets of 3 pairs in {output}",
            "1 pairs got no negative, and are left out.",
            "2 pairs got fewer than 2.",
        ]

    def test_a_corpus_of_any_format(self, run, pairs: Path, tmp_path: Path) -> None:
        lines = [json.dumps({"body": text}) for text in ("dogs", "big dog", "my cat", "the  cat")]
        corpus = written(tmp_path / "corpus.jsonl", lines)
        output = tmp_path / "triplets.tsv"
        run(pairs, "-o", output, "--corpus", corpus, "--text-key", "body", "--quiet")
        assert triplets(output) == [
            ("a cat", "the cat", "my cat"),
            ("a dog", "the dog", "big dog"),
            ("a dog", "dogs", "big dog"),
        ]

    def test_rows_of_inference(self, run, tmp_path: Path) -> None:
        """Contradictions are candidates; no entailed hypothesis of a premise is one of it."""
        rows = ["premise\thypothesis\tlabel", "a cat sat\tcat\tentailment"]
        rows += ["a cat sat\ta cat ran\tcontradiction", "a cat sat\ta cat\tentailment"]
        output = tmp_path / "triplets.tsv"
        run(written(tmp_path / "nli.tsv", rows), "-o", output, "--nli")
        assert triplets(output) == [
            ("a cat sat", "cat", "a cat ran"),
            ("a cat sat", "a cat", "a cat ran"),
        ]

    def test_labels_and_columns_by_number(self, run, tmp_path: Path) -> None:
        rows = ["0,b cat,a cat", "4.5,the cat,a cat", "5,one sits,the one"]
        output = tmp_path / "triplets.jsonl"
        columns = ("--no-header", "--anchor", 2, "--positive", 1, "--label", 0, "--min-label", 4)
        run(written(tmp_path / "pairs.csv", rows), "-o", output, *columns, "--margin", 0)
        found = [json.loads(row) for row in output.read_text().splitlines()]
        assert [(row["anchor"], row["negative"]) for row in found] == [
            ("a cat", ["b cat"]),
            ("the one", ["the cat"]),
        ]

    def test_it_goes_on_where_it_was_interrupted(self, run, pairs, tmp_path, monkeypatch, capsys):
        def killed(*_):
            yield ["kept"]
            raise KeyboardInterrupt

        words = (pairs, "-o", tmp_path / "t.tsv", "--seed", 3, "--random")
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(mining_run, "mine_negatives", killed)
            run(*words)
        assert f"goes on from '{tmp_path / 't.tsv'}.part'" in capsys.readouterr().err
        assert "The negatives of 1 pairs were there already." in run(*words)
        assert triplets(tmp_path / "t.tsv")[0] == ("a cat", "the cat", "kept")

    @pytest.mark.parametrize(("name", "suffix"), [*zip(RECIPES, (".tsv", ".jsonl"), strict=True)])
    def test_recipes_train_on_what_it_writes(
        self, run, name: str, suffix: str, tmp_path, checkpoint, monkeypatch
    ) -> None:
        monkeypatch.setenv("TRANSFORMER_MODEL", str(checkpoint))
        (tmp_path / "data").mkdir()
        config = RecipeData(tmp_path / "data").small(recipe_path("labelled/sbert_triplet"))
        output = tmp_path / f"triplets{suffix}"
        rows = Path(config["train_data_path"]).read_text().splitlines()[:16]
        run(written(tmp_path / "pairs.jsonl", rows), "-o", output, "--quiet")
        overrides = json.dumps(RECIPES[name])
        reader = Params.from_file(str(recipe_path(name)), overrides)["dataset_reader"]
        config = RecipeData(tmp_path / "data").small(recipe_path(name), num_epochs=1)
        for key in ("format", "negative"):
            config["dataset_reader"][key] = reader.get(key)
        config |= {"train_data_path": str(output), "validation_data_path": None}
        run_of_recipe = built(config, tmp_path / "run")
        loader = run_of_recipe.trainer.data_loader
        loader.index_with(run_of_recipe.model.vocab)
        batch = next(iter(loader))
        assert len(batch["negatives"]["tokens"]["token_ids"]) == 4
        before = [parameter.detach().clone() for parameter in run_of_recipe.model.parameters()]
        assert run_of_recipe.trainer.train()["training_loss"] > 0
        after = run_of_recipe.model.parameters()
        assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


class TestIndex:
    @pytest.fixture
    def index(self, tmp_path: Path, monkeypatch) -> Path:
        import declutr.inference.encoder

        monkeypatch.setattr(declutr.inference.encoder, "Encoder", lambda *_, **__: FakeEncoder())
        build_index(FakeEncoder(), ["a cat", "the cat", "my cat", "", "dog"], tmp_path / "index")
        return tmp_path / "index"

    def test_lines_are_the_candidates(self, run, pairs: Path, index: Path, tmp_path: Path) -> None:
        output = tmp_path / "triplets.tsv"
        told = run(pairs, "-o", output, "--index", index, "--margin", 0.01, "--quiet")
        encoder, rows = FakeEncoder(), triplets(output)
        assert ("a cat", "the cat") in {row[:2] for row in rows}
        for row in rows:
            vectors = encoder(row).astype(float)
            near, far = (cosine(vectors[0], vector) for vector in vectors[1:])
            assert row[2] in {"a cat", "the cat", "my cat", "dog"} - {*row[:2]}
            assert far <= near - 0.01 * abs(near) + 1e-6
        assert f"{len(rows)} triplets of 4 pairs" in told

    def test_options_of_its_model_need_an_index(self, run, pairs: Path, tmp_path: Path) -> None:
        for option in (["--device", "cpu"], ["--trust"], ["--model", "moved"]):
            with pytest.raises(ConfigurationError, match=rf"Got {option[0]} without --index"):
                run(pairs, "-o", tmp_path / "t.tsv", *option)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "t.txt"], "'t.txt' is no table of triplets"),
        (["-o", "pairs.tsv"], "'pairs.tsv' is there. Expected another file; --overwrite"),
        (["-o", "pairs.tsv", "--overwrite"], "'pairs.tsv' is one of the tables of pairs"),
        (["-o", "t.tsv", "-n", "0"], "Expected num_negatives of at least 1, got 0"),
        (["-o", "t.tsv", "--label", "label"], "Add --min-label X, or --nli"),
        (["-o", "t.tsv", "--min-label", "1"], "no column 'label', found"),
        (["-o", "t.tsv", "--nli"], "no column 'premise'"),
        (["-o", "t.tsv", "--no-header", "--anchor", "a"], "Expected a number, from 0"),
        (["-o", "t.tsv", "--index", "nowhere"], "There is no index at 'nowhere'"),
        (["-o", "t.tsv", "--corpus", "nowhere.txt"], "Found no documents at 'nowhere.txt'"),
        (["missing.tsv", "-o", "t.tsv"], "missing.tsv"),
    ],
)
def test_errors_are_told(run, pairs: Path, arguments, message: str, monkeypatch) -> None:
    monkeypatch.chdir(pairs.parent)
    with pytest.raises(ConfigurationError, match=message):
        run("pairs.tsv", *arguments)
    assert [path.name for path in pairs.parent.iterdir()] == ["pairs.tsv"]


def test_a_file_of_candidates_is_not_replaced(run, pairs: Path, tmp_path: Path) -> None:
    file = written(tmp_path / "corpus.jsonl", ['{"text": "a dog"}'])
    with pytest.raises(ConfigurationError, match="is one of the tables of pairs or files of cand"):
        run(pairs, "--corpus", tmp_path, "-o", file, "--overwrite")
    assert file.read_text() == '{"text": "a dog"}\n'


@pytest.mark.parametrize(
    ("label", "options", "message"),
    [
        ("much", ["--min-label", "1"], "the label is 'much', expected a number for --min-label"),
        ("nan", ["--min-label", "1"], "the label is 'nan', expected a number for --min-label"),
        ("0.5", ["--min-label", "1"], "None of 1 rows is a pair: no label is 1 or more"),
        ("neutral", ["--nli"], "None of 1 rows is a pair: no label is 'entailment'"),
    ],
)
def test_labels_without_a_pair(run, tmp_path: Path, label: str, options, message: str) -> None:
    file = written(tmp_path / "pairs.tsv", ["premise\thypothesis\tlabel", f"a\tb\t{label}"])
    columns = ["--anchor", "premise", "--positive", "hypothesis"]
    with pytest.raises(ConfigurationError, match=message):
        run(file, "-o", tmp_path / "t.tsv", *columns, *options)
