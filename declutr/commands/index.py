"""The command `index`, which makes an index of lines for the command `search`."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from declutr.commands import command
from declutr.commands.errors import CommandError
from declutr.inference import is_archive

if TYPE_CHECKING:  # importing these takes time, and every `allennlp` command loads this module
    from declutr.search import IndexSummary

_BACKENDS = ("auto", "numpy", "faiss", "hnswlib")


class Index(command.Command):
    """A command that embeds lines and stores them in an index for search by meaning."""

    name = "index"
    description = (
        "Embed lines and keep them with their vectors in a folder, for `declutr search`. The "
        "same command goes on where it was interrupted; a finished index is left as it is."
    )
    epilog = """\
LINES holds one text a line (plain or compressed), JSON lines, CSV or TSV with a header, or parquet.
Blank lines keep their number and are never found; bytes that are not UTF-8 become U+FFFD.

If the model names prompts for the sides of a search (document or passage, query), the first stands
before lines and the second before queries. The index keeps what stood there.

Search is exact up to 200,000 lines. Beyond, faiss and hnswlib (pip install 'declutr[search]') look
at a part of the lines, and the share of the nearest lines that they find is told; --backend numpy
is exact for any number. auto takes faiss if it is installed, or else numpy."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("model", metavar="MODEL", help="what embeds: an archive, a folder or a hub name")
        add("lines", metavar="LINES", nargs="+", help="files, folders or globs; - for stdin")
        add("-o", "--output", metavar="INDEX", required=True, help="the folder of the index")
        add("--backend", choices=_BACKENDS, default="auto", help="what searches, see below (auto)")
        command.add_text_key(parser)
        add("--pooling", help="for transformers that are not trained with declutr: mean, cls, ...")
        add("--prompt-name", metavar="NAME", help="of the model's prompt for lines (see below)")
        add("--prompt", metavar="TEXT", help="the prompt for lines itself; '' is none")
        add("--max-length", metavar="N", type=int, help="tokens of a line; longer ones are cut")
        about = "cut longer lines, or average parts"
        add("--long-texts", choices=("truncate", "chunk"), help=about)
        add("--truncate-dim", metavar="N", type=int, help="leading dimensions to keep (all)")
        add("--no-whitening", action="store_true", help="without the model's whitening")
        add("--device", nargs="+", help="cpu, cuda:0, ...; by default a GPU if there is one")
        add("--batch-tokens", metavar="N", type=int, help="tokens a batch")
        add("--trust", action="store_true", help="the model is yours: it may name code to run")
        add("--overwrite", action="store_true", help="replace an index of other lines or model")
        add("--quiet", action="store_true", help="no progress bar")

    def needs_allennlp(self, args: argparse.Namespace) -> bool:
        return is_archive(args.model)

    def run(self, args: argparse.Namespace) -> None:
        from declutr.inference.encoder import Encoder
        from declutr.inference.text_embedding import not_told
        from declutr.search import build_index
        from declutr.search.backends import chosen_backend
        from declutr.search.index_files import require_ours

        options = _options(args)
        with (
            command.told_when_stopped(f"The same command goes on from what is in {args.output}."),
            command.told_to_user(ValueError, ImportError, FileNotFoundError),
        ):
            backend = chosen_backend(args.backend)  # checked before the model is loaded
            files = _files(args)
            key = command.text_key(args, files)
            command.require_apart(args.lines, files, Path(args.output))
            require_ours(Path(args.output))
            names = ("device", "batch_tokens", "trust", "prompt_name", "prompt")
            own = {name: getattr(args, name) for name in names}
            encoder = Encoder(args.model, **own, **options)
            with not_told():
                summary = build_index(
                    encoder,
                    _lines(files, key),
                    args.output,
                    options=options,
                    backend=backend,
                    overwrite=args.overwrite,
                    progress=not args.quiet,
                    say=lambda text: None if args.quiet else print(text, file=sys.stderr),
                )
        print("\n".join(_told(summary, args)))


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the encoder options that must be the same for lines and queries."""
    names = ("pooling", "max_length", "long_texts", "truncate_dim")
    options = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if args.no_whitening:
        options["whiten"] = False
    return options


def _files(args: argparse.Namespace) -> list[Path]:
    """Return the files that the inputs stand for, in order; an empty list for standard input.

    # Raises

    `CommandError` : standard input is combined with other inputs.
    """
    from declutr.corpus.source_files import source_files

    if command.STDIN not in args.lines:
        return source_files(args.lines)
    if len(args.lines) > 1:
        raise CommandError("Standard input (-) cannot be combined with other LINES.")
    return []


def _lines(files: list[Path], text_key: str) -> Iterator[str]:
    """Return an iterator over the rows of all files, or of standard input if there are none."""
    from declutr.corpus.documents import read_documents, read_stream

    if not files:
        return read_stream(sys.stdin.buffer, "standard input")
    return read_documents(files, text_key, encoding_errors="replace")


def _told(summary: IndexSummary, args: argparse.Namespace) -> Iterator[str]:
    about = summary.description
    if summary.kept:
        yield f"{args.output} holds these {about.rows:,} lines already; nothing was to be done."
    else:
        embedded = summary.embedding.embedded_rows
        yield (
            f"Indexed {about.rows:,} lines in {summary.seconds:,.0f} seconds; {embedded:,} were "
            "embedded now."
        )
    if about.left_out:
        yield f"{about.left_out:,} are blank, or without an embedding, and are never found."
    if cut := summary.embedding.counts.truncated_rows:
        kept = "end" if about.encoder.get("truncation_side") == "left" else "beginning"
        yield f"{cut:,} are longer than the model takes, and are found by their {kept}."
    if about.approximate:
        yield (
            f"Search with {about.backend} is approximate: recall@10 is {about.recall:.3f} (of the "
            "ten nearest lines, on a sample of lines). `declutr search --exact` compares with all."
        )
    else:
        yield f"Search with {about.backend} is exact."
    yield f'Ask it: declutr search {shlex.quote(args.output)} "a question"'
