"""Adapt a sentence encoder with pairs of texts that belong together: questions and answers.

    python examples/domain_adaptation_from_pairs.py --model distilroberta-base --pairs faq.csv

The file is a table with the columns anchor and positive. Before and after, held-out anchors look
for their positive among all held-out ones. Without --pairs, the anchor is the first sentence of a
docstring of Python's standard library, and the positive is the rest of it.
"""

import argparse
from pathlib import Path

import declutr
from declutr.corpus.documents import source_files
from declutr.corpus.tables import read_rows
from declutr.evaluation.tasks.span_retrieval import SpanPairs, span_retrieval_accuracy
from declutr.quickstart.docstrings import STANDARD_LIBRARY, docstrings
from declutr.quickstart.python_sources import find_sources

Pair = tuple[str, str]


def pairs_of(path: Path | None) -> list[Pair]:
    """The pairs in a table (CSV, TSV, JSON lines, parquet), or those of the standard library."""
    if path is not None:
        return [(row.text("anchor"), row.text("positive")) for row in read_rows(source_files(path))]
    pairs: dict[str, str] = {}
    for source in find_sources([STANDARD_LIBRARY]):
        for text in docstrings(source.path.read_bytes()):
            first, _, rest = " ".join(text.split()).partition(". ")
            if len(first.split()) >= 5 and len(rest.split()) >= 10:
                pairs.setdefault(rest, first)
    return [(first, rest) for rest, first in pairs.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="distilroberta-base", help="a folder, or a hub name")
    parser.add_argument("--pairs", type=Path, help="a table with the columns anchor and positive")
    parser.add_argument("--output", default="output/from_pairs")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    args = parser.parse_args()

    pairs = pairs_of(args.pairs)
    held_out, pairs = pairs[::10], [pair for row, pair in enumerate(pairs) if row % 10]
    questions = SpanPairs([anchor for anchor, _ in held_out], [text for _, text in held_out])
    before = span_retrieval_accuracy(declutr.Encoder(args.model), questions)

    # InfoNCE: the positives of the other pairs of a batch are the negatives. Without `format`, the
    # recipe takes rows of (anchor, positive); with dataset_reader.negative="negative", of three.
    encoder = declutr.train(
        pairs,
        model=args.model,
        recipe="simcse_supervised",
        output=args.output,
        num_epochs=args.epochs,
        learning_rate=args.learning_rate,
        batch_size=32,
        **{"dataset_reader.format": None, "dataset_reader.tokenizer.max_length": 128},
    )
    after = span_retrieval_accuracy(encoder, questions)
    print(f"{len(pairs)} pairs. Anchors that find their positive among {len(held_out)}:")
    print(f"before {before:.1%}, after {after:.1%}")


if __name__ == "__main__":
    main()
