"""The command `export`, which writes a model for transformers, sentence-transformers and ONNX."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from declutr.commands.command import Command, told_to_user
from declutr.inference import is_archive

_TOLERANCE = 1e-5


class Export(Command):
    """A command that exports a model to a folder for other tools and compares the results."""

    name = "export"
    description = (
        "Write a trained model to a folder that is at once a Hugging Face folder, a "
        "sentence-transformers folder and an ONNX model with pooling inside, with a model "
        "card. Each part is loaded back and compared with the model; if one embeds "
        "differently, the export fails and nothing is written."
    )
    epilog = """\
ARCHIVE may also be a folder of transformers or sentence-transformers: it is written again in the
same layout, with ONNX and a card. ONNX needs packages: pip install 'declutr[onnx]'; without them,
and without --onnx, it is left out.

Compared are about 60 texts of 0 to 600 words in a dozen languages, in float32 on the CPU. The
tolerance is for the largest absolute difference, divided by the largest number in an embedding
where that is above 1.

Training can start from OUT: declutr train RECIPE docs.txt --transformer OUT -s FOLDER."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("archive", metavar="ARCHIVE", help="a model.tar.gz, a serialization or another folder")
        add("output", metavar="OUT", help="the folder to write")
        add("--normalize", action="store_true", help="scale embeddings to length 1")
        add("--no-whitening", action="store_true", help="leave out a whitening stored with it")
        add(
            "--truncate-dim", type=int, metavar="D", help="keep the first D numbers, before scaling"
        )
        add(
            "--dtype",
            choices=("float32", "float16", "int8"),
            default="float32",
            help="of a static encoder's table on disk (float32)",
        )
        onnx = parser.add_mutually_exclusive_group()
        onnx.add_argument(
            "--onnx", action="store_true", default=None, help="fail if no ONNX model can be made"
        )
        onnx.add_argument("--no-onnx", dest="onnx", action="store_false", help="make no ONNX model")
        add(
            "--tolerance",
            type=float,
            default=_TOLERANCE,
            metavar="X",
            help=f"largest difference allowed, see below (default {_TOLERANCE:g})",
        )
        add("--texts", metavar="FILE", help="compare on these texts too, as `declutr embed` reads")
        add("--scores", metavar="FOLDER", help="of evaluate-embeddings, for the model card")
        add("--overwrite", action="store_true", help="replace an earlier export at OUT")
        add("--trust", action="store_true", help="the model is yours: it may name code to run")

    def needs_allennlp(self, args: argparse.Namespace) -> bool:
        return is_archive(args.archive)

    def run(self, args: argparse.Namespace) -> None:
        # These load transformers, and every `allennlp` command loads this module.
        from declutr.export import ExportDiffers, export_model

        with told_to_user(ValueError, FileNotFoundError):  # raised for the model, OUT or texts
            try:
                exported = export_model(
                    args.archive,
                    args.output,
                    normalize=args.normalize,
                    whiten=not args.no_whitening,
                    truncate_dim=args.truncate_dim,
                    dtype=args.dtype,
                    onnx=args.onnx,
                    tolerance=args.tolerance,
                    texts=_texts(args.texts),
                    scores=args.scores,
                    overwrite=args.overwrite,
                    trust=args.trust,
                    say=lambda step: print(f"{step} ...", file=sys.stderr),
                )
            except ExportDiffers as error:
                print(f"{error.comparison.table()}\n")
                print(error, file=sys.stderr)
                sys.exit(1)
        notes, table = exported.notes, exported.comparison.table()
        print("\n".join([*notes, table, f"\nWritten: {args.output}"]))


def _texts(file: str | None) -> list[str]:
    from declutr.corpus.documents import read_documents
    from declutr.corpus.source_files import source_files

    return [] if file is None else list(read_documents(source_files(Path(file))))
