"""Modules are imported when their names are used, and are complete before they are returned."""

import threading
from collections.abc import Callable

import pytest

from declutr.bridge.names import Names
from tests.conftest import PACKAGE, imported

BASE = "declutr.base:Base"


@pytest.fixture
def names(written: Callable[..., str]) -> Names:
    """Return a dictionary with one existing name and two names that modules add.

    The modules find the dictionary in `NAMES`, and check that their names are free.
    """
    text = (
        "import sys, time\n"
        "from declutr.bridge.names import registering\n"
        "class Class:\n"
        "    def __new__(cls): return later\n"
        "names = sys.modules['tests.bridge.test_names'].NAMES[0]\n"
        "with registering(Class):\n"
        "    assert {name!r} not in names\n"
        "    names[{name!r}] = Class\n"
        "time.sleep(0.2)\n"
        "later = {name!r}.upper()\n"
    )
    places = {name: f"{written(name, text.format(name=name))}:Class" for name in ("one", "two")}
    NAMES[:] = [Names(BASE, {"there": lambda: "THERE"}, places)]
    return NAMES[0]


NAMES: list[Names] = []


def test_names_are_listed_without_an_import(names: Names) -> None:
    assert list(names) == list(names.keys()) == ["there", "one", "two"] and len(names) == 3
    assert "nothing" not in names and names.get("nothing") is None and "there" in names
    assert list(names.imported) == ["there"] and not imported()


@pytest.mark.parametrize(
    "ask",
    [
        lambda names: names["one"](),
        lambda names: names.get("one")() if "one" in names else None,
        lambda names: names.pop("one")(),
    ],
)
def test_a_name_imports_its_module_and_no_other(names: Names, ask: Callable[[Names], str]) -> None:
    assert ask(names) == "ONE"
    assert imported() == {"one"}


def test_a_module_may_be_imported_before_its_name_is_used(names: Names) -> None:
    __import__(f"{PACKAGE}.two")
    assert list(names.imported) == ["two", "there"]
    assert list(names) == ["there", "one", "two"] and names["two"]() == "TWO"


def test_iteration_over_values_imports_all_modules(names: Names) -> None:
    assert [value() for value in names.values()] == ["THERE", "ONE", "TWO"]


def test_a_deleted_entry_does_not_come_back(names: Names) -> None:
    del names["one"]
    assert "one" not in names and list(names) == ["there", "two"]
    names["one"] = lambda: "another"
    assert names["one"]() == "another"
    with pytest.raises(KeyError):
        del names["nothing"]


@pytest.mark.parametrize("asked", [["one"] * 8, ["one", "two"] * 4])
def test_threads_wait_for_the_end_of_an_import(names: Names, asked: list[str]) -> None:
    got: list[str] = []
    begin = threading.Barrier(len(asked))

    def ask(name: str) -> None:
        begin.wait()
        # This fails before the module is complete, because it adds the name before `later`.
        got.append(names[name]())

    threads = [threading.Thread(target=ask, args=[name]) for name in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(got) == sorted(name.upper() for name in asked)


def test_an_import_in_another_thread_is_waited_for(names: Names) -> None:
    thread = threading.Thread(target=__import__, args=[f"{PACKAGE}.one"])
    thread.start()
    while "one" not in names.imported:
        pass
    assert names["one"]() == "ONE"
    thread.join()


def test_an_error_in_a_module_is_raised(written: Callable[..., str]) -> None:
    names = Names(BASE, {}, {"broken": written("broken", "import no_such_module_here")})
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="no_such_module_here"):
            _ = names["broken"]
