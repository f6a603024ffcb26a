"""Local text to measure on: the docstrings of installed packages, or a file of yours."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.inputs import DOCUMENT_TOKENS, save_checkpoint

TOKENIZER_BYTES = 20_000_000
"""How much text a tokenizer is trained on at most."""


def workspace() -> Path:
    """Where benchmarks put what they make and may use again; safe to delete."""
    folder = Path(tempfile.gettempdir(), "declutr-benchmarks")
    folder.mkdir(exist_ok=True)
    return folder


def corpus_file(data: str | None = None) -> Path:
    """`data`, or the docstrings of the installed packages, one document a line.

    Raises:
        FileNotFoundError: if `data` names no file.
    """
    if data is not None:
        if not Path(data).is_file():
            raise FileNotFoundError(
                f"--data {data}: expected a text file with one document a line. Without --data "
                "the docstrings of the installed packages are used."
            )
        return Path(data)
    file = workspace() / "docstrings.txt"
    if not file.exists():
        from declutr.quickstart.docstrings import DEFAULT_PACKAGES, write_corpus

        partial = file.with_suffix(".partial")
        write_corpus(DEFAULT_PACKAGES, partial, workspace() / "validation.txt", workers=2)
        partial.replace(file)
    return file


def lines(file: Path, most_bytes: int | None = None) -> Iterator[str]:
    """The lines of a text file, without their ends; no more than so many bytes of it."""
    read = 0
    with file.open("rb") as stream:
        for line in stream:
            read += len(line)
            yield line.decode("utf-8", "replace").strip()
            if most_bytes is not None and read >= most_bytes:
                return


def checkpoint(file: Path, shape: str) -> Path:
    """A transformer of random weights with a tokenizer trained on the file; made once."""
    folder = workspace() / f"{file.stem}-{file.stat().st_size}-{shape}"
    if not (folder / "tokenizer_config.json").exists():
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        save_checkpoint(partial, shape, list(lines(file, TOKENIZER_BYTES)))
        partial.replace(folder)
    return folder


def documents_of_words(file: Path, count: int, words: int = DOCUMENT_TOKENS) -> list[str]:
    """Documents of so many words each, cut from the text of `file` without gaps.

    Text that is too short for `count` documents is repeated.
    """
    endless = itertools.chain.from_iterable(lines(file) for _ in itertools.count())
    stream = (word for line in endless for word in line.split())
    return [" ".join(itertools.islice(stream, words)) for _ in range(count)]


def documents_of_tokens(
    file: Path, tokenizer_folder: Path, count: int, tokens: int = DOCUMENT_TOKENS
) -> list[str]:
    """Documents of at least so many word pieces each, and hardly more."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    documents = []
    for text in documents_of_words(file, count, tokens):  # a word has one piece or more
        encoded = tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        end = encoded["offset_mapping"][tokens - 1][1]
        tail = text[end:].partition(" ")[0]  # whole words, so that it is tokenised alike again
        documents.append(text[:end] + tail)
    return documents


def write_documents(documents: list[str], file: Path) -> Path:
    """One document a line."""
    file.write_text("\n".join(documents) + "\n", encoding="utf-8")
    return file
