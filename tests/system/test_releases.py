"""An untested major release of a library is told once, and nothing else."""

import importlib.metadata
import warnings
from pathlib import Path

import pytest

from declutr.system import releases


@pytest.fixture(autouse=True)
def _not_told_yet() -> None:
    releases.warn_of_untested_releases.cache_clear()


def installed(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(importlib.metadata, "version", version)


def test_a_newer_major_release_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, transformers="6.0.1")
    expected = (
        r"tested with transformers up to 5.x, and 6.0.1 is installed. It may work. If it does "
        r"not: pip install 'transformers<6', or a newer declutr."
    )
    with pytest.warns(UserWarning, match=expected):
        releases.warn_of_untested_releases()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        releases.warn_of_untested_releases()


@pytest.mark.parametrize("version", ["5.99.0", "4.57.1", "5.0.0rc1", "unknown"])
def test_tested_releases_and_those_without_a_number_are_silent(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    installed(monkeypatch, transformers=version)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        releases.warn_of_untested_releases()


def test_the_tested_releases_are_those_of_the_constraints() -> None:
    lines = (Path(__file__).parents[2] / "constraints.txt").read_text().splitlines()
    pins = [line.partition(";")[0].strip().split("==") for line in lines if "==" in line]
    for name, major in releases.TESTED.items():
        majors = {int(pin[1].partition(".")[0]) for pin in pins if pin[0] == name}
        assert majors == {major}
