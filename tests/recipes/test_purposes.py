"""The table of recipes is made of the recipes, and the page in the repository is that table."""

import json

import pytest

from declutr.recipes import purposes, recipe_names, recipes_folder


def test_every_recipe_says_who_takes_it() -> None:
    rows = purposes.purposes()
    assert sorted(row.name for row in rows) == sorted(recipe_names())
    assert all(row.have and row.want for row in rows)
    assert len({row.want for row in rows}) == len(rows)


def test_the_page_is_what_the_command_prints() -> None:
    """`declutr recipes list --markdown > training_config/README.md` makes it."""
    assert (recipes_folder() / "README.md").read_text() == purposes.as_markdown()


def test_the_readme_counts_the_recipes_over_sentences() -> None:
    readme = (recipes_folder().resolve().parent / "README.md").read_text(encoding="utf-8")
    others = sum(row.have == "sentences, one a line" for row in purposes.purposes()) - 2
    assert f"| sentences | the same | `simcse`, `scd`, {others} more:" in readme


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_table_has_every_recipe_once_and_keeps_to_the_width(width: int) -> None:
    lines = purposes.as_text(width).splitlines()
    named = [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]
    assert sorted(named) == sorted(recipe_names())
    heads = [line for line in lines if line.startswith("I have ")]
    assert len(heads) == len(set(heads))
    if width >= 80:
        assert max(len(line) for line in lines if line.startswith(" ")) <= width


def test_as_json() -> None:
    rows = json.loads(purposes.as_json())
    assert [row["name"] for row in rows] == [row.name for row in purposes.purposes()]
    assert all((recipes_folder() / f"{row['name']}.jsonnet").samefile(row["path"]) for row in rows)


def test_a_recipe_without_its_lines_is_named(tmp_path, monkeypatch) -> None:
    (tmp_path / "mine.jsonnet").write_text("// A recipe.\n{}\n")
    monkeypatch.setattr(purposes, "recipes_folder", lambda: tmp_path)
    monkeypatch.setattr(purposes, "recipe_names", lambda: ["mine"])
    with pytest.raises(ValueError, match=r"mine\.jsonnet' begins with '// A recipe\.'.*I have"):
        purposes.purposes()
