"""Adapt a sentence encoder to a domain of which you have texts, and nothing else.

    python examples/domain_adaptation_from_texts.py --model distilroberta-base --texts docs.txt

Before and after, spans of held-out texts look for the span that stood beside them. Without --texts,
the domain is the documentation of Python's standard library, which lies on every machine.
"""

import argparse
from pathlib import Path

import declutr
from declutr.corpus.documents import read_documents, source_files
from declutr.evaluation.tasks.span_retrieval import adjacent_span_pairs, span_retrieval_accuracy
from declutr.quickstart.docstrings import STANDARD_LIBRARY, documents


def texts_of(path: Path | None) -> list[str]:
    """The documents at a path (one a line, JSON lines, parquet, ...) that are long enough."""
    if path is None:
        texts = [document.text for document in documents([STANDARD_LIBRARY])]
    else:
        texts = list(read_documents(source_files(path)))
    return [text for text in texts if len(text.split()) >= 256]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="distilroberta-base", help="a folder, or a hub name")
    parser.add_argument("--texts", type=Path, help="texts of your domain")
    parser.add_argument("--output", default="output/from_texts")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    args = parser.parse_args()

    texts = texts_of(args.texts)
    held_out, texts = texts[::10], [text for row, text in enumerate(texts) if row % 10]
    pairs = adjacent_span_pairs(held_out)
    before = span_retrieval_accuracy(declutr.Encoder(args.model), pairs)

    # DeCLUTR: spans of a text are positives of each other, those of other texts negatives. Texts of
    # a sentence or two want recipe="simcse", without the last three settings.
    encoder = declutr.train(
        texts,
        model=args.model,
        recipe="declutr",
        output=args.output,
        num_epochs=args.epochs,
        learning_rate=args.learning_rate,
        batch_size=8,
        max_span_len=64,
        min_span_len=16,
    )
    after = span_retrieval_accuracy(encoder, pairs)
    print(f"{len(texts)} texts. Spans that find their neighbour among {len(pairs.queries)}:")
    print(f"before {before:.1%}, after {after:.1%}")


if __name__ == "__main__":
    main()
