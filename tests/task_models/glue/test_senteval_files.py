"""Tiny files in SentEval's layouts; the rows are made up."""

import pytest

from declutr.corpus.documents import SourceError
from declutr.evaluation.tasks.classification import BINARY
from declutr.task_models.glue.labelled_rows import (
    OF_CLASSES,
    SENTEVAL_TASKS,
    LabelledRow,
    read_senteval_rows,
)


class TestQuestions:
    def test_the_coarse_class_is_the_label(self, tmp_path):
        file = tmp_path / "train_5500.label"
        file.write_bytes(
            "DESC:manner How did ka lo : mi ?\nLOC:city Wh\xe9re is tu ?\n".encode("latin-1")
        )
        assert read_senteval_rows("trec", file) == [
            LabelledRow(0, ("How did ka lo : mi ?",), "DESC"),
            LabelledRow(1, ("Whére is tu ?",), "LOC"),
        ]

    def test_an_unknown_class_is_refused(self, tmp_path):
        file = tmp_path / "train.label"
        file.write_text("DESC:manner How ?\nWHAT:ever Why ?\n")
        with pytest.raises(
            SourceError, match=r"train\.label, line 2: got the label 'WHAT', expected"
        ):
            read_senteval_rows("trec", file)

    def test_a_bad_byte_does_not_make_utf_8_latin_1(self, tmp_path):
        file = tmp_path / "train.label"
        file.write_bytes("LOC:city Wh\xe9re ?\n".encode() + b"LOC:city \xff ?\n")
        with pytest.raises(SourceError, match=r"train\.label, line 2: byte 10 .0xFF. is not UTF-8"):
            read_senteval_rows("trec", file)

    def test_utf_16_is_read(self, tmp_path):
        file = tmp_path / "train.label"
        file.write_text("LOC:city Wh\xe9re ?\n", encoding="utf-16")
        assert read_senteval_rows("trec", file) == [LabelledRow(0, ("Wh\xe9re ?",), "LOC")]

    def test_a_line_without_a_class_is_refused(self, tmp_path):
        file = tmp_path / "train.label"
        file.write_text("How did it begin ?\n")
        with pytest.raises(SourceError, match=r"line 1: expected 2 fields, got 1 in 'How did"):
            read_senteval_rows("trec", file)

    def test_an_empty_file_is_refused(self, tmp_path):
        (tmp_path / "train.label").write_text("")
        with pytest.raises(SourceError, match=r"train\.label is empty"):
            read_senteval_rows("trec", tmp_path / "train.label")

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

    def test_a_path_that_is_not_a_folder_is_refused(self, tmp_path):
        file = tmp_path / "rt-polarity.pos"
        file.write_text("ka\n")
        for path in (file, [tmp_path], None):
            with pytest.raises(
                SourceError, match=r"'mr' is read from a folder with rt-polarity\.pos and rt-pol"
            ):
                read_senteval_rows("mr", path)
