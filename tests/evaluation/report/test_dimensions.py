"""Truncated encoders against encoders that return only the leading dimensions."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from declutr.evaluation.report.comparison import Comparison
from declutr.evaluation.report.dimensions import (
    by_family,
    curves,
    families,
    losses,
    whole_encoders,
)
from declutr.evaluation.report.truncated_encoders import (
    RememberingEncoder,
    TruncatedEncoder,
    add_with_dimensions,
)
from declutr.evaluation.results import ResultFolder
from declutr.evaluation.run import ChangedResults, Run
from declutr.evaluation.sentence_vectors import SentenceVectors
from declutr.evaluation.task import PROTOTYPING, PUBLISHED, BadEmbeddings, Task
from tests.evaluation.fakes import Absent, Encoder, Failing, Positive, Similar, Spread, hashed

TEXTS = [f"text {number}" for number in range(40)]


def wide(texts: Sequence[str]) -> np.ndarray:
    return hashed(texts, 8)


def scaled(texts: Sequence[str]) -> np.ndarray:
    vectors = wide(texts)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class Wide(Encoder):
    """An encoder that knows its dimension only after the first call, like a Python function."""

    def __init__(self, name: str = "wide", encode=wide, fingerprint: str = "a") -> None:
        super().__init__(name, encode, fingerprint)
        self.dimension: int | None = None

    def __call__(self, sentences: list[str]) -> np.ndarray:
        vectors = super().__call__(sentences)
        self.dimension = vectors.shape[1]
        return vectors

    def describe(self) -> dict[str, object]:
        return super().describe() | {"dimension": self.dimension}


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def start(tmp_path, said):
    def start(tasks: Sequence[Task], folder: str = "out", protocol=PUBLISHED, **how: bool) -> Run:
        return Run(ResultFolder(tmp_path / folder), tasks, protocol, "1.0", say=said.append, **how)

    return start


def broken(texts: Sequence[str]) -> np.ndarray:
    raise OSError("the file is gone")


def tasks() -> list[Task]:
    return [Similar("STS12", 24), Similar("STS13", 24), Positive("MR", TEXTS), Spread(TEXTS)]


def compared(run: Run, *first: str) -> Comparison:
    return by_family(run.comparison(first, [task.name for task in run.tasks])[0])[0]


class TestEncoders:
    @pytest.mark.parametrize("dimension", [1, 3, 7])
    def test_truncated_encoders_return_the_leading_columns(self, dimension) -> None:
        encoder = TruncatedEncoder(RememberingEncoder(Encoder(encode=wide), 7), dimension)
        np.testing.assert_array_equal(encoder(TEXTS), wide(TEXTS)[:, :dimension])
        assert encoder(TEXTS).dtype == np.float32

    def test_truncated_embeddings_have_length_1_if_the_whole_ones_have(self) -> None:
        whole = RememberingEncoder(Encoder(encode=scaled), 4)
        cut = scaled(TEXTS)[:, :4]
        expected = cut / np.linalg.norm(cut, axis=1, keepdims=True)
        np.testing.assert_allclose(whole.leading(TEXTS, 4), expected, rtol=1e-6)

    def test_rows_of_zeros_or_nan_remain_as_they_are(self) -> None:
        def odd(texts: Sequence[str]) -> np.ndarray:
            vectors = scaled(texts)
            vectors[0], vectors[1] = 0, np.nan
            return vectors

        found = RememberingEncoder(Encoder(encode=odd), 2).leading(TEXTS, 2)
        assert not found[0].any() and np.isnan(found[1]).all()
        np.testing.assert_allclose(np.linalg.norm(found[2:], axis=1), 1, rtol=1e-6)

    def test_nothing_is_embedded_twice(self) -> None:
        encoder = Encoder(encode=wide)
        whole = RememberingEncoder(encoder, 4)
        np.testing.assert_array_equal(whole(TEXTS[:30]), wide(TEXTS[:30]))
        shuffled = [TEXTS[3], TEXTS[35], TEXTS[3], TEXTS[0]]
        np.testing.assert_array_equal(whole.leading(shuffled, 2), wide(shuffled)[:, :2])
        whole.leading(TEXTS, 4)
        assert sorted(encoder.seen) == sorted(TEXTS)
        assert whole.meter.sentences == len(TEXTS)

    def test_an_encoder_that_failed_is_not_called_again(self) -> None:
        encoder = Encoder(encode=broken)
        whole = RememberingEncoder(encoder, 4)
        for call in (whole, lambda texts: whole.leading(texts, 2), lambda t: whole.leading(t, 4)):
            with pytest.raises(OSError, match="the file is gone"):
                call(TEXTS)
        assert len(encoder.seen) == len(TEXTS)

    def test_embeddings_of_another_shape_raise_when_they_are_requested(self) -> None:
        def sometimes(texts: Sequence[str]) -> np.ndarray:
            return wide(texts)[:, : 3 if "bad" in texts else 8]

        whole = RememberingEncoder(Encoder(encode=sometimes), 4)
        whole(TEXTS)
        assert whole(["bad"]).shape == (1, 3)
        with pytest.raises(BadEmbeddings, match="no embeddings of one width for 1 of 2 sentences"):
            whole.leading([TEXTS[0], "bad"], 2)
        np.testing.assert_array_equal(whole.leading(TEXTS, 2), wide(TEXTS)[:, :2])

    def test_a_bad_block_leaves_the_others(self) -> None:
        def sometimes(texts: Sequence[str]) -> np.ndarray:
            if "bad" in texts:
                raise BadEmbeddings("Expected other numbers.")
            return wide(texts)

        whole = RememberingEncoder(Encoder(encode=sometimes), 4)
        vectors = SentenceVectors(TruncatedEncoder(whole, 2), block=1)
        vectors.add(["long enough to be first", "bad", "good"])
        np.testing.assert_array_equal(vectors(["good"]), wide(["good"])[:, :2])
        with pytest.raises(BadEmbeddings, match="Expected other numbers"):
            vectors(["bad"])

    def test_the_description_names_dimension_fingerprint_and_whole_encoder(self) -> None:
        whole = RememberingEncoder(Encoder("name", wide, "mark"), 4)
        truncated = TruncatedEncoder(whole, 2)
        assert truncated.name == "name@2" and truncated.spec == "fake:name"
        about = truncated.describe()
        assert about["fingerprint"] == "mark@2" and about["dimension"] == 2
        assert about["leading_dimensions_of"] == "name" and about["kind"] == "fake"
        assert truncated.counts() == {"truncated_texts": 0}


@pytest.mark.slow
class TestRun:
    @pytest.mark.parametrize("encode", [wide, scaled])
    def test_scores_equal_those_of_an_encoder_with_fewer_dimensions(self, start, encode) -> None:
        run = start(tasks())
        add_with_dimensions(run, Wide(encode=encode), [2, 4])
        for dimension in (2, 4):

            def cut(texts: Sequence[str], dimension: int = dimension) -> np.ndarray:
                vectors = encode(texts)[:, :dimension]
                lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
                return vectors / lengths if encode is scaled else vectors

            alone = start(tasks(), f"alone {dimension}")
            alone.add(Encoder("alone", cut))
            found = compared(run).values(f"wide@{dimension}")
            expected = compared(alone).values("alone")
            assert {*expected} == {"STS12", "STS13", "MR", "geometry"}
            for task, scores in expected.items():
                assert found[task] == pytest.approx(scores, abs=1e-4), task

    def test_each_sentence_is_embedded_once(self, start) -> None:
        encoder = Wide()
        run = start(tasks())
        add_with_dimensions(run, encoder, [2, 4, 6])
        assert len(encoder.seen) == len(set(encoder.seen)) == 96 + 40
        runs = [run.folder.description(name)["runs"][0] for name in ("wide", "wide@6", "wide@2")]
        assert [of_one["embedded"] for of_one in runs] == [136, 0, 0]
        assert [of_one["requested"] for of_one in runs] == [176, 176, 176]
        assert runs[0]["seconds"] > 0 and runs[1]["seconds"] == 0

    def test_more_dimensions_than_there_are_are_left_out_and_told(self, start) -> None:
        run = start(tasks())
        lines: list[str] = []
        add_with_dimensions(run, Wide(), [16, 8, 4], lines.append)
        assert run.folder.encoders() == ["wide", "wide@4"]
        assert lines == ["wide: left out: 8, 16, for it has 8 dimensions"]

    def test_a_second_run_embeds_nothing(self, start, said) -> None:
        add_with_dimensions(start(tasks()), Wide(), [2, 4])
        before = {path: path.read_bytes() for path in start([]).folder.folder.rglob("tasks/*.json")}
        again = Wide()  # the encoder does not know its dimension yet, but the folder does
        add_with_dimensions(start(tasks()), again, [2, 4], said.append)
        assert again.seen == [] and len(before) == 12
        assert {path: path.read_bytes() for path in before} == before
        names = ("wide", "wide@4", "wide@2")
        expected = [f"{name}: 0 tasks to do, 4" for name in names]
        assert [line.split(" kept")[0] for line in said[-3:]] == expected

    def test_a_further_dimension_embeds_each_sentence_once_and_counts_it(self, start) -> None:
        add_with_dimensions(start(tasks()), Wide(), [4])
        again = Wide()
        run = start(tasks())
        add_with_dimensions(run, again, [2, 3, 4])
        assert len(again.seen) == 136
        runs = [run.folder.description(f"wide@{dimension}")["runs"] for dimension in (4, 3, 2)]
        assert [[one["embedded"] for one in of_one] for of_one in runs] == [[0], [136], [0]]

    def test_a_killed_run_can_be_continued(self, start) -> None:
        class Killing(Positive):
            def scores(self, vectors):
                if vectors(self.texts).shape[1] == 2:
                    raise KeyboardInterrupt
                return super().scores(vectors)

        with pytest.raises(KeyboardInterrupt):
            add_with_dimensions(start([Similar(), Killing("MR", TEXTS)]), Wide(), [2, 4])
        again = Wide()
        run = start([Similar(), Positive("MR", TEXTS)])
        add_with_dimensions(run, again, [2, 4])
        assert sorted(again.seen) == sorted(TEXTS)
        assert set(compared(run).values("wide@2")) == {"STS12", "MR"}

    def test_another_encoder_of_the_same_name_is_refused(self, start) -> None:
        add_with_dimensions(start(tasks()), Wide(), [2])
        with pytest.raises(ChangedResults, match=r"result of wide on .* encoder a there, b now"):
            add_with_dimensions(start(tasks()), Wide(fingerprint="b"), [2])
        run = start(tasks(), protocol=PROTOTYPING)
        with pytest.raises(ChangedResults, match="a result of wide@2 on STS12"):
            run.check(["other", "wide@2"])


@pytest.mark.slow
class TestComparison:
    @pytest.fixture
    def run(self, start) -> Run:
        run = start(tasks())
        add_with_dimensions(run, Wide("b", scaled), [2, 4])
        add_with_dimensions(run, Encoder("a"), [2])
        run.add(Encoder("c"))
        return run

    def test_families_are_ordered_by_falling_dimension(self, run) -> None:
        found = compared(run, "b", "a")
        assert families(found) == {"b": {4: "b@4", 2: "b@2"}, "a": {2: "a@2"}, "c": {}}
        assert found.encoders == ["b", "b@4", "b@2", "a", "a@2", "c"]
        assert whole_encoders(found).encoders == ["b", "a", "c"]

    def test_truncated_encoders_of_a_changed_encoder_are_left_out(self, start, run) -> None:
        changed = start(tasks(), overwrite=True)
        changed.add(Wide("b", wide, fingerprint="z"))
        everything = changed.comparison(["a"], ["STS12"])[0]
        found, left_out = by_family(everything)
        assert found.encoders == ["a", "a@2", "b", "c"] and left_out == 8

    def test_curves_go_from_all_dimensions_down(self, run) -> None:
        found = curves(compared(run, "b"))
        assert list(found) == ["downstream", "sts"]  # geometry has none
        similar = found["sts"]
        assert similar.tasks == ["STS12", "STS13"]
        assert similar.names == {"b": {8: "b", 4: "b@4", 2: "b@2"}, "a": {4: "a", 2: "a@2"}}
        values = compared(run).values("b@4")
        by_hand = (values["STS12"]["all Spearman"] + values["STS13"]["all Spearman"]) / 2
        assert similar.mean("b@4") == pytest.approx(by_hand)
        assert similar.comparison.value("b@4", "STS12") == values["STS12"]["all Spearman"]
        assert math.isnan(similar.comparison.value("b@4", "absent"))

    def test_means_are_over_tasks_that_all_encoders_have(self, start) -> None:
        run = start([Similar("STS12", 24)])
        add_with_dimensions(run, Wide("b"), [2])
        add_with_dimensions(start(tasks()), Wide("a"), [2])
        odd = start([Positive("MR", TEXTS), Failing(RuntimeError("odd"), "CR")])
        add_with_dimensions(odd, Wide("d"), [2])
        found = curves(compared(start(tasks())))
        assert found["sts"].tasks == ["STS12"] and list(found["sts"].names) == ["a", "b"]
        assert found["downstream"].tasks == ["MR"] and list(found["downstream"].names) == ["a", "d"]

    def test_there_are_no_curves_without_truncated_encoders(self, start) -> None:
        run = start(tasks())
        run.add(Encoder())
        assert curves(compared(run)) == {} and losses(compared(run)) == {}

    def test_losses_are_paired_with_the_whole_encoder(self, run) -> None:
        found = compared(run, "b")
        lost = losses(found)
        assert {whole: list(of_one) for whole, of_one in lost.items()} == {
            "b": ["b@4", "b@2"],
            "a": ["a@2"],
        }
        values = found.values("a"), found.values("a@2")
        expected = values[1]["STS12"]["all Spearman"] - values[0]["STS12"]["all Spearman"]
        difference = lost["a"]["a@2"]["STS12"]
        assert difference.value == pytest.approx(expected)
        assert difference.interval.low < expected < difference.interval.high


def test_without_dimensions_only_the_whole_encoder_is_scored(start) -> None:
    run = start(tasks())
    add_with_dimensions(run, Wide(), [])
    assert run.folder.encoders() == ["wide"]


def test_a_failing_encoder_fails_for_all_dimensions_at_once(start) -> None:
    run = start([*tasks(), Absent()])
    never, known = Wide("never", broken), Encoder("known", broken)
    add_with_dimensions(run, never, [2])
    add_with_dimensions(run, known, [2])
    failures = compared(run).failures()
    assert {name for name, _, _ in failures} == {"never", "known", "known@2"}
    told = "The encoder failed. OSError: the file is gone"
    assert {error for _, _, error in failures} == {told}
    assert len(known.seen) == 136


def test_older_folders_have_whole_encoders_only() -> None:
    found = Comparison(["a", "b"], [], {"a": {}, "b": {}})
    assert families(found) == {"a": {}, "b": {}} and by_family(found) == (found, 0)
