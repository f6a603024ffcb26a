"""`python -m benchmarks gpu`: its shares of time, findings, tables and stand-ins, without a GPU."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import gpu, report, results
from benchmarks.gpu.device_time import summary
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.parts import END_SECONDS, MINUTES, PARTS, limit
from benchmarks.gpu.processes import MODULES, Call, install, linked, require_modules
from benchmarks.gpu.stand_ins import Finder
from benchmarks.gpu.tables import NAMES, TABLES, runs_of
from benchmarks.memory import ROOT

FOUND = {
    "settings": {"device": "cuda", "tiny": False, "repository": False},
    "parts": {
        "train": {
            "machine": {"gpu": "G"},
            "release": "9.9",
            "checks": [
                {"check": "a", "shape": "s", "trainer": "t", "s a step": 0.5},
                {"check": "b", "shape": "s", "trainer": "u", "failed": "E: why\nand where"},
            ],
        },
        "correct": {"checks": [{"check": "c", "loss apart, relative": 1e-6, "holds": True}]},
    },
}


def test_every_part_is_a_module_with_a_table() -> None:
    assert set(PARTS) == set(TABLES)
    for name in PARTS:
        assert importlib.util.find_spec(f"benchmarks.gpu.{name}") is not None
    ((_, args),) = command.parse(["gpu", "--parts", "step", "embed", "--dry", "--out", "x"])
    assert (args.parts, args.dry, args.out) == (["step", "embed"], True, "x")
    assert command.parse(["gpu"])[0][1].parts == list(PARTS)


def test_shares_fit_into_the_time() -> None:
    assert sum(part.seconds for part in PARTS.values()) + END_SECONDS <= 60 * MINUTES < 600
    names = list(PARTS)
    for late in (0.0, 60.0):  # wheels take their time
        left = 60 * MINUTES - END_SECONDS - late
        for number, name in enumerate(names):
            taken = limit(name, names[number + 1 :], left)
            assert taken >= PARTS[name].seconds or late
            left -= taken
        assert abs(left) < 1e-6
    assert limit("step", [], -5.0) == 0


@pytest.mark.slow
def test_it_begins_without_any_library() -> None:
    code = (
        "import sys, benchmarks.__main__ as m; m.parse(['gpu']); "
        "print([n for n in ('torch', 'allennlp', 'transformers', 'declutr') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"no CUDA device.*--dry"):
        Call(tmp_path, device="cuda", tiny=False, seconds=1)
    with pytest.raises(FileNotFoundError, match=r"a folder with \.whl files"):
        install(tmp_path, tmp_path / "site")
    with pytest.raises(FileNotFoundError, match=r"a checkout with declutr/"):
        linked(tmp_path, tmp_path / "measured")


def test_another_checkout_is_measured_by_these_benchmarks(tmp_path: Path) -> None:
    for name in ("declutr", "training_config"):
        (tmp_path / "other" / name).mkdir(parents=True)
    folder = linked(tmp_path / "other", tmp_path / "measured")
    assert (folder / "declutr").resolve() == tmp_path / "other" / "declutr"
    assert (folder / "benchmarks").resolve() == ROOT / "benchmarks"


def test_a_failure_is_a_finding(tmp_path: Path, monkeypatch: Any) -> None:
    now = [100.0]
    monkeypatch.setattr("benchmarks.gpu.findings.time.monotonic", lambda: now[0])
    findings = Findings(tmp_path / "f.json", end=110.0)

    def broken() -> dict[str, Any]:
        raise ValueError("no good")

    findings.check("first", broken, row={"shape": "s"})
    findings.check("second", dict, {"value": 2})
    now[0] = 109.0
    findings.check("third", broken)
    first, second, third = json.loads((tmp_path / "f.json").read_text())["checks"]
    assert first["failed"] == "ValueError: no good" and first["shape"] == "s"
    assert "in broken" in first["where"] and "failed" not in second and second["value"] == 2
    assert third["skipped"] == "no time left" and "failed" not in third


def test_what_the_profiler_saw() -> None:
    events = [
        ("gemm", 0.0, 40.0, True),
        ("gemm", 20.0, 60.0, True),  # on another stream
        ("Memcpy HtoD (Pageable -> Device)", 80.0, 100.0, True),
        ("Optimizer.step#AdamW.step", 0.0, 100.0, True),
        ("cudaStreamSynchronize", 100.0, 120.0, False),
        ("cudaDeviceSynchronize", 120.0, 130.0, False),
    ]
    seen = summary(events, calls=2)
    assert seen["busy s"] == pytest.approx(80e-6 / 2)
    assert (seen["launches"], seen["waits"], seen["pageable copies"]) == (1.5, 0.5, 0.5)
    assert next(iter(seen["longest kernels, ms"].items())) == ("gemm", pytest.approx(0.04))


def test_findings_become_tables_of_the_report(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    made = {run.name: run for run in runs_of(FOUND)}
    assert set(made) == {"gpu_train", "gpu_correct"}
    assert [row["finding"] for row in made["gpu_train"].rows] == ["", "failed: E: why"]
    assert made["gpu_correct"].machine == {"gpu": "G"}
    gpu._write(tmp_path, FOUND, "")
    kept = gpu.take(file, tmp_path / "results")
    assert sorted(f.name for f in kept) == ["gpu_correct.json", "gpu_train.json"]
    text = report.markdown(results.latest(tmp_path / "results"), pictures=False)
    assert "| c | 0.00000100 | – | – | – | yes |" in text
    missing = text.partition("## Not measured yet")[2]
    assert missing.count("\n- ") == len(NAMES) - 2 and "- Training step on a GPU\n" in missing

    other = {**FOUND, "settings": {**FOUND["settings"], "repository": True}}
    assert {run.name for run in runs_of(other)} == {"gpu_train_9.9", "gpu_correct_9.9"}
    runs = [*runs_of(other), *runs_of(FOUND)]
    lines = report.markdown(runs).splitlines()
    first, second = [line for line in lines if line.startswith("## Training f")]
    assert first + ", release 9.9" == second

    gpu._write(tmp_path, {**FOUND, "settings": {**FOUND["settings"], "tiny": True}}, "")
    with pytest.raises(ValueError, match="of a rehearsal"):
        gpu.take(file)


def test_stand_ins_may_be_named_and_not_made(monkeypatch: Any) -> None:
    finder = Finder(["absent_library"])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, finder])
    from absent_library.part import NotThereError, Thing  # type: ignore[import-not-found]

    assert issubclass(NotThereError, Exception) and Thing.attribute[int] is Thing.attribute[str]

    class Mine(Thing):
        pass

    with pytest.raises(RuntimeError, match="Mine stands in for a class"):
        Mine()
    assert finder.find_spec("absent_library_of_others") is None
    for name in [n for n in sys.modules if n.startswith("absent_library")]:
        del sys.modules[name]


@pytest.mark.slow
def test_what_is_missing_is_named_before_anything_is_measured() -> None:
    require_modules(MODULES, os.environ)
    with pytest.raises(RuntimeError, match=r"Not installed here: no_such_module\. Nothing was"):
        require_modules(["json", "no_such_module"], os.environ)
