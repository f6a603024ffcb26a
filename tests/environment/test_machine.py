"""GPUs, the processor, its threads and settings are told, and what is wrong with them."""

from pathlib import Path
from typing import Any

import pytest

from declutr.environment import machine
from declutr.environment.findings import ERROR, OK, WARNING
from declutr.environment.machine import devices, processor, settings
from declutr.environment.probe import QUESTIONS, Answer

GPU = {
    "name": "NVIDIA H200",
    "capability": "9.0",
    "free": 100 << 30,
    "total": 139 << 30,
    "bfloat16": True,
}
NONE = {"cuda": None, "gpus": [], "mps": False}
PROCESSOR = {
    "name": "AMD EPYC",
    "instructions": ["avx2", "avx512", "vnni"],
    "processors": 64,
    "allowed": 8,
    "cores": 4,
    "quota": 1.5,
    "threads": 2,
    "threads_of_torch": 4,
    "plain_kernels": False,
    "workers": 2,
}


def test_gpus_are_told_with_memory_and_capability() -> None:
    first, second = devices(Answer({**NONE, "gpus": [GPU, {**GPU, "bfloat16": False, "free": 5}]}))
    assert first[1:4] == (
        "cuda:0",
        OK,
        "NVIDIA H200, 100.0 of 139.0 GiB free, compute capability 9.0, instructions for bfloat16",
    )
    assert second.name == "cuda:1" and "no instructions for bfloat16" in second.said
    assert second.level == WARNING and "nvidia-smi" in str(second.cure)


def test_without_a_gpu_all_is_well_unless_there_is_a_driver(monkeypatch: Any, tmp_path) -> None:
    monkeypatch.setattr(machine, "_DRIVER", tmp_path / "absent")
    monkeypatch.setattr("shutil.which", lambda name: None)
    (none,) = devices(Answer(NONE))
    assert none.level == OK and "on the CPU" in none.said
    (apple,) = devices(Answer({**NONE, "mps": True}))
    assert apple.level == OK and "Apple" in apple.said
    monkeypatch.setattr(machine, "_DRIVER", Path(__file__))
    (unused,) = devices(Answer(NONE))
    assert unused.level == WARNING and "built without CUDA, finds no GPU" in unused.said
    (unused,) = devices(Answer({**NONE, "cuda": "13.0"}))
    assert "is built for CUDA 13.0" in unused.said and "nvidia-smi" in str(unused.cure)


def test_devices_that_torch_cannot_use_are_an_error() -> None:
    (broken,) = devices(Answer(error="RuntimeError: no kernel image is available"))
    assert broken.level == ERROR and "no kernel image" in broken.said
    (absent,) = devices(Answer(error="ModuleNotFoundError: No module named 'torch'"))
    assert absent.level == WARNING and absent.cure == "declutr setup"


def test_the_processor_its_quota_and_threads_are_told() -> None:
    name, formats, threads = processor(Answer(PROCESSOR))
    assert name.said == "AMD EPYC: avx2, avx512, vnni"
    assert formats.said.startswith("instructions for float32 and int8 (--measure")
    assert threads.level == OK
    assert threads.said == (
        "2 for torch, 2 processes for tokenising; 8 of 64 processors (4 cores), a quota of 1.5"
    )
    (*_, threads) = processor(Answer({**PROCESSOR, "threads": 16}))
    assert threads.level == WARNING and "OMP_NUM_THREADS" in str(threads.cure)


def test_a_processor_that_cannot_be_asked_is_a_warning() -> None:
    (finding,) = processor(Answer(error="ModuleNotFoundError: No module named 'torch'"))
    assert finding.level == WARNING and "No module named 'torch'" in finding.said
    (finding,) = processor(Answer(error="ValueError: DECLUTR_KERNELS=off"))
    assert "a setting is not understood" in finding.said


def test_the_real_answers_have_what_findings_need() -> None:
    assert len(list(processor(Answer(QUESTIONS["processor"]())))) == 3
    assert list(devices(Answer(QUESTIONS["devices"]())))
    assert set(PROCESSOR) == set(QUESTIONS["processor"]())


@pytest.mark.parametrize(
    "name, value, level, told",
    [
        ("DECLUTR_KERNELS", "plain", OK, "'plain'"),
        ("DECLUTR_KERNELS", "off", ERROR, "expected 'plain'"),
        ("DECLUTR_BRIDGE", "no", ERROR, "expected 0 or 1"),
        ("DECLUTR_PLUGIN", "no", ERROR, "expected 0 or 1"),
        ("DECLUTR_WORKERS", "many", ERROR, "expected a number of processes of at least 1"),
        ("DECLUTR_WORKERS", "0", ERROR, "expected a number of processes of at least 1"),
        ("DECLUTR_WORKERS", "2", OK, "'2'"),
        ("DECLUTR_KERNEL", "plain", WARNING, "no such setting is known"),
    ],
)
def test_settings_of_the_environment_are_checked(
    name: str, value: str, level: str, told: str, monkeypatch: Any
) -> None:
    for known in machine.KNOWN:
        monkeypatch.delenv(known, raising=False)
    monkeypatch.setenv(name, value)
    (finding,) = [finding for finding in settings() if finding.name == name]
    assert finding.level == level and told in finding.said
    assert (finding.cure is None) == (level == OK)


def test_every_setting_that_the_package_reads_is_known() -> None:
    import re

    import declutr

    texts = [path.read_text() for path in Path(declutr.__file__).parent.rglob("*.py")]
    read = {name for text in texts for name in re.findall(r'"(DECLUTR_[A-Z_]+)"', text)}
    assert read == machine.KNOWN
