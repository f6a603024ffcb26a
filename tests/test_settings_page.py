"""docs/SETTINGS.md has every setting of the papers' recipes, as they are, with reasons.

`-s` prints the tables, one for each recipe.
"""

import inspect
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from _jsonnet import evaluate_snippet
from allennlp.data import DataLoader, DatasetReader
from allennlp.models import Model
from allennlp.modules import Seq2VecEncoder
from allennlp.training import Trainer, TrainerCallback
from allennlp.training.learning_rate_schedulers import LearningRateScheduler
from allennlp.training.optimizers import Optimizer

from declutr.bridge.configurations import TRANSFORMER
from declutr.data.row_reader import RowReader
from declutr.models.views import Views
from declutr.modules.embedders import PretrainedTransformerEmbedderMLM
from declutr.modules.heads import Head
from declutr.objectives import Objective, PairSoftmax
from declutr.recipes import recipe_names, recipe_path

PAGE = Path(__file__).parents[1] / "docs" / "SETTINGS.md"
FAMILIES = ("simcse", "scd", "sbert", "declutr")
NOT_SAID = "—"
# Parts of a configuration that choose nothing about what is trained.
ELSEWHERE = re.compile(
    r"vocabulary.*|(train|validation)_data_path|validation_data_loader.*|.*num_workers|.*_seed|.*\.seed"
    r"|(model|trainer|dataset_reader|data_loader)\.type|dataset_reader\.token.*"
    r"|model\.text_field_embedder\.(token_embedders\.tokens\.)?type|model\.loss\.embedding_size"
    r"|trainer\.(checkpointer|run_confidence_checks|callbacks\.[01]|callbacks\.2\.(type|data)).*"
)
BASES = {
    "model": Model,
    "dataset_reader": DatasetReader,
    "data_loader": DataLoader,
    "trainer": Trainer,
    "optimizer": Optimizer,
    "learning_rate_scheduler": LearningRateScheduler,
    "callbacks": TrainerCallback,
    "loss": Objective,
    "head": Head,
    "views": Views,
    "seq2vec_encoder": Seq2VecEncoder,
}


class Row(NamedTuple):
    """A row of a table; a cell is a value of JSON, or words."""

    key: str
    ours: Any
    paper: Any
    code: Any
    reason: str


def cell(text: str) -> Any:
    """The first value of a cell in backticks, or its words."""
    found = re.search(r"`([^`]+)`", text)
    return json.loads(found[1].replace(r"\|", "|")) if found else text


def tables() -> dict[str, dict[str, Row]]:
    """The rows of each recipe by their keys, those of the recipe that it is like included."""
    found: dict[str, dict[str, Row]] = {}
    for section in re.split(r"^### ", PAGE.read_text(encoding="utf-8"), flags=re.M)[1:]:
        section = section.partition("\n## ")[0]
        name = section.split("`")[1]
        like = re.search(r"^As `(\w+)`(?:, except:|\.)$", section, re.M)
        rows = dict(found[like[1]]) if like else {}
        own = [line for line in section.splitlines() if line.startswith("| ")][1:]
        for line in own:
            key, *cells, reason = [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]
            row = Row(key, *map(cell, cells), reason)
            assert row.key not in rows or rows[row.key] != row, f"{name}: {row.key} is said twice"
            rows[row.key] = row
        found[name] = rows
    return found


NAMES = [name.rpartition("/")[2] for name in recipe_names()]
TABLES = {name: rows for name, rows in tables().items() if name in NAMES}


@cache
def configurations() -> dict[str, Any]:
    """The configuration of each recipe of the page, with its own transformer; in one evaluation."""
    recipes = {name: f"(import {json.dumps(str(recipe_path(name)))})" for name in TABLES}
    both = [f'"{name}": [{one}, {one}.default_transformer]' for name, one in recipes.items()]
    variables = {TRANSFORMER: TRANSFORMER}
    found = json.loads(evaluate_snippet("all", f"{{{', '.join(both)}}}", ext_vars=variables))
    return {
        name: json.loads(json.dumps(config).replace(TRANSFORMER, default))
        for name, (config, default) in found.items()
    }


def leaves(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}".strip("."))
    else:
        yield path


def value_at(config: Any, key: str) -> Any:
    """What a configuration has at a key, or the default of the class that it builds there.

    A class without such a parameter gives `NOT_SAID`.
    """
    *place, name = key.split(".")
    part, kind = config, None
    for step in place:
        kind = step if not step.isdigit() else kind
        part = part[int(step)] if isinstance(part, list) else part[step]
    if name in part:
        return part[name]
    cls, constructor = BASES[str(kind)].resolve_class_name(part["type"])
    default: dict[str, Any] = {}
    built_by = getattr(cls, constructor) if constructor else cls.__init__
    for function in (RowReader.__init__ if kind == "dataset_reader" else built_by, built_by):
        default |= {n: p.default for n, p in inspect.signature(function).parameters.items()}
    return json.loads(json.dumps(default[name])) if name in default else NOT_SAID


def test_every_recipe_of_these_papers_is_on_the_page() -> None:
    assert {name for name in NAMES if name.split("_")[0] in FAMILIES} <= TABLES.keys()


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_the_settings_of_the_recipe(name: str) -> None:
    config, rows = configurations()[name], TABLES[name]
    print(f"\n{name}")
    for row in rows.values():
        print(
            "  {:48} ours {} | paper {} | code {} | {}".format(row.key.strip("`")[-48:], *row[1:])
        )
        for theirs in (row.paper, row.code):
            assert theirs in (NOT_SAID, row.ours) or row.reason, f"{row.key}: no reason"
    keys = {row.key.strip("`"): row.ours for row in rows.values() if row.key.startswith("`")}
    found = {key: value_at(config, key) for key in keys}
    apart = {key: (keys[key], found[key]) for key in keys if keys[key] != found[key]}
    assert not apart, "what the page says, and what the recipe has"
    missing = {leaf for leaf in leaves(config) if not ELSEWHERE.fullmatch(leaf)}
    missing -= {leaf for leaf in missing for key in keys if f"{leaf}.".startswith(f"{key}.")}
    assert not missing, "keys that the page does not name"


def test_the_classifier_of_sentence_bert_has_no_bias() -> None:
    """Its public code has one: `torch.nn.Linear` of losses/SoftmaxLoss.py, UKPLab's v0.2.3."""
    row = TABLES["sbert_softmax"]["bias of the classifier"]
    assert (row.ours, row.paper, row.code) == ("none", "none", "one")
    assert PairSoftmax(num_labels=3, embedding_size=4).classifier.bias is None


def test_the_language_modelling_head_beside_simcse_is_tied(checkpoint: Path) -> None:
    """That of its public code is not (princeton-nlp/SimCSE, train.py, commit 49fa580a85).

    There, `BertForCL` has a `BertLMPredictionHead` into which the pretrained head is copied, and no
    `get_output_embeddings`, by which transformers would tie it.
    """
    row = TABLES["simcse_mlm"]["output matrix of the language modelling head"]
    ours, theirs = "that of the word embeddings", "a copy of it at first, trained apart"
    assert (row.ours, row.code) == (ours, theirs)
    embedder = PretrainedTransformerEmbedderMLM(str(checkpoint), masked_language_modeling=True)
    model = embedder.transformer_model
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
