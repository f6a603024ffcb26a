"""Freed memory is kept between passes, and tensors on a device have copies on the host."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from declutr.modules.text_batches import flat, joined, part, rows_of
from declutr.system import host_memory
from declutr.system.host_memory import Arriving, Heap, carried, on_host, remember, to_device


class Library:
    """A substitute for the C library that records its calls."""

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
    monkeypatch.setattr(host_memory, "_glibc", lambda: library)
    return library


def settled(sizes: list[int], monkeypatch: pytest.MonkeyPatch, library: Library) -> list[int]:
    """Return the passes after which memory was returned, given the resident MB after each pass."""
    kept, given_back = Heap(), []
    for number, size in enumerate(sizes):
        monkeypatch.setattr(host_memory, "_resident", lambda size=size: size << 20)
        before = library.trimmed
        kept.settle()
        if library.trimmed > before:
            given_back.append(number)
    return given_back


def test_memory_is_returned_when_it_outgrows_the_need_of_a_pass(
    monkeypatch: pytest.MonkeyPatch, library: Library
) -> None:
    # The first size is that of the start. After it, one pass needs 1000 MB.
    assert settled([900, 1000, 1400, 1600], monkeypatch, library) == [0, 3]


def test_a_pass_that_needs_more_is_not_trimmed_again_and_again(
    monkeypatch: pytest.MonkeyPatch, library: Library
) -> None:
    assert settled([500, 1000, 3000, 3000, 3000, 3000], monkeypatch, library) == [0, 2]


def test_little_memory_is_never_returned(monkeypatch: pytest.MonkeyPatch, library: Library) -> None:
    assert settled([100, 200, 90, 250], monkeypatch, library) == []


@pytest.mark.parametrize("name", host_memory._VARIABLES)
def test_settings_of_the_user_are_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    assert host_memory._glibc() is None
    monkeypatch.setattr(host_memory, "_resident", lambda: pytest.fail("not to be looked at"))
    Heap().settle()


def test_other_c_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise ValueError(name)

    monkeypatch.setattr(os, "confstr", unknown)
    assert host_memory._glibc() is None


@pytest.mark.slow
@pytest.mark.skipif(host_memory._glibc() is None, reason="needs Linux with glibc's own allocator")
@pytest.mark.parametrize("refuses", [False, True], ids=["as it is", "as before glibc 2.35"])
def test_freed_memory_is_reused(refuses: bool) -> None:
    code = """
import resource, sys, torch
from declutr.system.host_memory import HEAP
library = HEAP._library
class Older:
    malloc_trim = library.malloc_trim
    def mallopt(self, option, value):
        threshold_above_32_mb = option == -3 and value > 32 << 20
        return 0 if threshold_above_32_mb else library.mallopt(option, value)
if sys.argv[1] == "True":
    HEAP._library = Older()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def needed(rows=60):
    before = faults()
    tensor = torch.ones(rows, 1 << 20)  # 4 MB each
    del tensor
    return faults() - before
plain = min(needed() for _ in range(4))
HEAP.settle()
needed(64)  # because of alignment, a tensor may not fit the space that an equal one left
kept = min(needed() for _ in range(4))
print(plain, kept)
"""
    command = [sys.executable, "-c", code, str(refuses)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    plain, kept = map(int, done.stdout.split())
    assert kept < plain / 10


META = torch.device("meta")
CPU = torch.device("cpu")


def spans(seed: int, *shape: int) -> dict[str, dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, 50, shape, generator=generator)
    return {"tokens": {"token_ids": ids, "mask": ids > 10}}


def on_meta(texts: dict[str, dict[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
    return {
        name: {key: to_device(tensor, META) for key, tensor in tensors.items()}
        for name, tensors in texts.items()
    }


def test_cpu_tensors_are_their_own_host_copies() -> None:
    tensor = torch.arange(3)
    assert to_device(tensor, CPU) is on_host(tensor) is remember(tensor, tensor) is tensor
    assert not vars(tensor)
    assert Arriving(tensor).wait() is tensor


def test_a_tensor_that_was_sent_has_a_host_copy() -> None:
    tensor = torch.arange(3)
    sent = to_device(tensor, META)
    assert sent.device == META
    assert on_host(sent) is tensor
    assert to_device(sent, META) is sent


@pytest.mark.parametrize("inference", [False, True])
def test_a_tensor_without_a_host_copy_is_read_from_the_device(inference: bool) -> None:
    with torch.inference_mode(inference):
        assert on_host(to_device(torch.arange(3), META)).tolist() == [0, 1, 2]
        with pytest.raises(NotImplementedError, match="meta"):
            on_host(torch.arange(3, device=META))


def test_an_in_place_change_invalidates_the_host_copy() -> None:
    sent = to_device(torch.arange(3), META)
    sent[1:].add_(1)
    with pytest.raises(NotImplementedError, match="meta"):
        on_host(sent)


OPERATIONS: dict[str, Callable[[dict], dict | None]] = {
    "flat": flat,
    "part": lambda texts: part(texts, slice(1, 3)),
    "joined": lambda texts: joined([flat(texts), spans_like(texts)]),
}


def spans_like(texts: dict[str, dict[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
    """Return longer texts on the same device."""
    longer = spans(1, 4, 7)
    return longer if texts["tokens"]["mask"].device == CPU else on_meta(longer)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_on_batches_keep_host_copies(name: str) -> None:
    texts = spans(0, 3, 2, 5)
    expected, got = OPERATIONS[name](texts), OPERATIONS[name](on_meta(texts))
    assert expected is not None and got is not None
    for key, tensor in expected["tokens"].items():
        assert got["tokens"][key].device == META
        assert torch.equal(on_host(got["tokens"][key]), tensor), key


def test_an_operation_needs_host_copies_of_all_tensors() -> None:
    one, other = to_device(torch.ones(2), META), torch.ones(2, device=META)
    assert on_host(carried(torch.add, one, one)).tolist() == [2, 2]
    with pytest.raises(NotImplementedError, match="meta"):
        on_host(carried(torch.add, one, other))


def test_activation_checkpointing_keeps_host_copies() -> None:
    """Host copies are available both in the forward pass and in its recomputation."""
    labels = rows_of(to_device(torch.arange(4), META), slice(1, 3))
    weights = torch.ones(2, device=META, requires_grad=True)
    seen = []

    def step(texts: dict[str, Tensor], labels: Tensor) -> Tensor:
        seen.extend([on_host(texts["mask"]).tolist(), on_host(labels).tolist()])
        return (weights * texts["mask"]).sin().sum()

    loss = checkpoint(step, {"mask": labels}, labels, use_reentrant=False)
    assert isinstance(loss, Tensor)
    loss.backward()
    assert seen == [[1, 2]] * 4
