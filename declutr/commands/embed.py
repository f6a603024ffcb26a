"""The command `embed`, which writes an embedding for each row of the input files."""

from __future__ import annotations

import argparse
import logging
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from declutr._version import __version__
from declutr.commands import command
from declutr.commands.errors import CommandError
from declutr.inference import is_archive
from declutr.system import installed_versions

if TYPE_CHECKING:  # importing it takes time, and every `allennlp` command loads this module
    from declutr.inference.encoder import Encoder

logger = logging.getLogger(__name__)

_LIBRARIES = ("torch", "transformers", "numpy")
_OF_ENCODER = (
    *("normalize", "truncate_dim", "pooling", "max_length", "long_texts", "dtype", "device"),
    *("batch_tokens", "trust", "revision", "prompt_name", "prompt"),
)
"""Options that are passed to `Encoder` under the same names."""


class Embed(command.Command):
    """A command that embeds files into a folder of shards and resumes after an interruption."""

    name = "embed"
    description = (
        "Embed files with a trained model: one row out for each row in, in order, blank rows "
        "included. Embeddings are written to a folder, shard by shard. After an interruption, "
        "even kill -9, the same command goes on and does not embed finished shards again."
    )
    epilog = """\
MODEL is also a folder of Hugging Face or sentence-transformers, or a name on the hub.
INPUT is text with a row a line, JSON lines or an array (.jsonl, .json), a table with a header
(.csv, .tsv), or parquet, told by its name; all but parquet may be compressed. Rename a table to
.txt, or give it as -, for its lines as they are. What is not UTF-8 (or, by its byte order mark,
UTF-16 or UTF-32) is embedded with U+FFFD, and counted.

Read what was written, whatever its format, with memory for what you take:
    from declutr.inference.bulk import StoredEmbeddings
    embeddings = StoredEmbeddings("FOLDER")  # embeddings[7], embeddings[:100], .blocks()"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("model", metavar="MODEL", help="folder of a trained model, its model.tar.gz, see below")
        add("inputs", metavar="INPUT", nargs="+", help="a file, folder or glob, or - for stdin")
        add("-o", "--output", metavar="FOLDER", required=True, help="where embeddings go")
        add("--overwrite", action="store_true", help="remove embeddings there, and begin anew")
        add("--quiet", action="store_true", help="no progress bar, and no summary at the end")

        group = parser.add_argument_group("input")
        command.add_text_key(group)
        add = group.add_argument
        about = "of the input - (default text: a text a line)"
        add("--stdin-format", choices=("text", "jsonl"), help=about)
        about = (
            "a record without a text, such as a broken line of JSON: stop there (default), or "
            "embed it as a blank text and count it"
        )
        add("--bad-rows", choices=("error", "blank"), default="error", help=about)

        add = parser.add_argument_group("output").add_argument
        add("--format", choices=("npy", "parquet", "jsonl"), default="npy", help="default npy")
        add("--output-dtype", choices=("float32", "float16"), default="float32", help="of numbers")
        about = "rows a file (default: what fits into 64 MiB, at most 65,536)"
        add("--shard-rows", type=int, metavar="N", help=about)

        add = parser.add_argument_group("embedding").add_argument
        about = "scale embeddings to length 1 (default: as the model says)"
        add("--normalize", action=argparse.BooleanOptionalAction, help=about)
        add("--truncate-dim", type=int, metavar="D", help="keep the first D numbers")
        add("--pooling", help="for transformers that are not trained with declutr: mean, cls, ...")
        add("--prompt-name", metavar="NAME", help="of a prompt of the model (default: its default)")
        add("--prompt", metavar="TEXT", help="the prompt itself: it stands before every text")
        add("--no-whitening", action="store_true", help="leave out a whitening that is stored")
        add("--max-length", type=int, metavar="N", help="tokens a text (default: what it takes)")
        about = (
            "longer texts are cut, at the tail unless the tokenizer says left (default), "
            "or are embedded in parts and averaged"
        )
        add("--long-texts", choices=("truncate", "chunk"), default="truncate", help=about)
        dtypes = ("auto", "float32", "bfloat16", "int8")
        about = "to compute in (default auto: bfloat16 where the device computes in it)"
        add("--dtype", choices=dtypes, default="auto", help=about)
        about = "cpu, cuda:0, ...; several share the work (default: a GPU if there is one)"
        add("--device", nargs="+", metavar="DEVICE", help=about)
        add("--batch-tokens", type=int, metavar="N", help="tokens a batch")
        add("--revision", help="branch, tag or commit, for a name on the hub")
        about = "open an archive that would be refused as unsafe, for it is yours"
        add("--trust", action="store_true", help=about)

    def needs_allennlp(self, args: argparse.Namespace) -> bool:
        return is_archive(args.model)

    def run(self, args: argparse.Namespace) -> None:
        from declutr.corpus.documents import SourceError
        from declutr.inference.bulk import EmbeddingFolderError, embed_rows
        from declutr.inference.bulk.shard_files import require
        from declutr.inference.bulk.summary_lines import summary_lines
        from declutr.inference.text_embedding import not_told

        counts = ("--shard-rows", "--truncate-dim", "--max-length", "--batch-tokens")
        command.require_at_least_1(args, *counts)
        with command.told_to_user(ImportError, SourceError):
            require(args.format)
            files = _files(args.inputs)
            key = _text_key(args, files)
        command.require_apart(args.inputs, files, Path(args.output))
        left = f"Finished shards are in '{args.output}'; the same command goes on there."
        with (
            command.told_when_stopped(left),
            command.told_to_user(EmbeddingFolderError, SourceError),
            not_told(),
            _encoder(args) as encoder,
        ):
            describe = encoder.describe()
            versions = {"declutr": __version__, **installed_versions(*_LIBRARIES)}
            _tell_of_prompts(encoder)
            summary = embed_rows(
                encoder,
                _rows(args, files, key),
                args.output,
                dimension=encoder.dimension,
                # The description has a fingerprint of the model's content, so a model that was
                # moved counts as the same one.
                describe={name: value for name, value in describe.items() if name != "place"},
                shard_rows=args.shard_rows,
                format=args.format,
                dtype=args.output_dtype,
                about={"model": args.model, "inputs": args.inputs, "versions": versions},
                truncated_texts=lambda: encoder.truncated_texts,
                total_bytes=_bytes_of_text(files),
                overwrite=args.overwrite,
                progress=not args.quiet,
            )
        if not summary.rows:
            logger.warning("The input has no rows: %s", ", ".join(args.inputs))
        if not args.quiet:
            print("\n".join(summary_lines(summary, args.format, describe["dtype"])))


def _files(inputs: list[str]) -> list[Path | None]:
    """Return the files that the inputs stand for, in order; `None` is standard input."""
    from declutr.corpus.source_files import source_files

    if inputs.count(command.STDIN) > 1:
        raise CommandError("Standard input (-) can be read once; it is given twice.")
    return [
        file
        for name in inputs
        for file in ([None] if name == command.STDIN else source_files(name))
    ]


def _encoder(args: argparse.Namespace) -> Encoder:
    from declutr.archives import UnsafeArchive
    from declutr.inference.encoder import Encoder, EncoderError

    options = {name: getattr(args, name) for name in _OF_ENCODER}
    with command.told_to_user(EncoderError, UnsafeArchive, OSError, tarfile.ReadError):
        return Encoder(args.model, whiten=False if args.no_whitening else None, **options)


def _tell_of_prompts(encoder: Encoder) -> None:
    """Log a warning if the model has prompts and none of them is used."""
    prompts = encoder.prompts
    named = [name for name, text in prompts.named.items() if text]
    if named and encoder.prompt is None and not prompts.default:
        logger.warning(
            f"The model has prompts ({', '.join(named)}), none of them its default: texts are "
            "embedded without. --prompt-name takes one."
        )


def _text_key(args: argparse.Namespace, files: list[Path | None]) -> str:
    """Return the key of the text; raise `CommandError` for options that have no effect here."""
    if None not in files:
        command.require_use(args, "without the input -", "--stdin-format")
    stdin = Path("stdin.jsonl") if args.stdin_format == "jsonl" else None
    return command.text_key(args, [file or stdin for file in files])


def _rows(args: argparse.Namespace, files: list[Path | None], key: str) -> Iterator[str | None]:
    """Yield the texts of all inputs; `None` is a record without a text."""
    from declutr.corpus.documents import SourceError, read_documents, read_stream

    bad: list[SourceError] = []
    told = False
    on_bad_row = bad.append if args.bad_rows == "blank" else None
    for file in files:
        if file is not None:
            rows = read_documents([file], key, "replace", on_bad_row)
        else:
            kind = "lines" if args.stdin_format == "jsonl" else "text"
            stream = sys.stdin.buffer
            rows = read_stream(stream, "standard input", kind, key, on_bad_row)
        for text in rows:
            if not bad:
                yield text
                continue
            if not told:
                logger.warning("Embedded as a blank text, and counted: %s", bad[0])
                told = True
            bad.clear()
            yield None


def _bytes_of_text(files: list[Path | None]) -> int | None:
    """Return the total size of the texts, or `None` if not all inputs are plain text files."""
    from declutr.corpus.compressed_files import is_compressed
    from declutr.corpus.documents import file_format

    size = 0
    for file in files:
        if file is None or file_format(file) != "text" or is_compressed(file):
            return None
        size += file.stat().st_size
    return size
