import os
import subprocess
import sys

import pytest

from declutr.system import cpu_memory as heap
from declutr.system.cpu_memory import Heap


class Library:
    """Stands in for the C library."""

    def __init__(self) -> None:
        self.options: dict[int, int] = {}
        self.trimmed = 0

    def mallopt(self, option: int, value: int) -> int:
        self.options[option] = value
        return 1

    def malloc_trim(self, padding: int) -> int:
        self.trimmed += 1
        return 1


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    library = Library()
    monkeypatch.setattr(heap, "_glibc", lambda: library)
    return library


def settled(sizes: list[int], monkeypatch: pytest.MonkeyPatch, library: Library) -> list[int]:
    """After which of the passes, that leave so many MB resident, memory was given back."""
    kept, given_back = Heap(), []
    for number, size in enumerate(sizes):
        monkeypatch.setattr(heap, "_resident", lambda size=size: size << 20)
        before = library.trimmed
        kept.settle()
        if library.trimmed > before:
            given_back.append(number)
    return given_back


def test_memory_is_given_back_when_it_outgrows_what_a_pass_needs(
    monkeypatch: pytest.MonkeyPatch, library: Library
) -> None:
    # The first is the start; after it one pass needs 1000 MB.
    assert settled([900, 1000, 1400, 1600], monkeypatch, library) == [0, 3]


def test_a_pass_that_needs_more_is_not_trimmed_again_and_again(
    monkeypatch: pytest.MonkeyPatch, library: Library
) -> None:
    assert settled([500, 1000, 3000, 3000, 3000, 3000], monkeypatch, library) == [0, 2]


def test_little_memory_is_never_given_back(
    monkeypatch: pytest.MonkeyPatch, library: Library
) -> None:
    assert settled([100, 200, 90, 250], monkeypatch, library) == []


@pytest.mark.parametrize("name", heap._VARIABLES)
def test_what_the_user_configured_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    assert heap._glibc() is None
    monkeypatch.setattr(heap, "_resident", lambda: pytest.fail("not to be looked at"))
    Heap().settle()


def test_other_c_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise ValueError(name)

    monkeypatch.setattr(os, "confstr", unknown)
    assert heap._glibc() is None


@pytest.mark.skipif(heap._glibc() is None, reason="needs Linux with glibc's own allocator")
def test_freed_memory_is_used_again() -> None:
    code = """
import resource, torch
from declutr.system.cpu_memory import HEAP
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def needed(rows=60):
    before = faults()
    tensor = torch.ones(rows, 1 << 20)  # 4 MB each
    del tensor
    return faults() - before
plain = min(needed() for _ in range(4))
HEAP.settle()
needed(64)  # aligned, a tensor would not always fit the hole that an equal one left
kept = min(needed() for _ in range(4))
print(plain, kept)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    plain, kept = map(int, done.stdout.split())
    assert kept < plain / 10
