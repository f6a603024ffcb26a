"""Tests of sentence splitting.

The oracles are texts split by hand, and one process for several.
"""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from declutr.corpus import sentence_splitting
from declutr.corpus.documents import SourceError, read_documents
from declutr.corpus.sentence_splitting import SentenceSplitter, SplitCounts, split_files
from declutr.corpus.source_files import source_files


@pytest.fixture(scope="module")
def splitter() -> SentenceSplitter:
    return SentenceSplitter()


class TestSentences:
    @pytest.mark.parametrize("texts", ["One. Two.", {"One.": 1}, [b"One."]])
    def test_inputs_that_are_not_lists_of_texts_are_refused(self, splitter, texts):
        with pytest.raises(TypeError, match=r"^Expected (texts|strings).*got"):
            splitter.split(texts)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
            ("Dr. Smith paid 3.5 dollars, e.g. here.", 1),
            ("The U.S. Army came. It left.", ["The U.S. Army came.", "It left."]),
            ("Wait... what? No!!", ["Wait... what?", "No!!"]),
            ('He said "Go!" Then (it was late.) so', ['He said "Go!"', "Then (it was late.)"]),
            ('It ended. (See below.) "Why?" she asked.', ["It ended.", "(See below.)", '"Why?"']),
            ("It ended. [„(a) is right. So", ["It ended.", "[„(a) is right.", "So"]),
            ('("A. B." )', ['("A. B." )']),
            ("", []),
            (" \n\t", []),
            ("...", ["..."]),
        ],
    )
    def test_sentences_equal_those_split_by_hand(self, splitter, text, expected):
        expected = [text] if expected == 1 else expected
        assert splitter(text)[: len(expected)] == expected

    def test_paragraphs_end_sentences_and_lines_do_not(self, splitter):
        text = "A heading\n\nThe first\nline goes on. Second.\n \t\nThird"
        assert splitter(text) == ["A heading", "The first line goes on.", "Second.", "Third"]

    @given(st.text(st.sampled_from(list('ab .!?"()[]…„“\n\t\u2028\x85\x1d')), max_size=40))
    @settings(max_examples=200, deadline=None)
    def test_no_character_is_lost_and_each_sentence_is_one_line(self, text):
        sentences = SPLITTER(text)
        assert "".join("".join(sentences).split()) == "".join(text.split())
        for sentence in sentences:
            assert sentence and sentence == " ".join(sentence.split())
            assert len(sentence.splitlines()) == 1

    def test_short_ones_are_left_out_and_counted(self):
        splitter = SentenceSplitter(min_words=3)
        kept, short = splitter.split(["One two three. No. Four five.", "No.", "", "a b c"])
        assert kept == [["One two three."], [], [], ["a b c"]] and short == 3

    def test_a_text_longer_than_the_limit_of_spacy(self, splitter):
        assert len(splitter("word" * 250_001 + " . Next one.")) == 2  # It has a million characters.

    def test_other_languages(self):
        text = "Das gilt z.B. hier. Und dort, bzw. da."
        assert SentenceSplitter("de")(text) == ["Das gilt z.B. hier.", "Und dort, bzw. da."]
        assert SentenceSplitter("zh")("一。二！") == ["一。", "二！"]

    @pytest.mark.parametrize("language", ["qq", "../en", ""])
    def test_an_unknown_language_is_refused(self, language):
        said = rf"cannot split the language '{language}' \(.*\). Expected a code su"
        with pytest.raises(ValueError, match=said):
            SentenceSplitter(language)

    def test_a_minimum_below_one_word_is_refused(self):
        with pytest.raises(ValueError, match="at least 1 word, got a minimum of 0"):
            SentenceSplitter(min_words=0)


SPLITTER = SentenceSplitter()


class TestFiles:
    def split(self, files, tmp_path, splitter=SPLITTER, **options) -> tuple[str, SplitCounts]:
        output = tmp_path / "sentences.txt"
        counts = split_files(files, output, splitter, progress=False, **options)
        return output.read_text(encoding="utf-8"), counts

    def test_a_blank_line_after_each_document(self, write, tmp_path):
        text, counts = self.split([write("a.txt", "One. Two.\n\nThree.\n")], tmp_path)
        assert text == "One.\nTwo.\n\nThree.\n\n"
        assert counts == SplitCounts(documents=2, without=1, sentences=3, short=0)

    def test_documents_of_short_sentences_leave_nothing(self, write, tmp_path):
        files = [write("a.txt", "One two. Three.\nFour.\nFive six.\n")]
        text, counts = self.split(files, tmp_path, SentenceSplitter(min_words=2))
        assert text == "One two.\n\nFive six.\n\n"
        assert counts == SplitCounts(documents=2, without=1, sentences=2, short=2)

    def test_any_format(self, write, tmp_path):
        lines = json.dumps({"body": "One.\nTwo\n\nThree."}) + "\n"
        text, _ = self.split([write("a.jsonl", lines)], tmp_path, text_key="body")
        assert text == "One.\nTwo\nThree.\n\n"
        text, _ = self.split([write("a.txt.gz", gzip.compress(b"One. Two.\n", mtime=0))], tmp_path)
        assert text == "One.\nTwo.\n\n"

    def test_lone_surrogates_are_replaced(self, write, tmp_path):
        text, _ = self.split([write("a.jsonl", '{"text": "One \\ud800."}\n')], tmp_path)
        assert text == "One \ufffd.\n\n"

    def test_files_of_several_runs_make_one_corpus(self, write, tmp_path):
        """The reader "sentences" needs a blank row between documents, also where one file ends."""
        text, _ = self.split([write("a.txt", "One. Two.\n")], tmp_path)
        (tmp_path / "b.txt").write_text(text)
        rows = list(read_documents([tmp_path / "b.txt", tmp_path / "b.txt"]))
        assert rows == ["One.", "Two.", "", "One.", "Two.", ""]

    @pytest.mark.slow
    @pytest.mark.parametrize("workers", ["1", "3"])
    def test_the_same_for_any_number_of_processes(self, write, tmp_path, monkeypatch, workers):
        monkeypatch.setattr(sentence_splitting, "_BATCH_DOCUMENTS", 7)
        monkeypatch.setenv("DECLUTR_WORKERS", workers)
        rows = [f"Row {n} begins. It ends." * (n % 3) for n in range(100)]
        text, counts = self.split([write("a.txt", "\n".join(rows) + "\n")], tmp_path)
        expected = [list(map(str, SPLITTER(row))) for row in rows]
        assert text == "".join("\n".join(one) + "\n\n" for one in expected if one)
        assert (counts.documents, counts.without) == (66, 34)

    def test_the_output_appears_whole_or_not_at_all(self, write, tmp_path):
        (tmp_path / "sentences.txt").write_text("before\n")
        with pytest.raises(SourceError, match="line 2: byte 1 is not valid UTF-8"):
            self.split([write("a.txt", b"One.\n\xff\n")], tmp_path)
        assert (tmp_path / "sentences.txt").read_text() == "before\n"
        assert sorted(file.name for file in tmp_path.iterdir()) == ["a.txt", "sentences.txt"]
        text, _ = self.split(
            [tmp_path / "a.txt"], tmp_path, encoding_errors="replace", splitter=SPLITTER
        )
        assert text == "One.\n\n\ufffd\n\n"

    def test_a_corpus_without_sentences_is_refused(self, write, tmp_path):
        files = [write("a.txt", "One.\n\n")]
        said = r"2 document\(s\) in .*a.txt gave no sentence \(1 were too short\). Expected at "
        with pytest.raises(SourceError, match=said):
            self.split(files, tmp_path, SentenceSplitter(min_words=2))
        assert not (tmp_path / "sentences.txt").exists()

    def test_an_output_among_the_documents_is_refused(self, write, tmp_path):
        write("sentences.txt", "One.\n")
        with pytest.raises(ValueError, match=r"sentences.txt' is one of the documents. Expected"):
            self.split(source_files(tmp_path), tmp_path)
        assert (tmp_path / "sentences.txt").read_text() == "One.\n"

    @pytest.mark.parametrize("name", ["a.jsonl", "a.txt.gz", "a.parquet"])
    def test_an_output_of_another_format_is_refused(self, write, tmp_path, name):
        with pytest.raises(ValueError, match=f"plain text, but '{name}' stands for another format"):
            split_files([write("a.txt", "One.")], tmp_path / name, SPLITTER)

    def test_a_folder_as_output_is_refused(self, write, tmp_path):
        with pytest.raises(ValueError, match="is a folder, expected the name of a file"):
            split_files([write("a.txt", "One.")], tmp_path, SPLITTER)
