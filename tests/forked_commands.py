"""Commands in processes that are forked from one which has imported what they need.

`conftest.py` says what. Some tests start Python anew, as users do.
"""

import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
from pathlib import Path


class ForkedCommand:
    """A command that runs: the words after `allennlp` (or `program`), and all its environment.

    The program `-c` is Python, with the code as its only word.
    """

    def __init__(self, *words: str, environment: dict[str, str], program: str = "allennlp") -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._output = Path(self._folder.name, "output.txt")
        given = ((program, *words), environment, os.getcwd(), str(self._output))
        self._process = multiprocessing.get_context("forkserver").Process(target=_run, args=given)
        self._process.start()

    def has_ended(self) -> bool:
        return not self._process.is_alive()

    def kill(self) -> None:
        """Kill it; a command that had ended before is an error."""
        self._process.kill()
        self._process.join()
        assert self._process.exitcode == -signal.SIGKILL, self._output.read_text()

    def finished(self) -> str:
        """Return all that it said, once it has ended well."""
        self._process.join(timeout=300)
        self._process.kill()  # does nothing to one that has ended
        self._process.join()
        said = self._output.read_text() if self._output.exists() else ""
        assert self._process.exitcode == 0, said
        return said


def _run(command: tuple[str, ...], environment: dict[str, str], folder: str, output: str) -> None:
    with open(output, "wb") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = list(command)
    if command[0] == "-c":
        exec(command[1], {"__name__": "__main__"})
    else:
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)
