"""An export is compared with its model on reference texts, within a tolerance."""

import numpy as np
import pytest

from declutr.export import comparison as module
from declutr.export.comparison import Comparison, compare, reference_texts


def test_reference_texts_have_many_lengths_and_scripts() -> None:
    texts = reference_texts()
    assert 50 <= len(texts) <= 70
    lengths = {len(text.split()) for text in texts}
    assert {0, 1, 600} <= lengths
    assert "" in texts
    letters = "".join(texts)
    for one in "aéßи春い어بपτİ🙂\u00a0\u2003\x1c\u200b\r":
        assert one in letters, one


@pytest.mark.parametrize(
    ("largest", "difference", "fails"),
    [(0.5, 0.9e-5, False), (0.5, 1.1e-5, True), (3.0, 2.9e-5, False), (3.0, 3.1e-5, True)],
)
def test_tolerance_is_relative_above_1(largest: float, difference: float, fails: bool) -> None:
    found = Comparison(3, largest, 1e-5, {"one": 0.0, "other": difference})
    assert found.failed == (["other"] if fails else [])
    assert ("too much" in found.table()) is fails


def test_a_difference_that_is_not_a_number_fails() -> None:
    assert Comparison(3, 1.0, 1e-5, {"one": float("nan")}).failed == ["one"]


@pytest.mark.slow
def test_another_shape_fails(monkeypatch, exported) -> None:
    monkeypatch.setattr(module, "by_encoder", lambda *_: np.zeros((1, 3)))
    others = ("_by_transformers", "by_sentence_transformers", "by_onnxruntime", "_tokenized")
    for name in others:
        monkeypatch.setattr(module, name, lambda *_: np.full((1, 2), 2e-6))
    found = compare(exported.folder, None, ["a"], np.zeros((1, 2)), 1e-5)
    assert found.failed == ["declutr.Encoder"]
    assert found.differences["transformers"] == 2e-6


def test_table_says_what_was_not_compared() -> None:
    table = Comparison(1, 1.0, 1e-5, {"one": 1e-6}, {"two": "not installed"}).table()
    assert table.splitlines()[2:] == [
        "| one       | 1.0e-06            |",
        "| two       | not installed      |",
    ]
