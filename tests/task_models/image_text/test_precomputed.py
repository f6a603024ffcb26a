"""Tests of the published layout of Flickr30k and COCO, and of the words of SCAN's code."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary

import declutr.plugin  # noqa: F401
from declutr.task_models.image_text import ImageTextReader
from declutr.task_models.image_text.scan_words import NltkWords
from tests.task_models.image_text.pairs import WIDTH, captions_of, write_published

READER = ImageTextReader(captions_per_image=5, start_end=True)


@pytest.mark.parametrize("repeated", [False, True])
def test_a_row_for_each_image_or_for_each_caption(tmp_path: Path, repeated: bool) -> None:
    """As in SCAN's code, which then takes every fifth row."""
    file = write_published(tmp_path, captions_of(3), repeated=repeated)
    _, captions = READER.captions(file)
    assert [c.image for c in captions] == [(1 + 4 * repeated) * (line // 5) for line in range(15)]
    assert [c.name for c in captions] == [str(100 + line // 5) for line in range(15)]
    first = next(iter(READER.read(file)))
    assert list(map(str, first["tokens"].tokens)) == ["<start>", "red", "thing", "0", "<end>"]
    assert first["image"].as_tensor({}).shape == (3, WIDTH)
    names = [f"{name}\n" for name in range(15)]  # of the captions
    (tmp_path / "test_ids.txt").write_text("".join(names))
    assert [c.name for c in READER.captions(file)[1]][::5] == ["0", "5", "10"]


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    file = write_published(tmp_path, captions_of(3))
    (tmp_path / "test_ids.txt").write_text("1\n2\n")
    with pytest.raises(ConfigurationError, match=r"_ids.txt' has 2 line.s., expected 3, .* or 15"):
        READER.captions(file)
    (tmp_path / "test_ids.txt").unlink()
    assert READER.captions(file)[1][0].name is None
    np.save(tmp_path / "test_ims.npy", np.random.default_rng(0).normal(size=(15, 3, WIDTH)))
    with pytest.raises(ConfigurationError, match=r"first 5 rows differ\. Expected 5 equal rows"):
        READER.captions(file)
    np.save(tmp_path / "test_ims.npy", np.ones((4, 3, WIDTH)))
    with pytest.raises(ConfigurationError, match=r"15 line\(s\), expected 20: 5 .* or 4, if it"):
        READER.captions(file)


def test_nltks_words() -> None:
    words = [str(token) for token in NltkWords().tokenize("a man's t-shirt, isn't red.")]
    assert words == ["a", "man", "'s", "t-shirt", ",", "is", "n't", "red", "."]


def test_a_vocabulary_of_scan(tmp_path: Path) -> None:
    words = {"<pad>": 0, "<start>": 1, "<end>": 2, "<unk>": 3, "dog": 5, "a": 4}
    file = tmp_path / "vocab.json"
    file.write_text(json.dumps({"word2idx": words, "idx2word": {}, "idx": 6}))
    vocab = Vocabulary.from_params(Params({"type": "scan", "file": str(file)}))
    vocab.save_to_files(str(tmp_path / "saved"))
    for known in (vocab, type(vocab).from_files(str(tmp_path / "saved"))):
        order = known.get_index_to_token_vocabulary("tokens")
        assert [order[place] for place in range(2, 6)] == ["<start>", "<end>", "a", "dog"]
        assert known.get_token_index("cat", "tokens") == 1


@pytest.mark.parametrize("content", [None, "[]", "{}", '{"word2idx": 3}', "no JSON"])
def test_other_vocabularies_are_refused(tmp_path: Path, content: Any) -> None:
    file = tmp_path / "vocab.json"
    if content is not None:
        file.write_text(content)
    message = "is no vocabulary of SCAN: expected JSON" if content else "No vocabulary at '.*json'"
    with pytest.raises(ConfigurationError, match=message):
        Vocabulary.from_params(Params({"type": "scan", "file": str(file)}))
