"""Encoders as a run calls them: what is embedded, what is taken from a store, and the numbers."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from declutr.embedding_store import EmbeddingStore, KeyedRows
from declutr.evaluation.metered_encoder import Meter, stored_rows
from declutr.evaluation.report.truncated_encoders import add_with_dimensions
from declutr.evaluation.results import ResultFolder
from declutr.evaluation.run import Run
from declutr.evaluation.task import PROTOTYPING, PUBLISHED, BadEmbeddings, Protocol
from tests.evaluation.fakes import Encoder, Positive, Similar, hashed

ONE, TWO = ["a", "b", "c", "b"], ["c", "d"]
TASKS = [Positive("one", ONE), Positive("two", TWO), Similar()]


def test_sentences_and_seconds_are_counted() -> None:
    meter = Meter(hashed)
    np.testing.assert_array_equal(meter(["a", "b"]), hashed(["a", "b"]))
    meter(["c"])
    assert meter.sentences == 3 and meter.seconds > 0
    assert meter.stored == meter.store_seconds == 0


def rounding(texts: Sequence[str]) -> np.ndarray:
    """Embeddings that depend on the number of texts of a call by rounding, as real ones do."""
    return hashed(texts) * np.float32(1 + len(texts) * 2**-22)


@pytest.fixture
def store(tmp_path: Path) -> EmbeddingStore:
    return EmbeddingStore(tmp_path / "store")


@pytest.fixture
def rows(store: EmbeddingStore) -> KeyedRows:
    return store.rows("rows")


def test_stored_sentences_are_not_embedded_again(rows: KeyedRows) -> None:
    first, again, encoder = Meter(rounding, rows), Meter(rounding, rows), Encoder(encode=rounding)
    texts = ["a", "b", "c"]
    given = first(texts)
    np.testing.assert_array_equal(given, rounding(texts))
    np.testing.assert_array_equal(again(texts[::-1]), given[::-1])
    assert (first.sentences, first.stored, again.sentences, again.stored) == (3, 0, 0, 3)
    part = Meter(encoder, rows)
    found = part(["b", "new", "a"])
    np.testing.assert_array_equal(found, [given[1], rounding(["new"])[0], given[0]])
    assert encoder.seen == ["new"] and (part.sentences, part.stored) == (1, 2)
    assert part.store_seconds > 0


def test_embeddings_that_are_not_finite_are_asked_for_again(rows: KeyedRows) -> None:
    for number in (np.nan, np.inf):
        vectors = Meter(lambda texts, bad=number: np.full((len(texts), 2), bad), rows)(["a"])
        assert not np.isfinite(vectors).any()
    assert Meter(lambda texts: np.ones((len(texts), 2)), rows)(["a"]).tolist() == [[1, 1]]


def test_what_another_process_stored_meanwhile_counts(rows: KeyedRows) -> None:
    def slow(texts: list[str]) -> np.ndarray:
        Meter(rounding, rows)(["b"])
        return rounding(texts)

    found = Meter(slow, rows)(["a", "b"])
    np.testing.assert_array_equal(found, [rounding(["a", "x"])[0], rounding(["b"])[0]])
    np.testing.assert_array_equal(Meter(rounding, rows)(["a", "b"]), found)


def test_embeddings_of_another_shape_are_reported(rows: KeyedRows) -> None:
    Meter(hashed, rows)(["a"])
    wrong = Meter(lambda texts: np.ones((len(texts), 3)), rows)
    assert wrong(["b"]).shape == (1, 3)  # the table of sentences reports it
    with pytest.raises(BadEmbeddings, match=r"\(1, 4\) as before, the encoder gave \(1, 3\)"):
        wrong(["a", "b"])
    assert Meter(lambda texts: np.ones(3), rows)(["b"]).shape == (3,)


def test_a_full_disk_costs_the_store_alone(
    rows: KeyedRows, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    meter = Meter(hashed, rows)
    meter(["a"])
    monkeypatch.setattr("declutr.embedding_store.keyed_rows.write_block", full)
    for texts in (["a", "b"], ["c"]):
        np.testing.assert_array_equal(meter(texts), hashed(texts))
    assert caplog.text.count("Embeddings are not stored from here on: [Errno 28] No space") == 1


@pytest.fixture
def start(tmp_path: Path, store: EmbeddingStore) -> Callable[..., tuple[Encoder, dict, list]]:
    """Return a function that runs an encoder into a new folder, with or without the store."""

    def start(
        folder: str,
        tasks: Sequence[Positive | Similar] = TASKS,
        protocol: Protocol = PUBLISHED,
        stored: bool = True,
        dimensions: Sequence[int] = (),
        not_stored: str | None = None,
        **encoder: Any,
    ) -> tuple[Encoder, dict, list]:
        said: list[str] = []
        used = Encoder(**{"encode": rounding} | encoder)
        used.not_stored = not_stored
        results = ResultFolder(tmp_path / folder)
        how = {"say": said.append, "resamples": 0, "store": store if stored else None}
        run = Run(results, tasks, protocol, "1.0", **how)
        add_with_dimensions(run, used, dimensions, say=said.append)
        run.close()
        records = {name: results.records(name) for name in results.encoders()}
        items = {
            (name, task, score.name): {part: list(value) for part, value in score.items.items()}
            for name, of_one in records.items()
            for task, record in of_one.items()
            for score in record.result.scores
        }
        facts = results.description("hashed")
        return used, {"items": items, "facts": facts}, said

    return start


def test_another_protocol_and_another_task_embed_nothing_twice(start, store) -> None:
    plain = start("plain", stored=False)
    filling = start("filling")
    assert plain[1]["items"] == filling[1]["items"], "to the bit, as without a store"
    other = start("protocol", protocol=PROTOTYPING)
    assert filling[1]["items"] == other[1]["items"], "to the bit, as the run that filled it"
    assert len(filling[0].seen) == len(set(filling[0].seen)) == 4 + 120 and other[0].seen == []
    runs = [told[1]["facts"]["runs"][0] for told in (plain, filling, other)]
    counts = [(run["requested"], run["embedded"], run["stored"]) for run in runs]
    assert counts == [(126, 124, 0), (126, 124, 0), (126, 0, 124)]
    more = start("more", [Positive("three", ["a", "d", "new"])])
    assert more[0].seen == ["new"]
    folder = other[1]["facts"]["store"]["folder"]
    assert f"hashed: 0 sentences embedded, 124 taken from {folder} (0.0 MB)" in other[2]
    assert Path(folder).parent == store.folder and other[1]["facts"]["store"]["bytes"] > 1000
    assert "store" not in plain[1]["facts"]
    counts = [told[1]["facts"]["counts"] for told in (plain, filling, other)]
    stored = {"truncated_texts": 0, "stored_and_not_counted": 124}
    assert counts == [{"truncated_texts": 0}, {"truncated_texts": 0}, stored]


def test_a_run_that_is_killed_while_it_embeds_goes_on_after_the_last_block(start) -> None:
    many = [Positive("many", [str(number) for number in range(2500)])]

    def killed(texts: Sequence[str]) -> np.ndarray:
        if len(texts) < 1024:
            raise KeyboardInterrupt
        return hashed(texts)

    with pytest.raises(KeyboardInterrupt):
        start("killed", many, encode=killed)
    encoder, told, _ = start("killed", many, encode=hashed)
    assert len(encoder.seen) == 2500 - 2 * 1024
    assert told["items"] == start("plain", many, stored=False, encode=hashed)[1]["items"]


def test_leading_dimensions_are_cut_from_what_is_stored(start) -> None:
    plain, filling = (start(name, stored=name == "b", dimensions=[2, 3]) for name in "ab")
    again = start("again", dimensions=[2])
    assert plain[1]["items"] == filling[1]["items"] and again[0].seen == []
    assert again[1]["items"].items() <= filling[1]["items"].items()
    assert len(filling[0].seen) == 124


def test_another_fingerprint_embeds_again(start) -> None:
    assert start("one")[0].seen and start("two", fingerprint="b")[0].seen
    assert start("three", fingerprint="b")[0].seen == []


def test_an_encoder_that_must_not_be_stored(start) -> None:
    for folder in ("one", "two"):
        encoder, _, said = start(folder, dimensions=[2], not_stored="nothing tells")
        assert len(encoder.seen) == 124
        assert said.count("hashed: embeddings are not stored: nothing tells") == 1


def test_a_store_that_cannot_be_opened_is_told(store: EmbeddingStore) -> None:
    store.folder.rmdir()
    store.folder.touch()
    rows, why = stored_rows(Encoder(), store)
    assert rows is None and "cannot be written to (Not a directory)" in why
