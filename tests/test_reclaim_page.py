"""docs/RECLAIM.md: a model of one's own is trained and opened as written; recipes and defaults."""

import inspect
import json
import random
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.commands.train import train_model_from_file
from allennlp.common import Params
from allennlp.models import load_archive

import declutr.plugin  # noqa: F401
from declutr.models.reclaim.model import ReclaimModel
from declutr.objectives.memories.reclaim import Reclaim
from declutr.recipes import recipe_names, recipe_path
from tests.conftest import make_documents

PAGE = (Path(__file__).parent.parent / "docs" / "RECLAIM.md").read_text()


def code(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def write_rows(file: Path, count: int) -> None:
    """Pairs of texts; half of them are the same."""
    rng = random.Random(count)
    texts = [" ".join(text.split()[:8]) for text in make_documents(count, 10)]
    rows = ["first\tsecond\tsame"]
    for number, text in enumerate(texts):
        same = number % 2
        rows.append(f"{text}\t{text if same else rng.choice(texts)}\t{same}")
    file.write_text("\n".join(rows) + "\n")


@pytest.mark.slow
def test_a_model_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "train.tsv", 128)
    write_rows(tmp_path / "dev.tsv", 32)
    model_code, loading = code("python")
    recipe, _ = code("jsonnet")
    Path("recipe.jsonnet").write_text(recipe)
    names: dict = {}
    exec(compile(model_code, "my_model.py", "exec"), names)

    trained = train_model_from_file(
        "recipe.jsonnet", "output", overrides={"trainer.cuda_device": -1}
    )
    assert isinstance(trained, ReclaimModel)
    visited = trained._objective.u_bank.visited
    assert visited[:128].all() and not visited[128:].any()

    exec(compile(loading, "docs/RECLAIM.md", "exec"), names)
    assert type(names["bare"]) is names["Matcher"]
    whole = load_archive("output").model
    for name, value in names["bare"].state_dict().items():
        assert torch.equal(value, whole.model.state_dict()[name]), name


def test_keys_and_defaults_are_true() -> None:
    parameters = inspect.signature(Reclaim).parameters
    keys = set(re.findall(r"^\| `([a-z_]+)[:`]", PAGE.split("## Memory")[1].split("##")[0], re.M))
    assert keys == {"storage", "precision", "search"} and keys <= set(parameters)
    for key, value in re.findall(r"`([a-z_]+)` \(([\d,]+)\)", PAGE):
        assert parameters[key].default == int(value.replace(",", "")), key
    assert "`momentum` 0.5" in PAGE and parameters["momentum"].default == 0.5


def test_every_recipe_is_listed() -> None:
    listed = set(re.findall(r"`(?:reclaim/ablations/)?([a-z_0-9.]+)`", PAGE))
    own = {name.rpartition("/")[2] for name in recipe_names() if "reclaim" in name}
    assert own and own <= listed


def rows_of_the_paper() -> dict[str, dict[str, Any]]:
    """What the table says that recipes set, by recipe and dotted key."""
    table = PAGE.split("## The rows of the paper")[1].split("\n## ")[0]
    rows = {}
    for line in table.splitlines():
        if line.startswith("| ") and not line.startswith("| row"):
            _, recipe, sets = line.strip("|").split("|")
            pairs = re.findall(r"`([a-z0-9_.]+): ([^`]+)`", sets)
            rows[re.findall("`([^`]+)`", recipe)[0]] = {k: json.loads(v) for k, v in pairs}
    return rows


ROWS = rows_of_the_paper()
LINES = {recipe: line for recipe in ROWS for line in PAGE.splitlines() if f"`{recipe}` |" in line}


@cache
def flat(recipe: str) -> dict[str, Any]:
    found = Params.from_file(str(recipe_path(recipe))).as_flat_dict()
    return {key: value for key, value in found.items() if not key.endswith("model_name")}


@pytest.mark.parametrize("recipe", ROWS)
def test_a_row_of_the_paper_sets_what_the_table_says(
    recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSFORMER_MODEL", "m")
    config, sets = flat(recipe), ROWS[recipe]
    assert {key: config.get(key, "absent") for key in sets} == sets
    assert sets or "nothing" in LINES[recipe]
    if recipe != "reclaim" and "model.objective.type" in config:
        usual = flat("reclaim")
        changed = {k: v for k, v in config.items() if k not in usual or usual[k] != v}
        assert changed == sets, "beside reclaim.jsonnet a row sets nothing else"


def test_all_tables_on_glue_have_rows() -> None:
    named = re.findall(r"tables? ([\d, and]+)", PAGE.split("## The rows of the paper")[1])
    assert {"1", "2", "5", "6", "8", "9", "10"} <= set(re.findall(r"\d+", " ".join(named)))
    assert {n for n in recipe_names() if n.startswith("reclaim/ablations/")} <= ROWS.keys()


# ------------------------------------------------------------- models of AllenNLP and its packages

HIDDEN = 6


def feedforward(input_dim: int, *hidden: int) -> dict[str, Any]:
    sizes = {"num_layers": len(hidden), "hidden_dims": list(hidden)}
    return {"input_dim": input_dim, **sizes, "activations": "relu"}


def of_two_texts() -> dict[str, dict[str, Any]]:
    """Models of allennlp-models in small, by type, without it a classifier of one text alone."""
    tokens = {"token_embedders": {"tokens": {"type": "embedding", "embedding_dim": HIDDEN}}}
    gru = {"type": "gru", "input_size": HIDDEN, "hidden_size": HIDDEN}
    wide = feedforward(2 * HIDDEN, HIDDEN)
    return {
        "basic_classifier": {"text_field_embedder": tokens, "seq2vec_encoder": gru},
        "esim": {
            "text_field_embedder": tokens,
            "encoder": gru,
            "matrix_attention": "dot_product",
            "projection_feedforward": feedforward(4 * HIDDEN, HIDDEN),
            "inference_encoder": gru,
            "output_feedforward": feedforward(4 * HIDDEN, HIDDEN),
            "output_logit": {**feedforward(HIDDEN, 2), "activations": "linear"},
        },
        "decomposable_attention": {
            "text_field_embedder": tokens,
            "attend_feedforward": feedforward(HIDDEN, HIDDEN),
            "matrix_attention": "dot_product",
            "compare_feedforward": wide,
            "aggregate_feedforward": feedforward(2 * HIDDEN, HIDDEN, 2),
        },
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", of_two_texts())
def test_three_lines_around_a_model(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Train the page's recipe around each model of its table, and open what was wrapped."""
    of_one_text = name == "basic_classifier"
    if not of_one_text:
        pytest.importorskip(
            "allennlp_models.pair_classification.models", reason="not in the test extra"
        )
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "train.tsv", 32)
    columns = {"texts": ["first", "second"][: 1 if of_one_text else 2], "label": "same"}
    recipe = {
        "dataset_reader": {"type": "glue", **columns, "combine": False},
        "train_data_path": "train.tsv",
        "model": {"type": name, **of_two_texts()[name]},
        "data_loader": {"batch_size": 8},
        "trainer": {"optimizer": "adam", "num_epochs": 1, "cuda_device": -1},
    }
    Path("esim.jsonnet").write_text(json.dumps(recipe))
    (u,) = re.findall(
        rf"^\| `{name}` \| [^|]+ \| (?:by default its )?`([^`]+)`", PAGE, re.MULTILINE
    )
    wrapped = code("jsonnet")[1].replace("_output_feedforward", u)
    Path("reclaim.jsonnet").write_text(wrapped)

    trained = train_model_from_file("reclaim.jsonnet", "output")
    assert isinstance(trained, ReclaimModel) and trained._objective.u_bank.width == HIDDEN
    assert trained._objective.u_bank.visited.sum() == 32
    bare = load_archive("output", overrides={"model.bare": True}).model
    assert type(bare) is type(trained.model)
    assert bare.state_dict().keys() == trained.model.state_dict().keys()
