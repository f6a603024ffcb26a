"""Installation of AllenNLP into the environment of this interpreter, by its own pip or by uv."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import site
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from declutr.environment.requirements import ALLENNLP, requirements

_ERROR = re.compile(r"(?:ERROR|error):\s*(.+)", re.IGNORECASE)
_TRIED = "import declutr.plugin, allennlp.commands"


class InstallationError(RuntimeError):
    """Raised if the environment cannot be changed, or if pip or uv fails."""


def plan() -> list[list[str]]:
    """Return the commands that install what is missing, in order; none if all is there.

    Requirements of this package that are missing or too old come first, together with their own;
    then AllenNLP, without its own.

    # Raises

    `InstallationError` : this environment must not or cannot be changed, or has neither pip nor uv.
    """
    try:
        allennlp, *others = requirements()
    except ImportError:  # Without `packaging`, only AllenNLP itself is known.
        missing, has_allennlp = [], importlib.util.find_spec("allennlp") is not None
    else:
        missing = [str(each) for each in others if not each.satisfied]
        has_allennlp = allennlp.satisfied
    wanted = [missing] if missing else []
    if not has_allennlp:
        wanted.append(["--no-deps", ALLENNLP])
    if not wanted:
        return []
    installer = _installer()
    _require_writable(by_uv="--python" in installer)
    return [[*installer, *arguments] for arguments in wanted]


def carry_out(command: Sequence[str]) -> None:
    """Run one command of the plan; what it prints is passed on.

    # Raises

    `InstallationError` : the command failed; the message has the last error that it printed.
    """
    said = ""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace") as process:
        assert process.stderr is not None
        for line in process.stderr:
            sys.stderr.write(line)
            if match := _ERROR.match(line.strip()):
                said = match[1]
    if process.returncode:
        raise InstallationError(
            f"`{shlex.join(command)}` ended with status {process.returncode}"
            f"{f' ({said})' if said else ''}. If the package index cannot be reached from here, "
            f"fetch the wheel elsewhere (pip download --no-deps {ALLENNLP}) and run the command "
            "with the file in place of the name."
        )


def require_imports() -> None:
    """Raise `InstallationError` unless a new process can import AllenNLP with this package."""
    package = str(Path(__file__).parents[2])  # It may be imported from a folder.
    code = f"import sys; sys.path.insert(0, {package!r}); import declutr; del sys.path[0]; {_TRIED}"
    environment = {**os.environ, "ALLENNLP_LOG_LEVEL": "ERROR"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise InstallationError(
            f"AllenNLP is installed, but cannot be imported: {last}. `declutr doctor` says which "
            "package is broken."
        )


def _installer() -> list[str]:
    """Return the beginning of the command that installs into this environment."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--python", sys.executable]
    raise InstallationError(
        f"The environment '{sys.prefix}' has no pip, and there is no uv on the PATH. Run "
        f"`{shlex.join([sys.executable, '-m', 'ensurepip'])}`, or install uv, and try again."
    )


def _require_writable(by_uv: bool) -> None:
    in_environment = sys.prefix != sys.base_prefix
    managed = Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    if managed.exists() and not in_environment and not _may_break():
        raise InstallationError(
            f"The Python in '{sys.prefix}' is managed by the system (PEP 668), and must not be "
            "changed. Make an environment (python3 -m venv .venv), and install declutr there."
        )
    packages = sysconfig.get_path("purelib")
    to_user = site.ENABLE_USER_SITE and not in_environment and not by_uv
    if not os.access(packages, os.W_OK) and not to_user:
        raise InstallationError(
            f"The folder '{packages}' cannot be written. Run `declutr setup` as the user who made "
            "this environment, or make one of your own (python3 -m venv .venv)."
        )


def _may_break() -> bool:
    names = ("PIP_BREAK_SYSTEM_PACKAGES", "UV_BREAK_SYSTEM_PACKAGES")
    return any(os.environ.get(name, "").lower() in ("1", "true", "yes", "on") for name in names)
