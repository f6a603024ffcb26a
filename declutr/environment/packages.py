"""Findings on Python, this package, what it requires, and the bridge."""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from declutr._version import __version__
from declutr.bridge import PLUGIN_SWITCH, SWITCH, plugin_is_on
from declutr.environment.findings import ERROR, OK, WARNING, Finding, first_line
from declutr.environment.probe import Answer
from declutr.environment.requirements import Requirement, extras, installed, requirements

SECTION, BRIDGE = "Packages", "Bridge to AllenNLP"
_PTH = "declutr_bridge.pth"


def questions() -> list[str]:
    """Return the modules that the findings on packages need imported; AllenNLP is the last."""
    allennlp, *others = requirements()
    return [each.module for each in (*others, allennlp) if each.version is not None]


def packages(answers: Mapping[str, Answer]) -> Iterator[Finding]:
    """Yield whether Python and each requirement are there, will do, and can be imported."""
    python = f"{platform.python_version()} in {sys.prefix}, {platform.platform()}"
    yield Finding(SECTION, "python", OK, python)
    yield _declutr()
    for required in requirements():
        yield _requirement(required, answers.get(required.module, Answer()))
    complete = [name for name in extras() if all(each.satisfied for each in requirements(name))]
    missing = [name for name in extras() if name not in complete]
    said = f"{', '.join(complete) or 'none'} installed"
    if missing:
        said += f"; not: {', '.join(missing)} (pip install 'declutr[NAME]')"
    if complete or missing:
        yield Finding(SECTION, "extras", OK, said)


def _declutr() -> Finding:
    version, place = installed("declutr"), Path(__file__).parents[1]
    said = f"{__version__} in {place}"
    if version is None:
        cure = f"{sys.executable} -m pip install -e {place.parent}"
        said += ", imported from a folder; it is not installed, so its requirements are not known"
        return Finding(SECTION, "declutr", WARNING, said, cure)
    if version != __version__:
        cure = "install it again: pip install -e . in the clone, or pip install -U declutr"
        said += f", but {version} is what is installed by its metadata"
        return Finding(SECTION, "declutr", WARNING, said, cure)
    return Finding(SECTION, "declutr", OK, said, details={"version": version, "folder": str(place)})


def _requirement(required: Requirement, answer: Answer) -> Finding:
    details = {"installed": required.version, "needs": required.needs}
    is_allennlp = required.name == "allennlp"
    cure: str | None = "declutr setup"
    needs = required.needs or "any"
    if required.version is None:
        level, said = ERROR, f"not installed, needs {needs}"
    elif not required.satisfied:
        level, said = ERROR, f"{required.version}, needs {needs}"
    elif answer.error is not None:
        level = ERROR
        said = f"{required.version}, but it cannot be imported: {first_line(answer.error)}"
        options = "--no-deps " if is_allennlp else ""
        again = f"--force-reinstall {options}'{required}'"
        cure = f"{sys.executable} -m pip install {again}, unless another package above is the cause"
    else:
        level, said, cure = OK, f"{required.version} (needs {needs})", None
    return Finding(SECTION, required.name, level, said, cure, details)


def bridge(answer: Answer) -> Iterator[Finding]:
    """Yield which switches of the bridge act, and whether plain `allennlp` finds it."""
    if os.environ.get(SWITCH, "1") == "0":
        said = f"switched off by {SWITCH}=0: AllenNLP runs only on the libraries of 2022"
        yield Finding(BRIDGE, "switches", WARNING, said, f"unset {SWITCH}")
        return
    if not plugin_is_on():
        said = f"left out by {PLUGIN_SWITCH}=0: AllenNLP knows no name or command of declutr"
        yield Finding(BRIDGE, "plugin", WARNING, said, f"unset {PLUGIN_SWITCH}")
    if answer.value is None:
        said = f"not examined: AllenNLP cannot be imported: {first_line(answer.error or '')}"
        yield Finding(BRIDGE, "switches", ERROR, said, "see the packages above, or declutr setup")
        return
    acting, idle, failed = (answer.value[name] for name in ("acting", "not needed", "failed"))
    said = f"{len(acting)} act"
    if idle:
        said += f", {len(idle)} are not needed here ({', '.join(idle)})"
    yield Finding(BRIDGE, "switches", OK, said, details=answer.value)
    for failure in failed:
        cure = (
            "use a release of torch or transformers that declutr was tested with (constraints.txt)"
        )
        yield Finding(BRIDGE, "switch", ERROR, first_line(failure), cure)
    if not any(Path(folder, _PTH).exists() for folder in _site_folders()):
        said = f"{_PTH} is in no folder of packages: only `declutr` has the bridge"
        cure = "pip install declutr, or pip install -e . in a clone"
        yield Finding(BRIDGE, "plain allennlp", WARNING, said, cure)
    else:
        yield Finding(BRIDGE, "plain allennlp", OK, f"it has the bridge, too, by {_PTH}")


def _site_folders() -> set[str]:
    return {*sys.path, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
