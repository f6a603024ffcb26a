"""Tests of `declutr split-sentences`: its output, and that the reader "sentences" reads it."""

import pytest
from allennlp.common.checks import ConfigurationError

import declutr.commands.split_sentences  # noqa: F401
from declutr.data.sentence_reader import SentenceReader

pytestmark = pytest.mark.slow


@pytest.fixture
def documents(tmp_path):
    (tmp_path / "docs.txt").write_text("One word. Two words here. No.\n\nThree words here.\n")
    return tmp_path / "docs.txt"


def test_sentences_for_the_reader(command, documents, tmp_path):
    output = tmp_path / "new" / "sentences.txt"
    told = command("split-sentences", documents, "-o", output, "--min-words", 2)
    assert output.read_text() == "One word.\nTwo words here.\n\nThree words here.\n\n"
    assert told.splitlines() == [
        f"3 sentences of 2 documents in {output}",
        "1 sentences of fewer than 2 words were left out.",
        "1 documents gave no sentence.",
    ]
    assert SentenceReader().documents(output).tolist() == [0, 1, 3]
    assert SentenceReader(positives="next").documents(output).tolist() == [0]


def test_options_are_used(command, tmp_path):
    (tmp_path / "docs.jsonl").write_text('{"body": "Das gilt z.B. hier. Ja."}\n')
    output = tmp_path / "sentences.txt"
    options = ("--language", "de", "--text-key", "body", "--encoding-errors", "replace", "--quiet")
    assert command("split-sentences", tmp_path / "docs.jsonl", "-o", output, *options) == ""
    assert output.read_text() == "Das gilt z.B. hier.\nJa.\n\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "OUT", "--language", "qq"], "spaCy cannot split the language 'qq'"),
        (["-o", "OUT", "--min-words", "0"], "at least 1 word, got a minimum of 0"),
        (["missing.txt", "-o", "OUT"], "Found no documents at 'missing.txt'"),
        (["-o", "docs.txt"], "'docs.txt' is one of the documents"),
        (["-o", "docs.txt/OUT"], "docs.txt"),
    ],
)
def test_errors_end_with_a_message(command, documents, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=message):
        command("split-sentences", "docs.txt", *arguments)


def test_an_earlier_file_stays_unless_it_may_be_replaced(command, documents, tmp_path):
    output = tmp_path / "sentences.txt"
    output.write_text("Mine.\n")
    with pytest.raises(ConfigurationError, match=r"is there.*--overwrite"):
        command("split-sentences", documents, "-o", output)
    assert output.read_text() == "Mine.\n"
    command("split-sentences", documents, "-o", output, "--overwrite")
    assert output.read_text().startswith("One word.\n")
