"""Packages export names of their modules without importing them."""

import multiprocessing
from collections.abc import Callable
from threading import Event, Thread

import pytest

from declutr.system import LOADING
from tests.conftest import PACKAGE, imported


def test_a_package_exports_names_of_its_modules_lazily(written: Callable[..., str]) -> None:
    written("inner", "A, b, hidden = 1, 2, 3")
    written("outer", "C = 4")
    written(
        "__init__",
        "from declutr.system import attributes_on_demand\n"
        "__getattr__, __dir__ = attributes_on_demand(__name__, {'inner': 'A b', 'outer': 'C'})",
    )
    package = __import__(PACKAGE)
    assert {"A", "b", "C", "__name__"} <= set(dir(package)) and not imported()
    from package_on_demand import A, b  # type: ignore[import-not-found]

    assert (A, b, package.A) == (1, 2, 1) and imported() == {"inner"}
    with pytest.raises(AttributeError, match=f"module '{PACKAGE}' has no attribute 'hidden'"):
        _ = package.hidden
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec(f"from {PACKAGE} import nothing")


def _opens(answer: multiprocessing.SimpleQueue) -> None:
    answer.put(LOADING.acquire(timeout=10))


@pytest.mark.slow
def test_a_process_that_is_forked_while_a_thread_opens_a_model_may_open_one() -> None:
    """It would wait without end for a thread that it does not have."""
    context = multiprocessing.get_context("fork")
    answer, held, done = context.SimpleQueue(), Event(), Event()

    def opening() -> None:
        with LOADING:
            held.set()
            done.wait()

    thread = Thread(target=opening)
    thread.start()
    held.wait()
    child = context.Process(target=_opens, args=(answer,))
    child.start()
    child.join()
    done.set()
    thread.join()
    assert answer.get()
