"""Every published layout gives its texts and labels; errors name the file and line.

Files are tiny and have the layouts of GLUE and SentEval; the rows are made up.
"""

import gzip
import json
import logging
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from declutr.corpus.documents import SourceError
from declutr.evaluation.tasks.classification import BINARY
from declutr.task_models.glue.labelled_rows import (
    OF_CLASSES,
    SENTEVAL_TASKS,
    LabelledRow,
    fraction_of_rows,
    read_labelled_rows,
    read_senteval_rows,
)
from declutr.task_models.glue.layouts import LAYOUTS
from declutr.task_models.glue.tasks import own_layout
from tests.task_models.glue.published_files import HEADERS, ROWS, published


@pytest.fixture
def write(tmp_path):
    def write(name: str, content: str | bytes) -> Path:
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(data)
        return tmp_path / name

    return write


def expected(task: str, labelled: bool = True) -> list[LabelledRow]:
    rows = []
    for number, (texts, published_label) in enumerate(ROWS[task]):
        scored = task in ("sts-b", "sick-r")
        label = float(published_label) if scored else published_label.lower()
        rows.append(LabelledRow(number, texts, label if labelled else None))
    return rows


class TestPublishedFiles:
    @pytest.mark.parametrize("kind", sorted(ROWS))
    def test_texts_and_labels_are_read(self, write, kind):
        file = write("train.tsv", published(kind))
        task = kind.split()[0]
        assert read_labelled_rows([file], LAYOUTS[task], "it") == expected(task)

    @pytest.mark.parametrize("kind", sorted(name for name in HEADERS if name.endswith("test")))
    def test_test_files_have_no_labels(self, write, kind):
        file = write("test.tsv", published(kind))
        task = kind.split()[0]
        assert read_labelled_rows([file], LAYOUTS[task], "it") == expected(task, labelled=False)

    def test_senteval_has_sst2_without_a_header(self, write):
        file = write("sentiment-train", "ka lo \t1\nmi tu\t0\n")
        rows = read_labelled_rows([file], LAYOUTS["sst-2"], "it")
        assert rows == [LabelledRow(0, ("ka lo",), "1"), LabelledRow(1, ("mi tu",), "0")]

    def test_compressed_with_a_byte_order_mark(self, write):
        content = ("\ufeff" + published("mrpc")).encode()
        file = write("train.tsv.gz", gzip.compress(content, mtime=0))
        assert read_labelled_rows([file], LAYOUTS["mrpc"], "it") == expected("mrpc")

    def test_mrpc_as_its_authors_publish_it(self, write):
        """`msr_paraphrase_train.txt`, from which GLUE's script makes the files of MRPC."""
        content = "\ufeff" + published("mrpc").replace("\n", "\r\n")
        file = write("msr_paraphrase_train.txt", content)
        assert read_labelled_rows([file], LAYOUTS["mrpc"], "it") == expected("mrpc")

    def test_the_diagnostic_set_is_read_as_mnli(self, write):
        file = write("diagnostic.tsv", published("rte test"))
        rows = read_labelled_rows([file], LAYOUTS["mnli"], "it")
        assert rows == expected("rte", labelled=False)

    @pytest.mark.parametrize(
        ("task", "rows", "label"),
        [
            ("cola", {"sentence": "x", "label": 1, "idx": 0}, "1"),
            ("mrpc", {"sentence1": "x", "sentence2": "y", "label": 0}, "0"),
            ("sts-b", {"sentence1": "x", "sentence2": "y", "label": 2.5}, 2.5),
            ("mnli", {"premise": "x", "hypothesis": "y", "label": 2}, "contradiction"),
            ("mnli", {"sentence1": "x", "sentence2": "y", "gold_label": "neutral"}, "neutral"),
            ("qnli", {"question": "x", "sentence": "y", "label": 1}, "not_entailment"),
            ("rte", {"premise": "x", "hypothesis": "y", "label": "entailment"}, "entailment"),
            ("sts-b", {"sentence1": "x", "sentence2": "y", "label": -1.0}, None),
        ],
    )
    def test_json_lines_are_read(self, write, task, rows, label):
        file = write("train.jsonl", json.dumps(rows) + "\n")
        (row,) = read_labelled_rows([file], LAYOUTS[task], "it")
        assert row == LabelledRow(0, ("x", "y")[: len(row.texts)], label)
        assert len(row.texts) == len(LAYOUTS[task].texts)


class TestUnusableRows:
    BROKEN = published("qqp") + "broken\trow\n" + "2\t3\t4\tve pi\tdu\t1\n"

    def test_wrong_numbers_of_columns_are_left_out_and_counted(self, write, caplog):
        file = write("train.tsv", self.BROKEN)
        with caplog.at_level(logging.WARNING, logger="declutr.task_models.glue"):
            rows = read_labelled_rows([file], LAYOUTS["qqp"], "QQP")
        assert rows == [*expected("qqp"), LabelledRow(3, ("ve pi", "du"), "1", 2)]
        assert (
            f"QQP: 1 row(s) with a wrong number of columns are left out; the first: '{file}', "
            "line 4 has 2 column(s), expected 6 as in line 1." in caplog.text
        )

    def test_a_wrong_number_of_columns_is_an_error_if_strict(self, write):
        file = write("train.tsv", self.BROKEN)
        said = r"line 4 has 2 column\(s\), expected 6 .* set strict"
        with pytest.raises(SourceError, match=said):
            read_labelled_rows([file], LAYOUTS["qqp"], "QQP", strict=True)

    def test_files_without_a_header_are_read(self, write):
        file = write("train.tsv", "a\t1\t\tka lo\nb\t0\nc\t0\t*\tmi\n")
        rows = read_labelled_rows([file], LAYOUTS["cola"], "it")
        assert rows == [LabelledRow(0, ("ka lo",), "1"), LabelledRow(2, ("mi",), "0")]

    def test_rows_without_agreement_are_left_out(self, write, caplog):
        table = "gold_label\tsentence1\tsentence2\n-\tx\ty\nneutral\tz\tx\n"
        with caplog.at_level(logging.WARNING, logger="declutr.task_models.glue"):
            rows = read_labelled_rows([write("snli.txt", table)], LAYOUTS["mnli"], "SNLI")
        assert rows == [LabelledRow(1, ("z", "x"), "neutral")]
        assert "SNLI: 1 row(s) without a label are left out." in caplog.text

    def test_ids_continue_in_the_next_file(self, write):
        files = [write("a.tsv", self.BROKEN), write("b.tsv", published("qqp"))]
        rows = read_labelled_rows(files, LAYOUTS["qqp"], "QQP")
        assert [row.id for row in rows] == [0, 1, 3, 4, 5]


class TestErrors:
    def test_a_wrong_label_is_refused(self, write):
        file = write("train.tsv", published("rte").replace("not_entailment", "maybe"))
        said = r"train\.tsv', line 2: the label is 'maybe', expected one of entailment, not_ent"
        with pytest.raises(SourceError, match=said):
            read_labelled_rows([file], LAYOUTS["rte"], "it")

    def test_a_missing_column_is_refused(self, write):
        file = write("train.tsv", published("sst-2"))
        with pytest.raises(
            SourceError, match="line 1: no column 'sentence1' or 'premise', found 2"
        ):
            read_labelled_rows([file], LAYOUTS["rte"], "it")
        lines = write("train.jsonl", '{"sentence": "x"}\n')
        with pytest.raises(SourceError, match=r"line 1: no column .*, found \['sentence'\]"):
            read_labelled_rows([lines], LAYOUTS["rte"], "it")

    @pytest.mark.parametrize("content", ["", "\n\n", published("rte").split("\n")[0]])
    def test_an_empty_file_is_refused(self, write, content):
        with pytest.raises(SourceError, match=r"it: no row could be read \(0 have a wrong number"):
            read_labelled_rows([write("train.tsv", content)], LAYOUTS["rte"], "it")

    def test_two_columns_of_the_same_name_are_refused(self, write):
        file = write("train.tsv", "sentence\tsentence\tlabel\nx\ty\t1\n")
        with pytest.raises(SourceError, match=r"line 1: two columns have the same name"):
            read_labelled_rows([file], LAYOUTS["sst-2"], "it")


class TestOwnFiles:
    def test_columns_are_given_by_name_or_number(self, write):
        table = "kind\ttext\tother\nsports\tka\tlo\nnews\tmi\ttu\n"
        rows = [LabelledRow(0, ("ka",), "sports"), LabelledRow(1, ("mi",), "news")]
        for name, content in (("own.tsv", table), ("own.csv", table.replace("\t", ","))):
            file = write(name, content)
            for layout in (
                own_layout(("text",), "kind", False, None),
                own_layout((1,), 0, False, True),
                own_layout((1,), "kind", False, True),
            ):
                assert read_labelled_rows([file], layout, "it") == rows
        bare = write("bare.tsv", table.partition("\n")[2])
        assert read_labelled_rows([bare], own_layout((1,), 0, False, None), "it") == rows

    def test_fields_that_are_quoted_as_in_csv_are_told(self, write, caplog):
        quoted = '"she said ""yes"""'
        read_labelled_rows(
            [write("own.tsv", f"{quoted}\t1\n")], own_layout((0,), 1, False, None), ""
        )
        assert "own.tsv', line 1: a field is in quotes" in caplog.text
        caplog.clear()
        read_labelled_rows([write("sst.tsv", f"{quoted}\t1\n")], LAYOUTS["sst-2"], "")
        assert "quotes" not in caplog.text  # public codes keep those of GLUE's files

    def test_pairs_with_scores_are_read(self, write):
        file = write("own.jsonl", '{"a": "ka", "b": "lo", "c": -1}\n')
        rows = read_labelled_rows([file], own_layout(("a", "b"), "c", True, None), "it")
        assert rows == [LabelledRow(0, ("ka", "lo"), -1.0)]

    def test_rows_without_a_label_column_are_read(self, write):
        file = write("own.tsv", "ka\tlo\n")
        rows = read_labelled_rows([file], own_layout((1,), None, False, None), "it")
        assert rows == [LabelledRow(0, ("lo",), None)]

    @pytest.mark.parametrize(
        ("name", "content"), [("a.tsv", "text\nka\n"), ("a.jsonl", '{"text": ""}')]
    )
    def test_a_missing_label_column_is_refused(self, write, name, content):
        layout = own_layout(("text",), "kind", False, None)
        with pytest.raises(SourceError, match=r"no column 'kind', found \['text'\]"):
            read_labelled_rows([write(name, content)], layout, "it")


class TestQuestions:
    def test_the_coarse_class_is_the_label(self, write):
        content = "DESC:manner How did ka lo : mi ?\nLOC:city Wh\xe9re is tu ?\n"
        for encoding in ("latin-1", "utf-16"):
            assert read_senteval_rows("trec", write("train.label", content.encode(encoding))) == [
                LabelledRow(0, ("How did ka lo : mi ?",), "DESC"),
                LabelledRow(1, ("Whére is tu ?",), "LOC"),
            ]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (
                "DESC:x How ?\nWHAT:ever Why ?\n",
                r"train\.label, line 2: got the label 'WHAT', e",
            ),
            (
                "LOC:city Wh\xe9re ?\n".encode() + b"LOC:city \xff ?\n",
                r"train\.label, line 2: byte 10 .0xFF. is not UTF-8",
            ),
            ("How did it begin ?\n", "line 1: expected 2 fields, got 1 in 'How did"),
            ("", r"train\.label is empty"),
        ],
        ids=["unknown-class", "bad-byte", "no-class", "empty"],
    )
    def test_a_wrong_file_is_refused(self, write, content, message):
        with pytest.raises(SourceError, match=message):
            read_senteval_rows("trec", write("train.label", content))

    def test_a_missing_file_is_refused(self, tmp_path):
        with pytest.raises(SourceError, match="Found no documents at"):
            read_senteval_rows("trec", tmp_path / "train.label")


class TestFilesOfClasses:
    def test_the_classes_are_those_of_the_evaluation(self):
        assert sorted(OF_CLASSES) == sorted(name.lower() for name in BINARY)
        assert set(OF_CLASSES) < set(SENTEVAL_TASKS)

    @pytest.mark.parametrize("task", OF_CLASSES)
    def test_each_class_has_a_file(self, tmp_path, task):
        first, second = BINARY[task.upper()][:2]
        (tmp_path / first).write_text("ka  lo\nmi \n")
        (tmp_path / second).write_text("tu\n")
        assert read_senteval_rows(task, str(tmp_path)) == [
            LabelledRow(0, ("ka lo",), "1"),
            LabelledRow(1, ("mi",), "1"),
            LabelledRow(2, ("tu",), "0"),
        ]

    def test_one_missing_file_is_refused(self, tmp_path):
        (tmp_path / "rt-polarity.pos").write_text("ka\n")
        with pytest.raises(SourceError, match=r"rt-polarity\.neg"):
            read_senteval_rows("mr", tmp_path)

    def test_a_path_that_is_not_a_folder_is_refused(self, write, tmp_path):
        said = r"'mr' is read from a folder with rt-polarity\.pos and rt-pol"
        for path in (write("rt-polarity.pos", "ka\n"), [tmp_path], None):
            with pytest.raises(SourceError, match=said):
                read_senteval_rows("mr", path)


classes = st.lists(st.sampled_from("abc"), min_size=1, max_size=80)
fractions = st.floats(0.001, 1)
seeds = st.integers(0, 2**32)


class TestClasses:
    @given(labels=classes, fraction=fractions, seed=seeds)
    def test_each_class_keeps_its_share_and_at_least_one_row(self, labels, fraction, seed):
        chosen = fraction_of_rows(labels, fraction, seed)
        assert chosen == sorted(set(chosen)) == fraction_of_rows(labels, fraction, seed)
        taken = Counter(labels[row] for row in chosen)
        for label, count in Counter(labels).items():
            assert taken[label] >= 1 and abs(taken[label] - max(1, fraction * count)) <= 0.5

    @given(labels=classes, pair=st.tuples(fractions, fractions), seed=seeds)
    def test_a_smaller_fraction_is_part_of_a_larger_one(self, labels, pair, seed):
        smaller, larger = (fraction_of_rows(labels, one, seed) for one in sorted(pair))
        assert set(smaller) <= set(larger)

    @given(labels=classes, seed=seeds)
    def test_a_fraction_of_1_keeps_all_rows(self, labels, seed):
        assert fraction_of_rows(labels, 1, seed) == list(range(len(labels)))

    def test_another_seed_chooses_others(self):
        labels = ["a", "b"] * 100
        draws = {tuple(fraction_of_rows(labels, 0.1, seed)) for seed in range(10)}
        assert len(draws) == 10

    def test_every_row_is_as_likely(self):
        labels = ["a"] * 10 + ["b"] * 30
        times = Counter(row for seed in range(600) for row in fraction_of_rows(labels, 0.2, seed))
        assert min(times[row] for row in range(40)) > 80  # 120 expected, deviation about 10


class TestScores:
    def test_every_tenth_of_the_scores_keeps_its_share(self):
        scores = np.random.default_rng(0).permutation(200) / 40.0
        chosen = scores[fraction_of_rows(scores.tolist(), 0.1, 0)]
        assert np.histogram(chosen, bins=10, range=(0, 5))[0].tolist() == [2] * 10

    @given(
        scores=st.lists(st.sampled_from([0.0, 1.5, 5.0]) | st.floats(0, 5), min_size=1),
        fraction=fractions,
    )
    def test_any_scores_can_be_divided(self, scores, fraction):
        chosen = fraction_of_rows(scores, fraction, 0)
        assert 1 <= len(chosen) <= len(scores) and abs(len(chosen) - fraction * len(scores)) <= 10


@pytest.mark.parametrize("fraction", [0, -0.1, 1.5, 10, float("nan")])
def test_a_fraction_out_of_range_is_refused(fraction):
    with pytest.raises(
        ValueError, match=r"expected a share above 0 and at most 1, such as 0\.1 for"
    ):
        fraction_of_rows(["a"], fraction, 0)


def test_missing_labels_are_refused():
    with pytest.raises(ValueError, match="There are no labels"):
        fraction_of_rows([], 0.1, 0)
