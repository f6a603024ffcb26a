"""Arrays are written piece by piece, with checksums of what was written."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from declutr.corpus import array_files
from declutr.corpus.array_files import BlockHasher
from declutr.system import files


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    for module in (files, array_files):
        monkeypatch.setattr(module, "BLOCK", 8)


@given(st.binary(max_size=40), st.lists(st.integers(0, 40), max_size=4))
@settings(max_examples=50, deadline=None)
def test_checksums_of_pieces_are_those_of_the_whole(data, cuts):
    cuts = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    hasher = BlockHasher()
    for start, end in itertools.pairwise(cuts):
        hasher.update(memoryview(data)[start:end])
    assert hasher.checksums == files.checksums_of(data)
