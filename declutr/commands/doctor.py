"""The command `declutr doctor`, which tells what works in this environment and what does not."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from declutr._version import __version__
from declutr.commands.errors import set_command
from declutr.environment import machine, packages, storage
from declutr.environment.findings import (
    ERROR,
    OK,
    WARNING,
    Finding,
    as_lines,
    first_line,
    guarded,
    summary,
    worst,
)
from declutr.environment.probe import QUESTIONS, Answer, examine

_NO_TORCH = Answer(error="torch is not installed")
_EPILOG = """\
Each line is ok, a warning or an error; what to do about it stands below it. The exit status is 1
if there is an error, else 0. Packages are imported in a process of their own, so that a broken one
is a line of the report and not the end of it."""


def main(argv: list[str]) -> None:
    """Run `declutr doctor` with the arguments after its name."""
    parser = argparse.ArgumentParser(
        prog="declutr doctor",
        description="Tell what works in this environment, and what to do about the rest.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--json", action="store_true", help="print the report as JSON")
    add("--offline", action="store_true", help="do not ask the Hugging Face hub")
    add("--measure", action="store_true", help="measure the speed of number formats (some seconds)")
    set_command(parser, _run)
    args = parser.parse_args(argv)
    args.func(args)


def _run(args: argparse.Namespace) -> None:
    if sys.stderr.isatty():
        print("Importing every package once ...", file=sys.stderr, flush=True)
    found = list(report(asks_hub=not args.offline, measures=args.measure))
    if args.json:
        listed = [finding._asdict() for finding in found]
        content = {"declutr": __version__, "status": worst(found), "findings": listed}
        print(json.dumps(content, indent=2))
    else:
        print(*as_lines(found), "", summary(found), sep="\n")
    if worst(found) == ERROR:
        sys.exit(1)


def report(asks_hub: bool = True, measures: bool = False) -> Iterator[Finding]:
    """Yield the findings on this environment; nothing that is broken in it raises.

    # Parameters

    asks_hub : whether the Hugging Face hub is asked for an answer.
    measures : whether linear layers are timed in each dtype.
    """
    try:
        modules = packages.questions()
    except Exception:  # `packages` meets the same error, and is guarded.
        modules = []
    answers = examine([*modules, *QUESTIONS])
    hub = answers["hub"]
    yield from guarded(packages.SECTION, lambda: packages.packages(answers))
    yield from guarded(packages.BRIDGE, lambda: packages.bridge(answers["the bridge"]))
    yield from guarded(machine.SECTION, lambda: machine.devices(answers["devices"]))
    yield from guarded(machine.SECTION, lambda: machine.processor(answers["processor"]))
    if measures:
        yield from _speeds(answers.get("torch", _NO_TORCH))
    yield from guarded(machine.SETTINGS, machine.settings)
    yield from guarded(storage.DISK, lambda: storage.disk(hub))
    yield from guarded(storage.HUB, lambda: storage.hub_access(hub, asks_hub))


def _speeds(torch: Answer) -> Iterator[Finding]:
    """Yield the speed of linear layers in each dtype, and which dtypes settings lead to."""
    section = "Number formats"
    try:
        if torch.error is not None:
            raise RuntimeError(torch.error)
        from declutr.inference.dtype_report import dtype_report
        from declutr.system.processors import keep_to_quota

        keep_to_quota()
        measured = dtype_report()
    except Exception as error:
        said = f"could not be measured: {first_line(error)}"
        yield Finding(section, "speeds", WARNING, said, "correct the errors of this list first")
        return
    for speed in measured.speeds:
        said = f"{speed.gflops:.0f} GFLOP/s, {speed.times:.1f} times float32"
        said += "" if speed.native else ", without instructions of the processor"
        yield Finding(section, f"{speed.work} in {speed.dtype}", OK, said, details=speed._asdict())
    for choice in measured.choices:
        said = f"computes in {choice.chosen}: {choice.why}"
        yield Finding(section, choice.setting, OK, said, details=choice._asdict())
