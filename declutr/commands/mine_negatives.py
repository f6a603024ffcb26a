"""The command `mine-negatives`, which finds hard negatives of pairs in a corpus."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from declutr.commands import command
from declutr.commands.errors import CommandError
from declutr.commands.search import is_of_archive

if TYPE_CHECKING:  # importing these takes time, and every `allennlp` command loads this module
    from declutr.corpus.text_pairs import TextPair
    from declutr.search.candidates import Candidates
    from declutr.search.mining_run import MiningCounts


class MineNegatives(command.Command):
    """A command that writes triplets: each pair with near candidates that do not belong to it."""

    name = "mine-negatives"
    description = (
        "Find hard negatives of pairs of texts, by BM25 or with an index of embeddings, and write "
        "triplets for training. The same command goes on where it was interrupted."
    )
    epilog = """\
PAIRS is a table with the columns anchor and positive: TSV or CSV with a header, JSON lines or
parquet. With --nli it has premise, hypothesis and label, and entailed hypotheses are positives;
with --min-label X, only rows whose label is at least X are.

Candidates are the second texts of all rows, or with --corpus the texts of these files, and BM25
(pip install 'declutr[negatives]') finds those that share words with an anchor. With --index they
are the lines of an index, and the cosine of embeddings counts. A text is no candidate for an
anchor if any row says that the two belong together.

FILE.tsv has the columns anchor, positive and negative, a row for each negative. FILE.jsonl has a
row for each pair that got all N, with a list of them. The reader "text_pairs" takes both with
negative: "negative"."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("pairs", metavar="PAIRS", nargs="+", help="tables of pairs, folders or globs")
        add("-o", "--output", metavar="FILE", required=True, help="a .tsv or .jsonl of triplets")
        place = parser.add_mutually_exclusive_group()
        place.add_argument("--corpus", metavar="TEXTS", nargs="+", help="files of candidates")
        place.add_argument("--index", metavar="INDEX", help="an index that `declutr index` built")
        add("-n", "--num-negatives", metavar="N", type=int, default=1, help="of a pair (1)")
        add("--skip", metavar="K", type=int, default=0, help="pass over the K nearest (0)")
        about = "choose among the next K (50), with --random, --margin or --max-score"
        add("--pool", metavar="K", type=int, help=about)
        about = "none whose score is above the positive's less this share of it, such as 0.05"
        add("--margin", metavar="SHARE", type=float, help=about)
        add("--max-score", metavar="X", type=float, help="none with a score above X")
        add("--random", action="store_true", help="draw from the pool, instead of the nearest")
        add("--seed", type=int, help="of the draws of --random (0)")
        add("--anchor", metavar="COLUMN", help="the first text (anchor; with --nli premise)")
        add("--positive", metavar="COLUMN", help="the second (positive; with --nli hypothesis)")
        add("--label", metavar="COLUMN", help="the label (label)")
        kind = parser.add_mutually_exclusive_group()
        kind.add_argument("--nli", action="store_true", help="rows of premise, hypothesis, label")
        about = "a row with a lower label is no pair"
        kind.add_argument("--min-label", metavar="X", type=float, help=about)
        add("--no-header", action="store_true", help="columns of TSV and CSV are numbers, from 0")
        command.add_text_key(parser, "of files of --corpus other than text (text)")
        add("--model", help="where the model of the index is, if it was moved")
        add("--device", help="of that model: cpu or cuda:0")
        add("--trust", action="store_true", help="that model is yours: it may name code to run")
        add("--overwrite", action="store_true", help="replace an earlier FILE")
        add("--quiet", action="store_true", help="no progress bar")

    def needs_allennlp(self, args: argparse.Namespace) -> bool:
        return args.index is not None and is_of_archive(args.index, args.model)

    def run(self, args: argparse.Namespace) -> None:
        from declutr.inference.text_embedding import not_told
        from declutr.search.hard_negatives import Choice
        from declutr.search.mining_run import check_output, write_triplets

        _check_options(args)
        output = Path(args.output)
        with (
            command.told_when_stopped(f"The same command goes on from '{output}.part'."),
            command.told_to_user(ValueError, ImportError, OSError),
        ):
            check_output(output, args.overwrite)
            names = ("num_negatives", "skip", "pool", "margin", "max_score", "random", "seed")
            given = {name: getattr(args, name) for name in names}
            choice = Choice(**{name: one for name, one in given.items() if one is not None})
            pairs, others = _pairs(args, output)
            candidates = _candidates(args, pairs, others)
            with not_told():
                counts = write_triplets(pairs, candidates, choice, output, not args.quiet)
        print("\n".join(_told(counts, args)))


def _check_options(args: argparse.Namespace) -> None:
    """Raise `CommandError` for options that contradict each other."""
    of_index = [name for name in ("model", "device", "trust") if getattr(args, name)]
    if of_index and args.index is None:
        raise CommandError(
            f"Got --{of_index[0]} without --index. BM25 has no model: give --index INDEX, or leave "
            "it out."
        )
    if not args.random:
        command.require_use(args, "without --random", "--seed")
        if args.margin is None and args.max_score is None:
            told = "without --random, --margin or --max-score"
            command.require_use(args, told, "--pool")
    if args.corpus is None:
        told = "without --corpus (--anchor and --positive name columns)"
        command.require_use(args, told, "--text-key")
    if args.label is not None and not args.nli and args.min_label is None:
        raise CommandError(
            f"The label is in column '{args.label}', but not which rows are pairs. Add --min-label "
            "X, or --nli."
        )


def _pairs(args: argparse.Namespace, output: Path) -> tuple[list[TextPair], list[str]]:
    """Return the pairs that belong together, and the second texts of the other rows."""
    from declutr.corpus.source_files import source_files
    from declutr.corpus.tables import read_rows
    from declutr.corpus.text_pairs import NLI_CLASSES, Columns, read_nli_pairs, read_pairs
    from declutr.search.index_files import SearchError

    files = source_files(args.pairs)
    read = [*files, *(source_files(args.corpus) if args.corpus else ())]
    if output.resolve() in {file.resolve() for file in read}:
        raise SearchError(
            f"'{output}' is one of the tables of pairs or files of candidates. Expected "
            "another file."
        )
    names = (args.anchor, args.positive, args.label)
    anchor, positive, label = map(_column, names) if args.no_header else names
    columns = Columns(anchor, positive, label=label)
    rows = read_rows(files, not args.no_header)
    if args.nli:
        found = read_nli_pairs(rows, columns, str(files[0]))
        least: float = NLI_CLASSES.index("entailment")
        kept = [pair for pair in found if pair.label == least]
    elif args.min_label is not None:
        found = read_pairs(rows, columns, str(files[0]), _number)
        kept = [pair for pair in found if pair.label >= args.min_label]  # type: ignore[operator]
    else:
        return read_pairs(rows, columns, str(files[0])), []
    if not kept:
        raise SearchError(
            f"None of {len(found):,} rows is a pair: "
            + (
                "no label is 'entailment'."
                if args.nli
                else f"no label is {args.min_label:g} or more."
            )
        )
    return kept, [pair.positive for pair in found]


def _column(name: str | None) -> int | None:
    if name is not None and not name.isdecimal():
        raise CommandError(
            f"Without a header columns have no names, got '{name}'. Expected a number, from 0."
        )
    return None if name is None else int(name)


def _number(value: Any, place: str) -> float:
    from declutr.corpus import SourceError

    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number):  # as pandas writes for a label that is missing
        raise SourceError(f"{place}: the label is {value!r}, expected a number for --min-label.")
    return number


def _candidates(args: argparse.Namespace, pairs: list[TextPair], others: list[str]) -> Candidates:
    from declutr.corpus.documents import read_documents
    from declutr.corpus.source_files import source_files
    from declutr.search import SearchIndex
    from declutr.search.candidates import BM25Candidates, IndexCandidates

    if args.index is not None:
        index = SearchIndex(args.index, model=args.model, device=args.device, trust=args.trust)
        return IndexCandidates(index)
    positives = [pair.positive for pair in pairs]
    if args.corpus is None:
        return BM25Candidates([*positives, *others])
    files = source_files(args.corpus)
    return BM25Candidates(read_documents(files, command.text_key(args, files)), positives)


def _told(counts: MiningCounts, args: argparse.Namespace) -> Iterator[str]:
    if counts.resumed:
        yield f"The negatives of {counts.resumed:,} pairs were there already."
    yield f"{counts.rows:,} triplets of {counts.pairs:,} pairs in {args.output}"
    if counts.without:
        yield f"{counts.without:,} pairs got no negative, and are left out."
    if counts.fewer:
        left = ", and are left out" if args.output.lower().endswith(".jsonl") else ""
        yield f"{counts.fewer:,} pairs got fewer than {args.num_negatives}{left}."
