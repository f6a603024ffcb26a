"""Evaluation over several tasks: what is embedded, and how failures are isolated."""

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from allennlp.common.util import SigTermReceived

from declutr.evaluation import suite
from declutr.evaluation.scores import Score
from declutr.evaluation.sentence_vectors import SentenceVectors
from declutr.evaluation.suite import (
    LAYOUT,
    TaskResult,
    all_tasks,
    chosen,
    evaluate,
    require_data_folder,
)
from declutr.evaluation.task import PROTOTYPING, BrokenData, Task, Vectors
from tests.evaluation.fakes import Absent, Encoder, Failing, Positive, Similar, hashed


def run(tasks: list[Task], encode=hashed) -> dict[str, TaskResult]:
    return {result.task: result for result in evaluate(encode, tasks)}


class TestAllTasks:
    def test_every_task_that_papers_report_is_there(self, tmp_path) -> None:
        names = [task.name for task in all_tasks(tmp_path)]
        assert len(set(names)) == len(names)
        assert set(names) >= {"CR", "MR", "MPQA", "SUBJ", "SST2", "SST5", "TREC", "MRPC", "SNLI"}
        assert set(names) >= {"SICK-E", "SICK-R", "STS-B", "COCO", "geometry"}
        assert set(names) >= {f"STS{year}" for year in range(12, 17)}
        assert sum(task.group == "probing" for task in all_tasks(tmp_path)) == 10

    def test_without_data_every_task_is_missing_and_names_a_file(self, tmp_path) -> None:
        tasks = all_tasks(tmp_path, PROTOTYPING, corpus=tmp_path / "none.txt")
        results = run(tasks)
        assert len(results) == len(tasks) and "span retrieval" in results
        for result in results.values():
            assert result.missing and str(tmp_path) in result.error and not result.scores

    def test_span_retrieval_needs_a_corpus(self, tmp_path) -> None:
        assert "span retrieval" not in [task.name for task in all_tasks(tmp_path)]


class TestChosen:
    TASKS = (Similar("STS12"), Similar("STS-B"), Positive("MR", "ab"), Positive("CR", "ab"))

    @pytest.mark.parametrize(
        ("patterns", "names"),
        [
            (["STS*"], ["STS12", "STS-B"]),
            (["sts"], ["STS12", "STS-B"]),
            (["CR", "STS12"], ["STS12", "CR"]),  # in the order of tasks
            (["[CM]R", "MR"], ["MR", "CR"]),
            (["*"], ["STS12", "STS-B", "MR", "CR"]),
        ],
    )
    def test_tasks_are_chosen_by_name_or_group(self, patterns, names) -> None:
        assert [task.name for task in chosen(self.TASKS, patterns)] == names

    def test_a_pattern_that_matches_nothing_is_refused(self) -> None:
        expected = "No task or group matches 'STS99'. Groups: sts, downstream. Tasks: STS12, STS-B,"
        with pytest.raises(ValueError, match=re.escape(expected)):
            chosen(self.TASKS, ["MR", "STS99"])


class TestEmbedding:
    def test_each_sentence_is_embedded_once_for_all_tasks(self) -> None:
        encoder = Encoder()
        tasks = [Positive("one", ["a", "b", "a"]), Positive("two", ["b", "c"]), Similar()]
        results = run(tasks, encoder)
        assert len(encoder.seen) == len(set(encoder.seen)) == 3 + 2 * 60
        assert all(result.error is None for result in results.values())

    def test_scores_are_those_of_the_sentences(self) -> None:
        texts = [f"text {number}" for number in range(50)]
        result = run([Positive("x", texts)])["x"]
        right = sum((hashed([t])[0, 0] > 0) == n % 2 for n, t in enumerate(texts))
        assert result.scores[0].value == pytest.approx(100 * right / 50)
        assert result.main == "accuracy" and result.group == "downstream"
        assert result.notes == ["50 sentences"] and result.seconds > 0

    def test_nothing_is_embedded_without_data(self) -> None:
        encoder = Encoder()
        assert run([Absent()], encoder)["absent"].missing
        assert encoder.seen == []

    def test_results_are_yielded_one_by_one_in_the_order_of_tasks(self) -> None:
        results = evaluate(hashed, [Absent(), Positive("x", "ab"), Failing(KeyboardInterrupt())])
        assert [next(results).task, next(results).task] == ["absent", "x"]


class Given(Positive):
    """A task that changes its scores."""

    def __init__(self, change: Callable[[list[Score]], list[Score]]) -> None:
        super().__init__("x", "ab")
        self.change = change

    def scores(self, vectors: Vectors) -> list[Score]:
        return self.change(super().scores(vectors))


OTHER_NAMES = "Expected scores of different names, 'accuracy' among them"
ONES = {"value": np.ones(3)}


class TestFailures:
    def others(self, *tasks: Task, encode=hashed) -> TaskResult:
        """Return the result of the first task; others before and after it must succeed."""
        results = run([Positive("before", "ab"), *tasks, Positive("after", "cd")], encode)
        assert results["before"].error is None and results["after"].error is None
        return results[tasks[0].name]

    @pytest.mark.parametrize(
        ("task", "error"),
        [
            (Absent(), "absent.txt is not there."),
            (Failing(BrokenData("a.txt has 3 rows."), reading=True), "a.txt has 3 rows."),
            (Failing(IndexError("out of range"), reading=True), "IndexError: out of range"),
            (Failing(ZeroDivisionError()), "ZeroDivisionError"),
            (Failing(RuntimeError("out of memory")), "RuntimeError: out of memory"),
            (Given(lambda scores: scores[1:]), f"{OTHER_NAMES}, got ['dev_accuracy']."),
            (Given(lambda _: [Score("accuracy", "accuracy", ONES)]), "KeyError: 'predicted'"),
        ],
        ids=["missing", "broken", "reading", "scoring", "with text", "no main score", "items"],
    )
    def test_a_task_that_fails_has_an_error(self, task, error, caplog) -> None:
        """Unexpected errors are logged with their traceback."""
        result = self.others(task)
        assert (result.missing, result.error) == (isinstance(task, Absent), error)
        assert ("Traceback" in caplog.text) == ("Error" in error)

    def test_nan_fails_only_the_tasks_that_use_the_sentence(self) -> None:
        def encode(texts):
            vectors = hashed(texts)
            vectors[[text == "bad one" for text in texts]] = np.nan
            return vectors

        tasks = [Positive("x", ["good", "bad one"]), Positive("y", ["good", "bad one", "more"])]
        result = self.others(*tasks, encode=encode)
        told = "numbers that are not finite for 1 of 2 sentences; the first is 'bad one'."
        assert result.error == f"The encoder gave {told}"

    def test_embeddings_of_another_shape_fail_only_their_tasks(self, monkeypatch) -> None:
        one_by_one = partial(SentenceVectors, block=1)
        monkeypatch.setattr(suite, "SentenceVectors", one_by_one)

        def encode(texts):
            return hashed(texts, 5 if "bad" in texts else 4)

        error = self.others(Positive("x", ["first", "bad"]), encode=encode).error
        told = "Expected embeddings of shape (1, 4) as before, the encoder gave (1, 5)."
        assert error is not None and error.endswith(f"'bad'. {told}")

    @pytest.mark.parametrize(
        ("encode", "message"),
        [
            (lambda texts: np.ones(len(texts)), r"Expected embeddings of shape \(4, 'd'\)"),
            (lambda texts: np.ones((1, 3)), r"the encoder gave \(1, 3\)"),
            (lambda texts: 1 / 0, "ZeroDivisionError: division by zero"),
        ],
    )
    def test_a_failing_encoder_fails_every_task_except_those_without_data(
        self, encode, message
    ) -> None:
        results = run([Positive("x", "ab"), Absent(), Positive("y", "cd")], encode)
        assert results["absent"].missing
        for name in "xy":
            assert re.search(f"^The encoder failed. .*{message}", results[name].error)
            assert not results[name].missing and not results[name].scores

    @pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(1), SigTermReceived()])
    def test_an_exception_that_ends_the_process_is_no_failure_of_a_task(self, stop) -> None:
        def encode(texts):
            raise stop

        for task, encoder in ((Failing(stop), hashed), (Positive("x", "ab"), encode)):
            with pytest.raises(type(stop)):
                run([task], encoder)


# -------------------------------------------- the data folder, and folders above and below


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Make a folder `SentEval/data` with a file of each kind of task."""
    folder = tmp_path / "SentEval" / "data"
    for file in (
        "downstream/CR/custrev.pos",
        "downstream/STS/STSBenchmark/sts-test.csv",
        "probing/sentence_length.txt",
        "probing_surrogate/own.txt",
        "retrieval/scifact/corpus.jsonl",
        "extra/cranfield/cran.qry.xml",
    ):
        (folder / file).parent.mkdir(parents=True)
        (folder / file).write_text("a\n")
    return folder


def test_a_data_folder_and_an_unknown_folder_are_accepted(data: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (data, tmp_path / "empty", tmp_path):
        require_data_folder(folder)
    for name in LAYOUT:
        (tmp_path / name / name).mkdir(parents=True)
        require_data_folder(tmp_path / name)


@pytest.mark.parametrize("inside", [*LAYOUT, "downstream/STS", "downstream/CR"])
def test_a_folder_inside_a_data_folder_is_refused(data, tmp_path, inside, monkeypatch) -> None:
    right = re.escape(f"expected the folder that it is in: '{data}'")
    with pytest.raises(ValueError, match=rf"is {inside}/ itself, {right}"):
        all_tasks(data / inside)
    monkeypatch.chdir(data / inside)
    with pytest.raises(ValueError, match=rf"'.' is {inside}/ itself, {right}"):
        require_data_folder(Path())
    os.symlink(data / inside, tmp_path / "link")
    with pytest.raises(ValueError, match=right):
        require_data_folder(tmp_path / "link")


def test_a_folder_above_a_data_folder_is_refused(data: Path) -> None:
    with pytest.raises(ValueError, match=rf"'{data}' has. Give that folder"):
        all_tasks(data.parent)


def test_tasks_in_a_folder_of_another_name_are_refused(data: Path) -> None:
    moved = (data / "downstream").rename(data.parent / "transfer")
    with pytest.raises(ValueError, match=r"transfer' holds CR, STS, expected .* in downstream/"):
        require_data_folder(moved)
