"""The command `evaluate-embeddings`, which scores encoders on many tasks and writes one report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from declutr._version import __version__
from declutr.commands import store_options
from declutr.commands.command import Command, require_at_least_1, told_to_user, told_when_stopped
from declutr.commands.errors import CommandError
from declutr.commands.overview import other_plugins
from declutr.commands.report_options import add_report_options, wanted_of
from declutr.inference import is_archive

if TYPE_CHECKING:  # importing these takes time, and every `allennlp` command loads this module
    from declutr.evaluation.run import Run
    from declutr.evaluation.task import Protocol, Task


class EvaluateEmbeddings(Command):
    """A command that scores encoders on SentEval's tasks, similarity, geometry and retrieval."""

    name = "evaluate-embeddings"
    description = (
        "Score encoders on SentEval's tasks, semantic similarity, geometry and retrieval, and "
        "write report.md, results.json and pictures. Results are kept as they come: the same "
        "command again goes on where it stopped, and tells what it keeps."
    )
    epilog = """\
ENCODER is a trained model (its folder or model.tar.gz), hf:NAME or st:NAME of the Hugging Face hub,
words:FILE of word vectors, random:DIM, or MODULE:FUNCTION, a Python function list[str] -> array.
Options follow a question mark, hf:roberta-base?pooling=cls, and LABEL=ENCODER gives it a name. The
first encoder is the one that others are compared with.

--dimensions 16,32,64 embeds nothing twice; the report calls the leading dimensions LABEL@16 and so
on, and has a table and a picture of dimension against quality."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        about = "a folder laid out as SentEval's: downstream/, probing/; or one of your own tasks"
        add("data", metavar="DATA", help=about)
        add("encoders", metavar="ENCODER", nargs="*", help="what embeds, see below")
        add("-o", "--output", metavar="FOLDER", help="where results and the report go")
        add(
            "--tasks",
            metavar="PATTERN",
            nargs="+",
            help="names, groups, or folders of your own tasks, such as STS* probing my/tasks",
        )
        add("--list", action="store_true", help="say what tasks there are data for, and end")
        about = "SentEval's settings: those of papers (default published), or the faster ones"
        add("--protocol", choices=("published", "prototyping"), default="published", help=about)
        about = "logistic regression by these (default torch)"
        add("--classifier", choices=("torch", "sklearn"), default="torch", help=about)
        about = "units of the classifier's hidden layer (default 0: it has none)"
        add("--hidden", type=int, default=0, metavar="N", help=about)
        add("--corpus", metavar="FILE", help="documents, one a line, for span retrieval")
        add("--device", help="cpu or cuda; by default a GPU if there is one")
        about = "score the leading 16, 32, ... dimensions of each encoder too, as 16,32"
        add("--dimensions", metavar="N,N,...", help=about)
        add(
            "--batch-size", type=int, default=64, metavar="N", help="sentences a batch (default 64)"
        )
        add(
            "--max-length",
            type=int,
            metavar="N",
            help="tokens a sentence, for transformers (default: what it takes)",
        )
        add("--seed", type=int, default=1111, help="of classifiers (default 1111)")
        about = "bootstrap samples of each interval (default 1000); 0 for no intervals"
        add("--resamples", type=int, default=1000, metavar="N", help=about)
        store_options.add_arguments(parser)
        add("--overwrite", action="store_true", help="replace results that were made otherwise")
        add_report_options(parser)

    def needs_allennlp(self, args: argparse.Namespace) -> bool:
        return any(map(_needs_allennlp, args.encoders))

    def run(self, args: argparse.Namespace) -> None:
        from declutr.evaluation.suite import all_tasks, chosen
        from declutr.evaluation.tasks.described_tasks import check_data

        dimensions = _checked_numbers(args)
        if not Path(args.data).is_dir():
            raise CommandError(
                f"Found no folder '{args.data}', expected one laid out as SentEval's (downstream/, "
                "probing/), or one of your own tasks (task.json)."
            )
        if args.corpus and not Path(args.corpus).exists():
            raise CommandError(
                f"Found no '{args.corpus}', expected a file of documents, one a line, as --corpus."
            )
        protocol = _protocol(args)
        with told_to_user(ValueError):
            tasks = all_tasks(args.data, protocol, args.corpus)
            order = [task.name for task in tasks]
            if args.tasks:
                tasks = chosen(tasks, args.tasks, protocol)
            check_data(tasks)
        if args.list:
            _list(tasks)
            return
        if not args.encoders or not args.output:
            raise CommandError("Expected at least one ENCODER, and --output FOLDER.")
        if _evaluate(args, dimensions, tasks, order, protocol):
            sys.exit(1)


def _needs_allennlp(spec: str) -> bool:
    """Return whether an encoder is a trained archive, or a function beside plugins of AllenNLP."""
    from declutr.inference.sources.spec import EncoderError, parse_spec

    try:
        encoder = parse_spec(spec)
    except EncoderError:  # told when all options are checked
        return False
    if encoder.kind == "call":  # the function may use what plugins of others register
        return bool(other_plugins())
    return encoder.kind == "archive" and is_archive(encoder.place)


def _checked_numbers(args: argparse.Namespace) -> list[int]:
    """Check numeric options before anything is embedded; return the dimensions to truncate to.

    # Raises

    `CommandError` : a number is out of range, or does not fit the classifier.
    """
    require_at_least_1(args, "--batch-size")
    if args.resamples < 0:
        raise CommandError(f"Expected 0 or more samples as --resamples, got {args.resamples}.")
    store_options.check(args)
    if args.hidden < 0:
        raise CommandError(f"Expected 0 or more units as --hidden, got {args.hidden}.")
    if args.hidden and args.classifier == "sklearn":
        raise CommandError(
            "scikit-learn's logistic regression has no hidden layer, got --classifier sklearn with "
            f"--hidden {args.hidden}; take --classifier torch, or --hidden 0."
        )
    if args.dimensions is None:
        return []
    numbers = [part.strip() for part in args.dimensions.split(",")]
    if not all(number.isdecimal() and int(number) > 0 for number in numbers):
        raise CommandError(
            "Expected --dimensions to be whole numbers above 0, as 16,32,64, got "
            f"{args.dimensions!r}."
        )
    return sorted({int(number) for number in numbers})


def _protocol(args: argparse.Namespace) -> Protocol:
    from declutr.evaluation.task import PROTOCOLS

    own = {name: getattr(args, name) for name in ("classifier", "hidden", "seed")}
    return replace(PROTOCOLS[args.protocol], device=args.device, **own)


def _list(tasks: Sequence[Task]) -> None:
    """Print a line per task: name, group, main score, and its data or why they are missing."""
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
    args: argparse.Namespace,
    dimensions: list[int],
    tasks: list[Task],
    order: list[str],
    protocol: Protocol,
) -> bool:
    """Run all encoders, write the report, and return whether something went wrong."""
    from filelock import FileLock, Timeout

    from declutr.evaluation.report.written_report import write_report
    from declutr.evaluation.results import ResultFolder
    from declutr.evaluation.run import ChangedResults, Run
    from declutr.system.processors import keep_to_quota

    keep_to_quota()
    wanted = wanted_of(args)
    names = _names(args.encoders)
    truncated = _truncated(names, dimensions)
    folder = Path(args.output)
    folder.mkdir(parents=True, exist_ok=True)
    if not args.no_plots:
        from declutr.evaluation.tasks.embedding_map import map_of

        picture = map_of(tasks)
        tasks = [*tasks, *([picture] if picture else [])]
    left = f"Results so far are in {folder}; the same command goes on from there."
    try:
        with (
            told_when_stopped(left),
            told_to_user(ChangedResults),
            FileLock(folder / ".lock", timeout=0),
        ):
            results = ResultFolder(folder)
            store = store_options.opened(args, folder)
            own: dict[str, Any] = {name: getattr(args, name) for name in ("overwrite", "resamples")}
            run = Run(results, tasks, protocol, __version__, progress=True, store=store, **own)
            run.check([*names, *truncated])
            _add_encoders(run, args, names, dimensions)
            run.close()
            store_options.shrink(args, store)
            return write_report(run, folder, names, truncated, order, str(args.data), wanted)
    except Timeout as error:
        raise CommandError(
            f"Another evaluation is writing to '{folder}'. Wait for it, or choose another --output."
        ) from error


def _names(specs: Sequence[str]) -> list[str]:
    """Return the names of the encoders.

    # Raises

    `CommandError` : two names are the same, or an argument does not describe an encoder. Files of
        words that are not there are told here, before others are evaluated.
    """
    from declutr.inference.sources import EncoderError, parse_spec

    with told_to_user(EncoderError):
        encoders = [parse_spec(spec) for spec in specs]
    for encoder in encoders:
        files = [encoder.place, encoder.options.get("counts")] if encoder.kind == "words" else []
        for file in filter(None, files):
            if not Path(file).is_file():
                raise CommandError(f"There is no file '{file}', which {encoder.text} names.")
    names = [encoder.name for encoder in encoders]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise CommandError(
                f"Two encoders are called {name!r}: {specs[names.index(name)]} and "
                f"{specs[number]}. Give one a name of its own: NAME={specs[number]}."
            )
    return names


def _truncated(names: Sequence[str], dimensions: Sequence[int]) -> list[str]:
    """Return the names of the encoders truncated to each of the dimensions.

    # Raises

    `CommandError` : an encoder has the name of a truncated one.
    """
    from declutr.evaluation.report.truncated_encoders import truncated_name

    found = [truncated_name(name, dimension) for name in names for dimension in dimensions]
    for name in names:
        if name in found:
            raise CommandError(
                f"An encoder is called {name!r}, as the leading dimensions of another are under "
                "--dimensions. Give it another name: NAME=ENCODER."
            )
    return found


def _add_encoders(
    run: Run, args: argparse.Namespace, names: Sequence[str], dimensions: Sequence[int]
) -> None:
    """Evaluate the encoders, one in memory at a time; report those that cannot be opened."""
    from declutr.evaluation.report.truncated_encoders import add_with_dimensions
    from declutr.evaluation.run import ChangedResults
    from declutr.evaluation.suite import go_on_after
    from declutr.inference.sources import open_encoder

    options = {name: getattr(args, name) for name in ("batch_size", "device", "max_length")}
    for name, spec in zip(names, args.encoders, strict=True):
        try:
            add_with_dimensions(run, open_encoder(spec, **options), dimensions)
        except Exception as error:
            if not isinstance(error, ChangedResults):
                go_on_after(error)
            run.not_opened[name] = str(error) or type(error).__name__
        if name in run.not_opened:
            print(f"{name}: {run.not_opened[name]}", file=sys.stderr)
