"""What configurations may ask for."""

import threading

import pytest
import torch

from declutr.archives.safety import UnsafeArchive, bounded_building, parameters_in_proportion


def test_a_giant_is_refused_before_it_is_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.init, "normal_", lambda *_: pytest.fail("it was initialised"))
    message = r"of 1,600,000,000 bytes .*weight of Embedding, \(100000000, 4\)\), .* have 10 bytes"
    with pytest.raises(UnsafeArchive, match=message), parameters_in_proportion(10):
        torch.nn.Embedding(100_000_000, 4, device="meta")


def test_weights_allow_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    with parameters_in_proportion(100_000_000):
        torch.nn.Embedding(100_000_000, 4, device="meta")
    with parameters_in_proportion(0):
        torch.nn.Embedding(60_000_000, 4, device="meta")


def test_many_small_ones() -> None:
    with pytest.raises(UnsafeArchive, match=r"asks for 51 parameters"):
        _build_many(50)
    _build_many(51)


def _build_many(limit: int) -> None:
    before = bounded_building.MAX_PARAMETERS
    bounded_building.MAX_PARAMETERS = limit
    try:
        with parameters_in_proportion(0):
            torch.nn.ParameterList(torch.zeros(1) for _ in range(51))
    finally:
        bounded_building.MAX_PARAMETERS = before


def test_an_error_that_was_swallowed_is_told() -> None:
    with pytest.raises(UnsafeArchive, match="asks for 1 param"), parameters_in_proportion(0):
        try:
            torch.nn.Embedding(2**40, 4, device="meta")
        except ValueError as error:
            raise TypeError("no alternative fits") from error


def test_other_threads_and_later_ones_are_free() -> None:
    built: list[torch.nn.Module] = []

    def build() -> None:
        built.append(torch.nn.Embedding(2**40, 4, device="meta"))

    with parameters_in_proportion(0):
        thread = threading.Thread(target=build)
        thread.start()
        thread.join()
    build()
    assert len(built) == 2
