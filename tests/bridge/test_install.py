"""The .pth file is installed and uninstalled, cheap, and silent if the package is broken."""

import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PTH = "declutr_bridge.pth"
BUILDERS = {
    "plain": "build_wheel",
    "editable": "build_editable",
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: Any) -> Path:
    """Return a copy of the packaged files, so that a build leaves nothing in the checkout."""
    folder = tmp_path_factory.mktemp("source")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "declutr", folder / "declutr", ignore=ignored)
    shutil.copytree(ROOT / "training_config", folder / "training_config")
    for name in ("setup.py", "pyproject.toml", "LICENSE", "README.md", PTH):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module", params=BUILDERS)
def wheel(request: Any, source: Path, tmp_path_factory: Any) -> Path:
    """Build a wheel by the hook that `pip install .` or `pip install -e .` calls."""
    out = tmp_path_factory.mktemp(request.param)
    code = f"from setuptools import build_meta; build_meta.{BUILDERS[request.param]}({str(out)!r})"
    run([sys.executable, "-c", code], cwd=source)
    (built,) = out.glob("*.whl")
    return built


def run(command: list[str], **options: Any) -> str:
    result = subprocess.run(command, capture_output=True, text=True, **options)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    return result.stdout + result.stderr


def test_the_wheel_contains_the_pth_file(wheel: Path, source: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert archive.read(PTH) == (source / PTH).read_bytes()
        (record,) = (name for name in names if name.endswith("/RECORD"))
        assert f"\n{PTH},sha256=" in "\n" + archive.read(record).decode()
        (metadata,) = (name for name in names if name.endswith("/METADATA"))
        text = archive.read(metadata).decode()
        (entries,) = (name for name in names if name.endswith("/entry_points.txt"))
        assert "declutr = declutr.__main__:main" in archive.read(entries).decode()
    if "editable" not in str(wheel):
        place = "declutr/recipes/training_config/"
        recipes = {name.removeprefix(place) for name in names if name.startswith(place)}
        there = (file for file in (source / "training_config").rglob("*") if file.is_file())
        assert recipes == {str(file.relative_to(source / "training_config")) for file in there}
    tops = {name.partition("/")[0] for name in names} - {PTH}
    assert tops <= {"declutr", *(top for top in tops if top.endswith(("dist-info", ".pth")))}
    assert "Requires-Python: >=3.10" in text and "Apache-2.0" in text
    assert "Requires-Dist: torch>=2.6" in text and "Requires-Dist: allennlp" not in text


@pytest.fixture
def python(tmp_path: Path) -> tuple[str, Path]:
    """Make an empty environment and return its interpreter and its site-packages."""
    run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")])
    interpreter = str(tmp_path / "venv" / "bin" / "python")
    site = run([interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    return interpreter, Path(site.strip())


def pip(interpreter: str, *command: str) -> None:
    options = ["--disable-pip-version-check", "-q", "--python", interpreter]
    run([sys.executable, "-m", "pip", *options, *command])


STARTED = "import sys; print([getattr(f, '__name__', '') for f in sys.meta_path][0])"


def test_install_and_uninstall(wheel: Path, python: tuple[str, Path], tmp_path: Path) -> None:
    interpreter, site = python
    pip(interpreter, "install", "--no-index", "--no-deps", str(wheel))
    assert (site / PTH).exists()
    assert run([interpreter, "-c", STARTED]) == "DeclutrBridge\n"
    nothing = "import sys, json; print([m for m in sys.modules if m.startswith('declutr')])"
    assert run([interpreter, "-c", nothing]) == "[]\n"

    # A stand-in for AllenNLP is enough to see the bridge come before it.
    (tmp_path / "allennlp.py").write_text("import declutr.bridge as b; print(b.is_active())")
    code = "import sys; import allennlp; print(list(sys.modules).index('declutr'))"
    answer, before = run([interpreter, "-c", code], cwd=tmp_path).split()
    assert answer == "True" and int(before) > 0
    code = "from declutr.recipes import recipe_path; print(recipe_path('simcse').read_text())"
    assert '"sentences.libsonnet"' in run([interpreter, "-c", code], cwd=tmp_path)
    off = {"DECLUTR_BRIDGE": "0"}
    assert run([interpreter, "-c", "import allennlp"], cwd=tmp_path, env=off) == "False\n"

    pip(interpreter, "uninstall", "-y", "declutr")
    assert not list(site.glob("*declutr*"))
    assert "DeclutrBridge" not in run([interpreter, "-c", STARTED])


@pytest.mark.parametrize("leftover", ["nothing", "empty folder", "broken file"])
def test_the_pth_file_is_silent_without_the_package(
    leftover: str, python: tuple[str, Path], tmp_path: Path
) -> None:
    interpreter, site = python
    shutil.copy(ROOT / PTH, site)
    if leftover != "nothing":
        (site / "declutr").mkdir()
    if leftover == "broken file":
        (site / "declutr" / "__init__.py").write_text("def (")
    (tmp_path / "allennlp.py").write_text("print('imported')")
    assert run([interpreter, "-c", "import allennlp"], cwd=tmp_path) == "imported\n"
    assert run([interpreter, "-c", "pass"]) == ""


def test_the_pth_file_is_one_cheap_line(monkeypatch: Any) -> None:
    text = (ROOT / PTH).read_text()
    assert text.startswith("import sys;") and text.count("\n") == 1 and text.endswith("\n")
    times = []
    for _ in range(20):
        monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
        start = time.perf_counter()
        exec(text, {"sys": sys})
        times.append(time.perf_counter() - start)
    assert min(times) < 0.002
