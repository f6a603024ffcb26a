"""Tests of the fields; the oracle is AllenNLP's `TextField` and `ListField` for the same ids."""

import copy
import pickle

import numpy as np
import pytest
import torch
from allennlp.data import Instance, Vocabulary
from allennlp.data.fields import ListField, TextField
from allennlp.data.token_indexers import PretrainedTransformerIndexer
from allennlp.data.tokenizers import Token
from hypothesis import given, settings
from hypothesis import strategies as st

from declutr.data.fields import SpansField, TokenIdsField
from tests.data.batches import as_tensors, assert_same

SPANS = st.lists(
    st.lists(st.integers(0, 399), min_size=1, max_size=9), min_size=1, max_size=5
)  # Of one document.


@pytest.fixture(scope="module")
def indexer(checkpoint) -> PretrainedTransformerIndexer:
    return PretrainedTransformerIndexer(str(checkpoint))


def arrays(lists: list[list[int]]) -> list[np.ndarray]:
    return [np.array(ids, dtype=np.int64) for ids in lists]


def spans_field(spans, padding_id=1, name="tokens") -> SpansField:
    return SpansField(arrays(spans), [ids % 2 for ids in arrays(spans)], padding_id, name)


def text_field(ids: list[int], indexer, name="tokens") -> TextField:
    return TextField([Token(f"t{i}", text_id=i, type_id=i % 2) for i in ids], {name: indexer})


def tensors(*fields) -> dict:
    return as_tensors([Instance({"spans": field}) for field in fields])["spans"]


class TestEqualsAllenNLP:
    @given(st.lists(SPANS, min_size=1, max_size=4))
    @settings(max_examples=50, deadline=None)
    def test_batch_of_documents(self, indexer, documents):
        count = min(map(len, documents))
        documents = [spans[:count] for spans in documents]  # All have equally many spans.
        expected = tensors(
            *[ListField([text_field(ids, indexer) for ids in spans]) for spans in documents]
        )
        assert_same(tensors(*map(spans_field, documents)), expected)

    @given(SPANS)
    @settings(max_examples=30, deadline=None)
    def test_batch_of_texts(self, indexer, texts):
        fields = [TokenIdsField(ids, ids % 2, 1) for ids in arrays(texts)]
        expected = tensors(*[text_field(ids, indexer) for ids in texts])
        assert_same(tensors(*fields), expected)

    def test_without_a_batch(self, indexer):
        spans = [[5, 6, 7], [8]]
        theirs = ListField([text_field(ids, indexer) for ids in spans])
        theirs.index(Vocabulary.empty())
        ours = spans_field(spans)
        got, expected = (one.as_tensor(one.get_padding_lengths()) for one in (ours, theirs))
        assert_same(got, expected)


class TestTensors:
    def test_shapes_and_padding(self):
        group = tensors(spans_field([[5, 6], [7, 8, 9]]), spans_field([[3], [4]]))["tokens"]
        assert group["token_ids"].tolist() == [[[5, 6, 1], [7, 8, 9]], [[3, 1, 1], [4, 1, 1]]]
        assert group["mask"].tolist() == [
            [[True, True, False], [True] * 3],
            [[True, False, False]] * 2,
        ]
        assert group["type_ids"].tolist() == [[[1, 0, 0], [1, 0, 1]], [[1, 0, 0], [0, 0, 0]]]
        assert [group[key].dtype for key in ("token_ids", "mask", "type_ids")] == [
            torch.int64,
            torch.bool,
            torch.int64,
        ]

    def test_a_padding_id_inside_a_span_is_not_masked(self):
        assert tensors(spans_field([[1, 5, 1]]))["tokens"]["mask"].all()

    def test_documents_of_different_numbers_of_spans_are_filled_up(self):
        group = tensors(spans_field([[5], [6]]), spans_field([[7]]))["tokens"]
        assert group["token_ids"].tolist() == [[[5], [6]], [[7], [1]]]
        assert group["mask"].tolist() == [[[True], [True]], [[True], [False]]]

    def test_name_of_the_indexer(self):
        assert list(tensors(spans_field([[5]], name="pieces"))) == ["pieces"]
        ids = np.array([5])
        assert list(tensors(TokenIdsField(ids, ids, 1, "pieces"))) == ["pieces"]

    def test_small_integers_are_widened(self):
        field = SpansField([np.array([65535], np.uint16)], [np.array([0], np.uint8)])
        assert tensors(field)["tokens"]["token_ids"].tolist() == [[[65535]]]

    def test_an_empty_text_has_no_tokens(self):
        nothing = np.empty(0, np.int64)
        empty, full = TokenIdsField(nothing, nothing, 1), TokenIdsField(*arrays([[5, 6]] * 2), 1)
        assert tensors(empty)["tokens"]["token_ids"].shape == (1, 0)
        group = tensors(empty, full)["tokens"]
        assert group["token_ids"].tolist() == [[1, 1], [5, 6]]
        assert group["mask"].tolist() == [[False, False], [True, True]]

    def test_tensors_do_not_share_memory_with_the_corpus(self):
        document = np.arange(9, dtype=np.int64)
        field = SpansField([document[2:5]], [np.zeros(3, np.int64)])
        tensors(field)["tokens"]["token_ids"].zero_()
        assert document.tolist() == list(range(9))

    def test_type_ids_must_be_as_long_as_their_spans(self):
        field = SpansField(arrays([[5], [6]]), arrays([[0]]))
        with pytest.raises(ValueError, match="shorter"):
            tensors(field)


class TestField:
    def test_in_a_list_field(self):
        inner = ListField([spans_field([[5], [6, 7]]), spans_field([[8]])])
        assert tensors(inner)["tokens"]["token_ids"].tolist() == [
            [[[5, 1], [6, 7]], [[8, 1], [1, 1]]]
        ]
        texts = ListField([TokenIdsField(*arrays([[5, 6], [0, 0]]), 1)] * 2)
        assert tensors(texts)["tokens"]["token_ids"].tolist() == [[[5, 6], [5, 6]]]

    @pytest.mark.parametrize("kind", ["spans", "text"])
    def test_empty_field_copies_its_settings(self, kind):
        ids = np.array([5, 6])
        field = SpansField([ids], [ids], 7, "x") if kind == "spans" else TokenIdsField(ids, ids, 7)
        empty = field.empty_field()
        assert (type(empty), empty.padding_id, empty.name) == (type(field), 7, field.name)
        assert len(empty) == 0

    def test_lengths(self):
        assert len(spans_field([[5], [6, 7]])) == 2
        assert len(TokenIdsField(*arrays([[5, 6, 7], [0, 0, 0]]))) == 3
        assert spans_field([[5], [6, 7]]).get_padding_lengths() == {"num_spans": 2, "num_tokens": 2}

    def test_pickling(self):
        for field in (spans_field([[5, 6], [7]]), TokenIdsField(*arrays([[5], [0]]), 1, "x")):
            for twin in (pickle.loads(pickle.dumps(field)), copy.deepcopy(field)):
                assert_same(tensors(twin), tensors(field))

    def test_human_readable_repr(self):
        field = spans_field([[5, 6], [7]])
        assert str(field) == "SpansField with spans of 2, 1 tokens"
        assert field.human_readable_repr() == [[5, 6], [7]]
        assert "TokenIdsField with spans of 2" in str(TokenIdsField(*arrays([[5, 6]] * 2)))
