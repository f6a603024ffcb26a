"""Compare joined texts with transformers' own encoding of texts and pairs and its truncation."""

import pytest
from allennlp.common.checks import ConfigurationError
from allennlp.data.tokenizers import PretrainedTransformerTokenizer, WhitespaceTokenizer
from hypothesis import given
from hypothesis import strategies as st

from declutr.task_models.glue.joined_texts import JoinedTexts, longest_first

TEXTS = ["ka lo", "mi tu re sa no ve pi du " * 4, "", "no"]


@pytest.fixture(params=[True, False], ids=["adds", "leaves"])
def make(request, checkpoint):
    def make(max_length=None) -> JoinedTexts:
        return JoinedTexts(
            PretrainedTransformerTokenizer(
                str(checkpoint), add_special_tokens=request.param, max_length=max_length
            )
        )

    return make


def ids(tokens) -> list[int]:
    return [token.text_id for token in tokens]


class TestTransformers:
    @pytest.mark.parametrize("max_length", [None, 12, 7])
    def test_a_single_text_is_encoded_as_by_transformers(self, make, checkpoint, max_length):
        joined = make(max_length)
        reference = PretrainedTransformerTokenizer(str(checkpoint)).tokenizer
        for text in TEXTS:
            expected = reference(text, max_length=max_length or 128, truncation=True)
            assert ids(joined.single(text)) == expected["input_ids"]

    @pytest.mark.parametrize("max_length", [None, 12, 14])
    def test_a_pair_is_encoded_as_by_transformers(self, make, checkpoint, max_length):
        joined = make(max_length)
        reference = PretrainedTransformerTokenizer(str(checkpoint)).tokenizer
        for first in TEXTS:
            for second in filter(None, TEXTS):  # transformers takes "" for no second text
                if max_length and first == second == TEXTS[1]:
                    continue  # of two that are too long, either may have the odd token
                expected = reference(
                    first, second, max_length=max_length or 128, truncation="longest_first"
                )
                assert ids(joined.pair(first, second)) == expected["input_ids"]

    def test_the_beginning_is_cut_if_the_truncation_side_is_left(self, checkpoint):
        left = {"truncation_side": "left"}
        tokenizer = PretrainedTransformerTokenizer(
            str(checkpoint), max_length=12, tokenizer_kwargs=left
        )
        joined, reference = JoinedTexts(tokenizer), tokenizer.tokenizer
        cut = {"max_length": 12, "truncation": "longest_first"}
        assert ids(joined.single(TEXTS[1])) == reference(TEXTS[1], **cut)["input_ids"]
        for pair in ((TEXTS[0], TEXTS[1]), (TEXTS[1], TEXTS[3])):
            assert ids(joined.pair(*pair)) == reference(*pair, **cut)["input_ids"]

    def test_two_long_texts_share_the_room(self, make):
        assert len(make(13).pair(TEXTS[1], TEXTS[1])) == 13

    def test_a_max_length_without_room_for_a_pair_is_refused(self, make):
        with pytest.raises(ConfigurationError, match=r"max_length is 5, but a pair has 4 special"):
            make(5)

    def test_the_tokenizer_is_left_as_it_was(self, checkpoint):
        tokenizer = PretrainedTransformerTokenizer(str(checkpoint), max_length=20)
        before = dict(vars(tokenizer))
        JoinedTexts(tokenizer).pair(TEXTS[1], TEXTS[1])
        assert vars(tokenizer) == before


class TestOthers:
    def test_a_single_text_is_tokenized(self):
        joined = JoinedTexts(WhitespaceTokenizer())
        assert [str(token) for token in joined.single("ka lo")] == ["ka", "lo"]
        assert [str(token) for token in joined.single("")] == [""]
        assert not joined.joins_pairs


@given(st.integers(0, 40), st.integers(0, 40), st.integers(2, 40))
def test_longest_first_equals_cutting_token_by_token(first, second, room):
    one, other = first, second
    while one + other > room:  # token by token, as transformers does
        one, other = (one - 1, other) if one > other else (one, other - 1)
    got = longest_first(first, second, room)
    assert sorted(got) == sorted((one, other)) and got[0] <= first and got[1] <= second
