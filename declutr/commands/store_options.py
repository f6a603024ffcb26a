"""The options of a command on the folder where embeddings are kept."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from declutr.commands.errors import CommandError

if TYPE_CHECKING:
    from declutr.embedding_store import EmbeddingStore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--store`, `--no-store` and `--store-limit`."""
    about = "where embeddings are kept, for other runs too (default OUTPUT/embeddings)"
    parser.add_argument("--store", metavar="FOLDER", help=about)
    parser.add_argument("--no-store", action="store_true", help="keep no embeddings")
    about = "remove the least recently used embeddings above so many gigabytes at the end"
    parser.add_argument("--store-limit", type=float, metavar="GB", help=about)


def check(args: argparse.Namespace) -> None:
    """Raise `CommandError` if options contradict each other, or the limit is below 0."""
    for name in ("store", "store_limit"):
        if args.no_store and getattr(args, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise CommandError(f"Got {option} with --no-store; give one of them.")
    if args.store_limit is not None and args.store_limit < 0:
        raise CommandError(
            f"Expected 0 or more gigabytes as --store-limit, got {args.store_limit:g}."
        )


def opened(args: argparse.Namespace, output: Path) -> EmbeddingStore | None:
    """Return the store that the options ask for; `None` for `--no-store`.

    # Raises

    `CommandError` : its folder cannot be made.
    """
    from declutr.embedding_store import EmbeddingStore, StoreError

    if args.no_store:
        return None
    try:
        return EmbeddingStore(args.store or output / "embeddings")
    except StoreError as error:
        raise CommandError(
            f"{error} Choose another folder as --store, or give --no-store."
        ) from error


def shrink(args: argparse.Namespace, store: EmbeddingStore | None) -> None:
    """Remove what `--store-limit` asks for, and print how much."""
    if store is None or args.store_limit is None:
        return
    if removed := store.shrink(round(args.store_limit * 1e9)):
        print(f"{store.folder}: {removed / 1e6:,.1f} MB removed, {store.size / 1e6:,.1f} MB left")
