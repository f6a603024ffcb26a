"""docs/CPU.md: what it runs runs, and the names it gives are those of the code."""

import re
from pathlib import Path

import pytest

from declutr.system import host_memory, kernel_choices, processors, worker_processes
from declutr.transformer import dtype_speed
from declutr.transformer import training_products as linear_products

PAGE = Path(__file__).parent.parent / "docs" / "CPU.md"


def test_variables_and_files() -> None:
    named = set(re.findall(r"`(?:\w+ )?([A-Z_]{8,}|\w+\.json)(?:=\w+)?`", PAGE.read_text()))
    assert named >= {
        kernel_choices.VARIABLE,
        kernel_choices.FILE_NAME,
        dtype_speed.KEEP,
        worker_processes.WORKERS_VARIABLE,
        *processors.THREAD_VARIABLES,
        *host_memory._VARIABLES,
    }
    known = {kernel_choices.VARIABLE, dtype_speed.KEEP, worker_processes.WORKERS_VARIABLE}
    assert set(re.findall(r"DECLUTR_\w+", PAGE.read_text())) == known | {"DECLUTR_CACHE"}
    assert f"{linear_products.LEAST_WEIGHTS:,}" in PAGE.read_text()


def test_the_first_example(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("DECLUTR_KERNELS", "plain")
    code = re.search(r"(?:^    .*\n)+", PAGE.read_text(), re.MULTILINE)
    assert code is not None
    exec(compile(re.sub(r"^    ", "", code[0], flags=re.MULTILINE), str(PAGE), "exec"), {})
    assert 'Encoder(dtype="auto") computes in' in capsys.readouterr().out
