"""docs/OBJECTIVES.md: every objective is listed, and the one of one's own works as written."""

import json
import re
from pathlib import Path

import torch

import declutr.plugin  # noqa: F401
from declutr.objectives import Objective
from declutr.recipes import recipe_names

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "OBJECTIVES.md").read_text()


def test_every_registered_objective_is_listed() -> None:
    own = {name for name in Objective.list_available() if name not in ("pml", "squared_distance")}
    listed = set(re.findall(r"`([a-z_]+)`", PAGE))
    assert own <= listed


def test_every_recipe_is_listed() -> None:
    """Here, or on the page of RECLAIM."""
    reclaim = (ROOT / "docs" / "RECLAIM.md").read_text()
    listed = set(re.findall(r"`([a-z_0-9]+)`", PAGE + reclaim))
    recipes = {name.rpartition("/")[2] for name in recipe_names() if "ablations" not in name}
    assert recipes - listed == set()


def test_costs_are_those_of_the_newest_run() -> None:
    rows = json.loads((ROOT / "benchmarks" / "results" / "objectives.json").read_text())[-1]["rows"]

    def shown(value: float) -> str:
        return f"{value:.1f}" if value < 10 else f"{value:,.0f}"

    for row in rows:
        numbers = [
            shown(row[f"{unit}, batch {n}"]) for unit in ("ms", "MiB") for n in (64, 256, 1024)
        ]
        assert f"| {row['objective']} | {' | '.join(numbers)} |" in PAGE


def test_an_objective_of_ones_own() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "docs/OBJECTIVES.md", "exec"), {})
    loss = Objective.by_name("squared_distance")(weight=0.5)
    assert loss(torch.zeros(2, 3), torch.ones(2, 3)).item() == 1.5
