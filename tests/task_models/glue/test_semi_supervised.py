"""Tests of the reader "semi_supervised" on written rows."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance
from allennlp.data.fields import ListField

import declutr.plugin  # noqa: F401
from declutr.archives.safety.building import untrusted
from declutr.data.augmentations import Augmentation
from declutr.task_models.glue.semi_supervised import SemiSupervisedReader

LABELLED = [{"text": f"a{n} b{n} c{n}", "label": "xy"[n % 2]} for n in range(4)]
UNLABELLED = [{"text": f"u{n} v{n}", "label": ""} for n in range(9)]


class Reversed(Augmentation):
    """Words the other way round and a number that was drawn, or nothing of a text of two words."""

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        words = text.split()
        return "" if len(words) == 2 else " ".join([*words[::-1], str(rng.integers(10**9))])


def write(folder: Path, rows: list[dict[str, Any]], name: str = "rows.jsonl") -> str:
    file = folder / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def reader(**settings: Any) -> SemiSupervisedReader:
    return SemiSupervisedReader(**{"texts": "text", "label": "label", **settings})


def words(instance: Instance, name: str) -> list[str]:
    field: Any = instance[name]
    assert isinstance(field, ListField)
    texts: list[Any] = list(field)
    return [" ".join(token.text for token in text) for text in texts]


def own(instance: Instance) -> str:
    field: Any = instance["tokens"]
    return " ".join(token.text for token in field)


def test_an_epoch_goes_once_through_the_unlabelled_texts(tmp_path: Path) -> None:
    """Nine of them, two beside each of the four labelled ones, which are repeated."""
    files = [
        write(tmp_path, LABELLED, "labelled.jsonl"),
        write(tmp_path, UNLABELLED, "unlabelled.jsonl"),
    ]
    instances = list(reader(unlabelled=2).read(files))
    assert [own(one) for one in instances] == [LABELLED[n % 4]["text"] for n in range(5)]
    assert [one["label"].label for one in instances] == ["x", "y", "x", "y", "x"]
    seen = [text for one in instances for text in words(one, "unlabelled_tokens")]
    assert len(seen) == 10 and set(seen) == {row["text"] for row in UNLABELLED}
    assert seen[:9] != [row["text"] for row in UNLABELLED] and seen[9] == seen[0]
    assert "augmented_unlabelled_tokens" not in instances[0].fields
    again = list(reader(unlabelled=2).read(files))
    other = list(reader(unlabelled=2, seed=1).read(files))
    assert [words(one, "unlabelled_tokens") for one in again] == [
        words(one, "unlabelled_tokens") for one in instances
    ]
    assert [words(one, "unlabelled_tokens") for one in other] != [
        words(one, "unlabelled_tokens") for one in instances
    ]


def test_an_epoch_goes_once_through_the_labelled_texts_if_they_are_more(tmp_path: Path) -> None:
    file = write(tmp_path, LABELLED + UNLABELLED[:1])
    instances = list(reader(unlabelled=1).read(file))
    assert [own(one) for one in instances] == [row["text"] for row in LABELLED]
    assert [words(one, "unlabelled_tokens") for one in instances] == [["u0 v0"]] * 4


def test_rows_that_the_fraction_leaves_out_are_unlabelled(tmp_path: Path) -> None:
    file = write(tmp_path, LABELLED)
    settings = {"label_fraction": 0.5, "with_ids": True}
    instances = list(reader(unlabelled=1, **settings).read(file))
    kind: Any = DatasetReader.by_name("glue")
    plain = list(kind(texts="text", label="label", **settings).read(file))
    assert [own(one) for one in instances] == [own(one) for one in plain]
    assert [one["ids"].label for one in instances] == [one["ids"].label for one in plain]
    beside = [text for one in instances for text in words(one, "unlabelled_tokens")]
    assert {*beside, *map(own, instances)} == {row["text"] for row in LABELLED}


def test_augmentations_are_of_each_text_and_each_view(tmp_path: Path) -> None:
    file = write(tmp_path, LABELLED + UNLABELLED[:2])
    made = reader(augmentation=Reversed(), num_views=2, unlabelled=1)
    for number, instance in enumerate(made.read(file)):
        first, second = words(instance, "augmented_tokens")
        assert first.split()[:3] == LABELLED[number % 4]["text"].split()[::-1]
        assert first != second  # other draws
        (kept,) = words(instance, "augmented_unlabelled_tokens")
        assert [kept] == words(instance, "unlabelled_tokens")  # its augmentation is empty
    texts = [words(one, "augmented_tokens") for one in made.read(file)]
    assert texts == [words(one, "augmented_tokens") for one in made.read(file)]


def test_both_texts_of_a_pair_are_augmented(tmp_path: Path) -> None:
    rows = [{**row, "second": f"{row['text']} d"} for row in LABELLED]
    pairs = reader(texts=["text", "second"], combine=False, augmentation=Reversed(), num_views=1)
    instance = next(iter(pairs.read(write(tmp_path, rows))))
    assert words(instance, "augmented_premise")[0].split()[:3] == ["c0", "b0", "a0"]
    assert words(instance, "augmented_hypothesis")[0].split()[:4] == ["d", "c0", "b0", "a0"]


def test_a_file_without_labels_is_read_as_by_glue(tmp_path: Path) -> None:
    instances = list(reader(unlabelled=2).read(write(tmp_path, UNLABELLED)))
    assert [own(one) for one in instances] == [row["text"] for row in UNLABELLED]
    assert {tuple(one.fields) for one in instances} == {("tokens",)}


def test_parameters_of_glue_are_known_in_configurations() -> None:
    config = {"type": "semi_supervised", "task": "sst-2", "unlabelled": 3, "strict": True}
    made = DatasetReader.from_params(Params({**config, "augmentation": {"type": "eda"}}))
    assert isinstance(made, SemiSupervisedReader) and made.strict
    with pytest.raises(ConfigurationError, match=r"Extra parameters passed.*unlabeled"):
        DatasetReader.from_params(Params({**config, "unlabeled": 3}))


@pytest.mark.parametrize(
    "settings, message",
    [
        ({}, "num_views 0 and unlabelled 0: set unlabelled"),
        ({"num_views": 1}, "num_views 1 and no augmentation to make them"),
        ({"unlabelled": -1}, "must be 0 or above, got 0 and -1"),
        ({"unlabelled": 1, "keep_unlabelled": True}, "Got keep_unlabelled, but this reader puts"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        reader(**settings)


def test_data_that_have_nothing_unlabelled_or_are_not_trusted_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path, LABELLED)
    with pytest.raises(ConfigurationError, match="all texts have labels, and 3 without one"):
        list(reader(unlabelled=3).read(file))
    with untrusted():
        made = reader(augmentation=Reversed(), num_views=1)
    with pytest.raises(ConfigurationError, match="opened without trust"):
        list(made.read(file))
    assert own(made.text_to_instance("a b")) == "a b"
