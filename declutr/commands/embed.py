"""`allennlp embed`: a row of numbers for each row of files, however many there are."""

from __future__ import annotations

import argparse
import importlib.metadata
import logging
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError

from declutr._version import __version__
from declutr.commands.separate_places import STDIN, require_apart
from declutr.commands.user_errors import set_command

if TYPE_CHECKING:  # loading these takes time that other commands need not spend
    from declutr.inference.bulk import Summary
    from declutr.inference.encoder import Encoder

logger = logging.getLogger(__name__)

_LIBRARIES = ("torch", "transformers", "numpy")


@Subcommand.register("embed")
class Embed(Subcommand):
    """Embeds files into a folder of shards, and goes on there after an interruption."""

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        description = (
            "Embed files with a trained model: one row out for each row in, in order, blank rows "
            "included. Embeddings are written to a folder, shard by shard. After an interruption, "
            "even kill -9, the same command goes on and does not embed finished shards again."
        )
        subparser = parser.add_parser(
            self.name,
            description=description,
            help="embed files",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog=_EPILOG,
        )
        add = subparser.add_argument
        add("model", metavar="MODEL", help="folder of a trained model, its model.tar.gz, see below")
        add("inputs", metavar="INPUT", nargs="+", help="a file, folder or glob, or - for stdin")
        add("-o", "--output", metavar="FOLDER", required=True, help="where embeddings go")
        add("--overwrite", action="store_true", help="remove embeddings there, and begin anew")
        add("--quiet", action="store_true", help="no progress bar, and no summary at the end")

        group = subparser.add_argument_group("input")
        add = group.add_argument
        add(
            "--text-key",
            default="text",
            metavar="KEY",
            help="of the text in JSON, tables and parquet",
        )
        add(
            "--stdin-format",
            choices=("text", "jsonl"),
            default="text",
            help="of the input - (default text: a text a line)",
        )
        add(
            "--bad-rows",
            choices=("error", "blank"),
            default="error",
            help="a record without a text, such as a broken line of JSON: stop there (default), or "
            "embed it as a blank text and count it",
        )

        group = subparser.add_argument_group("output")
        add = group.add_argument
        add("--format", choices=("npy", "parquet", "jsonl"), default="npy", help="default npy")
        add("--output-dtype", choices=("float32", "float16"), default="float32", help="of numbers")
        add(
            "--shard-rows",
            type=int,
            metavar="N",
            help="rows a file (default: what fits into 64 MiB, at most 65,536)",
        )

        group = subparser.add_argument_group("embedding")
        add = group.add_argument
        add(
            "--normalize",
            action=argparse.BooleanOptionalAction,
            help="scale embeddings to length 1 (default: as the model says)",
        )
        add("--truncate-dim", type=int, metavar="D", help="keep the first D numbers")
        add("--pooling", help="for transformers that are not trained with declutr: mean, cls, …")
        add("--prompt-name", metavar="NAME", help="of a prompt of the model (default: its default)")
        add("--prompt", metavar="TEXT", help="the prompt itself: it stands before every text")
        add("--no-whitening", action="store_true", help="leave out a whitening that is stored")
        add("--max-length", type=int, metavar="N", help="tokens a text (default: what it takes)")
        add(
            "--long-texts",
            choices=("truncate", "chunk"),
            default="truncate",
            help="longer texts are cut, at the tail unless the tokenizer says left (default), "
            "or are embedded in parts and averaged",
        )
        add(
            "--dtype",
            choices=("auto", "float32", "bfloat16", "int8"),
            default="auto",
            help="to compute in (default auto: bfloat16 where the device computes in it)",
        )
        add(
            "--device",
            nargs="+",
            metavar="DEVICE",
            help="cpu, cuda:0, …; several share the work (default: a GPU if there is one)",
        )
        add("--batch-tokens", type=int, metavar="N", help="tokens a batch")
        add("--revision", help="branch, tag or commit, for a name on the hub")
        add(
            "--trust",
            action="store_true",
            help="open an archive that would be refused as unsafe, for it is yours",
        )
        set_command(subparser, _run)
        return subparser


_EPILOG = """\
MODEL is also a folder of Hugging Face or sentence-transformers, or a name on the hub.
INPUT is text with a row a line, JSON lines or an array (.jsonl, .json), a table with a header
(.csv, .tsv), or parquet, told by its name; all but parquet may be compressed. Rename a table to
.txt, or give it as -, for its lines as they are. What is not UTF-8 (or, by its byte order mark,
UTF-16 or UTF-32) is embedded with U+FFFD, and counted.

Read what was written, whatever its format, with memory for what you take:
    from declutr.inference.bulk import StoredEmbeddings
    embeddings = StoredEmbeddings("FOLDER")  # embeddings[7], embeddings[:100], .blocks()"""


def _run(args: argparse.Namespace) -> None:
    from declutr.corpus.documents import SourceError
    from declutr.inference.bulk import EmbeddingFolderError, embed_rows
    from declutr.inference.bulk.shard_files import require
    from declutr.inference.text_embedding import not_told

    _check_numbers(args)
    try:
        require(args.format)
        files = _files(args.inputs)
    except (ImportError, SourceError) as error:
        raise ConfigurationError(str(error)) from error
    require_apart(args.inputs, files, Path(args.output))
    try:
        with not_told(), _encoder(args) as encoder:
            describe = encoder.describe()
            _tell_of_prompts(encoder)
            summary = embed_rows(
                encoder,
                _rows(args, files),
                args.output,
                dimension=encoder.dimension,
                # A model that was moved is the same: its content is in there too.
                describe={name: value for name, value in describe.items() if name != "place"},
                shard_rows=args.shard_rows,
                format=args.format,
                dtype=args.output_dtype,
                about={"model": args.model, "inputs": args.inputs, "versions": _versions()},
                truncated_texts=lambda: encoder.truncated_texts,
                total_bytes=_bytes_of_text(files),
                overwrite=args.overwrite,
                progress=not args.quiet,
            )
    except (EmbeddingFolderError, SourceError) as error:
        raise ConfigurationError(str(error)) from error
    except KeyboardInterrupt:
        print(
            f"\nStopped. Finished shards are in '{args.output}'; the same command goes on there.",
            file=sys.stderr,
        )
        raise
    if not summary.rows:
        logger.warning("The input has no rows: %s", ", ".join(args.inputs))
    if not args.quiet:
        print("\n".join(summary_lines(summary, args.format, describe["dtype"])))


def _check_numbers(args: argparse.Namespace) -> None:
    for option in ("shard_rows", "truncate_dim", "max_length", "batch_tokens"):
        value = getattr(args, option)
        if value is not None and value < 1:
            name = "--" + option.replace("_", "-")
            raise ConfigurationError(f"Expected a {name} of at least 1, got {value}.")


def _files(inputs: list[str]) -> list[Path | None]:
    """The files behind the inputs, in their order; `None` is standard input."""
    from declutr.corpus.documents import source_files

    if inputs.count(STDIN) > 1:
        raise ConfigurationError("Standard input (-) can be read once; it is given twice.")
    return [file for name in inputs for file in ([None] if name == STDIN else source_files(name))]


def _encoder(args: argparse.Namespace) -> Encoder:
    from declutr.archives.safety import UnsafeArchive
    from declutr.inference.encoder import Encoder, EncoderError

    try:
        return Encoder(
            args.model,
            normalize=args.normalize,
            truncate_dim=args.truncate_dim,
            pooling=args.pooling,
            whiten=False if args.no_whitening else None,
            max_length=args.max_length,
            long_texts=args.long_texts,
            dtype=args.dtype,
            device=args.device,
            batch_tokens=args.batch_tokens,
            trust=args.trust,
            revision=args.revision,
            prompt_name=args.prompt_name,
            prompt=args.prompt,
        )
    except (EncoderError, UnsafeArchive, OSError, tarfile.ReadError) as error:
        raise ConfigurationError(str(error)) from error


def _tell_of_prompts(encoder: Encoder) -> None:
    """Say which prompts there are, if none is put before texts and none was asked for."""
    prompts = encoder.prompts
    named = [name for name, text in prompts.named.items() if text]
    if named and encoder.prompt is None and not prompts.default:
        logger.warning(
            "The model has prompts (%s), none of them its default: texts are embedded without. "
            "--prompt-name takes one.",
            ", ".join(named),
        )


def _rows(args: argparse.Namespace, files: list[Path | None]) -> Iterator[str | None]:
    """All rows of all inputs; `None` is a record without a text."""
    from declutr.corpus.documents import SourceError, read_documents, read_stream

    bad: list[SourceError] = []
    told = False
    on_bad_row = bad.append if args.bad_rows == "blank" else None
    for file in files:
        if file is not None:
            rows = read_documents([file], args.text_key, "replace", on_bad_row)
        else:
            kind = "lines" if args.stdin_format == "jsonl" else "text"
            stream = sys.stdin.buffer
            rows = read_stream(stream, "standard input", kind, args.text_key, on_bad_row)
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
    """The size of all texts together, where files hold nothing else."""
    from fsspec.utils import infer_compression

    from declutr.corpus.documents import file_format

    size = 0
    for file in files:
        if file is None or file_format(file) != "text" or infer_compression(str(file)):
            return None
        size += file.stat().st_size
    return size


def _versions() -> dict[str, str]:
    libraries = {library: importlib.metadata.version(library) for library in _LIBRARIES}
    return {"declutr": __version__, **libraries}


def summary_lines(summary: Summary, format: str, dtype: str) -> list[str]:
    """What is said at the end: what there is, what was odd, how long it took, how to read it.

    # Parameters

    format : of the files.
    dtype : that embeddings were computed in.
    """
    folder, counts = summary.folder, summary.counts
    odd: dict[str, Any] = {
        "blank": counts.blank_rows,
        "cut to the length the model takes": counts.truncated_rows,
        "without a finite embedding (NaN)": counts.not_finite_rows,
        "with U+FFFD, mostly for bytes that are not UTF-8": counts.replaced_rows,
        "that could not be read (blank)": counts.unreadable_rows,
    }
    always = ("blank", "cut to the length the model takes", "without a finite embedding (NaN)")
    lines = [f"{summary.rows:,} rows in {summary.shards:,} files: {folder}"]
    if summary.rows:
        lines.append(f"  computed in {dtype}")
    lines += [f"  {rows:,} {what}" for what, rows in odd.items() if rows or what in always]
    kept = summary.rows - summary.embedded_rows
    if not summary.embedded_rows and kept:
        lines.append(f"  Nothing to do: all were embedded before ({summary.seconds:,.1f} s).")
    else:
        rate = summary.embedded_rows / max(summary.seconds, 1e-9)
        before = f", {kept:,} were there" if kept else ""
        lines.append(
            f"  {summary.embedded_rows:,} embedded in {summary.seconds:,.1f} s "
            f"({rate:,.0f} a second){before}"
        )
    if not summary.rows:
        return lines
    if format == "npy":
        pattern = str(folder / "embeddings-*.npy")
        lines += [
            "To read them:",
            "  import glob, numpy as np",
            "  embeddings = np.concatenate([np.load(file) for file in sorted(glob.glob("
            f"{pattern!r}))])",
        ]
    else:
        lines += [
            "To read them:",
            "  from declutr.inference.bulk import StoredEmbeddings",
            f"  embeddings = StoredEmbeddings({str(folder)!r})[:]",
        ]
    return lines
