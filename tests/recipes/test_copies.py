"""Copies of recipes give the same configuration where they lie."""

from pathlib import Path

import pytest

from declutr.recipes import UnknownRecipe, recipe_names, recipe_path, recipes_folder
from declutr.recipes.copies import WouldOverwrite, copy_recipe, imported_files
from tests.recipes.test_recipes import evaluated


def test_every_recipe_is_copied_with_what_it_imports(tmp_path: Path) -> None:
    for name in recipe_names():
        recipe, *others = copy_recipe(name, tmp_path)
        assert recipe == tmp_path / f"{name}.jsonnet"
        assert imported_files(recipe).keys() == {recipe, *others}
    for copy in tmp_path.rglob("*sonnet"):
        source = recipes_folder() / copy.relative_to(tmp_path)
        assert copy.read_bytes() == source.read_bytes()


@pytest.mark.parametrize("name", ["declutr", "weight_1", "scd_selected", "simcse_supervised"])
def test_a_copy_gives_the_same_configuration(name: str, tmp_path: Path) -> None:
    assert evaluated(copy_recipe(name, tmp_path)[0]) == evaluated(recipe_path(name))


def test_copies_share_what_they_import(tmp_path: Path) -> None:
    first, second = (copy_recipe(name, tmp_path) for name in ("simcse", "moco"))
    assert [file.name for file in first] == [
        *("simcse.jsonnet", "sentences.libsonnet", "base.libsonnet"),
        *("unused.libsonnet", "optimizers.libsonnet"),
    ]
    assert first[1:] == second[1:]


def test_a_changed_copy_is_not_overwritten(tmp_path: Path) -> None:
    changed = copy_recipe("simcse", tmp_path)[1]
    changed.write_text("mine")
    with pytest.raises(WouldOverwrite, match=r"sentences\.libsonnet' exists .*-o, or .* --force"):
        copy_recipe("moco", tmp_path)
    assert changed.read_text() == "mine" and not (tmp_path / "sentences" / "moco.jsonnet").exists()
    copy_recipe("moco", tmp_path, overwrite=True)
    assert changed.read_text() != "mine"


def test_only_recipes_of_the_package_are_copied(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonnet").write_text("{}")
    with pytest.raises(UnknownRecipe, match=r"Expected a name that `declutr recipes` lists"):
        copy_recipe(str(tmp_path / "mine.jsonnet"), tmp_path / "copy")


def test_imports_in_comments_are_no_imports(tmp_path: Path) -> None:
    (tmp_path / "a.libsonnet").write_text("{}")
    (tmp_path / "b.libsonnet").write_text('(import "a.libsonnet") { url: "https://x" }')
    recipe = tmp_path / "mine.jsonnet"
    recipe.write_text(
        '// import "no.jsonnet"\nlocal b = import "b.libsonnet", a = importstr "a.libsonnet"; b'
    )
    names = [file.name for file in imported_files(recipe)]
    assert names == ["mine.jsonnet", "b.libsonnet", "a.libsonnet"]
