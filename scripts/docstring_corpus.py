"""Make a training and a validation text file from the docstrings of installed packages.

    python scripts/docstring_corpus.py train.txt validation.txt

One document a line, one document a module. Nothing is downloaded and nothing imported.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from declutr.quickstart.docstrings import DEFAULT_PACKAGES, STANDARD_LIBRARY, write_corpus
from declutr.system.processors import usable_processors


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argument_parser()
    options = parser.parse_args(arguments)
    taken = [str(path) for path in (options.train, options.validation) if path.exists()]
    if taken and not options.force:
        parser.error(f"{' and '.join(taken)} exist already; give --force to overwrite.")
    try:
        counts = write_corpus(
            options.packages,
            options.train,
            options.validation,
            min_words=options.min_words,
            validation_fraction=options.validation_fraction,
            seed=options.seed,
            workers=options.workers,
        )
    except (ValueError, OSError) as error:
        parser.error(str(error))
    print(f"{options.train}: {counts.train_documents} documents, {counts.train_words} words")
    print(
        f"{options.validation}: {counts.validation_documents} documents, "
        f"{counts.validation_words} words"
    )
    print(
        f"left out: {counts.short_documents} documents below {options.min_words} words, "
        f"{counts.duplicate_paragraphs} repeated paragraphs, {counts.unreadable_files} unreadable "
        "files"
    )


def argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", type=Path, help="file to write for training")
    parser.add_argument("validation", type=Path, help="file to write for validation")
    parser.add_argument(
        "--packages",
        nargs="+",
        default=DEFAULT_PACKAGES,
        metavar="NAME",
        help=f"import names of installed packages; {STANDARD_LIBRARY!r} is Python's own library "
        "(default: it and about seventy others, those not installed left out)",
    )
    parser.add_argument(
        "--min-words", type=int, default=64, help="shortest document (default: %(default)s)"
    )
    parser.add_argument(
        "--validation-fraction",
        type=float,
        default=0.1,
        help="expected share of documents for validation (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the split (default: %(default)s)")
    parser.add_argument(
        "--workers",
        type=int,
        default=usable_processors(),
        help="processes (default: one a processor, here %(default)s)",
    )
    parser.add_argument("--force", action="store_true", help="overwrite existing files")
    return parser


if __name__ == "__main__":
    main()
