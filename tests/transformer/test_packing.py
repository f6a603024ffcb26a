from itertools import chain, pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st

from declutr.transformer.packing import Packing, length_groups, text_ends, text_lengths

LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=8)
CPU = torch.device("cpu")


def left_aligned(lengths: list[int], width: int) -> torch.Tensor:
    return torch.arange(width) < torch.tensor(lengths)[:, None]


@given(LENGTHS, st.integers(0, 3))
def test_packs_every_token_once_and_puts_it_back(lengths: list[int], more: int) -> None:
    width = max(lengths) + more
    if not width:
        return
    padded = torch.arange(len(lengths) * width).view(-1, width) + 1
    packing = Packing(lengths, width, CPU)
    packed = packing.pack(padded)
    expected = [padded[row, :length] for row, length in enumerate(lengths)]
    expected.sort(key=len, reverse=True)
    assert torch.equal(packed, torch.cat(expected))
    assert torch.equal(packing.positions, torch.cat([torch.arange(len(e)) for e in expected]))
    assert packing.num_tokens == sum(lengths) == packing.cu_seqlens[-1]
    back = packing.pad(packed[:, None])[..., 0]
    assert torch.equal(back, padded * left_aligned(lengths, width))


@given(LENGTHS)
def test_offsets_are_the_beginnings_of_texts(lengths: list[int]) -> None:
    packing = Packing(lengths, 9, CPU)
    ordered = sorted((length for length in lengths if length), reverse=True)
    assert packing.lengths == ordered
    assert packing.cu_seqlens.dtype == torch.int32  # as kernels take them
    assert packing.cu_seqlens.diff().tolist() == ordered
    assert packing.longest == max(lengths)


def test_padding_carries_gradients() -> None:
    packing = Packing([1, 3], 4, CPU)
    packed = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(packing.pad, (packed,))


MASKS = st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=5)


@given(MASKS)
def test_packs_texts_with_masked_tokens_inside(rows: list[list[bool]]) -> None:
    mask = torch.tensor(rows)
    texts = [[place for place, is_token in enumerate(row) if is_token] for row in rows]
    packing = Packing(text_lengths(mask), 6, CPU, mask)
    order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
    expected = [(row, place) for row in order for place in texts[row]]
    padded = torch.arange(mask.numel()).view_as(mask)
    assert packing.positions.tolist() == [place for _, place in expected]
    assert packing.pack(padded).tolist() == [6 * row + place for row, place in expected]
    assert torch.equal(packing.pad(packing.pack(padded)[:, None])[..., 0], padded * mask)


@given(MASKS)
def test_lengths_and_ends_of_a_mask(rows: list[list[bool]]) -> None:
    mask = torch.tensor(rows)
    assert text_lengths(mask) == [sum(row) for row in rows]
    ends = [max((place + 1 for place in range(6) if row[place]), default=0) for row in rows]
    assert text_ends(mask) == ends


def test_nothing_is_read_from_the_device() -> None:
    """Tensors on the device "meta" have no values that could be read."""
    packing = Packing([2, 0, 3], 4, torch.device("meta"))
    assert packing.lengths == [3, 2]
    assert {tensor.shape[0] for tensor in (packing.positions, packing.cu_seqlens)} == {5, 3}
    assert (packing.num_tokens, packing.longest) == (5, 3)


@given(LENGTHS, st.integers(1, 30))
def test_groups_have_texts_of_similar_length(lengths: list[int], most: int) -> None:
    groups = length_groups(lengths, most)
    texts = [text for group in groups for text in group]
    assert sorted(texts) == [text for text, length in enumerate(lengths) if length]
    ordered = [lengths[text] for text in texts]
    assert ordered == sorted(ordered, reverse=True)
    for group in groups:
        assert len(group) == 1 or len(group) * lengths[group[0]] <= most
    for one, following in pairwise(groups):
        assert (len(one) + 1) * lengths[one[0]] > most, f"{following[0]} would have fitted"


@given(LENGTHS, st.integers(1, 30))
def test_groups_of_equal_length_need_no_padding(lengths: list[int], most: int) -> None:
    groups = length_groups(lengths, most, equal=True)
    assert sorted(chain(*groups)) == [text for text, length in enumerate(lengths) if length]
    for group in groups:
        assert len({lengths[text] for text in group}) == 1
        assert len(group) == 1 or len(group) * lengths[group[0]] <= most
    for one, following in pairwise(groups):
        longest = lengths[one[0]]
        assert (len(one) + 1) * longest > most or lengths[following[0]] < longest
