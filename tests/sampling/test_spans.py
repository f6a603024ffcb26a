"""Tests of the span sampler.

Lengths are compared with golden numbers, which were computed from the beta law itself. Invariants
are tested as properties, and uniformity by chi-square tests.
"""

import json
import pickle
from collections import Counter
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from declutr.sampling.row_draws import DocumentRandom, document_rng
from declutr.sampling.span_geometry import view_kind
from declutr.sampling.spans import PLACEMENTS, STRATEGIES, DocumentTooShort, SpanSampler

GOLDEN = json.loads((Path(__file__).parents[1] / "fixtures" / "golden_sampling.json").read_text())
LENGTH_LAWS = {
    key: value
    for key, value in GOLDEN["sampler_lengths"]["values"].items()
    if not key.startswith("view_probs")
}


def rng_of(seed: int) -> np.random.Generator:
    return document_rng(seed, 0, 0)


@st.composite
def cases(draw, strategies=STRATEGIES, placements=PLACEMENTS):
    """Draw a sampler, a document length that it can always sample from, and a seed."""
    anchors = draw(st.integers(1, 6))
    longest = draw(st.integers(1, 60))
    strategy = draw(st.sampled_from(strategies))
    tight = strategy == "adjacent" and anchors == 1  # else no side of the anchor may have room
    sampler = SpanSampler(
        num_anchors=anchors,
        num_positives=draw(st.integers(1, 4)),
        min_span_len=draw(st.integers(1, (longest + 1) // 2 if tight else longest)),
        max_span_len=longest,
        strategy=strategy,
        placement=draw(st.sampled_from(placements)),
    )
    extra = draw(st.one_of(st.just(0), st.integers(0, 4 * longest)))
    return sampler, sampler.min_document_len + extra, draw(st.integers(0, 2**32))


class TestInvariants:
    @given(cases())
    @settings(max_examples=300, deadline=None)
    def test_spans_lie_in_the_document_and_keep_their_length(self, case):
        sampler, length, seed = case
        anchors, positives = sampler.sample(length, rng_of(seed))
        assert anchors.shape == (sampler.num_anchors, 2)
        assert positives.shape == (sampler.num_anchors, sampler.num_positives, 2)
        assert anchors.dtype == positives.dtype == np.int64
        spans = np.concatenate([anchors, positives.reshape(-1, 2)])
        lengths = spans[:, 1] - spans[:, 0]
        assert spans.min() >= 0 and spans.max() <= length
        assert lengths.min() >= sampler.min_span_len
        reachable = sampler.max_span_len - (sampler.min_span_len < sampler.max_span_len)
        assert lengths.max() <= reachable

    @given(cases())
    @settings(max_examples=300, deadline=None)
    def test_anchors_keep_their_distance(self, case):
        sampler, length, seed = case
        anchors, positives = sampler.sample(length, rng_of(seed))
        again = sampler.sample(length, rng_of(seed))  # The same state gives the same spans.
        np.testing.assert_array_equal(again.anchors, anchors)
        np.testing.assert_array_equal(again.positives, positives)
        for first, second in combinations(anchors.tolist(), 2):
            left, right = sorted((first, second))
            if sampler.placement != "grid":
                apart = {"uniform": 2, "uniform_v1": 1}[sampler.placement]
                assert right[0] - left[0] >= apart * sampler.max_span_len
            room = 0 if sampler.placement == "uniform_v1" else sampler.max_span_len
            assert right[0] - left[1] >= room
        if sampler.placement == "uniform_v1":
            return  # With this placement positives may overlap other anchors.
        for own, mine in enumerate(positives.tolist()):
            others = np.delete(anchors, own, axis=0).tolist()
            for (begin, stop), (start, end) in ((p, a) for p in mine for a in others):
                assert stop <= start or end <= begin

    @given(cases())
    @settings(max_examples=300, deadline=None)
    def test_positives_belong_to_their_anchor(self, case):
        sampler, length, seed = case
        anchors, positives = sampler.sample(length, rng_of(seed))
        allowed = {
            "all": {"adjacent", "subsumed", "contains", "partial"},
            "subsuming": {"subsumed"},
            "adjacent": {"adjacent"},
        }[sampler.strategy]
        for anchor, mine in zip(anchors.tolist(), positives.tolist(), strict=True):
            assert {view_kind(anchor, span) for span in mine} <= allowed

    @pytest.mark.parametrize("placement", PLACEMENTS)
    @pytest.mark.parametrize("num_anchors", [1, 2, 3, 5, 8])
    def test_shortest_allowed_document_never_fails(self, num_anchors, placement):
        sampler = SpanSampler(num_anchors, 1, 1, 5, placement=placement)
        rng = rng_of(num_anchors)
        for _ in range(300):
            sampler.sample(sampler.min_document_len, rng)

    def test_lengths_may_be_numpy_integers(self):
        sampler = SpanSampler(max_span_len=np.int64(64))
        plain = SpanSampler(max_span_len=64).sample(500, rng_of(1))
        np.testing.assert_array_equal(sampler.sample(np.int64(500), rng_of(1)).anchors, plain[0])


class TestLengthLaws:
    @pytest.mark.slow
    @pytest.mark.parametrize("key", sorted(LENGTH_LAWS))
    def test_mean_variance_and_quantiles(self, key):
        kind, shortest, longest = key.split("_")
        shortest, longest = int(shortest), int(longest)
        law = LENGTH_LAWS[key]
        sampler = SpanSampler(1, 1, shortest, longest)
        rng = rng_of(11)
        spans = [sampler.sample(10 * longest, rng) for _ in range(20_000)]
        chosen = [s.anchors[0] if kind == "anchor" else s.positives[0, 0] for s in spans]
        lengths = np.array([end - start for start, end in chosen])
        assert abs(lengths.mean() - law["mean"]) < 5 * law["sd"] / 20_000**0.5
        assert lengths.var() == pytest.approx(law["var"], rel=0.05)
        quantiles = np.quantile(lengths, [0.05, 0.25, 0.5, 0.75, 0.95])
        tolerance = max(1.0, 0.05 * law["sd"])
        np.testing.assert_allclose(quantiles, law["quantiles_5_25_50_75_95"], atol=tolerance)

    def test_whole_distribution_of_short_spans(self):
        """Compare with P(floor(8 B) = k) = F((k + 1) / 8) - F(k / 8), where B has the law F."""
        sampler = SpanSampler(1, 1, 2, 10)
        rng = rng_of(12)
        spans = [sampler.sample(100, rng) for _ in range(20_000)]
        edges = np.linspace(0, 1, 9)
        for drawn, law in (
            ([s.anchors[0] for s in spans], (4, 2)),
            ([s.positives[0, 0] for s in spans], (2, 4)),
        ):
            counts = np.bincount([end - start - 2 for start, end in drawn], minlength=8)
            expected = np.diff(stats.beta.cdf(edges, *law)) * len(spans)
            assert stats.chisquare(counts, expected).pvalue > 1e-3

    def test_other_beta_laws_are_used(self):
        sampler = SpanSampler(1, 1, 10, 110, anchor_beta=(1, 9), positive_beta=(9, 1))
        rng = rng_of(13)
        spans = [sampler.sample(1000, rng) for _ in range(2_000)]
        anchors = np.mean([s.anchors[0, 1] - s.anchors[0, 0] for s in spans])
        positives = np.mean([s.positives[0, 0, 1] - s.positives[0, 0, 0] for s in spans])
        assert anchors == pytest.approx(10 + 10 - 0.5, abs=1.5)
        assert positives == pytest.approx(10 + 90 - 0.5, abs=1.5)


class TestViewTypes:
    def shares(self, length: int) -> dict[str, float]:
        sampler, rng = SpanSampler(), rng_of(21)
        kinds = []
        for _ in range(20_000):
            anchors, positives = sampler.sample(length, rng)
            for anchor, mine in zip(anchors.tolist(), positives.tolist(), strict=True):
                kinds += [view_kind(anchor, span) for span in mine]
        return {kind: kinds.count(kind) / len(kinds) for kind in set(kinds)}

    def test_shares_of_view_kinds_far_from_the_edges(self):
        law = GOLDEN["sampler_lengths"]["values"]["view_probs_32_512_no_edge_clipping"]
        shares = self.shares(1_000_000)
        for kind, key, error in (
            ("adjacent", "adjacent", 0.002),
            ("subsumed", "subsumed_in_anchor", 0.01),
            ("contains", "contains_anchor_strictly_longer", 0.003),
            ("partial", "partial_overlap", 0.01),
        ):
            assert shares[kind] == pytest.approx(law[key], abs=error)

    def test_shares_of_view_kinds_in_the_shortest_document(self):
        expected = {"adjacent": 0.003, "subsumed": 0.348, "contains": 0.014, "partial": 0.635}
        assert self.shares(2048) == pytest.approx(expected, abs=0.01)

    def test_golden_kinds(self):
        case = GOLDEN["view_kind"]
        anchor = case["inputs"]["anchor"]
        kinds = [view_kind(anchor, span) for span in case["inputs"]["spans"]]
        assert kinds == case["values"]["kinds"]
        assert view_kind((100, 200), (0, 99)) == view_kind((100, 200), (201, 300)) == "disjoint"

    def test_empty_intervals_raise(self):
        with pytest.raises(ValueError, match=r"the span \[5, 5\) is empty"):
            view_kind((1, 9), (5, 5))
        with pytest.raises(ValueError, match=r"the anchor \[9, 1\) is empty"):
            view_kind((9, 1), (5, 6))


class TestUniformity:
    @pytest.mark.parametrize(
        ("placement", "anchors", "length", "apart"),
        [
            *(("uniform", 1, 50, 0), ("uniform", 2, 17, 6)),
            *(("uniform_v1", 2, 14, 3), ("uniform_v1", 3, 18, 3)),
        ],
    )
    def test_every_placement_is_equally_likely(self, placement, anchors, length, apart):
        """List all starts of spans of 3 tokens that are far enough apart by brute force."""
        sampler, rng = SpanSampler(anchors, 1, 3, 3, placement=placement), rng_of(32)
        legal = [
            starts
            for starts in product(range(length - 3 + 1), repeat=anchors)
            if all(abs(a - b) >= apart for a, b in combinations(starts, 2))
        ]
        draws = max(20_000, 12 * len(legal))
        drawn = Counter(
            tuple(sampler.sample(length, rng).anchors[:, 0].tolist()) for _ in range(draws)
        )
        assert set(drawn) == set(legal)
        assert stats.chisquare([drawn[starts] for starts in legal]).pvalue > 1e-3

    @pytest.mark.slow
    @pytest.mark.parametrize(("placement", "apart"), [("uniform", 6), ("uniform_v1", 3)])
    def test_placement_given_the_lengths_is_uniform(self, placement, apart):
        """Test the starts that are possible for two lengths, in the shortest document, too."""
        sampler, length, rng = SpanSampler(2, 1, 1, 3, placement=placement), 12, rng_of(37)
        starts: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for _ in range(30_000):
            (a, a_end), (b, b_end) = sampler.sample(length, rng).anchors.tolist()
            starts.setdefault((a_end - a, b_end - b), []).append((a, b))
        assert set(starts) == {(1, 1), (1, 2), (2, 1), (2, 2)}
        for (a_len, b_len), drawn in starts.items():
            places = [(a, b) for a in range(13 - a_len) for b in range(13 - b_len)]
            # For one order of the two lengths all pairs of starts are equally likely. The two
            # orders differ in the number of pairs, because it depends on the last length.
            for sign in (1, -1):
                legal = [(a, b) for a, b in places if sign * (b - a) >= apart]
                counts = [drawn.count(pair) for pair in legal]
                assert stats.chisquare(counts).pvalue > 1e-3
            assert all(pair in places and abs(pair[0] - pair[1]) >= apart for pair in drawn)

    def test_uniform_placements_agree_for_a_single_anchor(self):
        samplers = [SpanSampler(1, 2, 3, 9, placement=p) for p in ("uniform", "uniform_v1")]
        for seed in range(50):
            first, second = (sampler.sample(40, rng_of(seed)) for sampler in samplers)
            np.testing.assert_array_equal(first.anchors, second.anchors)
            np.testing.assert_array_equal(first.positives, second.positives)

    def test_positives_over_the_clipped_range(self):
        sampler, length, rng = SpanSampler(1, 1, 6, 6), 14, rng_of(33)
        begins: dict[int, list[int]] = {}
        for _ in range(20_000):
            anchors, positives = sampler.sample(length, rng)
            begins.setdefault(int(anchors[0, 0]), []).append(int(positives[0, 0, 0]))
        for start, drawn in begins.items():
            first, last = max(0, start - 6), min(start + 6, length - 6)
            counts = np.bincount(np.array(drawn) - first, minlength=last - first + 1)
            assert len(counts) == last - first + 1
            assert stats.chisquare(counts).pvalue > 1e-4

    def test_adjacent_positives_take_both_sides_and_position_zero(self):
        """Check that a positive may start at position 0, which the published code misses."""
        sampler, rng = SpanSampler(1, 1, 4, 4, strategy="adjacent"), rng_of(34)
        drawn = []
        for _ in range(6_000):
            anchors, positives = sampler.sample(12, rng)
            drawn.append((int(anchors[0, 0]), int(positives[0, 0, 0])))
        assert (4, 0) in drawn
        at_four = [begin for start, begin in drawn if start == 4]
        assert at_four.count(0) / len(at_four) == pytest.approx(0.5, abs=0.1)
        assert {begin for start, begin in drawn if start < 4} == {4, 5, 6, 7}

    def test_grid_keeps_anchors_inside_blocks(self):
        sampler, rng = SpanSampler(2, 1, 3, 10, placement="grid"), rng_of(35)
        for _ in range(500):
            anchors = sampler.sample(57, rng).anchors
            np.testing.assert_array_equal(anchors[:, 0] // 10, (anchors[:, 1] - 1) // 10)
            assert anchors.max() <= 50  # the last 57 % 10 tokens are never in an anchor

    def test_grid_uses_only_end_blocks_where_blocks_could_run_out(self):
        sampler, rng = SpanSampler(4, 1, 5, 5, placement="grid"), rng_of(36)
        firsts = {int(sampler.sample(40, rng).anchors[0, 0]) for _ in range(200)}
        assert firsts == {0, 35}


class TestShortDocuments:
    @pytest.mark.parametrize("placement", PLACEMENTS)
    def test_a_document_that_is_too_short_raises(self, placement):
        sampler = SpanSampler(placement=placement)
        assert sampler.min_document_len == 2048 and sampler.shrunk_to(2048) is sampler
        with pytest.raises(DocumentTooShort, match=r"2047 tokens; 2 anchor\(s\).* need 2048"):
            sampler.sample(2047, rng_of(0))
        assert issubclass(DocumentTooShort, ValueError)

    def test_shrunk_lengths(self):
        sampler = SpanSampler(placement="grid", strategy="subsuming", anchor_beta=(1, 2))
        shrunk = sampler.shrunk_to(2047)
        assert (shrunk.min_span_len, shrunk.max_span_len) == (32, 511)
        shrunk = sampler.shrunk_to(103)
        assert (shrunk.min_span_len, shrunk.max_span_len) == (25, 25)
        assert (shrunk.placement, shrunk.strategy) == ("grid", "subsuming")
        assert shrunk.anchor_beta == (1.0, 2.0)
        # Samplers are built once.
        assert (
            sampler.shrunk_to(103) is shrunk is sampler.shrunk_to(100) is not sampler.shrunk_to(99)
        )

    def test_a_document_without_room_for_one_token_spans_raises(self):
        assert SpanSampler().shrunk_to(4).max_span_len == 1
        with pytest.raises(DocumentTooShort, match="3 tokens is too short for 2 anchor"):
            SpanSampler().shrunk_to(3)

    @given(cases(), st.data())
    @settings(max_examples=300, deadline=None)
    def test_a_shrunk_sampler_always_serves_its_document(self, case, data):
        sampler, _, seed = case
        length = data.draw(st.integers(2 * sampler.num_anchors, sampler.min_document_len))
        spans = sampler.shrunk_to(length).sample(length, rng_of(seed))
        assert spans.anchors.min() >= 0 and spans.positives.max() <= length

    def test_an_adjacent_positive_without_room_on_either_side_raises(self):
        sampler, rng = SpanSampler(1, 1, 10, 10, strategy="adjacent"), rng_of(41)
        with pytest.raises(DocumentTooShort, match="at least 10 tokens fits neither before nor"):
            for _ in range(100):
                sampler.sample(20, rng)


class TestDocumentRng:
    def test_different_arguments_give_different_numbers(self):
        values = [0, 1, 2, 2**32, 2**63, -1]
        triples = [(s, e, d) for s in values for e in values for d in values]
        keys = [*triples, *((*triple, 2**32) for triple in triples)]
        drawn = {tuple(document_rng(*key).integers(2**63, size=2)) for key in keys}
        assert len(drawn) == len(keys)
        np.testing.assert_array_equal(
            document_rng(1, 2, 3).random(4), document_rng(1, 2, 3, 0).random(4)
        )

    @pytest.mark.parametrize("which", [0, 1, 2, 3])
    def test_neighbours_are_uncorrelated_and_uniform(self, which):
        triples = [[7, 7, 7, 7] for _ in range(4_000)]
        for number, triple in enumerate(triples):
            triple[which] = number
        drawn = np.array([document_rng(*triple).random(4) for triple in triples])  # (4000, 4)
        assert len(np.unique(drawn)) == drawn.size  # Streams do not overlap.
        assert stats.kstest(drawn.ravel(), "uniform").pvalue > 1e-3
        for column in drawn.T:
            assert abs(np.corrcoef(column[:-1], column[1:])[0, 1]) < 4 / 4_000**0.5
        correlations = np.corrcoef(drawn.T) - np.eye(4)
        assert np.abs(correlations).max() < 4 / 4_000**0.5

    def test_huge_and_negative_values_wrap(self):
        np.random.seed(0)
        first = document_rng(-1, 2**64 + 3, 0).random(4)
        np.random.seed(1)  # Only the arguments matter.
        np.testing.assert_array_equal(first, document_rng(2**64 - 1, 3, 0).random(4))


class TestSettings:
    def test_settings_from_a_config_file(self):
        assert SpanSampler(strategy=None) == SpanSampler(strategy="all")
        assert hash(SpanSampler(anchor_beta=[4, 2])) == hash(SpanSampler())

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"num_anchors": 0}, "num_anchors must be an integer of at least 1, not 0"),
            ({"num_positives": -1}, "num_positives must be an integer of at least 1, not -1"),
            ({"min_span_len": 0}, "min_span_len must be an integer of at least 1, not 0"),
            ({"max_span_len": 5.0}, "max_span_len must be an integer of at least 1, not 5.0"),
            ({"num_anchors": True}, "num_anchors must be an integer"),
            ({"min_span_len": 65, "max_span_len": 64}, "min_span_len is 65, longer than max_span"),
            (
                {"strategy": "subsumming"},
                "known: all, subsuming, adjacent. Did you mean 'subsuming'",
            ),
            (
                {"placement": "Grid"},
                "'Grid'; known: uniform, uniform_v1, grid. Did you mean 'grid'",
            ),
            ({"placement": "zzz"}, r"unknown placement 'zzz'; known: uniform, uniform_v1, grid\.$"),
            ({"anchor_beta": (4, 0)}, r"anchor_beta must be two positive numbers, not \(4, 0\)"),
            ({"positive_beta": (1, 2, 3)}, "positive_beta must be two positive numbers"),
            ({"positive_beta": 2.0}, "positive_beta must be two positive numbers, not 2.0"),
            ({"anchor_beta": (4, float("nan"))}, "anchor_beta must be two positive numbers"),
        ],
    )
    def test_invalid_settings_raise(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            SpanSampler(**arguments)


class TestDocumentRandom:
    @given(st.lists(st.tuples(*[st.integers(-(2**65), 2**65)] * 4), max_size=5), st.integers(0, 9))
    @settings(max_examples=100, deadline=None)
    def test_draws_what_document_rng_does(self, keys, before):
        """Check this whatever was drawn before, such as half of a 64-bit word."""
        one = DocumentRandom()
        for key in keys:
            fresh, reused = document_rng(*key), one.at(*key)
            for rng in (fresh, reused):
                rng.bytes(before)
            for draw in (
                lambda rng: rng.integers(7),
                lambda rng: rng.beta(4.0, 2.0),
                lambda rng: rng.permutation(5).tolist(),
                lambda rng: rng.integers(2**63, size=9).tolist(),
                lambda rng: rng.integers(7),
            ):
                assert draw(fresh) == draw(reused)

    def test_a_pickled_copy_draws_the_same_numbers(self):
        one = DocumentRandom()
        one.at(1, 2, 3).random(3)
        copied = pickle.loads(pickle.dumps(one)).at(4, 5, 6).random()
        assert copied == document_rng(4, 5, 6).random()

    @pytest.mark.parametrize("draw", [document_rng, DocumentRandom().at])
    def test_floats_raise(self, draw):
        with pytest.raises(TypeError, match="float"):
            draw(1.5, 0, 0)
