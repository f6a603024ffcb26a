"""The command `check`, which tells before training what a recipe will do, and what is wrong."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from declutr.commands.errors import CommandError, set_command
from declutr.system.nearest import did_you_mean

if TYPE_CHECKING:  # they import AllenNLP, which `--help` need not wait for
    from declutr.runs.check.data import DataFigures
    from declutr.runs.check.report import Report

_WIDTH = 100
_VALUE = 28  # characters of a value, unless it is longer
_BAR = 40  # characters of the longest bar of a histogram
_WRONG = 1  # the exit status if something is wrong
_DESCRIPTION = (
    "Resolve a recipe as `train` would, and print every effective setting with where it is from, "
    "keys that are wrong with the nearest right one, what will be read and skipped, steps and "
    "learning rates, tokens a step, and the memory that a step takes. Nothing is trained, and "
    "nothing is written but the cache of tokenised documents."
)
_EPILOG = """\
  declutr check declutr docs.txt --transformer distilroberta-base
  declutr check declutr -o '{"train_data_path": "docs.txt"}'
  declutr check my.jsonnet --only model.loss

The exit status is 1 if something is wrong at which training would stop."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, and return its exit status."""
    if importlib.util.find_spec("allennlp") is None:
        print("declutr check: needs AllenNLP, which `declutr setup` installs.", file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser(
        prog="declutr check",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("recipe", help="a recipe: its path, or a name that `declutr recipes` lists")
    about = "training texts, in place of the recipe's: files, folders or globs"
    add("data", metavar="DATA", nargs="*", help=about)
    add("--transformer", metavar="NAME", help="the transformer to start from, as of `train`")
    add("-o", "--overrides", default="", help="a JSON structure that overrides the recipe")
    add(
        "-s",
        "--serialization-dir",
        metavar="DIR",
        type=os.path.expanduser,
        help="the folder of the run, to see if it is free",
    )
    add("--only", metavar="KEY", help="print the settings below this key alone, such as model.loss")
    add("--no-data", action="store_true", help="settings and keys alone: read no data")
    add("--json", action="store_true", help="print everything as JSON")
    add("--include-package", metavar="PACKAGE", action="append", default=[], help="as of `train`")
    parser.description = textwrap.fill(_DESCRIPTION, _WIDTH)
    set_command(parser, run)
    args = parser.parse_intermixed_args(arguments)  # data may stand after options, as in `train`
    args.func(args)
    return args.status


def run(args: argparse.Namespace) -> None:
    """Check the recipe, print the report, and set `args.status`."""
    from allennlp.common.plugins import import_plugins
    from allennlp.common.util import import_module_and_submodules

    from declutr.bridge.names import own_first
    from declutr.runs.check.report import check_recipe
    from declutr.runs.front_door import overrides_with

    import_plugins()
    for package in args.include_package:
        import_module_and_submodules(package)
    with_data = not args.no_data and not args.only
    given = args.recipe, args.overrides, args.data, args.transformer
    with own_first(), overrides_with(*given) as overrides:  # as in `declutr train`
        report = check_recipe(args.recipe, overrides, args.serialization_dir, with_data)
    if args.only:
        paths = [one.path for one in report.settings] + [one.path for one in report.findings]
        if not any(_below(path, args.only) for path in paths):
            keys = [path.split(".") for path in paths]
            known = {".".join(one[: depth + 1]) for one in keys for depth in range(len(one))}
            raise CommandError(
                f"There is no setting '{args.only}', nor one below it."
                + did_you_mean(args.only, known)
            )
        report = dataclasses.replace(
            report,
            settings=[one for one in report.settings if _below(one.path, args.only)],
            findings=[one for one in report.findings if _below(one.path, args.only)],
            warnings=[],
        )
    if args.json:
        print(json.dumps(dataclasses.asdict(report), indent=2, default=str))
    else:
        for line in describe(report):
            print(line)
    args.status = _WRONG if report.findings else 0


def describe(report: Report) -> Iterator[str]:
    """Yield the lines of a report for people to read."""
    yield f"Settings of {report.recipe}"
    yield from _of_settings(report)
    for data, title in (
        (report.data, "Training data"),
        (report.validation_data, "Validation data"),
    ):
        if data is not None:
            yield f"\n{title}: {data.path}"
            yield from _of_data(data)
    if report.data is not None and report.steps:
        yield "\nSteps"
        yield from _of_steps(report, report.data)
    if report.memory is not None:
        yield "\nMemory of a step, estimated"
        yield from _of_memory(report)
    for note in report.notes:
        yield ""
        yield from _wrapped(note, "", "")
    if report.warnings:
        yield f"\nWarnings ({len(report.warnings)})"
        for warning in report.warnings:
            yield from _wrapped(warning, "  - ", "    ")
    if report.findings:
        yield f"\nWrong ({len(report.findings)})"
        for finding in report.findings:
            yield from _wrapped(f"{finding.path}: {finding.message}", "  - ", "    ")
    else:
        yield "\nNothing wrong was found."


def _of_settings(report: Report) -> Iterator[str]:
    """Yield the settings as a tree: a line for each object, and for each value with its source."""
    rows = [(one.path.split("."), one) for one in report.settings]
    width = max((2 * len(keys) + len(keys[-1]) for keys, _ in rows), default=0)
    above: list[str] = []
    for keys, setting in rows:
        parents = keys[:-1]
        for depth, key in enumerate(parents):
            if above[: depth + 1] != parents[: depth + 1]:
                yield f"{'  ' * (depth + 1)}{key}"
        above = parents
        label = f"{'  ' * len(keys)}{keys[-1]}"
        value = json.dumps(setting.value, ensure_ascii=False)
        yield f"{label:{width}}  {value:{_VALUE}}  {setting.source}"


def _of_data(data: DataFigures) -> Iterator[str]:
    yield f"  {data.rows:,} rows, {data.kept:,} used"
    for reason, number in data.skipped.items():
        yield f"  {number:,} skipped: {reason}"
    for note in data.notes:
        yield from _wrapped(note, "  ", "    ")
    if data.spans:
        yield from _wrapped(f"A document gives {data.spans}.", "  ", "    ")
    if data.lengths is None:
        return
    quantiles = ", ".join(f"{share}: {value:,}" for share, value in data.lengths.quantiles.items())
    yield f"  Tokens of a row ({quantiles})"
    most = max(number for _, _, number in data.lengths.bins)
    for first, last, number in data.lengths.bins:
        bar = "#" * -(-number * _BAR // most)
        yield f"  {f'{first:,} to {last:,}':>19}  {bar:{_BAR}}  {number:,}"


def _of_steps(report: Report, data: DataFigures) -> Iterator[str]:
    assert report.device is not None
    processes = report.device.processes
    total = report.steps * report.epochs
    yield f"  {report.steps:,} an epoch, {report.epochs:,} epochs, {total:,} in all"
    rates = report.rates
    if rates is not None:
        yield (
            f"  Learning rate {rates.first:.3g} at first, {rates.peak:.3g} after "
            f"{rates.warm_up_steps:,} steps of warm-up, {rates.last:.3g} at last"
        )
    if data.tokens:
        useful = [one.useful for one in data.tokens]
        padded = [one.padded for one in data.tokens]
        mean, of_all = sum(useful) / len(useful), sum(padded) / len(padded)
        each = " in each process" if processes > 1 else ""
        yield (
            f"  Tokens of a batch{each}: {mean:,.0f} on average and {max(useful):,} at most, in "
            f"{data.tokens[0].texts:,} texts; with padding {of_all:,.0f} and {max(padded):,}"
        )
        yield f"  (of {len(useful)} batches that were drawn)"
        if processes > 1:
            yield f"  In all {processes} processes: {mean * processes:,.0f}"


def _of_memory(report: Report) -> Iterator[str]:
    from declutr.runs.check.advice import gigabytes

    assert report.memory is not None and report.device is not None
    memory, device = report.memory, report.device
    each = f", in each of {device.processes} processes" if device.processes > 1 else ""
    yield (
        f"  On {device.name}, {device.dtype}{each}: {memory.parameters:,} parameters, "
        f"{memory.trained:,} trained"
    )
    for name in ("weights", "gradients", "optimizer", "activations", "peak"):
        yield f"  {name:12} {gigabytes(getattr(memory, name)):>9}"
    has = "" if device.memory is None else f" of {gigabytes(device.memory)}"
    yield f"  {'the process':12} {gigabytes(memory.process):>9}{has}, with what its allocator keeps"


def _wrapped(text: str, first: str, others: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=others)


def _below(path: str, key: str) -> bool:
    return path == key or path.startswith(f"{key}.")
