"""What the user changes is told from what an archive brings."""

import json
from pathlib import Path
from typing import Any

import pytest
from allennlp.common.checks import ConfigurationError

from declutr.archives.safety.overrides import names_in_overrides, with_overrides

OWN: dict[str, Any] = {"model": {"type": "a.B", "sizes": [1, 2], "part": {"on": False}}, "x": "c.D"}


@pytest.mark.parametrize("overrides", [None, "", {}])
def test_without_overrides_nothing_is_vouched_for(overrides: Any) -> None:
    assert with_overrides(OWN, overrides) == (OWN, set())


@pytest.mark.parametrize(
    ("overrides", "vouched"),
    [
        ({"model.type": "e.F"}, {("model", "type")}),
        ({"model.type": "a.B"}, set()),  # the archive says so as well
        ({"model.sizes.1": 3}, {("model", "sizes", 1)}),
        ({"model.part": {"on": True, "new": [4]}}, "model.part.on model.part.new model.part.new.0"),
        ({"model.part": "e.F"}, {("model", "part")}),
        ({"x": {"type": "e.F"}}, {("x",), ("x", "type")}),
        ("{ 'y': { z: 1 + 1 } }", {("y",), ("y", "z")}),  # Jsonnet
    ],
)
def test_only_what_differs_is_vouched_for(overrides: Any, vouched: Any) -> None:
    if isinstance(vouched, str):
        keys = [path.split(".") for path in vouched.split()]
        vouched = {tuple(int(key) if key.isdigit() else key for key in path) for path in keys}
    before = json.dumps(OWN)
    assert with_overrides(OWN, overrides)[1] == vouched
    assert json.dumps(OWN) == before


def test_names_that_the_archive_holds_are_not_vouched_for(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(OWN))
    assert names_in_overrides(file, {"model.part": ["e.F", "c.D", "plain", 1.5]}) == {"e.F"}
    assert names_in_overrides(file, None) == frozenset()


def test_overrides_that_do_not_fit_are_told() -> None:
    with pytest.raises(ConfigurationError, match=r"do not fit the archive: .*model\.nothing\.x"):
        with_overrides(OWN, {"model.nothing.x": 1})
