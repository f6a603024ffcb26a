"""Install the wheel for each Python from 3.10 on and try it: see try_installation.py.

    python scripts/try_pythons.py                      # the interpreters that are found
    python scripts/try_pythons.py python3.13 --with-uv

Interpreters are looked for on PATH and among those of pyenv. Each gets an environment in a folder
that is removed afterwards. Ends with status 1 if one of them fails.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MINORS = (10, 11, 12, 13)
ALLENNLP = "allennlp==2.10.1"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("pythons", nargs="*", help="interpreters (default: those that are found)")
    add(
        "--torch", default="torch", help="what to ask pip for, options included, as in the Makefile"
    )
    add("--with-uv", action="store_true", help="install by uv instead of pip")
    add("--extras", default="", help="extras of declutr, separated by commas (default: none)")
    add("--constraints", type=Path, help="a file of versions to keep to")
    args = parser.parse_args()
    pythons = args.pythons or found()
    if not pythons:
        parser.error(f"found no Python 3.{MINORS[0]} to 3.{MINORS[-1]}: name an interpreter.")
    failed = [python for python in pythons if not works(python, args)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def found() -> list[str]:
    """Return an interpreter of each minor version, those of PATH before those of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    pythons = []
    for minor in MINORS:
        kept = sorted(pyenv.glob(f"3.{minor}.*/bin/python"), key=lambda path: path.stat().st_mtime)
        on_path = shutil.which(f"python3.{minor}")
        if on_path and subprocess.run([on_path, "-c", ""], capture_output=True).returncode == 0:
            pythons.append(on_path)
        elif kept:
            pythons.append(str(kept[-1]))
    return pythons


def works(python: str, args: argparse.Namespace) -> bool:
    """Return whether declutr can be installed and used with an interpreter."""
    with tempfile.TemporaryDirectory(prefix="declutr-try-") as place:
        folder = Path(place)
        try:
            run(python, "-m", "venv", str(folder / "venv"))
            own = str(folder / "venv" / "bin" / "python")
            install = [own, "-m", "pip", "install", "--quiet"]
            if args.with_uv:
                install = ["uv", "pip", "install", "--quiet", "--python", own]
            run(*install, *shlex.split(args.torch))
            kept = ["-c", str(args.constraints.resolve())] if args.constraints else []
            run(*install, *kept, f"{copy(folder)}[{args.extras}]" if args.extras else copy(folder))
            run(*install, "--no-deps", ALLENNLP)
            run(own, str(ROOT / "scripts" / "try_installation.py"))
        except subprocess.CalledProcessError as error:
            print(f"{python}: {shlex.join(error.cmd)} ended with status {error.returncode}")
            return False
    return True


def copy(folder: Path) -> str:
    """Copy the packaged files, so that a build leaves nothing in the checkout."""
    source = folder / "source"
    ignored = shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__", "benchmarks")
    shutil.copytree(ROOT, source, ignore=ignored)
    return str(source)


def run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
