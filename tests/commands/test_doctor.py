"""`declutr doctor` reports what works, as text or JSON, and fails only if there is an error."""

import json
import os
import subprocess
import venv
from pathlib import Path
from typing import Any

import pytest

import declutr
from declutr.commands import doctor
from declutr.environment.findings import ERROR, OK, WARNING, Finding
from declutr.environment.probe import Answer
from declutr.inference.dtype_report import DtypeChoice, DtypeReport, DtypeSpeed

FOUND = [
    Finding("Packages", "torch", OK, "2.13.0", details={"installed": "2.13.0"}),
    Finding("Disk", "here", WARNING, "little room", "make room"),
]


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that sets the findings of the report."""

    def report(*found: Finding) -> None:
        monkeypatch.setattr(doctor, "report", lambda **_: iter(found))

    report(*FOUND)
    return report


def test_warnings_are_no_failure(report: Any, capsys: Any) -> None:
    doctor.main([])
    printed = capsys.readouterr().out
    assert "  ok       torch: 2.13.0" in printed and printed.endswith("\n1 warning.\n")


def test_an_error_is_a_failure(report: Any, capsys: Any) -> None:
    report(*FOUND, Finding("Packages", "numpy", ERROR, "not installed", "declutr setup"))
    with pytest.raises(SystemExit) as end:
        doctor.main([])
    assert end.value.code == 1
    assert capsys.readouterr().out.endswith("-> declutr setup\n\n1 error, 1 warning.\n")


def test_the_report_as_json(report: Any, capsys: Any) -> None:
    doctor.main(["--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["declutr"] == declutr.__version__ and told["status"] == "warning"
    assert told["findings"][0]["details"] == {"installed": "2.13.0"}
    assert told["findings"][1]["cure"] == "make room"


def test_speeds_are_measured_if_torch_is_sound(monkeypatch: Any) -> None:
    speed = DtypeSpeed("embedding", "int8", False, 12.3, 1.5)
    choice = DtypeChoice('precision "auto"', "float32", "so it is on every CPU")
    measured = DtypeReport("AMD", ("avx2",), 2, None, 2, (speed,), (choice,))
    monkeypatch.setattr("declutr.inference.dtype_report.dtype_report", lambda: measured)
    first, second = doctor._speeds(Answer())
    assert first.name == "embedding in int8"
    assert first.said == "12 GFLOP/s, 1.5 times float32, without instructions of the processor"
    assert second.said == "computes in float32: so it is on every CPU"
    (broken,) = doctor._speeds(Answer(error="ImportError: libgomp.so.1"))
    assert broken.level == WARNING and "libgomp.so.1" in broken.said


def test_everything_broken_is_reported_and_nothing_raises(monkeypatch: Any) -> None:
    def broken(*_: object, **__: object) -> Any:
        raise OSError("broken")

    monkeypatch.setattr("declutr.environment.packages.requirements", broken)
    monkeypatch.setattr("shutil.disk_usage", broken)
    silent = lambda asked: {name: Answer(error="ImportError: x") for name in asked}  # noqa: E731
    monkeypatch.setattr(doctor, "examine", silent)
    found = list(doctor.report(asks_hub=False, measures=True))
    told = [finding.said for finding in found if finding.name == "examination"]
    assert told == ["this could not be examined: OSError: broken"] * 2
    assert {finding.section for finding in found} >= {"Packages", "Disk", "Devices"}


@pytest.mark.slow
def test_it_runs_where_nothing_is_installed(tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=False)
    environment = {**os.environ, "PYTHONPATH": str(Path(declutr.__file__).parents[1])}
    done = subprocess.run(
        [tmp_path / "bin" / "python", "-m", "declutr", "doctor", "--offline", "--json"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (1, "")
    told = json.loads(done.stdout)
    assert told["status"] == "error"
    said = " ".join(finding["said"] for finding in told["findings"])
    assert "No module named 'torch'" in said and "No module named 'allennlp'" in said
