"""Tests of token budgets against means over many draws and plain loops over documents."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from declutr.sampling import token_budget
from declutr.sampling.row_draws import document_rng
from declutr.sampling.spans import SpanSampler
from declutr.sampling.token_budget import UNITS, BudgetBatches, ExpectedTokens


class TestExpectedTokens:
    @pytest.mark.parametrize("strategy", ["all", "subsuming", "adjacent"])
    @pytest.mark.parametrize("length", [10, 130, 700, 5000])
    @pytest.mark.parametrize(("limit", "special"), [(None, 0), (98, 2)])
    def test_equals_the_mean_over_draws(self, strategy, length, limit, special):
        sampler = SpanSampler(2, 2, 8, 100, strategy)
        found = ExpectedTokens(sampler, limit, special).units(np.array([length]))[0] / UNITS
        tokens = []
        for row in range(1500):
            spans = sampler.shrunk_to(length).sample(length, document_rng(0, 0, row))
            both = np.concatenate([spans.anchors, spans.positives.reshape(-1, 2)])
            lengths = both[:, 1] - both[:, 0]
            tokens.append(np.minimum(lengths, limit or 10**9).sum() + special * len(both))
        error = 4 * np.std(tokens) / np.sqrt(len(tokens))
        assert found == pytest.approx(np.mean(tokens), abs=error + 0.6)

    def test_beta_parameters_are_used(self):
        flat = SpanSampler(1, 1, 1, 101, anchor_beta=(1, 1), positive_beta=(1, 1))
        # floor(B * 100) of a uniform B is 0 to 99: the mean of 1 to 100, twice.
        found = ExpectedTokens(flat, None, 0).units(np.array([10**6]))
        assert found / UNITS == pytest.approx(101, abs=0.1)

    def test_whole_texts(self):
        lengths = np.array([0, 1, 50, 98, 99, 10**7], dtype=np.int32)
        assert (ExpectedTokens(None, 98, 2).units(lengths) / UNITS).tolist() == [
            *(2, 3, 52, 100, 100, 100)
        ]
        assert (ExpectedTokens(None, None, 0).units(lengths[:3]) / UNITS).tolist() == [1, 1, 50]

    def test_adjacent_with_one_anchor(self):
        sampler = SpanSampler(1, 1, 40, 60, "adjacent")
        units = ExpectedTokens(sampler, None, 0).units(np.array([2, 3, 20, 119, 120]))
        assert (units > 0).all() and (np.diff(units) >= 0).all()


class Counted:
    """A counter for which a document has as many tokens as its length."""

    def units(self, lengths):
        return np.asarray(lengths, dtype=np.int64) * UNITS


lengths_of_corpora = st.lists(st.integers(1, 100), min_size=2, max_size=300)


@given(
    lengths=lengths_of_corpora,
    extra=st.integers(0, 900),
    processes=st.integers(1, 4),
    at_once=st.sampled_from([4, 12, 100, 1 << 20]),
    seed=st.integers(0, 99),
)
@settings(max_examples=300, deadline=None)
def test_cuts_divide_any_order_into_equal_batches(lengths, extra, processes, at_once, seed):
    lengths = np.array(lengths)
    if len(lengths) < 2 * processes:
        return
    rows, budget = np.arange(len(lengths)), int(2 * lengths.max()) + extra
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_budget, "_AT_ONCE", at_once)
        batches = BudgetBatches(Counted(), lengths, rows, budget, processes)
        for epoch in range(3):
            order = np.random.default_rng((seed, epoch)).permutation(rows)
            cuts = batches.cuts(order)
            assert len(cuts) == len(batches) + 1
            # Every row is in a batch, except the last ones if processes cannot share them equally.
            assert cuts[0] == 0 and cuts[-1] == len(rows) - len(rows) % processes
            assert (cuts % processes == 0).all()
            assert (np.diff(cuts) >= 2 * processes).all()
            tokens = [int(lengths[order[a:b]].sum()) for a, b in itertools.pairwise(cuts)]
            average = lengths.sum() / len(batches)
            slack = processes * lengths.max()
            assert max(tokens) <= max(average + slack, 2 * slack)
            # There are as few batches as the budget allows on average.
            if len(batches) < len(rows) // processes // 2:
                assert average <= budget * processes
            if len(batches) > 1:
                assert lengths.sum() > budget * processes * (len(batches) - 1)


def test_cuts_equal_a_plain_loop():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 40, 500)
    batches = BudgetBatches(Counted(), lengths, np.arange(500), 400)
    total, before, number = int(lengths.sum()), 0, []
    for length in lengths.tolist():  # a document goes where its middle lies
        number.append((2 * before + length) * len(batches) // (2 * total))
        before += length
    expected = [number.index(n) for n in range(len(batches))] + [500]
    assert batches.cuts(np.arange(500)).tolist() == expected


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_equal_documents_make_equal_batches_and_sums_do_not_overflow(processes):
    lengths = np.full(64, 10)
    batches = BudgetBatches(Counted(), lengths, np.arange(64), 160 // processes, processes)
    assert batches.cuts(np.arange(64)).tolist() == [0, 16, 32, 48, 64]
    lengths = np.full(5, 2**40)
    batches = BudgetBatches(Counted(), lengths, np.arange(5), 2**41)
    assert len(batches) == 2 and batches.cuts(np.arange(5)).tolist() in ([0, 2, 5], [0, 3, 5])


@pytest.mark.parametrize(
    ("max_tokens", "count", "processes", "message"),
    [
        (99, 9, 1, r"max_tokens is 99, but .* two of the largest give 100 tokens .*Raise max_tok"),
        (1000, 1, 1, r"1 document\(s\) are not enough for a batch: each of 1 process\(es\) needs"),
        (1000, 7, 4, r"7 document\(s\) are not enough for a batch: each of 4 process\(es\) needs"),
    ],
)
def test_too_few_tokens_or_documents_raise(max_tokens, count, processes, message):
    with pytest.raises(ValueError, match=message):
        BudgetBatches(Counted(), np.full(count, 50), np.arange(count), max_tokens, processes)
