"""Runs of pytest over the rooms of a suite, in copies of the clones."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PACKAGES = {"allennlp": "allennlp", "models": "allennlp_models"}
"""The suites, and the package that each is about."""
COPIED = ("tests", "test_fixtures", "training_config", "scripts", "README.md", "pytest.ini")
"""What the tests of a repository need beside its package."""
PLUGINS = ("-p", "suite_recorder", "-p", "no:cacheprovider")
SELECTED = "not pretrained_model_test and not pretrained_config_test"
"""The tests that `make test` of allennlp-models runs: the others download trained models."""


@dataclass
class Result:
    """What a test came to: its id, "passed", "failed", "skipped" or "deselected", what it said."""

    test: str
    outcome: str
    seconds: float = 0.0
    error: str = ""


@dataclass
class Room:
    """A part of a suite that one process of pytest runs: a folder of its tests, or a file."""

    suite: str
    copy: Path
    path: Path

    @property
    def name(self) -> str:
        """`suite/room`, as `--rooms` and tables have it."""
        return f"{self.suite}/{self.path.stem}"


def copied(suite: str, clone: Path, place: Path) -> Path:
    """Copy what tests need, once: they write into their working tree.

    # Raises

    `FileNotFoundError` : if the folder is no clone of the repository of the suite.
    """
    package = PACKAGES[suite]
    if not (clone / package / "__init__.py").is_file() or not (clone / "tests").is_dir():
        raise FileNotFoundError(
            f"{clone} has no {package}/ and tests/: expected a clone of its public repository."
        )
    done = place / ".copied"
    if not done.exists():
        shutil.rmtree(place, ignore_errors=True)
        for name in (package, *COPIED):
            source = clone / name
            if source.is_dir():
                shutil.copytree(source, place / name, symlinks=True)
            elif source.exists():
                shutil.copy(source, place / name)
        done.touch()
    return place


def rooms_of(suite: str, copy: Path) -> list[Room]:
    """Return the rooms of a suite: folders under its tests, and test files beside them."""
    found = [path for path in (copy / "tests").iterdir() if path.is_dir()]
    found += (copy / "tests").glob("*_test.py")
    return [Room(suite, copy, path) for path in sorted(found) if not path.name.startswith("_")]


def run(room: Room, file: Path, environment: Mapping[str, str], options: Sequence[str]) -> None:
    """Run the tests of a room and show what pytest says; `file` is complete once this returns."""
    begun = file.with_suffix(".begun")
    begun.parent.mkdir(parents=True, exist_ok=True)
    begun.unlink(missing_ok=True)
    start = time.monotonic()
    command = [sys.executable, "-m", "pytest", *PLUGINS, "-m", SELECTED, *options]
    command += ["--continue-on-collection-errors", str(room.path.relative_to(room.copy))]
    process = subprocess.run(
        command,
        cwd=room.copy,
        env={**environment, "SUITE_RESULTS": str(begun), "SUITE_PACKAGE": PACKAGES[room.suite]},
    )
    with begun.open("a", encoding="utf-8") as lines:
        end = {"status": process.returncode, "seconds": round(time.monotonic() - start, 1)}
        lines.write(json.dumps(end) + "\n")
    begun.replace(file)


def environment_of(copies: Iterable[Path], home: Path) -> dict[str, str]:
    """Return the variables of a run: the copies are imported first, the hub is `home`."""
    paths = [*map(str, copies), str(HERE), str(home / "packages")]
    before = os.environ.get("PYTHONPATH")
    offline = dict.fromkeys(("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"), "1")
    return {
        **os.environ,
        **offline,
        "HF_HOME": str(home),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join([*paths, before] if before else paths),
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",  # their models are so small that threads cost more than they do
    }


def read(file: Path, room: str) -> tuple[list[Result], float]:
    """Return the results of a room and its seconds; a run that broke off is a failure as well."""
    *lines, end = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
    suite = room.partition("/")[0]
    last = {line["test"]: line for line in lines}  # tests that are run again come several times
    results = [Result(**{**line, "test": f"{suite}/{test}"}) for test, line in last.items()]
    if end["status"] not in (0, 1, 5):  # passed, failed, no tests
        said = f"pytest ended with status {end['status']}"
        results.append(Result(f"{room} as a whole", "failed", error=said))
    return results, end["seconds"]
