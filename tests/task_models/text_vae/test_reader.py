"""Tests of the reader "text_lines"."""

from pathlib import Path

import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Vocabulary

import declutr.plugin  # noqa: F401
from declutr.task_models.text_vae import TextLinesReader


def test_lines_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one  two\n\nthree four five\n")
    reader = DatasetReader.from_params(
        Params({"type": "text_lines", "with_ids": True, "max_tokens": 2})
    )
    found = [
        (instance["ids"].label, [str(token) for token in instance["tokens"].tokens])
        for instance in reader.read(str(tmp_path / "a.txt"))
    ]
    assert found == [
        (0, ["@start@", "one", "two", "@end@"]),
        (2, ["@start@", "three", "four", "@end@"]),
    ]


def test_the_formats_of_public_codes_are_read(tmp_path: Path) -> None:
    """The Penn Treebank with its own unknown word, and Yelp with labels."""
    treebank, yelp = tmp_path / "ptb.train.txt", tmp_path / "yelp.train.txt"
    treebank.write_text(" mr. <unk> is chairman of <unk> n.v. \n consumers may want \n")
    yelp.write_text("4\tgood _UNK food .\n0\t bad \n1\tone two three four five\n\n")
    instances = list(TextLinesReader().read(str(treebank)))
    vocab = Vocabulary.from_instances(instances, oov_token="<unk>")
    assert vocab.get_token_index("<unk>") == vocab.get_token_index("nowhere") == 1
    reader = TextLinesReader(labelled=True, max_tokens=4, longer="leave_out", with_ids=True)
    found = [(each["ids"].label, str(each["tokens"].tokens[1])) for each in reader.read(str(yelp))]
    assert found == [(0, "good"), (1, "bad")]
    with pytest.raises(ConfigurationError, match=r"row 1 has no tab\. With labelled, each row is"):
        list(reader.read(str(treebank)))


def test_json_lines_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"body": "one"}\n{"body": "two"}\n')
    found = list(TextLinesReader(text_key="body").read(str(tmp_path / "a.jsonl")))
    assert len(found) == 2 and set(found[0].fields) == {"tokens"}
    with pytest.raises(ConfigurationError, match="no key 'text'"):
        list(TextLinesReader().read(str(tmp_path / "a.jsonl")))


def test_an_instance_is_made_of_a_text() -> None:
    instance = TextLinesReader(with_ids=True).text_to_instance("a b")
    assert set(instance.fields) == {"tokens"} and len(instance["tokens"]) == 4


def test_wrong_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="max_tokens must be at least 1, got 0"):
        TextLinesReader(max_tokens=0)
    with pytest.raises(ConfigurationError, match="longer is 'drop': expected cut or leave_out"):
        TextLinesReader(longer="drop")
    (tmp_path / "blank.txt").write_text("\n \n")
    with pytest.raises(ConfigurationError, match=r"no texts among 2 row\(s\)"):
        list(TextLinesReader().read(str(tmp_path / "blank.txt")))
    with pytest.raises(ConfigurationError, match="nowhere"):
        list(TextLinesReader().read(str(tmp_path / "nowhere.txt")))
