"""The command `sample-spans`, which shows the spans that a recipe draws, before training."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from declutr.commands.command import Command, require_at_least_1
from declutr.commands.errors import CommandError

if TYPE_CHECKING:  # importing these takes time, and every `allennlp` command loads this module
    import numpy as np

    from declutr.data.span_reader import DeCLUTRDatasetReader

_DRAWS = 1000  # documents drawn to measure the coverage, which takes a tenth of a second


class SampleSpans(Command):
    """A command that prints anchors with their positives, hard negatives and an easy negative.

    It follows appendix B of the DeCLUTR paper (Giorgi et al., 2021).
    """

    name = "sample-spans"
    description = (
        "Print sampled anchors with their positives, the hard negatives (spans of the same "
        "document that belong to another anchor) and an easy negative (of another document). "
        "Then, how often spans cover each eighth of a document (see docs/SAMPLING.md)."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("param_path", help="a training recipe with a declutr dataset reader")
        add("--data", help="documents; by default the recipe's train_data_path")
        add("-o", "--overrides", default="", help="a JSON structure that overrides the recipe")
        add("--documents", type=int, default=2, help="how many (default 2)")
        add("--epoch", type=int, default=0, help="of this epoch (default 0)")
        add("--width", type=int, default=100, help="of the text (default 100)")

    def needs_allennlp(self, args: argparse.Namespace) -> bool:
        return True

    def run(self, args: argparse.Namespace) -> None:
        from allennlp.common import Params
        from allennlp.data import DatasetReader

        from declutr.data.span_reader import DeCLUTRDatasetReader
        from declutr.runs.first_tables import use_first_table

        require_at_least_1(args, "--documents", "--width")
        if args.epoch < 0:
            raise CommandError(f"Expected an --epoch of 0 or more, got {args.epoch}.")
        try:
            params = Params.from_file(args.param_path, args.overrides)
        except RuntimeError as error:  # raised by Jsonnet
            raise CommandError(f"{args.param_path} cannot be read: {error}") from error
        path = args.data or params.get("train_data_path")
        if not path:
            raise CommandError(
                "No documents: the recipe has no train_data_path. Name a file with --data."
            )
        use_first_table(params.params, path)
        reader = DatasetReader.from_params(params.pop("dataset_reader"))
        if not isinstance(reader, DeCLUTRDatasetReader) or not reader.sample_spans:
            raise CommandError(
                f"{args.param_path} does not sample spans: expected a dataset reader of type "
                '"declutr" with num_anchors.'
            )
        for line in describe_spans(reader, path, args.documents, args.epoch, args.width):
            print(line)
        for line in describe_coverage(reader, path, args.epoch):
            print(textwrap.fill(line, width=args.width, subsequent_indent="  "))


def describe_spans(
    reader: DeCLUTRDatasetReader, path: str, documents: int, epoch: int, width: int = 100
) -> Iterator[str]:
    """Yield the lines in which `sample-spans` prints the spans of some documents.

    Spans are printed as half-open intervals of tokens, with their position relative to the anchor.
    """
    import numpy as np

    from declutr.sampling.span_geometry import view_kind

    rows = reader.documents(path)
    rng = np.random.default_rng((epoch, len(rows)))
    chosen = rng.permutation(rows)[: documents + 1].tolist()
    drawn = {row: reader.sample(path, row, epoch) for row in chosen}
    corpus = reader.corpus(path)

    def quote(row: int, span: np.ndarray, label: str) -> str:
        start, end = span.tolist()
        text = reader._codec.decode(corpus[row], start, end)
        head = f"  {label} [{start}, {end}): "
        return textwrap.fill(head + " ".join(text.split()), width=width, subsequent_indent="      ")

    for number, row in enumerate(chosen[:documents]):
        anchors, positives = drawn[row]
        yield f"\nDocument {row + 1}, {corpus.num_tokens[row]} tokens"
        for index, anchor in enumerate(anchors):
            yield quote(row, anchor, f"anchor {index + 1}")
            for positive in positives[index]:
                kind = view_kind(anchor.tolist(), positive.tolist())
                yield quote(row, positive, f"positive ({kind})")
            for other in range(len(anchors)):
                if other != index:
                    yield quote(row, anchors[other], "hard negative (an anchor)")
                    for positive in positives[other]:
                        yield quote(row, positive, "hard negative (a positive of it)")
            elsewhere = chosen[(number + 1) % len(chosen)]
            if elsewhere != row:
                label = f"easy negative (document {elsewhere + 1})"
                yield quote(elsewhere, drawn[elsewhere].anchors[0], label)
            yield ""


def describe_coverage(reader: DeCLUTRDatasetReader, path: str, epoch: int) -> Iterator[str]:
    """Yield lines on how many anchors and positives cover each eighth of a document, on average.

    The means are over 1,000 draws. If there are fewer documents, all of them are drawn again in the
    following epochs.
    """
    import numpy as np

    from declutr.sampling.span_geometry import EIGHTHS, coverage

    rows = reader.documents(path)
    rows = np.random.default_rng((epoch, len(rows))).permutation(rows)[:_DRAWS].tolist()
    lengths = reader.corpus(path).num_tokens
    anchors, positives = np.zeros(EIGHTHS), np.zeros(EIGHTHS)
    for number in range(_DRAWS):
        row = rows[number % len(rows)]
        drawn = reader.sample(path, row, epoch + number // len(rows))
        anchors += coverage(drawn.anchors, int(lengths[row]))
        positives += coverage(drawn.positives, int(lengths[row]))
    yield f"By eighths of a document, how many spans a token is in (mean of {_DRAWS:,} draws):"
    for name, sums in (("anchors", anchors), ("positives", positives)):
        yield f"  {name + ':':<11}{'  '.join(f'{value:.2f}' for value in sums / _DRAWS)}"
