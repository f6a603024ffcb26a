"""Adapt a sentence encoder with texts that have labels, so that equal labels lie together.

    python examples/domain_adaptation_from_labels.py --model distilroberta-base --rows tickets.csv

The file is a table with the columns text and label, where labels are names. Before and after, the
nearest labelled text tells the label of held-out ones. Without --rows, texts are the docstrings of
some modules of Python's standard library, and labels the names of the modules.
"""

import argparse
from pathlib import Path

import numpy as np

import declutr
from declutr.corpus.documents import source_files
from declutr.corpus.tables import read_rows
from declutr.quickstart.docstrings import STANDARD_LIBRARY, docstrings
from declutr.quickstart.python_sources import find_sources

MODULES = ("asyncio", "email", "http", "tkinter", "unittest", "xml", "logging", "importlib")
Row = tuple[str, str]


def rows_of(path: Path | None) -> list[Row]:
    """The texts and labels in a table, or those of the standard library."""
    if path is not None:
        return [(row.text("text"), row.text("label")) for row in read_rows(source_files(path))]
    rows: dict[str, str] = {}
    for source in find_sources([STANDARD_LIBRARY]):
        module = source.module.partition(".")[0]
        if module in MODULES:
            rows |= {
                " ".join(text.split()): module for text in docstrings(source.path.read_bytes())
            }
    return list(rows.items())


def accuracy(encoder: declutr.Encoder, known: list[Row], asked: list[Row]) -> float:
    """The share of texts whose nearest known text has the same label."""
    labels = np.array([label for _, label in known])
    unit = [
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        for vectors in (encoder([text for text, _ in rows]) for rows in (asked, known))
    ]
    nearest = (unit[0] @ unit[1].T).argmax(axis=1)
    return float(np.mean(labels[nearest] == [label for _, label in asked]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="distilroberta-base", help="a folder, or a hub name")
    parser.add_argument("--rows", type=Path, help="a table with the columns text and label")
    parser.add_argument("--output", default="output/from_labels")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=3e-5)
    args = parser.parse_args()

    rows = rows_of(args.rows)
    held_out, rows = rows[::10], [row for number, row in enumerate(rows) if number % 10]
    before = accuracy(declutr.Encoder(args.model), rows, held_out)

    # Supervised contrast: all texts of a batch with the same label are positives of each other.
    encoder = declutr.train(
        rows,
        model=args.model,
        recipe="sup_con",
        output=args.output,
        num_epochs=args.epochs,
        learning_rate=args.learning_rate,
        batch_size=32,
    )
    after = accuracy(encoder, rows, held_out)
    print(f"{len(rows)} texts. Held-out texts, {len(held_out)}, with the label of the nearest one:")
    print(f"before {before:.1%}, after {after:.1%}")


if __name__ == "__main__":
    main()
