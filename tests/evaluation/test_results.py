"""Stored results: what is loaded again, and the keys that identify a result."""

import json
import os
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from declutr.evaluation.bootstrap import interval
from declutr.evaluation.result_keys import data_digest, differing, key_of
from declutr.evaluation.results import Record, ResultFolder, record, write_whole
from declutr.evaluation.scores import Score
from declutr.evaluation.suite import TaskResult, evaluate
from declutr.evaluation.task import PUBLISHED, MissingData
from tests.evaluation.fakes import Absent, Positive, Similar, hashed

KEY = {"encoder": "a", "protocol": "{}", "data": "b", "declutr": "1"}


@pytest.fixture
def folder(tmp_path) -> ResultFolder:
    return ResultFolder(tmp_path / "results")


@pytest.fixture
def scored() -> Record:
    """Make a result of a similarity task with an interval for each score."""
    (result,) = evaluate(hashed, [Similar()])
    result.notes = ["a note", "ein Gruß, \udce4"]
    return record(result, KEY)


class TestIntervals:
    def test_the_main_score_and_every_convention_have_intervals(self, scored) -> None:
        assert set(scored.intervals) == {score.name for score in scored.result.scores}
        assert scored.intervals["all Spearman"] == interval(scored.main)
        (result,) = evaluate(hashed, [Positive("x", [str(n) for n in range(20)])])
        assert set(record(result, KEY).intervals) == {"accuracy"}

    def test_a_score_that_is_not_a_number_has_no_interval(self, folder) -> None:
        items = {"predicted": np.ones(9), "gold": np.arange(9.0)}
        result = TaskResult("x", "sts", "a", [Score("a", "spearman_all", items)])
        assert record(result, KEY).intervals == {}
        folder.save("mine", record(result, KEY))
        (path,) = folder.folder.rglob("x.json")
        assert json.loads(path.read_text())["scores"][0]["value"] is None
        assert np.isnan(folder.load("mine", "x").main.value)


def flipped(content: bytes) -> bytes:
    """Change a digit of a value."""
    place = content.index(b'"value": ') + 11
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


class TestFolder:
    def test_a_loaded_result_equals_the_saved_one(self, folder, scored) -> None:
        folder.save("mine", scored)
        found = folder.load("mine", "STS12")
        assert found.key == KEY and found.intervals == scored.intervals
        assert replace(found.result, scores=[]) == replace(scored.result, scores=[])
        for ours, theirs in zip(found.result.scores, scored.result.scores, strict=True):
            for name in ("name", "statistic", "value"):
                assert getattr(ours, name) == getattr(theirs, name)
            for name, array in theirs.items.items():
                np.testing.assert_array_equal(ours.items[name], array)
                assert ours.items[name].dtype == array.dtype

    def test_arrays_that_scores_share_are_stored_once(self, folder, scored) -> None:
        folder.save("mine", scored)
        (path,) = folder.folder.rglob("*.npz")
        assert len(np.load(path).files) == 3  # the arrays `predicted`, `gold` and `subset`

    def test_items_may_be_strings(self, folder) -> None:
        items = {"value": np.ones(2), "label": np.array(["ä", "b"])}
        result = TaskResult("map", "map", "shown", [Score("shown", "mean", items)])
        folder.save("mine", record(result, KEY))
        assert folder.load("mine", "map").main.items["label"].tolist() == ["ä", "b"]

    def test_failed_and_missing_results_are_stored(self, folder) -> None:
        (result,) = evaluate(hashed, [Absent()])
        folder.save("mine", record(result, KEY))
        found = folder.load("mine", "absent")
        assert found.result == result and found.main is None
        assert list(folder.folder.rglob("*.npz")) == []

    def test_a_new_result_replaces_the_old_one(self, folder, scored) -> None:
        folder.save("mine", scored)
        folder.save("mine", replace(scored, result=replace(scored.result, scores=[], error="no")))
        assert folder.load("mine", "STS12").result.error == "no"
        assert not folder.load("mine", "STS12").result.scores

    def test_items_that_are_python_objects_are_refused(self, folder) -> None:
        items = {"value": np.array([1, 2]), "label": np.array(["a", None], dtype=object)}
        result = TaskResult("x", "map", "a", [Score("a", "mean", items)])
        with pytest.raises(TypeError, match="items 'label' are Python objects, expected an array"):
            folder.save("mine", record(result, KEY))

    def test_names_of_any_kind_have_files_of_their_own(self, folder, scored) -> None:
        names = ["a/b", "a b", "a_b", "../up", "ä", "", "x" * 300, "A"]
        for name in names:
            folder.describe(name, spec=name)
            folder.save(name, replace(scored, result=replace(scored.result, task=name)))
        assert folder.encoders() == sorted(name for name in names if name)
        for name in names:
            assert folder.description(name)["spec"] == name
            assert folder.load(name, name).result.task == name
        top = {path.name for path in folder.folder.iterdir()}
        assert top == {"encoders"} and not (folder.folder.parent / "up").exists()

    def test_all_results_of_an_encoder_are_found(self, folder, scored) -> None:
        folder.save("mine", scored)
        folder.save("mine", replace(scored, result=replace(scored.result, task="other")))
        folder.save("yours", replace(scored, result=replace(scored.result, task="third")))
        assert set(folder.records("mine")) == {"STS12", "other"}

    def test_facts_about_an_encoder_are_merged(self, folder) -> None:
        assert folder.description("mine") == {}
        folder.describe("mine", spec="a", runs=[])
        folder.describe("mine", runs=[1])
        assert folder.description("mine") == {"name": "mine", "spec": "a", "runs": [1]}

    @pytest.mark.parametrize(
        ("file", "damage"),
        [
            ("json", lambda content: content[:100]),
            ("npz", lambda content: content[:100]),
            ("npz", None),
            ("json", lambda content: json.dumps(json.loads(content) | {"format": 99}).encode()),
            ("json", lambda content: b""),
            ("json", flipped),
        ],
        ids=["cut json", "cut npz", "no npz", "other format", "empty", "a bit"],
    )
    def test_a_damaged_result_is_ignored_with_a_warning(
        self, folder, scored, file, damage, caplog
    ) -> None:
        folder.save("mine", scored)
        (path,) = folder.folder.rglob(f"*.{file}")
        path.write_bytes(damage(path.read_bytes())) if damage else path.unlink()
        assert folder.load("mine", "STS12") is None
        assert "is damaged and not used" in caplog.text
        assert folder.records("mine") == {}

    def test_a_result_of_version_1_5_needs_no_checksum(self, folder, scored) -> None:
        folder.save("mine", scored)
        (stated,) = folder.folder.rglob("*.json")
        content = json.loads(stated.read_text())
        del content["checksum"]
        stated.write_text(json.dumps(content))
        assert folder.load("mine", "STS12").result.task == "STS12"

    def test_an_empty_folder_has_no_results(self, folder, caplog) -> None:
        assert folder.load("mine", "STS12") is None and folder.records("mine") == {}
        assert folder.encoders() == [] and not caplog.text


class TestWriting:
    def test_a_write_that_fails_leaves_the_old_content(self, tmp_path, monkeypatch) -> None:
        path = tmp_path / "a.json"
        write_whole(path, "old")

        monkeypatch.setattr(os, "replace", Mock(side_effect=OSError("no space left")))
        with pytest.raises(OSError, match="no space left"):
            write_whole(path, "new")
        assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


class TestDigests:
    def changed(self, **changes) -> Positive:
        task = Positive("x", ["a", "b", "c"])
        vars(task).update(changes)
        return task

    def test_equal_data_have_equal_digests(self) -> None:
        assert data_digest(self.changed()) == data_digest(self.changed())

    @pytest.mark.parametrize(
        "changes",
        [
            {"texts": ["a", "b", "C"]},
            {"texts": ["ab", "", "c"]},
            {"gold": np.array([0, 1, 1])},
            {"gold": np.array([0, 1, 0], dtype=np.float64)},
            {"settings": {"k": 1}},
            {"settings": {"k": (1, 2)}},
        ],
    )
    def test_other_texts_labels_or_settings_have_another_digest(self, changes) -> None:
        assert data_digest(self.changed(**changes)) != data_digest(self.changed())

    def test_nesting_and_types_change_the_digest(self) -> None:
        one, other = self.changed(x=[["a"], ["b"]]), self.changed(x=[["a", "b"], []])
        assert data_digest(one) != data_digest(other)
        assert data_digest(self.changed(x=1)) != data_digest(self.changed(x="1"))

    def test_paths_functions_and_protocols_do_not_change_the_digest(self) -> None:
        there = [
            self.changed(folder=Path(path), read=read, p=PUBLISHED)
            for path, read in (("/a", len), ("/b", max))
        ]
        assert len({data_digest(task) for task in there}) == 1

    def test_the_order_of_keys_does_not_count_and_cycles_end(self) -> None:
        one, other = {"a": 1, "b": {2, 3}}, {"b": {3, 2}, "a": 1}
        one["me"], other["me"] = one, other
        assert data_digest(self.changed(x=one)) == data_digest(self.changed(x=other))

    def test_attributes_that_scoring_changes_do_not_count(self) -> None:
        there = [self.changed(before_scoring={"last": None}, last=value) for value in (None, "b")]
        assert len({data_digest(task) for task in there}) == 1

    def test_missing_data_have_no_digest(self) -> None:
        with pytest.raises(MissingData, match=r"absent\.txt is not there"):
            data_digest(Absent())


class TestKeys:
    def test_differences_between_keys_are_named(self) -> None:
        task = Positive("x", "ab")
        now = key_of(PUBLISHED, "f1", "1.0", data_digest(task))
        assert differing(now, now) == []
        elsewhere = replace(PUBLISHED, device="cuda")
        assert differing(now, key_of(elsewhere, "f1", "1.0", now["data"])) == []
        there = key_of(replace(PUBLISHED, kfold=5, seed=1), "f2", "0.9", now["data"])
        assert differing(now, there) == [
            "encoder f2 there, f1 now",
            "declutr 0.9 there, 1.0 now",
            "protocol: kfold 5 there, 10 now",
            "protocol: seed 1 there, 1111 now",
        ]
        other = data_digest(Positive("x", "cd"))
        (data,) = differing(now, key_of(PUBLISHED, "f1", "1.0", other))
        assert data.startswith("data ")
