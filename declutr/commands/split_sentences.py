"""The command `split-sentences`, which splits documents into sentences, one per line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from declutr.commands.command import Command, add_text_key, text_key, told_to_user

if TYPE_CHECKING:
    from declutr.corpus.sentence_splitting import SplitCounts


class SplitSentences(Command):
    """A command that splits documents into the sentences that the reader "sentences" takes."""

    name = "split-sentences"
    description = (
        "Split documents into sentences by spaCy's rules for a language, and write them to a "
        "text file: one sentence a line, a blank line after each document."
    )
    epilog = """\
DOCS holds one document a line (plain or compressed), JSON lines, CSV or TSV with a header, or
parquet. All cores work on it; DECLUTR_WORKERS sets another number of processes. FILE appears when
it is whole."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("documents", metavar="DOCS", nargs="+", help="files of documents, folders or globs")
        add("-o", "--output", metavar="FILE", required=True, help="where sentences go")
        add("--language", metavar="CODE", default="en", help="such as de; xx for any (en)")
        add("--min-words", metavar="N", type=int, default=1, help="leave out shorter ones (1)")
        add_text_key(parser)
        add(
            "--encoding-errors",
            choices=("strict", "replace"),
            default="strict",
            help="bytes that are not UTF-8 stop it, or become U+FFFD (strict)",
        )
        add("--overwrite", action="store_true", help="replace an earlier FILE")
        add("--quiet", action="store_true", help="no progress bar, and no summary at the end")

    def run(self, args: argparse.Namespace) -> None:
        from declutr.corpus.sentence_splitting import SentenceSplitter, split_files
        from declutr.corpus.source_files import source_files

        with told_to_user(ValueError, OSError):  # raised for the inputs, the options and the disk
            files = source_files(args.documents)
            counts = split_files(
                files,
                Path(args.output),
                SentenceSplitter(args.language, args.min_words),
                text_key=text_key(args, files),
                encoding_errors=args.encoding_errors,
                progress=not args.quiet,
                overwrite=args.overwrite,
            )
        if not args.quiet:
            print("\n".join(_told(counts, args)))


def _told(counts: SplitCounts, args: argparse.Namespace) -> Iterator[str]:
    yield f"{counts.sentences:,} sentences of {counts.documents:,} documents in {args.output}"
    if counts.short:
        yield f"{counts.short:,} sentences of fewer than {args.min_words} words were left out."
    if counts.without:
        yield f"{counts.without:,} documents gave no sentence."
