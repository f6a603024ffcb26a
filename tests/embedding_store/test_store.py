"""A store of several encoders: fingerprints apart, and removal of what was not used for long."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from declutr.embedding_store import EmbeddingStore, StoreError, text_keys

KEYS = text_keys(["a", "b"])


def filled(store: EmbeddingStore, fingerprint: str, age: int = 0) -> int:
    rows = store.rows(fingerprint, {"encoder": "hf:x"})
    rows.append(KEYS, np.full((2, 1000), 0.1, np.float32))
    size, folder = rows.size, rows.folder
    rows.close()
    os.utime(folder, (1e9 - age,) * 2)
    return size


def test_fingerprints_have_rows_of_their_own(tmp_path: Path) -> None:
    store = EmbeddingStore(tmp_path / "deep" / "store")
    size = filled(store, "one") + filled(store, "two / other")
    assert EmbeddingStore(store.folder).rows("one").get(KEYS)[1].all()
    assert not store.rows("three").get(KEYS)[1].any()
    assert size < store.size < size + 40_000
    about = [json.loads(file.read_text()) for file in store.folder.glob("*/about.json")]
    assert {"fingerprint": "two / other", "encoder": "hf:x"} in about


def test_the_least_recently_used_are_removed_first(tmp_path: Path) -> None:
    store = EmbeddingStore(tmp_path)
    size = max(filled(store, name, age) for name, age in (("b", 1), ("c", 0), ("a", 2), ("d", 9)))
    held = store.rows("d")  # in use, and so neither the oldest now nor removed
    assert store.shrink(10 * size) == 0
    assert store.shrink(2 * size) >= 2 * size - 100
    assert len([*store.folder.glob("*/about.json")]) == 2
    assert store.rows("c").get(KEYS)[1].all() and not store.rows("b").get(KEYS)[1].any()
    theirs = store.folder / "thesis"  # of something else, with a file of that name
    theirs.mkdir()
    (theirs / "about.json").write_text('{"fingerprint": "other"}')
    store.shrink(0)
    assert (theirs / "about.json").exists()
    assert held.get(KEYS)[1].all()


@pytest.mark.parametrize("place", ["file", "file/inside"])
def test_a_place_that_is_no_folder(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=rf"'.*{place}' cannot be made or is no folder"):
        EmbeddingStore(tmp_path / place)
