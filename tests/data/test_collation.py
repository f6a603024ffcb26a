"""Tests of packed batches; the oracle is AllenNLP's collation of the instances."""

import pickle

import numpy as np
import pytest
import torch
from allennlp.data import Instance
from hypothesis import given, settings
from hypothesis import strategies as st

from declutr.data.collation import Frame, PackedBatch, PackedSpans, number_field
from declutr.data.fields import SpansField, TokenIdsField
from declutr.data.span_reader import DeCLUTRDatasetReader
from tests.data.batches import as_tensors, assert_same, collated


@pytest.fixture(scope="module")
def path(tmp_path_factory, documents):
    """Write documents of every length from 0 to 300 words, many of them short."""
    words = documents[0].split()
    rows = [" ".join(words[:count]) for count in [0, 1, 2, 3, 4, 5, 7, 9, 30, 60, 100, 299, 300]]
    file = tmp_path_factory.mktemp("lengths") / "rows.txt"
    file.write_text("\n".join(rows + documents[:5]) + "\n")
    return file


@given(data=st.data())
@settings(max_examples=120, deadline=None)
def test_packed_spans_equal_collated_instances(pair, path, data):
    """Documents are shrunk, spans are longer than the transformer takes, and strategies vary."""
    longest = data.draw(st.sampled_from([4, 24, 127, 128]))
    reader = DeCLUTRDatasetReader(
        *pair,
        num_anchors=data.draw(st.integers(1, 3)),
        num_positives=data.draw(st.integers(1, 3)),
        max_span_len=longest,
        min_span_len=data.draw(st.sampled_from([1, 2])),
        sampling_strategy=data.draw(st.sampled_from(["all", "subsuming", "adjacent"])),
        placement=data.draw(st.sampled_from(["uniform", "grid"])),
        max_instances=data.draw(st.sampled_from([None, 3])),
        seed=data.draw(st.integers(0, 3)),
    )
    assert reader.packs
    rows = data.draw(st.lists(st.sampled_from(reader.documents(path).tolist()), min_size=1))
    epoch = data.draw(st.integers(0, 4))
    packed = reader.packed(path, np.array(rows), epoch)
    expected = collated(reader, path, rows, epoch)
    assert_same(pickle.loads(pickle.dumps(packed)).tensors(), expected)


@given(rows=st.lists(st.integers(0, 17), min_size=1, max_size=9))
@settings(max_examples=30, deadline=None)
def test_packed_whole_texts_equal_collated_instances(pair, path, rows):
    reader = DeCLUTRDatasetReader(*pair)
    expected = collated(reader, path, rows)
    assert expected["anchors"]["tokens"]["token_ids"].dim() == 2
    assert_same(reader.packed(path, rows).tensors(), expected)


ids = st.lists(st.integers(0, 999), max_size=6)
few = st.lists(st.integers(0, 999), max_size=2)


@given(
    start=few,
    end=few,
    types=st.lists(st.integers(0, 2), min_size=5, max_size=5),
    padding=st.integers(0, 3),
    documents=st.integers(1, 3).flatmap(
        lambda spans: st.lists(st.lists(ids, min_size=spans, max_size=spans), min_size=1)
    ),
)
@settings(max_examples=120, deadline=None)
def test_packing_with_any_special_tokens(start, end, types, padding, documents):
    """Segment ids differ from 0, special tokens are several or none, and spans may be empty."""
    start_types, end_types = types[: len(start)], types[2 : 2 + len(end)]
    frame = Frame(
        *(np.array(part, dtype=np.int64) for part in (start, end, start_types, end_types)),
        type_id=types[4],
        padding_id=padding,
        name="words",
    )

    def field(kind, spans):
        tokens = [np.array([*start, *span, *end], dtype=np.int64) for span in spans]
        type_ids = [
            np.array([*start_types, *[types[4]] * len(span), *end_types], dtype=np.int64)
            for span in spans
        ]
        if kind is TokenIdsField:
            return kind(tokens[0], type_ids[0], padding, "words")
        return kind(tokens, type_ids, padding, "words")

    flat = [np.array(span, dtype=np.uint16) for spans in documents for span in spans]
    shapes = {SpansField: (len(documents), len(documents[0]))}
    if len(documents[0]) == 1:
        shapes[TokenIdsField] = (len(documents),)
    for kind, shape in shapes.items():
        packed = PackedBatch({"a": PackedSpans.of(flat, shape, frame)})
        expected = as_tensors([Instance({"a": field(kind, spans)}) for spans in documents])
        assert_same(packed.tensors(), expected)


@pytest.mark.parametrize(
    ("values", "dtype"), [([3, 0, 2**40], torch.int64), ([0.1, -2.5, 1e30], torch.float32)]
)
def test_numbers_beside_texts_travel_with_them(pair, path, values, dtype):
    reader = DeCLUTRDatasetReader(*pair)
    texts = reader.packed(path, [4, 0, 6])
    kind = np.int64 if dtype is torch.int64 else np.float32
    packed = PackedBatch(texts.fields, {"weights": np.array(values, dtype=kind)})
    instances = [reader.instance(path, row) for row in (4, 0, 6)]
    for instance, value in zip(instances, values, strict=True):
        instance.add_field("weights", number_field(value))
    got = pickle.loads(pickle.dumps(packed)).tensors()
    assert_same(got, as_tensors(instances))
    assert got["weights"].dtype == dtype and got["weights"].shape == (3,)


def test_a_packed_batch_pickles_to_two_bytes_per_token(pair, corpus_file):
    reader = DeCLUTRDatasetReader(
        *pair, num_anchors=2, num_positives=2, max_span_len=24, min_span_len=8
    )
    packed = reader.packed(corpus_file, range(24))
    tokens = sum(int(g["tokens"]["mask"].sum()) for g in packed.tensors().values())
    assert len(pickle.dumps(packed)) < 2 * tokens + 5000  # A token takes two bytes.


def test_pin_memory_unpacks_and_pins_the_whole_batch(pair, corpus_file, monkeypatch):
    """On a machine with a GPU, torch's pinning thread calls `pin_memory`."""
    pinned = []
    monkeypatch.setattr(
        torch.Tensor, "pin_memory", lambda self: (pinned.append(self.data_ptr()), self)[1]
    )
    texts = DeCLUTRDatasetReader(*pair).packed(corpus_file, range(3))
    packed = PackedBatch(texts.fields, {"ids": np.arange(3)})
    assert_same(packed.pin_memory(), packed.tensors())
    assert len(pinned) == 4


def test_other_tokenizers_collate_instances(corpus_file):
    assert not DeCLUTRDatasetReader().packs
