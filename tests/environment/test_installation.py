"""`declutr setup` plans what is missing, with pip or uv, and tells what it cannot do."""

import importlib.util
import os
import shutil
import site
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from declutr.environment import installation
from declutr.environment.installation import InstallationError, carry_out, plan, require_imports
from declutr.environment.requirements import Requirement

PIP = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
ALLENNLP = Requirement("allennlp", "==2.10.1", None, False)
TORCH = Requirement("torch", ">=2.6", "2.13.0", True)
NUMPY = Requirement("numpy", ">=2", "1.26.4", False)


@pytest.fixture
def needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a function that sets what is required, in a writable virtual environment."""
    (tmp_path / "site-packages").mkdir()
    paths = {"purelib": str(tmp_path / "site-packages"), "stdlib": str(tmp_path)}
    monkeypatch.setattr(sysconfig, "get_path", paths.__getitem__)
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))

    def needs(*required: Requirement) -> None:
        monkeypatch.setattr(installation, "requirements", lambda: list(required))

    needs(ALLENNLP, TORCH)
    return needs


def without_pip(monkeypatch: pytest.MonkeyPatch, uv: str | None) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: uv)


def test_allennlp_is_installed_without_its_pins(needs: Any) -> None:
    assert plan() == [[*PIP, "--no-deps", "allennlp==2.10.1"]]


def test_requirements_that_are_missing_or_too_old_come_first(needs: Any) -> None:
    needs(ALLENNLP, TORCH, NUMPY)
    assert plan() == [[*PIP, "numpy>=2"], [*PIP, "--no-deps", "allennlp==2.10.1"]]


def test_nothing_is_done_twice(needs: Any) -> None:
    needs(ALLENNLP._replace(version="2.10.1", satisfied=True), TORCH)
    assert plan() == []


def test_uv_does_where_there_is_no_pip(needs: Any, monkeypatch: Any) -> None:
    without_pip(monkeypatch, "/bin/uv")
    uv = ["/bin/uv", "pip", "install", "--python", sys.executable]
    assert plan() == [[*uv, "--no-deps", "allennlp==2.10.1"]]


def test_without_pip_and_uv_it_says_what_to_do(needs: Any, monkeypatch: Any) -> None:
    without_pip(monkeypatch, None)
    with pytest.raises(InstallationError, match=r"has no pip, and there is no uv.*-m ensurepip"):
        plan()


def test_without_packaging_allennlp_alone_is_installed(needs: Any, monkeypatch: Any) -> None:
    def broken() -> None:
        raise ImportError

    monkeypatch.setattr(installation, "requirements", broken)
    assert plan() == []
    found = importlib.util.find_spec
    hidden = lambda name: None if name == "allennlp" else found(name)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", hidden)
    assert plan() == [[*PIP, "--no-deps", "allennlp==2.10.1"]]


def test_a_python_of_the_system_is_not_changed(needs: Any, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "EXTERNALLY-MANAGED").touch()
    assert plan()  # an environment made with it may be changed
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    with pytest.raises(InstallationError, match=r"managed by the system .*-m venv .venv"):
        plan()
    monkeypatch.setenv("PIP_BREAK_SYSTEM_PACKAGES", "1")
    assert plan()


def test_a_read_only_environment_is_told_before_anything_is_done(needs: Any, monkeypatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InstallationError, match=r"site-packages' cannot be written. Run"):
        plan()
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    monkeypatch.setattr(site, "ENABLE_USER_SITE", True)
    assert plan()  # pip installs for the user
    without_pip(monkeypatch, "/bin/uv")
    with pytest.raises(InstallationError, match="cannot be written"):
        plan()  # uv does not


@pytest.mark.slow
def test_a_failed_download_ends_with_one_line(capfd: Any) -> None:
    code = "import sys; sys.exit('warning: slow\\nERROR: No matching distribution found')"
    with pytest.raises(InstallationError) as error:
        carry_out([sys.executable, "-c", code])
    told = str(error.value)
    assert "ended with status 1 (No matching distribution found). If the package index" in told
    assert "\n" not in told and "pip download --no-deps allennlp==2.10.1" in told
    assert "warning: slow" in capfd.readouterr().err
    carry_out([sys.executable, "-c", ""])


@pytest.mark.slow
def test_an_installation_that_cannot_be_imported_is_told(monkeypatch: Any) -> None:
    monkeypatch.setattr(installation, "_TRIED", "import declutr")
    require_imports()
    monkeypatch.setattr(installation, "_TRIED", "import declutr_absent")
    with pytest.raises(InstallationError, match=r"No module named 'declutr_absent'.*declutr doc"):
        require_imports()
