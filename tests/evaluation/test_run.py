"""Resumed runs: which tasks are scored again, which results are kept, and which are refused."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from declutr.evaluation.bootstrap import interval
from declutr.evaluation.results import ResultFolder
from declutr.evaluation.run import ChangedResults, Run, failed
from declutr.evaluation.task import PROTOTYPING, PUBLISHED, Protocol, Task
from tests.evaluation.fakes import Absent, Encoder, Failing, Positive, Similar

ONE, TWO = ["a", "b", "c"], ["c", "d"]


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def start(tmp_path, said):
    """Return a function that runs encoders on some tasks, always in the same folder."""

    def start(
        tasks: Sequence[Task],
        *encoders: Encoder,
        protocol: Protocol = PUBLISHED,
        version: str = "1.0",
        **options: Any,
    ) -> Run:
        folder = ResultFolder(tmp_path / "out")
        run = Run(folder, tasks, protocol, version, say=said.append, **options)
        for encoder in encoders:
            run.add(encoder)
        return run

    return start


def comparison(run: Run, first: Sequence[str] = ()):
    return run.comparison(first, [task.name for task in run.tasks])[0]


ALONE = [Positive("one", ONE)]
BOTH = [*ALONE, Positive("two", TWO)]


class TestResuming:
    def test_only_sentences_of_tasks_to_do_are_embedded(self, start, said) -> None:
        start(ALONE, Encoder())
        again = Encoder()
        run = start(BOTH, again)
        assert sorted(again.seen) == ["c", "d"]
        assert said[0] == "hashed: 1 task to do"
        assert said[1] == f"hashed: 1 task to do, 1 kept from before in {run.folder.folder}"
        assert comparison(run).groups() == {"downstream": ["one", "two"]}

    def test_a_finished_run_embeds_nothing(self, start, said) -> None:
        start(ALONE, Encoder())
        again = Encoder()
        start(ALONE, again)
        assert again.seen == [] and said[-1].startswith("hashed: 0 tasks to do, 1 kept")

    def test_a_killed_run_loses_only_the_task_in_progress(self, start) -> None:
        tasks = [Positive("one", ONE), Failing(KeyboardInterrupt(), "two"), Positive("three", TWO)]
        with pytest.raises(KeyboardInterrupt):
            start(tasks).add(Encoder())
        run = start([Positive("one", ONE), Positive("two", TWO), Positive("three", TWO)])
        again = Encoder()
        run.add(again)
        assert sorted(again.seen) == ["c", "d"]
        assert comparison(run).groups() == {"downstream": ["one", "two", "three"]}

    def test_failed_and_missing_results_are_computed_again(self, start) -> None:
        run = start([Failing(RuntimeError("odd"), "one"), Absent("two")], Encoder())
        assert failed(comparison(run), ["hashed"], {}) and comparison(run).missing()
        run = start(BOTH, Encoder())
        assert not comparison(run).failures() and not comparison(run).missing()

    def test_a_damaged_result_is_computed_again(self, start) -> None:
        run = start(ALONE, Encoder())
        (path,) = run.folder.folder.rglob("one.npz")
        path.write_bytes(b"")
        again = Encoder()
        start(ALONE, again)
        assert sorted(again.seen) == ONE

    def test_intervals_of_kept_results_have_the_samples_that_are_asked_for(self, start) -> None:
        encoders = [Encoder(name) for name in ("first", "second")]
        without = comparison(start([Similar()], *encoders, resamples=0))
        assert without.record("first", "STS12").intervals == {}
        assert without.difference("second", "STS12").interval is None
        again = [Encoder(name) for name in ("first", "second")]
        found = comparison(start([Similar()], *again, resamples=50))
        assert [encoder.seen for encoder in again] == [[], []]
        record = found.record("first", "STS12")
        assert record.resamples == 50 and record.interval_seconds > 0
        assert record.intervals[record.main.name] == interval(record.main, resamples=50)
        assert found.difference("second", "STS12").interval == (0, 0)  # the same embeddings

    def test_time_and_counts_of_all_runs_are_stored(self, start) -> None:
        start([Positive("one", [*ONE, "a"])], Encoder())
        run = start([Positive("one", [*ONE, "a"]), Positive("two", TWO), Absent()], Encoder())
        facts = run.folder.description("hashed")
        assert [(r["requested"], r["embedded"]) for r in facts["runs"]] == [(4, 3), (2, 2)]
        assert all(r["seconds"] >= 0 for r in facts["runs"])
        assert facts["counts"] == {"truncated_texts": 0} and facts["spec"] == "fake:hashed"


class TestChanges:
    @pytest.mark.parametrize(
        ("changed", "settings", "message"),
        [
            ([Positive("one", TWO)], {}, "on one that was made otherwise: data "),
            ([Positive("one", ONE)], {"version": "1.1"}, "declutr 1.0 there, 1.1 now"),
            ([Positive("one", ONE)], {"protocol": PROTOTYPING}, "protocol: kfold 10 there, 5 now"),
        ],
    )
    def test_changed_results_are_refused_before_an_encoder_is_opened(
        self, start, changed, settings, message
    ) -> None:
        start(ALONE, Encoder())
        with pytest.raises(ChangedResults, match=f"has a result of hashed .*{re.escape(message)}"):
            start(changed, **settings).check(["another", "hashed"])

    def test_overwrite_replaces_changed_results(self, start) -> None:
        start(BOTH, Encoder())
        run = start([Positive("one", ["x", "y"]), Positive("two", TWO)], overwrite=True)
        run.check(["hashed"])
        again = Encoder()
        run.add(again)
        assert sorted(again.seen) == ["x", "y"]  # the other task has not changed

    def test_another_encoder_of_the_same_name_is_refused(self, start) -> None:
        start(ALONE, Encoder())
        run = start(ALONE)
        run.check(["hashed"])  # the fingerprint is known only once the encoder is open
        expected = "encoder a there, b now. Choose another --output, or replace such results with"
        with pytest.raises(ChangedResults, match=expected):
            run.add(Encoder(fingerprint="b"))
        start(ALONE, Encoder(fingerprint="b"), overwrite=True)

    def test_results_are_kept_on_another_device(self, start) -> None:
        start(ALONE, Encoder())
        run = start(ALONE, protocol=replace(PUBLISHED, device="cuda"))
        run.check(["hashed"])
        again = Encoder()
        run.add(again)
        assert again.seen == []


class TestComparison:
    def test_all_encoders_of_the_folder_appear_with_the_named_ones_first(self, start) -> None:
        for name in ("b", "c", "a"):
            start([Positive("two", TWO), Positive("one", ONE)], Encoder(name))
        run = start(ALONE)
        found, left_out = run.comparison(["c"], ["one"])
        assert found.encoders == ["c", "a", "b"] and found.tasks == ["one", "two"]
        assert left_out == 0

    def test_results_that_do_not_belong_are_left_out_and_counted(self, start) -> None:
        start(BOTH, Encoder("quick"), protocol=PROTOTYPING)
        start([Positive("one", TWO)], Encoder("other data"))
        run = start([Positive("one", ONE), Absent("two")], Encoder("now"))
        found, left_out = run.comparison(["now"], ["one", "two"])
        assert found.encoders == ["now"] and left_out == 3

    def test_two_encoders_of_one_name_do_not_share_a_row(self, start) -> None:
        start([Positive("one", ONE), Absent("three")], Encoder())
        run = start([Positive("two", TWO)])
        # There is no result on this task yet, so nothing is refused.
        run.add(Encoder(fingerprint="b"))
        found, left_out = run.comparison(["hashed"], ["one", "two"])
        assert list(found.records["hashed"]) == ["two"] and left_out == 2

    def test_a_task_that_is_not_read_counts_on_the_data_of_the_first_encoder(self, start) -> None:
        start([Absent("one")], Encoder("none"))
        start(ALONE, Encoder("a"), Encoder("c"))
        start([Positive("one", TWO)], Encoder("b"))
        run = start([Positive("two", TWO)], Encoder("b"))
        found, left_out = run.comparison(["none", "b", "a"], ["one", "two"])
        tasks = {name: list(of_one) for name, of_one in found.records.items() if of_one}
        assert tasks == {"none": ["one"], "b": ["one", "two"]}
        assert left_out == 2
        found, left_out = run.comparison(["a", "b"], ["one", "two"])
        assert found.difference("c", "one") is not None and found.difference("b", "one") is None
        assert list(found.records["b"]) == ["two"] and left_out == 1

    def test_old_results_of_a_task_whose_data_are_gone_are_left_out(self, start) -> None:
        start(ALONE, Encoder("before"))
        run = start([Absent("one"), Positive("two", TWO)], Encoder("now"))
        found, left_out = run.comparison(["now"], ["one", "two"])
        assert found.encoders == ["now"] and list(found.missing()) == ["one"] and left_out == 1

    def test_an_encoder_that_fails_does_not_stop_others(self, start) -> None:
        def broken(texts):
            raise OSError("the file is gone")

        run = start([Positive("one", ONE), Similar(), Absent()], Encoder("broken", broken))
        run.add(Encoder("good"))
        found = comparison(run, ["broken", "good"])
        error = "The encoder failed. OSError: the file is gone"
        assert found.failures() == [("broken", "one", error), ("broken", "STS12", error)]
        assert list(found.missing()) == ["absent"]
        assert set(found.values("good")) == {"one", "STS12"} and found.values("broken") == {}
        assert failed(found, ["broken", "good"], {}) and not failed(found, ["good"], {})
        assert failed(found, ["good"], {"third": "not found"})
