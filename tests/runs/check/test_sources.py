"""Where the values of a recipe are written."""

from pathlib import Path

import pytest

from declutr.recipes import recipe_path
from declutr.runs.check.sources import COMPUTED, RecipeSources

BASE = """\
// A comment with "text", 3 and null.
local model = std.extVar("MODEL");
{
    size:: 4,  # hidden
    local settings = self,
    a: { size: settings.size, twice: 2 * settings.size, model: model, path: "%s/x" % model },
    'b c': [true, null, { d: -1.5e-3 }],
    empty: {},
    looked_up: { x: 10, y: 20 }[settings.key],
    key:: 'x',
    kind: settings.key,
}
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp_path = tmp_path_factory.mktemp("recipe")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "base.libsonnet").write_text(BASE)
    file = tmp_path / "recipe.jsonnet"
    file.write_text('(import "parts/base.libsonnet") {\n    size:: 7,\n    own: "text",\n}\n')
    return file


@pytest.fixture(scope="module")
def sources(recipe: Path) -> RecipeSources:
    return RecipeSources(recipe, {"MODEL": "tiny"})


def test_values_have_the_file_and_line_of_their_literal(sources: RecipeSources) -> None:
    assert sources.plain["a"] == {"size": 7, "twice": 14, "model": "tiny", "path": "tiny/x"}
    assert sources.of("a.size") == "recipe.jsonnet:2"
    assert sources.of("own") == "recipe.jsonnet:3"
    assert sources.of("a.model") == sources.of("a.path") == "variable MODEL"
    assert sources.of("b c.0") == sources.of("b c.1") == "parts/base.libsonnet:7"
    assert sources.of("b c.2.d") == "parts/base.libsonnet:7", "minus is an operator"
    assert sources.of("b c") == "parts/base.libsonnet:7"
    assert sources.of("looked_up") == "parts/base.libsonnet:9"


def test_what_is_computed_is_called_so(sources: RecipeSources) -> None:
    assert sources.of("a.twice") == sources.of("empty") == sources.of("nowhere") == COMPUTED


def test_a_literal_that_is_looked_up_is_known_by_its_value(sources: RecipeSources) -> None:
    assert sources.of("kind") == "parts/base.libsonnet:10"


def test_a_configuration_in_json_has_lines_as_well(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{\n "a": {\n  "b": 1.5,\n  "c": "x"}}')
    sources = RecipeSources(file, {})
    assert (sources.of("a.b"), sources.of("a.c")) == ("config.json:3", "config.json:4")


def test_a_variable_that_is_not_set_has_the_default_of_the_recipe(monkeypatch) -> None:
    monkeypatch.delenv("TRANSFORMER_MODEL", raising=False)
    sources = RecipeSources(recipe_path("declutr_small"), {})
    name = "dataset_reader.tokenizer.model_name"
    assert sources.of(name) == "default, as TRANSFORMER_MODEL is not set"


def test_errors_of_jsonnet_are_raised(recipe: Path) -> None:
    with pytest.raises(RuntimeError, match="takes the variable MODEL, which is not set"):
        RecipeSources(recipe, {})
