"""`allennlp evaluate-embeddings`: how good the embeddings of some encoders are, in one report."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError

from declutr._version import __version__
from declutr.commands.user_errors import set_command

if TYPE_CHECKING:  # loading these takes time that other commands need not spend
    from declutr.evaluation.run import Run
    from declutr.evaluation.task import Protocol, Task

_LIBRARIES = ("torch", "numpy", "scikit-learn", "transformers", "sentence-transformers")


@Subcommand.register("evaluate-embeddings")
class EvaluateEmbeddings(Subcommand):
    """SentEval's tasks, similarity, geometry and retrieval, for several encoders at once."""

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        description = (
            "Score encoders on SentEval's tasks, semantic similarity, geometry and retrieval, and "
            "write report.md, results.json and pictures. Results are kept as they come: the same "
            "command again goes on where it stopped, and tells what it keeps."
        )
        subparser = parser.add_parser(
            self.name,
            description=description,
            help="score embeddings",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog=_EPILOG,
        )
        add = subparser.add_argument
        add("data", metavar="DATA", help="a folder laid out as SentEval's: downstream/, probing/")
        add("encoders", metavar="ENCODER", nargs="*", help="what embeds, see below")
        add("-o", "--output", metavar="FOLDER", help="where results and the report go")
        add("--tasks", metavar="PATTERN", nargs="+", help="names or groups, such as STS* probing")
        add("--list", action="store_true", help="say what tasks there are data for, and end")
        add("--protocol", choices=("published", "prototyping"), default="published")
        add("--classifier", choices=("torch", "sklearn"), default="torch")
        add("--hidden", type=int, default=0, help="units of the classifier's hidden layer")
        add("--corpus", metavar="FILE", help="documents, one a line, for span retrieval")
        add("--device", help="cpu or cuda; by default a GPU if there is one")
        add(
            "--dimensions",
            metavar="N,N,...",
            help="score the leading 16, 32, ... dimensions of each encoder too, as 16,32",
        )
        add("--batch-size", type=int, default=64, help="sentences a batch (default 64)")
        add("--max-length", type=int, help="tokens a sentence, for transformers")
        add("--seed", type=int, default=1111, help="of classifiers (default 1111)")
        add("--no-plots", action="store_true", help="no pictures")
        add("--overwrite", action="store_true", help="replace results that were made otherwise")
        set_command(subparser, _run)
        return subparser


_EPILOG = """\
ENCODER is a trained model (its folder or model.tar.gz), hf:NAME or st:NAME of the Hugging Face hub,
words:FILE of word vectors, random:DIM, or MODULE:FUNCTION, a Python function list[str] -> array.
Options follow a question mark, hf:roberta-base?pooling=cls, and LABEL=ENCODER gives it a name. The
first encoder is the one that others are compared with.

--dimensions 16,32,64 embeds nothing twice; the report calls the leading dimensions LABEL@16 and so
on, and has a table and a picture of dimension against quality."""


def _run(args: argparse.Namespace) -> None:
    from declutr.evaluation.suite import all_tasks, chosen

    _check_numbers(args)
    if not Path(args.data).is_dir():
        raise ConfigurationError(
            f"Found no folder '{args.data}', expected one laid out as SentEval's (downstream/, "
            "probing/)."
        )
    if args.corpus and not Path(args.corpus).exists():
        raise ConfigurationError(
            f"Found no '{args.corpus}', expected a file of documents, one a line, as --corpus."
        )
    protocol = _protocol(args)
    try:
        tasks = all_tasks(args.data, protocol, args.corpus)
        order = [task.name for task in tasks]
        if args.tasks:
            tasks = chosen(tasks, args.tasks)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    if args.list:
        _list(tasks)
        return
    if not args.encoders or not args.output:
        raise ConfigurationError("Expected at least one ENCODER, and --output FOLDER.")
    if _evaluate(args, tasks, order, protocol):
        sys.exit(1)


def _check_numbers(args: argparse.Namespace) -> None:
    """What would otherwise fail only after everything is embedded.

    # Raises

    `ConfigurationError` : a number is out of range, or does not go with the classifier.
    """
    if args.batch_size < 1:
        raise ConfigurationError(f"Expected a --batch-size of at least 1, got {args.batch_size}.")
    if args.hidden < 0:
        raise ConfigurationError(f"Expected 0 or more units as --hidden, got {args.hidden}.")
    if args.hidden and args.classifier == "sklearn":
        raise ConfigurationError(
            "scikit-learn's logistic regression has no hidden layer, got --classifier sklearn with "
            f"--hidden {args.hidden}; take --classifier torch, or --hidden 0."
        )
    _dimensions(args.dimensions)


def _dimensions(text: str | None) -> list[int]:
    """# Raises

    `ConfigurationError` : it is not whole numbers above 0 with commas between.
    """
    if text is None:
        return []
    numbers = [part.strip() for part in text.split(",")]
    if not all(number.isdecimal() and int(number) > 0 for number in numbers):
        raise ConfigurationError(
            f"Expected --dimensions to be whole numbers above 0, as 16,32,64, got {text!r}."
        )
    return sorted({int(number) for number in numbers})


def _protocol(args: argparse.Namespace) -> Protocol:
    from declutr.evaluation.task import PROTOCOLS

    device = args.device
    if device is None:
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
    return replace(
        PROTOCOLS[args.protocol],
        classifier=args.classifier,
        hidden=args.hidden,
        seed=args.seed,
        device=device,
    )


def _list(tasks: Sequence[Task]) -> None:
    """A line a task: its name, group, main score, and its sentences or why there are none."""
    from declutr.evaluation.suite import in_words

    widths = [
        2 + max((len(getattr(task, column)) for task in tasks), default=0)
        for column in ("name", "group", "main")
    ]
    for task in tasks:
        try:
            sentences = task.sentences()
            about = f"{len(sentences):,} sentences, {len(set(sentences)):,} different"
        except Exception as error:
            about = in_words(error)
        columns = zip((task.name, task.group, task.main), widths, strict=True)
        print("".join(text.ljust(width) for text, width in columns) + about)


def _evaluate(
    args: argparse.Namespace, tasks: list[Task], order: list[str], protocol: Protocol
) -> bool:
    """Run all encoders and write the report; whether something went wrong."""
    from filelock import FileLock, Timeout

    from declutr.evaluation.results import ResultFolder
    from declutr.evaluation.run import ChangedResults, Run

    names = _names(args.encoders)
    truncated = _truncated(names, _dimensions(args.dimensions))
    folder = Path(args.output)
    folder.mkdir(parents=True, exist_ok=True)
    if not args.no_plots:
        from declutr.evaluation.tasks.embedding_map import map_of

        picture = map_of(tasks)
        tasks = [*tasks, *([picture] if picture else [])]
    try:
        with FileLock(folder / ".lock", timeout=0):
            run = Run(
                ResultFolder(folder),
                tasks,
                protocol,
                __version__,
                overwrite=args.overwrite,
                progress=True,
            )
            run.check([*names, *truncated])
            _add_encoders(run, args, names)
            return _report(run, args, names, order)
    except Timeout as error:
        raise ConfigurationError(
            f"Another evaluation is writing to '{folder}'. Wait for it, or choose another --output."
        ) from error
    except ChangedResults as error:
        raise ConfigurationError(str(error)) from error
    except KeyboardInterrupt:
        print(
            f"\nStopped. Results so far are in {folder}; the same command goes on from there.",
            file=sys.stderr,
        )
        raise


def _names(specs: Sequence[str]) -> list[str]:
    """The names of encoders, which are different.

    # Raises

    `ConfigurationError` : they are not, or one is no encoder.
    """
    sources = _encoder_sources()
    try:
        names = [sources.parse_spec(spec).name for spec in specs]
    except sources.EncoderError as error:
        raise ConfigurationError(str(error)) from error
    for number, name in enumerate(names):
        if name in names[:number]:
            both = f"{specs[names.index(name)]} and {specs[number]}"
            raise ConfigurationError(
                f"Two encoders are called {name!r}: {both}. Give one a name of its own: "
                f"NAME={specs[number]}."
            )
    return names


def _truncated(names: Sequence[str], dimensions: Sequence[int]) -> list[str]:
    """The names of the leading dimensions of encoders.

    # Raises

    `ConfigurationError` : an encoder is called so itself.
    """
    from declutr.evaluation.report.truncated_encoders import truncated_name

    found = [truncated_name(name, dimension) for name in names for dimension in dimensions]
    for name in names:
        if name in found:
            raise ConfigurationError(
                f"An encoder is called {name!r}, as the leading dimensions of another are under "
                "--dimensions. Give it another name: NAME=ENCODER."
            )
    return found


def _encoder_sources() -> Any:
    # Only now: it loads transformers, and every `allennlp` command loads this module.
    import declutr.inference.sources

    return declutr.inference.sources


def _add_encoders(run: Run, args: argparse.Namespace, names: Sequence[str]) -> None:
    """One after the other, so that only one is in memory. One that cannot be opened is told."""
    from declutr.evaluation.report.truncated_encoders import add_with_dimensions
    from declutr.evaluation.run import ChangedResults
    from declutr.evaluation.suite import go_on_after

    for name, spec in zip(names, args.encoders, strict=True):
        try:
            encoder = _encoder_sources().open_encoder(
                spec,
                batch_size=args.batch_size,
                device=args.device,
                max_length=args.max_length,
            )
            add_with_dimensions(run, encoder, _dimensions(args.dimensions))
        except ChangedResults as error:
            run.not_opened[name] = str(error)
        except Exception as error:
            go_on_after(error)
            run.not_opened[name] = str(error) or type(error).__name__
        if name in run.not_opened:
            print(f"{name}: {run.not_opened[name]}", file=sys.stderr)


def _report(run: Run, args: argparse.Namespace, names: Sequence[str], order: Sequence[str]) -> bool:
    from declutr.evaluation.report import plots
    from declutr.evaluation.report.averages import averages
    from declutr.evaluation.report.dimensions import by_family
    from declutr.evaluation.report.report import About, Report
    from declutr.evaluation.run import failed, nothing_scored
    from declutr.system.atomic_files import write_whole

    comparison, left_out = run.comparison(names, order)
    comparison, alone = by_family(comparison)
    left_out += alone
    means = {name: averages(comparison.values(name)) for name in comparison.encoders}
    hints = []
    if left_out:
        hints.append(
            f"{left_out} results in this folder are left out: they were made with another "
            "protocol, with data that has changed or cannot be read now, or by another encoder of "
            "the same name (leading dimensions: by one that has changed since)."
        )
    pictures: list[plots.Picture] = []
    if not args.no_plots:
        if plots.available():
            by_name: dict[str, dict[str, float]] = {}
            for encoder, of_one in means.items():
                for mean in of_one:
                    if mean.value is not None:
                        by_name.setdefault(mean.name, {})[encoder] = mean.value
            pictures = plots.draw(comparison, Path(args.output) / "plots", by_name)
        else:
            hints.append(f"No pictures. {plots.HOW_TO_GET}")
    about = About(
        shlex.join(["declutr", *sys.argv[1:]]),
        str(args.data),
        asdict(run.protocol),
        _versions(),
        datetime.now().astimezone().isoformat(timespec="seconds"),
        hints,
    )
    folder = Path(args.output)
    report = Report(comparison, means, about, pictures, folder, run.not_opened)
    write_whole(folder / "results.json", json.dumps(report.as_json(), indent=1, allow_nan=False))
    write_whole(folder / "report.md", report.markdown())
    print("\n".join(["", *report.summary(), "", f"Report: {folder / 'report.md'}"]))
    every = [*names, *_truncated(names, _dimensions(args.dimensions))]
    wrong = failed(comparison, every, run.not_opened)
    if not wrong and nothing_scored(comparison, every, [task.name for task in run.tasks]):
        print(
            "No task could be scored: there are no data for any of them. `declutr "
            f"evaluate-embeddings {shlex.quote(str(args.data))} --list` says what is missing.",
            file=sys.stderr,
        )
        return True
    return wrong


def _versions() -> dict[str, str]:
    """Of this package, of what scores depend on, and of the machine."""
    found = {"declutr": __version__, "python": platform.python_version()}
    for library in _LIBRARIES:
        try:
            found[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found | {"machine": f"{platform.machine()} with {os.cpu_count()} cores"}
