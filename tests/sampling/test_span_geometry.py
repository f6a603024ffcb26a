"""Tests of span geometry against counting tokens, and of the table in the docs."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from declutr.sampling.span_geometry import coverage
from declutr.sampling.spans import PLACEMENTS, SpanSampler

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@given(st.data(), st.integers(1, 5), st.integers(1, 6))
def test_coverage_equals_counting_tokens(data, parts: int, size: int) -> None:
    length = parts * size
    span = st.tuples(*[st.integers(0, length)] * 2).map(sorted)
    spans = np.array(data.draw(st.lists(span, min_size=1, max_size=4)))
    counts = np.zeros(length)
    for start, end in spans:
        counts[start:end] += 1
    expected = counts.reshape(parts, size).mean(axis=1)
    np.testing.assert_allclose(coverage(spans, length, parts), expected, atol=1e-12)


def test_parts_need_not_be_whole_tokens_and_spans_may_have_any_shape() -> None:
    positives = np.array([[[0, 1], [2, 3]], [[1, 3], [1, 2]]])
    np.testing.assert_allclose(coverage(positives, 3, 2), [4 / 3, 2])
    assert coverage(np.empty((0, 2), int), 5).tolist() == [0] * 8


@pytest.fixture(scope="module")
def script():
    path = ROOT / "scripts" / "plot_placements.py"
    spec = importlib.util.spec_from_file_location("plot_placements", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_in_the_docs_is_right(script) -> None:
    rows = re.findall(
        r"\| `(\w+)` \| ([\d,]+) \| (0\.[^\n]*) \|", (DOCS / "SAMPLING.md").read_text()
    )
    assert [row[0] for row in rows] == [*PLACEMENTS, *PLACEMENTS]
    for placement, length, numbers in rows:
        drawn = script.mean_coverage(placement, int(length.replace(",", "")), 1500, seed=5)
        expected = [float(number) for number in numbers.split(" | ")]
        np.testing.assert_allclose(drawn.reshape(8, -1).mean(axis=1), expected, atol=0.05)


def test_shrunk_documents_skip_the_middle_like_the_shortest_ones(script) -> None:
    """Compare short documents with those that are just long enough, as the docs say."""
    for length in (300, 2048):
        middle = {}
        for placement in PLACEMENTS:
            eighths = script.mean_coverage(placement, length, 1500).reshape(8, -1).mean(axis=1)
            middle[placement] = eighths[3:5].max() / eighths.max()
        assert middle["uniform"] < 0.2 < 0.5 < middle["grid"] < middle["uniform_v1"]


def test_positives_that_overlap_the_other_anchor() -> None:
    rng = np.random.default_rng(0)
    shares = {}
    for placement in PLACEMENTS:
        sampler, overlapping = SpanSampler(placement=placement), []
        for _ in range(1500):
            anchors, positives = sampler.sample(2048, rng)
            for (start, end), mine in zip(anchors[::-1], positives, strict=True):
                overlapping += ((mine[:, 0] < end) & (mine[:, 1] > start)).tolist()
        shares[placement] = np.mean(overlapping)
    assert shares.pop("uniform_v1") == pytest.approx(0.014, abs=0.008)
    assert set(shares.values()) == {0}


def test_the_script_draws_a_small_picture(script, tmp_path, capsys) -> None:
    assert 1000 < (DOCS / "placements.png").stat().st_size < 100_000
    pytest.importorskip("matplotlib", reason="pictures are an extra")
    script.main(["--draws", "3", "--output", str(tmp_path / "drawn.png")])
    assert 1000 < (tmp_path / "drawn.png").stat().st_size < 100_000
    assert len(re.findall(r"^\| `\w+` \|", capsys.readouterr().out, re.MULTILINE)) == 15
