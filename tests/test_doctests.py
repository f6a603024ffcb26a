"""The examples in docstrings run, and give what they show."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import declutr

WITH_EXAMPLES = [
    module.name
    for module in pkgutil.walk_packages(declutr.__path__, "declutr.")
    if (spec := module.module_finder.find_spec(module.name)) is not None  # type: ignore[call-arg]
    and spec.origin is not None
    and re.search(r">>> (?!.*SKIP)", Path(spec.origin).read_text(encoding="utf-8"))
]


def test_there_are_examples() -> None:
    assert len(WITH_EXAMPLES) >= 15


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_give_what_they_show(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted and not found.failed
