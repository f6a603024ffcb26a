"""All that needs a GPU, in one call of ten minutes at most: is it right there, and how fast?

It begins on a machine that has torch, transformers and sentence-transformers and nothing of this
package's other needs: they come as wheels. So nothing is imported here that is not Python's own.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.gpu.parts import MINUTES, PARTS
from benchmarks.gpu.processes import Call
from benchmarks.gpu.tables import runs_of
from benchmarks.results import FOLDER, Run, keep

_DRY_MINUTES = 30.0  # four are enough where nothing else runs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    listed = ", ".join(f"{name} ({part.what})" for name, part in PARTS.items())
    parser.add_argument(
        "--wheels", help="a folder of wheels that are not installed here; without a registry"
    )
    parser.add_argument(
        "--out",
        help="where gpu.json and errors.txt go; --take keeps them later. Without it, tables are "
        "kept in benchmarks/results at once",
    )
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="NAME", help=listed
    )
    parser.add_argument(
        "--minutes",
        type=float,
        help=f"after which it ends (default {MINUTES}, and {_DRY_MINUTES} of --dry)",
    )
    parser.add_argument("--dry", action="store_true", help="rehearse on the CPU, tiny")
    parser.add_argument(
        "--repository", help="another checkout whose `declutr` and recipes are measured"
    )
    parser.add_argument("--take", metavar="FILE", help="keep the tables of a gpu.json; no more")


def run(args: argparse.Namespace) -> None:
    if args.take:
        print("\n".join(f"Kept {file}" for file in take(Path(args.take))))
        return
    with tempfile.TemporaryDirectory() as work:
        call = Call(
            Path(work),
            device="cpu" if args.dry else "cuda",
            tiny=args.dry or args.quick,
            seconds=60 * (args.minutes or (_DRY_MINUTES if args.dry else MINUTES)),
            wheels=args.wheels,
            repository=args.repository,
        )
        found: dict[str, Any] = {"parts": {}}
        for found in call.take_parts(args.parts):
            if args.out:  # after each part, for the machine may be taken away
                _write(Path(args.out), found, call.errors())
    if args.out:
        print(f"Wrote gpu.json and errors.txt to {args.out}")
    elif not (args.dry or args.quick):
        for made in runs_of(found):
            print(f"Kept {keep(made)}")


def _write(folder: Path, found: dict[str, Any], errors: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    whole = {**found, "runs": [asdict(run) for run in runs_of(found)]}
    (folder / "gpu.json").write_text(json.dumps(whole, indent=1, default=str) + "\n")
    (folder / "errors.txt").write_text(errors)


def take(file: Path, folder: Path = FOLDER) -> list[Path]:
    """Add the tables that a call elsewhere made to the results of this repository.

    Raises:
        ValueError: of a rehearsal, whose numbers say nothing.
    """
    found = json.loads(file.read_text(encoding="utf-8"))
    if found["settings"]["tiny"]:
        raise ValueError(
            f"{file} is of a rehearsal (--dry or --quick), whose numbers say nothing. Expected the "
            "gpu.json of a whole run on a GPU."
        )
    return [keep(Run.of(made), folder) for made in found["runs"]]
