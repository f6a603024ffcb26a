"""Recipes are found by name and evaluated with their own transformer, by `Params.from_file`."""

import logging
from pathlib import Path

import pytest
from allennlp.common import Params

import declutr  # noqa: F401  (puts the bridge in place)
from declutr.recipes import UnknownRecipe, recipe_path
from declutr.recipes.evaluation import RecipeError, UndefinedVariable, named_recipe


@pytest.fixture(autouse=True)
def no_transformer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TRANSFORMER_MODEL", raising=False)
    monkeypatch.chdir(tmp_path)


def transformers_of(params: Params) -> set[str]:
    """All names of transformers in a configuration."""
    flat = params.as_flat_dict()
    return {value for key, value in flat.items() if key.endswith("model_name")}


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("declutr", "distilroberta-base"),
        ("declutr_base", "roberta-base"),
        ("scd", "bert-base-uncased"),
        ("scd_roberta", "roberta-base"),
        ("reclaim", "bert-base-uncased"),
    ],
)
def test_without_the_variable_a_recipe_starts_from_its_own_transformer(
    name: str, default: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "declutr.recipes"):
        params = Params.from_file(recipe_path(name))
    assert transformers_of(params) == {default}
    told = f"TRANSFORMER_MODEL is not set: '{recipe_path(name)}' starts from {default}"
    assert [record.getMessage() for record in caplog.records] == [told]


def test_the_variable_chooses(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    given = Params.from_file(recipe_path("scd"), ext_vars={"TRANSFORMER_MODEL": "given"})
    monkeypatch.setenv("TRANSFORMER_MODEL", "chosen")
    with caplog.at_level(logging.INFO, "declutr.recipes"):
        chosen = Params.from_file(recipe_path("scd"))
    assert transformers_of(given) == {"given"} and transformers_of(chosen) == {"chosen"}
    assert not caplog.records


def test_recipes_of_others(tmp_path: Path) -> None:
    """They import those of this package wherever they lie, and may name a transformer."""
    text = '(import "training_config/sentences/simcse.jsonnet") { %s: "mine" }'
    for key in ("transformer_model::", "default_transformer::"):
        Path("own.jsonnet").write_text(text % key.removesuffix(":"))
        assert transformers_of(Params.from_file("own.jsonnet")) == {"mine"}
    Path("training_config").mkdir()
    Path("training_config/declutr.jsonnet").write_text('{ a: "of the folder" }')
    Path("own.jsonnet").write_text('import "training_config/declutr.jsonnet"')
    assert Params.from_file("own.jsonnet").as_dict() == {"a": "of the folder"}


def test_earlier_paths_warn_once_and_name_todays(recwarn: pytest.WarningsRecorder) -> None:
    Path("own.jsonnet").write_text('(import "training_config/simsiam.jsonnet") { a: 1 }')
    Path("outer.jsonnet").write_text('(import "own.jsonnet") { b: 1 }')
    for _ in range(2):
        Params.from_file("outer.jsonnet")
    (warning,) = [w for w in recwarn if issubclass(w.category, FutureWarning)]
    assert str(warning.message) == (
        "training_config/simsiam.jsonnet is deprecated since declutr 2.0 and goes in 3.0: use "
        "training_config/sentences/simsiam.jsonnet."
    )
    assert Path(warning.filename).name == "own.jsonnet"


def test_a_recipe_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Params.from_file(recipe_path("simcse")).as_dict()
    assert Params.from_file("simcse").as_dict() == expected
    Path("simcse").write_text('{ "a": 1 }')  # a file comes first
    assert Params.from_file("simcse").as_dict() == {"a": 1}


def test_an_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(UnknownRecipe, match=r"no recipe 'a/simsce'\. Expected .*nearest: sent"):
        Params.from_file("a/simsce")
    with pytest.raises(FileNotFoundError, match=r"no recipe 'x\.jsonnet'\. Expected .* lists\.$"):
        Params.from_file("x.jsonnet")


@pytest.mark.parametrize("place", ["run/config.json", "s3://x/declutr"])
def test_what_is_no_recipe_is_reported_as_before(place: str) -> None:
    missing = FileNotFoundError(f"file {place} not found")
    with pytest.raises(FileNotFoundError, match=f"^file {place} not found$"):
        named_recipe(place, missing)


@pytest.mark.parametrize("name", ["MY_DATA", "TRANSFORMER_MODEL"])
def test_a_variable_without_a_default_is_named(name: str) -> None:
    Path("own.jsonnet").write_text(f"{{ a: std.extVar('{name}') }}")
    told = f"'own.jsonnet' takes the variable {name}, which is not set. .* {name}=... declutr train"
    with pytest.raises(UndefinedVariable, match=told):
        Params.from_file("own.jsonnet")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{ a: 1 b: 2 }", r"STATIC ERROR: own\.jsonnet:1:8: expected a comma before next field$"),
        ("{ a: error 'no' }", r"RUNTIME ERROR: no \(own\.jsonnet:1:6-16\)$"),
        ("{ a: import 'x' }", r"couldn't open import \"x\".* \(own\.jsonnet:1:6-16\)$"),
    ],
)
def test_errors_of_jsonnet_are_one_line(text: str, told: str) -> None:
    Path("own.jsonnet").write_text(text)
    with pytest.raises(RecipeError, match=rf"^'own\.jsonnet' cannot be evaluated: .*{told}"):
        Params.from_file("own.jsonnet")


def test_overrides_that_are_no_json_are_told() -> None:
    Path("own.jsonnet").write_text("{}")
    with pytest.raises(RecipeError, match=r"overrides '\{\"a\": 1' cannot .*Expected JSON, such"):
        Params.from_file("own.jsonnet", '{"a": 1')
    assert Params.from_file("own.jsonnet", "{a: 1}").as_dict() == {"a": 1}
