"""`python -m benchmarks reclaim_tasks`: a killed grid goes on, and gains are of equal seeds."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import reclaim_tables, reclaim_tasks
from benchmarks.reclaim_runs import ALONE, RECIPES, of_recipe
from declutr.recipes import recipe_names

ACCURACY = {(ALONE, 0): 60.0, (ALONE, 1): 70.0, ("K = 100", 0): 61.0, ("K = 100", 1): 73.0}


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    tables: dict[str, Any] = {}
    monkeypatch.setattr(
        reclaim_tables, "record", lambda name, title, rows, **_: tables.update({name: rows})
    )
    return tables


def test_a_killed_grid_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: dict[str, Any]
) -> None:
    done: list[tuple[str, int]] = []

    def outcome(files: Any, setting: dict[str, Any]) -> dict[str, float]:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append((setting["row"], setting["seed"]))
        accuracy = ACCURACY[done[-1]]
        return {"accuracy": accuracy, "term": 0.0, "seconds": 2.0, "memory_mb": 5.0}

    monkeypatch.setattr(reclaim_tasks, "outcome_in_fork", outcome)
    monkeypatch.setattr(reclaim_tasks, "written", lambda *_: (Path("train"), Path("test")))
    options = ["--checkpoint", "c", "--evaluation", "e", "--output", str(tmp_path), "--tasks"]
    options += ["TREC", "--methods", ALONE, "K = 100", "--fractions", "0.1", "--seeds", "2"]
    ((_, args),) = command.parse(["reclaim_tasks", *options])
    with pytest.raises(KeyboardInterrupt):
        reclaim_tasks.run(args)
    with (tmp_path / "runs.jsonl").open("a") as file:
        file.write('{"task": "TREC", "fra')  # killed in the middle of a line
    kept = len(done)
    done.clear()
    reclaim_tasks.run(args)
    assert kept == 3 and done == [("K = 100", 1)]
    lines = (tmp_path / "runs.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["accuracy"] == 73 and len(lines) == 5
    assert [row["TREC"] for row in recorded["reclaim_tasks"]] == ["65.0 ± 63.5", "67.0 ± 76.2"]
    (gain,) = recorded["reclaim_ablation"]
    assert gain["TREC"] == gain["all tasks"] == "+2.0 ± 12.7" and gain["s"] == "2 (+0)"
    (claim,) = recorded["reclaim_claims"]
    assert (claim["here"], claim["holds"]) == ("+2.0 ± 12.7", "cannot be told")


def test_rows_of_the_grid_are_recipes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSFORMER_MODEL", "m")
    assert of_recipe(ALONE) == (None, 0.0)
    term, weight = of_recipe("lambda = 0.5")
    assert term is not None and (term["num_negatives"], weight) == (100, 0.5)
    assert set(RECIPES.values()) <= {name.rpartition("/")[2] for name in recipe_names()}
