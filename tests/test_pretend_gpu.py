"""Every recipe, and the waits and launches of a training step, on the pretend GPU."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import transformers

from declutr.recipes import recipe_names
from tests.pretend_gpu.build import CannotBuild, build_hooks
from tests.pretend_gpu.kinds import COMPARED, KINDS

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parent.parent
PROCESSES = 2  # each imports all anew, which takes as long as ten recipes

# Of a step once all is warm: where the host waits for the device in our code, in libraries that we
# call, and in the loop of AllenNLP (see `tests/pretend_gpu/waits.py`); and operators that launch a
# kernel, at most. `python -m tests.pretend_gpu steps --places` shows where.
WAITS_AND_LAUNCHES: dict[str, tuple[int, int, int, int]] = {
    "default": (0, 0, 0, 349),
    "trainer of AllenNLP": (0, 0, 3, 353),
    "float32": (0, 0, 0, 265),
    "chunked": (0, 0, 0, 869),
    "gradient checkpointing": (0, 0, 0, 409),
    "two encoders": (0, 0, 0, 528),
    "momentum": (0, 0, 0, 372),
    "cross-batch memory": (0, 0, 0, 306),
    "SCD": (0, 0, 0, 560),
    "RECLAIM": (0, 0, 0, 423),
    "RECLAIM, large bank": (0, 0, 0, 433),
}

# transformers 4 makes a mask in each pass that packed texts do not need, by two kernels.
OF_MASK = 0 if int(transformers.__version__.split(".")[0]) >= 5 else 2
PASSES = {"chunked": 4, "two encoders": 2, "momentum": 2, "SCD": 2}  # of others: 1


@pytest.fixture(scope="module", autouse=True)
def hooks() -> Path:
    try:
        return build_hooks()
    except CannotBuild as error:
        pytest.skip(f"no pretend GPU: {error}")


def run(*command: str) -> subprocess.CompletedProcess:
    """`python -m ...` in a process of its own: the hooks must be there before torch is."""
    paths = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": paths}
    command = sys.executable, "-m", *command
    how = {"cwd": REPOSITORY, "env": environment, "capture_output": True, "text": True}
    done = subprocess.run(command, check=False, **how)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done


def rehearsed(tmp_path: Path, what: str, *names: str) -> dict[str, Any]:
    file = tmp_path / "results.json"
    run("tests.pretend_gpu", what, *names, "--json", str(file))
    return json.loads(file.read_text())


def failures(results: dict[str, Any]) -> str:
    failed = {name: result for name, result in results.items() if "error" in result}
    return "\n".join(
        f"{name}: {result['error']}\n    " + "\n    ".join(result["trace"])
        for name, result in failed.items()
    )


def test_the_device_is_as_strict_as_cuda() -> None:
    run("pytest", "-q", "-p", "tests.pretend_gpu.plugin", "tests/pretend_gpu/checks.py")


@pytest.mark.long
@pytest.mark.parametrize("part", range(PROCESSES))
def test_every_recipe_trains_validates_and_embeds(part: int, tmp_path: Path) -> None:
    names = recipe_names()[part::PROCESSES]
    results = rehearsed(tmp_path, "recipes", *names)["recipes"]
    assert list(results) == names
    assert not failures(results), failures(results)


def test_steps(tmp_path: Path) -> None:
    """Their losses are those of the CPU; their waits and launches are those above."""
    assert WAITS_AND_LAUNCHES.keys() == KINDS.keys()
    results = rehearsed(tmp_path, "losses,steps")
    assert results["losses"].keys() == COMPARED.keys()
    assert not failures(results["losses"]), failures(results["losses"])
    for name in COMPARED:
        result = results["losses"][name]
        # A second loss is after an update, which takes the sign of the smallest gradients.
        expected = pytest.approx(result["cpu"], rel=result["tolerance"], abs=5e-5)
        assert result["gpu"] == expected, name
    wrong = [line for kind, result in results["steps"].items() for line in wrong_in(kind, result)]
    assert not wrong, "\n\n".join(wrong)


def wrong_in(kind: str, result: dict[str, Any]) -> Iterator[str]:
    """What differs from the table, with the place of each wait."""
    if "error" in result:
        yield failures({kind: result})
        return
    *waits, launches = WAITS_AND_LAUNCHES[kind]
    launches += OF_MASK * PASSES.get(kind, 1)
    found = [result[owner] for owner in ("ours", "library", "loop")]
    if found != waits or result["launches"] > launches:
        yield (
            f"{kind}: expected waits (ours, libraries, loop) {waits} and at most {launches} "
            f"launches, got {found} and {result['launches']}:\n" + "\n".join(result["places"])
        )
