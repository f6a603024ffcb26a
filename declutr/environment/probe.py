"""Imports and measurements in a process of their own, which a broken package may end.

`examine` starts the process and reads what it tells; `main` is what runs in it.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_MARK = "declutr answers: "  # Packages may print something when they are imported.
_LIMIT = 600.0  # seconds for all questions of one process together
# Packages of which AllenNLP, or its plugin allennlp-models, has modules that the bridge changes.
_NOT_REQUIRED = ("allennlp_models", "checklist", "rouge")
_MOST_LOST = 4  # processes that may end early before no more are started
# This package comes from where it is here, and all others from where any program has them.
_CODE = (
    "import sys; sys.path = [sys.argv.pop(1), *filter(None, sys.path)]; "
    "from declutr.environment.probe import main; del sys.path[0]; main()"
)


class Answer(NamedTuple):
    """The answer to one question: its JSON value, or the reason why there is none."""

    value: Any = None
    error: str | None = None


def examine(questions: Sequence[str]) -> dict[str, Answer]:
    """Return the answers to questions, each computed after those before it.

    A question that ends the process, or that takes too long, has an error for its answer; those
    after it are asked in another process.

    # Parameters

    questions : the names of modules to import, or names in `QUESTIONS`.
    """
    answers: dict[str, Answer] = {}
    for _ in range(_MOST_LOST):
        left = [question for question in questions if question not in answers]
        told, ended = _told(left) if left else ({}, "")
        answers |= told
        if lost := [question for question in left if question not in told]:
            answers[lost[0]] = Answer(error=ended)
    not_asked = Answer(error=f"not examined, because {_MOST_LOST} processes ended before it")
    return {question: answers.get(question, not_asked) for question in questions}


def _told(questions: Sequence[str]) -> tuple[dict[str, Answer], str]:
    """Return the answers of one process, and how it ended."""
    command = [sys.executable, "-c", _CODE, str(Path(__file__).parents[2]), *questions]
    environment = {**os.environ, "TQDM_DISABLE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=_LIMIT)
        output, ended = done.stdout, _ending(done.returncode, done.stderr)
    except subprocess.TimeoutExpired as expired:
        output, ended = expired.stdout or b"", f"it did not end within {_LIMIT:g} seconds"
    answers = {}
    for line in output.decode("utf-8", "replace").split("\n"):
        _, mark, told = line.partition(_MARK)
        if mark and told.endswith("}"):  # The last line may be cut off.
            content = json.loads(told)
            answers[content["question"]] = Answer(content["value"], content["error"])
    return answers, ended


def _ending(status: int, errors: bytes) -> str:
    if status < 0:
        return f"it ended the process with signal {-status}"
    last = errors.decode("utf-8", "replace").strip().splitlines()
    return f"it ended the process with status {status}" + (f": {last[-1]}" if last else "")


def main() -> None:
    """Answer the questions that the arguments of this process name, each on a line."""
    for question in sys.argv[1:]:
        value, error = None, None
        try:
            if question in QUESTIONS:
                value = QUESTIONS[question]()
            else:
                importlib.import_module(question)
        except Exception as caught:
            error = f"{type(caught).__name__}: {caught}"
        told = json.dumps({"question": question, "value": value, "error": error})
        sys.stdout.write(f"\n{_MARK}{told}\n")
        sys.stdout.flush()


def _switches() -> dict[str, list[str]]:
    """Import every module that the bridge changes; return its switches by what they did."""
    from declutr import bridge
    from declutr.bridge.switches import ADDITIONS, LENT, REPAIRS

    found: dict[str, list[str]] = {"acting": [], "not needed": [], "failed": []}

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if isinstance(record.args, tuple) and len(record.args) == 3:
                module, switch, done = map(str, record.args)
                found["acting" if done == "applied" else done].append(f"{module}: {switch}")

    logger = logging.getLogger("declutr.bridge")
    logger.addHandler(Listener())
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    bridge.install()
    importlib.import_module("allennlp.common")
    for module in dict.fromkeys([*REPAIRS, *ADDITIONS, *LENT]):
        try:
            importlib.import_module(module)
            found["acting"] += [f"{module}: {lend.__name__}" for lend in LENT.get(module, ())]
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and error.name in _NOT_REQUIRED:
                switches = (*LENT.get(module, ()), *REPAIRS.get(module, ()))
                found["not needed"] += [f"{module}: {switch.__name__}" for switch in switches]
            else:
                found["failed"].append(f"{module}: {error}")
    return found


def _devices() -> dict[str, Any]:
    """Return what torch can compute on besides the CPU."""
    import torch

    gpus = []
    for number in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(number)
        free, total = torch.cuda.mem_get_info(number)
        with torch.cuda.device(number):
            bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
            torch.ones(8, device="cuda").sum().item()  # raises if torch has no kernels for it
        gpus.append(
            {
                "name": properties.name,
                "capability": f"{properties.major}.{properties.minor}",
                "free": free,
                "total": total,
                "bfloat16": bfloat16,
            }
        )
    mps = getattr(torch.backends, "mps", None)
    return {
        "cuda": torch.version.cuda or torch.version.hip,
        "gpus": gpus,
        "mps": bool(mps and mps.is_available()),
    }


def _processor() -> dict[str, Any]:
    """Return the processor, what this process may use of it, and the settings by environment."""
    import torch

    from declutr.system import kernel_choices, processors, worker_processes

    before = torch.get_num_threads()
    processors.keep_to_quota()
    return {
        "name": processors.processor_name(),
        "instructions": processors.instructions(),
        "processors": os.cpu_count(),
        "allowed": processors.allowed_processors(),
        "cores": processors.allowed_cores(),
        "quota": processors.cpu_quota(),
        "threads": torch.get_num_threads(),
        "threads_of_torch": before,
        "plain_kernels": kernel_choices.switched_off(),
        "workers": worker_processes.default_workers(),
    }


def _hub_folder() -> dict[str, Any]:
    """Return the settings of the Hugging Face hub."""
    from huggingface_hub import constants

    return {
        "folder": str(constants.HF_HUB_CACHE),
        "endpoint": constants.ENDPOINT,
        "offline": bool(constants.HF_HUB_OFFLINE),
    }


QUESTIONS: dict[str, Callable[[], Any]] = {
    "the bridge": _switches,
    "devices": _devices,
    "processor": _processor,
    "hub": _hub_folder,
}
"""Questions besides imports, each with the function that answers it."""
