"""The command `leaderboard`, which compares results of several evaluations."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from declutr.commands.command import Command, told_to_user
from declutr.commands.errors import CommandError
from declutr.commands.report_options import add_report_options, wanted_of


class Leaderboard(Command):
    """A command that puts results of several folders of `evaluate-embeddings` into one report."""

    name = "leaderboard"
    description = (
        "Compare the results of several folders that evaluate-embeddings wrote: one report, with "
        "encoders in the order of a score. Nothing is embedded or scored again, and the data need "
        "not be there. Results that were made otherwise than those of the first folder (another "
        "protocol, other data) are listed, and stand in no table."
    )
    epilog = """\
--by takes an average ("SimCSE STS"), a task (SICK-R), or a task and its score
("STS-B/cosine Spearman"); by default, the first average that all encoders have, or else the mean of
the tasks that all have. With one folder, it writes its report again, with other options."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("folders", metavar="FOLDER", nargs="+", help="results of evaluate-embeddings")
        add("-o", "--output", metavar="FOLDER", required=True, help="where the report goes")
        add("--by", metavar="SCORE", default="", help="the score to order encoders by")
        about = "bootstrap samples of differences (default 1000); 0 for no tests"
        add("--resamples", type=int, default=1000, metavar="N", help=about)
        add_report_options(parser)

    def run(self, args: argparse.Namespace) -> None:
        from declutr.evaluation.report.dimensions import by_family, whole_encoders
        from declutr.evaluation.report.merged_folders import NothingToCompare, merged
        from declutr.evaluation.report.ranking import UnknownRanking, definition_of
        from declutr.evaluation.report.written_report import write

        if args.resamples < 0:
            raise CommandError(f"Expected 0 or more samples as --resamples, got {args.resamples}.")
        output = Path(args.output)
        if output.resolve() in {Path(folder).resolve() for folder in args.folders}:
            raise CommandError(
                f"--output '{output}' is one of the folders of results, whose report would be "
                "replaced. Choose another --output."
            )
        with told_to_user(NothingToCompare, UnknownRanking):
            found = merged(args.folders, args.resamples)
            comparison, _ = by_family(found.comparison)
            definition = definition_of(whole_encoders(comparison), args.by)
        wanted = wanted_of(args, definition)
        output.mkdir(parents=True, exist_ok=True)
        hints = []
        if found.left_out:
            hints.append(f"{len(found.left_out)} groups of results are not comparable; see below.")
            for folder, why in sorted({(str(folder), why) for folder, _, _, why in found.left_out}):
                print(f"Not comparable, left out: {folder} ({why})", file=sys.stderr)
        if len(found.versions) > 1:
            hints.append(f"Results of several releases of declutr: {', '.join(found.versions)}.")
        data = ", ".join(map(str, args.folders))
        write(comparison, output, data, found.protocol, hints, wanted, left_out=found.left_out)
