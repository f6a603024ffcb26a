"""docs/OBJECTIVES.md: every objective is listed, and the one of one's own works as written."""

import re
from pathlib import Path

import torch

import declutr.plugin  # noqa: F401
from declutr.objectives import Objective

PAGE = (Path(__file__).parent.parent / "docs" / "OBJECTIVES.md").read_text()


def test_every_registered_objective_is_listed() -> None:
    own = {name for name in Objective.list_available() if name not in ("pml", "squared_distance")}
    listed = set(re.findall(r"`([a-z_]+)`", PAGE))
    assert own <= listed


def test_an_objective_of_ones_own() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "docs/OBJECTIVES.md", "exec"), {})
    loss = Objective.by_name("squared_distance")(weight=0.5)
    assert loss(torch.zeros(2, 3), torch.ones(2, 3)).item() == 1.5
