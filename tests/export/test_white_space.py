"""An exported tokenizer equals the original tokenizer on texts with normalised white space."""

import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from declutr.corpus.documents import normalize_whitespace
from declutr.export.white_space import _CLASS, tokenizer_with_white_space
from tests import families

INPUTS = ["input_ids", "attention_mask"]
WHITE = [chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()]
MAKERS = {
    "wordpiece": families.wordpiece,
    "unigram": families.unigram,
    "unigram of XLM-R": families.unigram_of_xlmr,
    "bytes of RoBERTa": families.bytes_of_roberta,
    "bytes of ModernBERT": families.bytes_of_modernbert,
}
PAIRS = {}
for name, make in MAKERS.items():
    before = make()
    PAIRS[name] = (before, tokenizer_with_white_space(before, INPUTS, 64))

pieces = st.sampled_from(
    [*WHITE, "\u200b", "\u00ad", "\ufeff", "\0", "the", "old", "Ünïcode", "🙂", ".", "<mask>",
     "[MASK]", "</s>", "[SEP]", "▁", "Ġ"]
)  # fmt: skip


def same_ids(pair, text: str) -> None:
    old, new = pair
    assert new(text)["input_ids"] == old(normalize_whitespace(text))["input_ids"], repr(text)


def test_white_space_is_that_of_str_split() -> None:
    from tokenizers import Regex, normalizers

    normalizer = normalizers.Replace(Regex(_CLASS), "|")
    for code in range(sys.maxunicode + 1):
        if not 0xD800 <= code < 0xE000:  # surrogates are no text
            expected = "|" if chr(code).isspace() else chr(code)
            assert normalizer.normalize_str(chr(code)) == expected, hex(code)


@pytest.mark.parametrize("name", MAKERS)
@given(text=st.lists(pieces, max_size=12).map("".join))
@example(" <mask> the old <mask>\u2003house \x1c")
@example(" [MASK] the old [MASK]\u2003house \x1c")
@example("the<mask>  <mask>")
@settings(max_examples=60, deadline=None)
def test_token_ids_equal_those_of_the_normalised_text(name: str, text: str) -> None:
    same_ids(PAIRS[name], text)


@pytest.mark.parametrize("name", MAKERS)
@given(text=st.text(max_size=40))
@settings(max_examples=60, deadline=None)
def test_token_ids_are_equal_for_any_text(name: str, text: str) -> None:
    same_ids(PAIRS[name], text.encode("utf-8", "ignore").decode())


@pytest.mark.parametrize("name", MAKERS)
def test_a_saved_tokenizer_gives_the_same_ids(name: str, tmp_path: Path) -> None:
    old, new = PAIRS[name]
    new.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    for text in (" \u2003the\x1cold \n", "\u00a0<mask> [MASK] a\n", ""):
        same_ids((old, loaded), text)
    assert loaded.model_max_length == 64
    assert loaded.model_input_names == INPUTS
    assert loaded.mask_token_id == old.mask_token_id


def test_settings_of_the_last_call_are_not_kept() -> None:
    tokenizer = families.wordpiece()
    tokenizer(["the old house", "the"], padding="max_length", truncation=True, max_length=4)
    made = tokenizer_with_white_space(tokenizer, INPUTS, None)
    assert made is not None
    assert len(made("the old house by the river").input_ids) > 6
    assert made("the").input_ids == tokenizer("the").input_ids


def test_a_tokenizer_in_python_is_not_converted() -> None:
    class Slow:
        pass

    assert tokenizer_with_white_space(Slow(), INPUTS, None) is None
