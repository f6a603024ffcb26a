"""The options that all commands which write a report of evaluations share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from declutr.commands.command import told_to_user
from declutr.commands.errors import CommandError

if TYPE_CHECKING:  # importing these takes time, and every `allennlp` command loads this module
    from declutr.evaluation.report.averages import Definition
    from declutr.evaluation.report.written_report import Wanted


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """Add `--no-plots`, `--format` and `--quote`."""
    add = parser.add_argument
    add("--no-plots", action="store_true", help="no pictures")
    about = "also write tables in these formats, and pictures in SVG"
    choices = ("csv", "latex", "markdown", "svg")
    add("--format", dest="formats", nargs="+", choices=choices, default=(), help=about)
    about = "numbers that papers print, beside one's own: scd:table1, declutr_acl:*"
    add("--quote", metavar="PAPER:TABLE", nargs="+", default=(), help=about)


def wanted_of(args: argparse.Namespace, rank_by: Definition | None = None) -> Wanted:
    """Return what the options ask for.

    # Raises

    `ConfigurationError` : `--quote` names no table of a paper.
    """
    from declutr.evaluation.report.quoted import UnknownQuotation, quoted
    from declutr.evaluation.report.written_report import Wanted

    if args.no_plots and "svg" in args.formats:
        raise CommandError("Got --format svg with --no-plots; give one of them.")
    with told_to_user(UnknownQuotation):
        return Wanted(not args.no_plots, args.formats, quoted(args.quote), rank_by)
