"""Make a small RoBERTa checkpoint from scratch: a tokenizer trained on text, and random weights.

    python scripts/make_checkpoint.py corpus.txt --output checkpoint/ --layers 4 --hidden-size 256

The folder loads with AutoTokenizer, AutoModel and AutoModelForMaskedLM, as one from a hub does.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from declutr.quickstart.small_checkpoints import make_checkpoint, train_tokenizer


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argument_parser()
    options = parser.parse_args(arguments)
    for path in options.texts:
        if not path.is_file():
            parser.error(f"there is no file {path}.")
        if path.stat().st_size == 0:
            parser.error(f"the file {path} is empty.")
    folder: Path = options.output
    if folder.exists() and not folder.is_dir():
        parser.error(f"{folder} is a file; --output must be a folder.")
    if folder.exists() and any(folder.iterdir()) and not options.force:
        parser.error(f"the folder {folder} is not empty; give --force to write into it.")
    try:
        tokenizer = train_tokenizer(
            lines(options.texts), options.vocab_size, max_length=options.max_length
        )
        model = make_checkpoint(
            folder,
            tokenizer,
            layers=options.layers,
            hidden_size=options.hidden_size,
            heads=options.heads,
            intermediate_size=options.intermediate_size,
            max_length=options.max_length,
            seed=options.seed,
            dropout=options.dropout,
        )
    except (ValueError, OSError) as error:
        parser.error(str(error))
    print(f"{folder}: {len(tokenizer)} tokens, {model.num_parameters()} parameters")


def lines(paths: Sequence[Path]) -> Iterator[str]:
    for path in paths:
        with path.open(encoding="utf-8") as file:
            yield from file


def argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("texts", type=Path, nargs="+", help="UTF-8 text files to train the tokenizer on")
    add("--output", type=Path, required=True, help="folder to write")
    add("--vocab-size", type=int, default=8192, help="tokens at most (default: %(default)s)")
    add("--layers", type=int, default=4, help="(default: %(default)s)")
    add("--hidden-size", type=int, default=256, help="(default: %(default)s)")
    add("--heads", type=int, default=4, help="attention heads (default: %(default)s)")
    add("--intermediate-size", type=int, help="feed-forward width (default: 4 * hidden size)")
    add("--max-length", type=int, default=512, help="tokens, specials included (default: 512)")
    add("--dropout", type=float, default=0.1, help="(default: %(default)s)")
    add("--seed", type=int, default=0, help="of the random weights (default: %(default)s)")
    add("--force", action="store_true", help="write into a folder that is not empty")
    return parser


if __name__ == "__main__":
    main()
