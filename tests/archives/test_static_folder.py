"""Tests of the files of static encoders, and of the token ids of texts."""

import json
import multiprocessing
import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.numpy import save_file
from tokenizers import AddedToken

from declutr.archives import word_ids
from declutr.archives.static_folder import (
    SHAPE,
    WEIGHTS,
    StaticFolderError,
    StaticTable,
    is_static,
    loaded_tokenizer,
    read_static,
    stored_shape,
    write_static,
    write_tokenizer,
)
from declutr.archives.word_ids import WordIds
from declutr.static_vectors.tokenizers import trained_word_pieces
from tests.conftest import make_documents

TOKENIZER = trained_word_pieces(lambda: make_documents(5, 200), 300)
ROWS = loaded_tokenizer(TOKENIZER).get_vocab_size()
VECTORS = np.random.default_rng(0).standard_normal((ROWS, 8)).astype(np.float32)
TABLE = StaticTable(TOKENIZER, VECTORS)
ODD = "\t\n\x0b\x0c\x1c\x1f\x85\xa0\u1680\u2003\u2028\u3000\u0301\u200b\ufeffΣİß中"


@pytest.mark.parametrize(("dtype", "largest"), [("float32", 0), ("float16", 2e-3), ("int8", 0.02)])
def test_a_table_is_read_as_it_was_written(tmp_path: Path, dtype: str, largest: float) -> None:
    write_static(StaticTable(TOKENIZER, VECTORS, normalizes=True), tmp_path, dtype)
    found = read_static(tmp_path)
    assert is_static(tmp_path) and found.normalizes and stored_shape(tmp_path) == (ROWS, 8)
    assert found.vectors.dtype == np.float32
    assert np.abs(found.vectors - VECTORS).max() <= largest
    with pytest.raises(StaticFolderError, match="dtype of float32, float16, int8, got 'int4'"):
        write_static(TABLE, tmp_path, "int4")


def test_folders_of_model2vec_are_read(tmp_path: Path) -> None:
    """Rows are those of `mapping`, times `weights`."""
    (tmp_path / "tokenizer.json").write_text(TOKENIZER)
    (tmp_path / "config.json").write_text('{"model_type": "model2vec", "normalize": true}')
    mapping = np.arange(ROWS) % 5
    weights = np.linspace(0, 1, ROWS)
    tensors = {"embeddings": VECTORS[:5].astype(np.float16), "mapping": mapping, "weights": weights}
    save_file(tensors, tmp_path / WEIGHTS)
    found = read_static(tmp_path)
    assert found.normalizes
    expected = VECTORS[:5].astype(np.float16)[mapping] * weights[:, None]
    assert np.allclose(found.vectors, expected, atol=1e-6)


def test_the_tokenizer_alone_tells_the_shape_of_its_table(tmp_path: Path) -> None:
    write_tokenizer(TABLE, tmp_path)
    assert stored_shape(tmp_path) == (ROWS, 8) and not is_static(tmp_path)
    (tmp_path / SHAPE).write_text("{}")
    with pytest.raises(StaticFolderError, match="holds no shape"):
        stored_shape(tmp_path)


def test_transformers_loads_the_tokenizer_without_special_tokens(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    write_static(TABLE, tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    text = "kalo mitu zzz"
    expected = loaded_tokenizer(TOKENIZER).encode(text, add_special_tokens=False).ids
    assert tokenizer(text)["input_ids"] == expected
    assert list(tokenizer([text, "ka"], padding=True)) == ["input_ids", "attention_mask"]


def test_broken_folders_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(StaticFolderError, match="holds no static encoder"):
        read_static(tmp_path)
    write_static(TABLE, tmp_path)
    save_file({"other": VECTORS}, tmp_path / WEIGHTS)
    with pytest.raises(StaticFolderError, match="holds other; expected a table embedding"):
        read_static(tmp_path)
    (tmp_path / WEIGHTS).write_bytes(b"broken")
    with pytest.raises(StaticFolderError, match="cannot be read"):
        read_static(tmp_path)
    write_static(TABLE.with_vectors(VECTORS[:-3]), tmp_path)
    with pytest.raises(StaticFolderError, match=f"has {ROWS - 3} vectors.*ids up to {ROWS - 1}"):
        read_static(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(StaticFolderError, match=r"has no tokenizer.json"):
        read_static(tmp_path)
    for tensors, message in (
        ({"mapping": np.array([0, ROWS])}, f"rows 0 to {ROWS}, of a table of {ROWS}"),
        ({"weights": np.ones(3)}, f"3 weights of {ROWS} tokens"),
        ({"embedding.scale": np.ones(1)}, r"scale of shape \(1,\) for"),
    ):
        write_static(TABLE, tmp_path)
        save_file({"embeddings": VECTORS, **tensors}, tmp_path / WEIGHTS)
        with pytest.raises(StaticFolderError, match=message):
            read_static(tmp_path)
    with pytest.raises(StaticFolderError, match=r"up to \d.*; float16 ends at 6.55e\+04"):
        write_static(TABLE.with_vectors(1e6 * VECTORS), tmp_path, "float16")
    for content, message in ((b"{", "tokenizer.json cannot be read"), (b"\xff", "no UTF-8 text")):
        write_static(TABLE, tmp_path)
        (tmp_path / "tokenizer.json").write_bytes(content)
        with pytest.raises(StaticFolderError, match=message):
            read_static(tmp_path)
    modules = [{"type": "sentence_transformers.models.StaticEmbedding", "path": "../x"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    assert not is_static(tmp_path)  # a folder outside


def listed(ids: WordIds, texts: list[str]) -> list[list[int]]:
    found, bounds = ids.of(texts)
    return [found[start:end].tolist() for start, end in pairwise(bounds)]


@example(["Kalo, mitu. (resa) kalo; ka[UNK] nove] kalo's", "pidu_ " + "a" * 101])
@given(st.lists(st.text(st.one_of(st.characters(), st.sampled_from(ODD + " [UNK]ka"))), max_size=4))
def test_ids_by_words_are_those_of_whole_texts(texts: list[str]) -> None:
    ids = WordIds(loaded_tokenizer(TOKENIZER))
    assert ids.by_words
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    whole = loaded_tokenizer(TOKENIZER)
    expected = [whole.encode(text, add_special_tokens=False).ids for text in texts]
    assert listed(ids, texts) == expected == listed(ids, texts)
    forgetful = pickle.loads(pickle.dumps(WordIds(loaded_tokenizer(TOKENIZER), most=3)))
    assert [listed(forgetful, [text])[0] for text in texts] == expected


@pytest.mark.parametrize("added", ["a\u0000", "e\u0301", "\u200bo", "A_"])
def test_added_tokens_are_found_inside_of_words(added: str) -> None:
    tokenizer = loaded_tokenizer(TOKENIZER)
    tokenizer.add_tokens([AddedToken(added, normalized=True)])
    ids, texts = WordIds(tokenizer), ["kalo, mitu. resa nove", "sano a_ pidu_"]
    assert ids.by_words
    assert listed(ids, texts) == [e.ids for e in tokenizer.encode_batch(texts)]


@pytest.mark.slow
def test_a_process_forked_while_words_are_added_adds_words() -> None:
    """It waited without end for a thread of the process that it was forked from."""
    ids, context = WordIds(loaded_tokenizer(TOKENIZER)), multiprocessing.get_context("fork")
    answer = context.SimpleQueue()
    process = context.Process(target=lambda: answer.put(listed(ids, ["kalo mitu"])), daemon=True)
    with word_ids._LEARNING:
        process.start()
        process.join(20)
    alive = process.is_alive()
    process.kill()
    assert not alive and answer.get() == listed(ids, ["kalo mitu"])


def test_tokenizers_that_do_not_treat_words_alone_are_asked_for_texts(checkpoint: Path) -> None:
    text = (checkpoint / "tokenizer.json").read_text()
    ids = WordIds(loaded_tokenizer(text))
    assert not ids.by_words
    expected = loaded_tokenizer(text).encode("ka  lo", add_special_tokens=False).ids
    assert listed(ids, ["ka  lo", ""]) == [expected, []]
