"""The process of one part: imports, waits for its turn, runs.

`python -m benchmarks.gpu.worker NAME WORK`, with one line of JSON on standard input when its turn
comes. It makes the file `WORK/NAME.ready` when it has imported everything.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import logging
import sys
import time
import warnings
from pathlib import Path

from benchmarks.gpu import stand_ins
from benchmarks.gpu.findings import Findings, Settings
from benchmarks.machine import describe_machine


def main() -> None:
    stand_ins.install()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)  # what tiny runs of AllenNLP say is not about them
    import declutr.plugin  # before AllenNLP: it puts the bridge in place

    name, work = sys.argv[1], Path(sys.argv[2])
    part = importlib.import_module(f"benchmarks.gpu.{name}")
    (work / f"{name}.ready").touch()
    line = sys.stdin.readline()
    if not line:  # the call ended before
        return
    told = json.loads(line)
    if told["device"] == "cpu":
        import torch

        torch.set_num_threads(1)
    settings = Settings(told["device"], told["tiny"], work)
    about = {"machine": describe_machine(), "release": declutr.__version__}
    # Where it hangs is then in errors.txt.
    left = told["end"] - time.monotonic()
    faulthandler.dump_traceback_later(max(1.0, left), exit=False)
    part.run(Findings(Path(told["file"]), told["end"], **about), settings)


if __name__ == "__main__":
    main()
