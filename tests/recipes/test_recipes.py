"""Recipes by name, from wherever they lie; earlier paths give what today's do."""

import json
import os
from pathlib import Path
from typing import Any

import _jsonnet
import pytest

from declutr.recipes import (
    UnknownRecipe,
    earlier_names,
    moved_to,
    recipe_names,
    recipe_path,
    recipes_folder,
)

TOP = Path(__file__).parents[2]


def evaluated(file: Path) -> Any:
    return json.loads(_jsonnet.evaluate_file(str(file), ext_vars={"TRANSFORMER_MODEL": "m"}))


def test_names_are_unique_without_their_folders() -> None:
    last = [name.rpartition("/")[2] for name in recipe_names()]
    assert len(set(last)) == len(last) > 60
    assert "declutr" in last and "simcse" in last


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("declutr", "declutr.jsonnet"),
        ("simcse", "sentences/simcse.jsonnet"),
        ("sentences/simcse", "sentences/simcse.jsonnet"),
        ("simcse.jsonnet", "sentences/simcse.jsonnet"),
        ("reclaim", "reclaim/reclaim.jsonnet"),
        ("weight_0.01", "reclaim/ablations/weight_0.01.jsonnet"),
        ("reclaim_ablations/weight_0.01", "reclaim/ablations/weight_0.01.jsonnet"),
        ("training_config/sentences/scd.jsonnet", "sentences/scd.jsonnet"),
    ],
)
def test_recipes_by_name(name: str, path: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert recipe_path(name) == recipes_folder() / path


def test_a_path_that_is_there_comes_first(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("declutr").mkdir()  # a folder is no recipe
    assert recipe_path("declutr") == recipes_folder() / "declutr.jsonnet"
    Path("simcse.jsonnet").write_text("{}")
    assert recipe_path("simcse.jsonnet") == Path("simcse.jsonnet")
    assert recipe_path("simcse.jsonnet", of_package=True).parent.name == "sentences"


def test_an_unknown_name_tells_the_nearest() -> None:
    with pytest.raises(UnknownRecipe, match=r"no recipe 'simsce'.*the nearest: sentences/simcse,"):
        recipe_path("simsce")
    with pytest.raises(ValueError, match=r"no recipe 'x/y\.jsonnet'\. Expected .* lists\.$"):
        recipe_path("x/y.jsonnet")


def test_all_files_at_earlier_paths_only_import_from_todays() -> None:
    """Recipes, and what they share: third parties import both."""
    folder = recipes_folder()
    moved = {file: new for file in folder.rglob("*sonnet") if (new := moved_to(file))}
    assert len(moved) == len(earlier_names()) + 3
    for file, target in moved.items():
        first, second = file.read_text().splitlines()
        assert first == f"// Moved to {target}; this path goes in 3.0."
        assert (folder / target).is_file() and moved_to(folder / target) is None
        assert second == f'import "{os.path.relpath(folder / target, file.parent)}"'


def test_earlier_paths_give_the_same_configuration() -> None:
    """Of one in each folder; they are all alike, by the test above."""
    pairs = {new.rpartition("/")[0]: (old, new) for old, new in earlier_names().items()}
    for old, new in pairs.values():
        files = (recipes_folder() / f"{name}.jsonnet" for name in (old, new))
        earlier, today = map(evaluated, files)
        assert earlier == today, old
