"""Tests of masking against the binomial law of the counts and the 80/10/10 rule."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from declutr.sampling.masking import IGNORE, mask_tokens

MASK, VOCAB = 4, 1000


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def a_batch(rows: int = 200, columns: int = 500) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids of ordinary tokens, and a mask without the first, last and every seventh one."""
    token_ids = torch.randint(5, VOCAB, (rows, columns), generator=seeded(99))
    maskable = torch.ones(rows, columns, dtype=torch.bool)
    maskable[:, [0, -1]] = False
    maskable[:, ::7] = False
    return token_ids, maskable


def masked_of(
    token_ids: torch.Tensor, maskable: torch.Tensor, probability: float = 0.15, **options
):
    """Mask tokens of a vocabulary of VOCAB, if `options` have no other."""
    options = {"mask_id": MASK, "vocab_size": VOCAB, **options}
    return mask_tokens(token_ids, maskable, probability=probability, **options)


def close_to_binomial(count: int, trials: int, probability: float) -> bool:
    """Return whether a count is within five standard deviations of its mean."""
    deviation = (trials * probability * (1 - probability)) ** 0.5
    return abs(count - trials * probability) < 5 * deviation


@pytest.mark.parametrize("probability", [0.15, 0.5])
def test_shares_of_masked_random_and_kept_tokens(probability):
    token_ids, maskable = a_batch()
    masked, labels = masked_of(token_ids, maskable, probability, generator=seeded())
    selected = labels != IGNORE
    trials = int(selected.sum())
    assert close_to_binomial(trials, int(maskable.sum()), probability)
    hidden = int((masked[selected] == MASK).sum())
    kept = int((masked[selected] == token_ids[selected]).sum())
    # A random token is the mask, or the old token again, once in VOCAB times.
    assert close_to_binomial(hidden, trials, 0.8 + 0.1 / VOCAB)
    assert close_to_binomial(kept, trials, 0.1 + 0.1 / VOCAB)
    assert close_to_binomial(trials - hidden - kept, trials, 0.1 * (1 - 2 / VOCAB))


def test_random_tokens_cover_the_whole_vocabulary():
    token_ids = torch.full((400, 400), 7)
    every = torch.ones_like(token_ids, dtype=torch.bool)
    masked, labels = masked_of(token_ids, every, 1.0, vocab_size=10, generator=seeded())
    assert torch.equal(labels, token_ids)
    counts = torch.bincount(masked.flatten(), minlength=10)
    assert len(counts) == 10
    for token in {*range(10)} - {MASK, 7}:
        assert close_to_binomial(int(counts[token]), token_ids.numel(), 0.1 / 10)


@given(
    rows=st.integers(0, 5),
    columns=st.integers(0, 9),
    seed=st.integers(0, 2**32),
    probability=st.floats(0, 1),
)
@settings(max_examples=100, deadline=None)
def test_only_selected_tokens_change_and_labels_are_the_originals(rows, columns, seed, probability):
    token_ids = torch.randint(VOCAB, (rows, columns), generator=seeded(seed))
    maskable = torch.rand(rows, columns, generator=seeded(seed + 1)) < 0.5
    before, allowed = token_ids.clone(), maskable.clone()
    masked, labels = masked_of(token_ids, maskable, probability, generator=seeded(seed))
    assert torch.equal(token_ids, before) and torch.equal(maskable, allowed)
    assert masked.dtype == labels.dtype == torch.int64
    assert masked.shape == labels.shape == token_ids.shape
    selected = labels != IGNORE
    assert not (selected & ~maskable).any()
    assert torch.equal(masked[~selected], token_ids[~selected])
    assert torch.equal(labels[selected], token_ids[selected])


def test_a_generator_makes_it_repeatable_and_leaves_the_global_one_alone():
    state = torch.get_rng_state()
    first, again, other = (masked_of(*a_batch(8, 50), generator=seeded(k)) for k in (3, 3, 4))
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert not torch.equal(first[1], other[1])


def test_without_a_generator_the_global_one_is_used():
    found = []
    with torch.random.fork_rng(devices=[]):
        for seed in (5, 5, 6):
            torch.manual_seed(seed)
            found.append(masked_of(*a_batch(8, 50))[1])
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])


@pytest.mark.parametrize(("allowed", "probability"), [(False, 1.0), (True, 0.0)])
def test_without_selected_tokens_nothing_changes(allowed, probability):
    token_ids, maskable = a_batch(3, 4)
    masked, labels = masked_of(token_ids, torch.full_like(maskable, allowed), probability)
    assert torch.equal(masked, token_ids)
    assert (labels == IGNORE).all()


def test_no_value_is_read_back():
    """Use tensors without data, which raise if a value is read."""
    token_ids = torch.empty(4, 6, dtype=torch.int64, device="meta")
    maskable = torch.empty(4, 6, dtype=torch.bool, device="meta")
    masked, labels = masked_of(token_ids, maskable)
    assert masked.shape == labels.shape == (4, 6)


@pytest.mark.parametrize(
    ("maskable", "options", "message"),
    [
        *(
            (torch.ones(2, 3) > 0, {"probability": share}, "must lie between 0 and 1, not")
            for share in (-0.1, 1.1, float("nan"))
        ),
        (torch.ones(2, 3) > 0, {"vocab_size": 0}, "vocab_size must be at least 1, not 0"),
        (torch.ones(3) > 0, {}, r"token_ids \(2, 3\) and maskable \(3,\) differ"),
    ],
)
def test_settings_and_shapes_that_do_not_fit_raise(maskable, options, message):
    with pytest.raises(ValueError, match=message):
        masked_of(a_batch(2, 3)[0], maskable, **options)


def test_a_mask_of_integers_raises():
    token_ids, _ = a_batch(2, 3)
    with pytest.raises(TypeError, match=r"maskable must be a bool tensor, not torch\.int64"):
        masked_of(token_ids, torch.ones_like(token_ids))
