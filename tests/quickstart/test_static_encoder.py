"""The figures of the static encoder at the end of `make train`."""

from typing import Any

import numpy as np

from declutr.quickstart.static_encoder import (
    QUERIES,
    NamedDocstring,
    held_out_pairs,
    reported,
    retrieval,
    search_both,
)

BODY = "word " * 16
DOCSTRINGS = [
    NamedDocstring(f"m{n % 7}.f{n}", f"{n} summary", f"{n} {BODY}", f"m{n % 7}", n % 2 == 0)
    for n in range(60)
]


def knowing(texts: list[str]) -> Any:
    """Embeddings by the number that a text begins with; those of questions are all alike."""
    return np.eye(64)[[int(text.split()[0]) if text[0].isdigit() else 63 for text in texts]]


def test_held_out_summaries_are_to_find_their_bodies_among_all(tmp_path: Any) -> None:
    pairs = held_out_pairs([*DOCSTRINGS, NamedDocstring("m.short", "s", "too short", "m", True)])
    assert sorted(pairs) == sorted(one for one in DOCSTRINGS if one.held_out)
    encoders: Any = {"knowing": knowing, "blind": lambda texts: np.ones((len(texts), 2))}
    found = retrieval(encoders, DOCSTRINGS)
    assert (found.pairs, found.shares["knowing"]) == (30, (1, 1, 1))
    blind = found.shares["blind"]  # the first body is the nearest of all
    assert blind.value == 1 / 30 and blind.low == 0 < blind.high < 0.2
    hits = search_both(encoders["knowing"], encoders["blind"], DOCSTRINGS)
    assert [query for query, *_ in hits] == list(QUERIES)
    assert hits[0][2] == ["f0: 0 summary", "f1: 1 summary", "f2: 2 summary"]
    text = reported(hits, found, tmp_path)
    assert "knowing                        100.0%   (100.0% to 100.0%)" in text
