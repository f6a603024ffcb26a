"""Oracle: the plain expressions over all documents at once."""

import numpy as np
import pytest
from allennlp.common.checks import ConfigurationError
from hypothesis import given, settings
from hypothesis import strategies as st

from declutr import document_selection
from declutr.document_selection import DocumentSelection, all_rows, shuffled
from declutr.sampling import SpanSampler

SAMPLER = SpanSampler(2, 1, 2, 10)  # needs 40 tokens, 4 at the least


@given(
    lengths=st.lists(st.integers(0, 60), max_size=40).map(lambda some: [*some, 40]),
    policy=st.sampled_from(["shrink", "skip"]),
    least=st.integers(0, 40),
    at_once=st.sampled_from([1, 3, 1 << 20]),
)
@settings(max_examples=150, deadline=None)
def test_rows(lengths, policy, least, at_once):
    lengths = np.array(lengths)
    from_length = max(least, 4, 40 if policy == "skip" else 0)
    messages = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document_selection, "_AT_ONCE", at_once)
        patch.setattr(document_selection.logger, "info", lambda text, *a: messages.append(text % a))
        rows = DocumentSelection(policy, least).rows(lengths, SAMPLER, "it")
    assert rows.dtype == np.int32
    assert rows.tolist() == np.flatnonzero(lengths >= from_length).tolist()
    shrunken = int((lengths[rows] < 40).sum())
    left = len(lengths) - len(rows)
    assert messages == [
        f"it: {len(lengths)} documents; {len(rows)} used, of which {shrunken} with shrunken spans; "
        f"{left} skipped ({int((lengths == 0).sum())} blank)."
    ]


def test_the_first_short_row_is_named_wherever_it_lies(monkeypatch):
    monkeypatch.setattr(document_selection, "_AT_ONCE", 2)
    lengths = np.array([40, 3, 50, 39, 38])
    with pytest.raises(ConfigurationError, match="it: row 4 has 39 tokens, and 2 of 5 documents"):
        DocumentSelection("error").rows(lengths, SAMPLER, "it")


def test_all_rows():
    assert all_rows(4).tolist() == [0, 1, 2, 3] and all_rows(4).dtype == np.int32
    assert document_selection._row_type(2**31) == np.int64


@pytest.mark.parametrize("count", [0, 1, 2, 1000, 70_000])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_shuffled_as_by_a_permutation(count, dtype):
    """The order that runs of version 1.0 had: resuming one depends on it."""
    rows = np.arange(count, dtype=dtype) * 3
    before = rows.copy()
    expected = rows[np.random.default_rng((13370, 2)).permutation(count)]
    assert shuffled(rows, (13370, 2)).tolist() == expected.tolist()
    assert rows.tolist() == before.tolist()
