"""A text corpus from the docstrings of installed Python packages: English text without a download.

Nothing is imported: packages are located by name, and their files are parsed with `ast`. Each
document is one module: the docstrings of the module, its classes and functions in source order,
with single spaces for white space. Folders of tests and of vendored packages are left out.

Docstrings are often copied, so only the first occurrence of a paragraph is kept, and a held-out
part of the corpus repeats little of the rest. In a typical environment, 8 % of its runs of 13 words
occur in the training part; if only whole docstrings were compared, it would be 14 %.
"""

import ast
import hashlib
import json
import logging
import multiprocessing
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from declutr.quickstart.python_sources import DEFAULT_PACKAGES, Source, find_sources
from declutr.quickstart.python_sources import STANDARD_LIBRARY as STANDARD_LIBRARY

logger = logging.getLogger(__name__)

_BLANK_LINES = re.compile(r"\n\s*\n")
_FILES_A_TASK = 32
_Found = tuple[str, list[str]]  # the name of what a docstring describes, and its paragraphs


class Docstring(NamedTuple):
    """The docstring of a module, class or function, in lines of single spaces."""

    name: str
    """The dotted name of what it describes."""

    summary: str
    """Its first paragraph."""

    body: str
    """The other paragraphs, which may be none."""


class Document(NamedTuple):
    """The docstrings of one module."""

    module: str
    """The dotted name of the module."""

    text: str
    """One line of words, separated by single spaces."""

    docstrings: tuple[Docstring, ...] = ()
    """Those whose first paragraph is in the text."""


class CorpusCounts(NamedTuple):
    """Counts of what `write_corpus` wrote and left out."""

    train_documents: int
    train_words: int
    validation_documents: int
    validation_words: int
    short_documents: int
    """Modules left out because they have fewer than `min_words` words."""
    duplicate_paragraphs: int
    """Paragraphs left out because they had appeared before, in any module."""
    unreadable_files: int
    """Files left out because they could not be read or parsed."""


def documents(
    packages: Sequence[str] = DEFAULT_PACKAGES, progress: bool = True, *, workers: int = 1
) -> Iterator[Document]:
    """Return an iterator over the docstrings of `packages`, one document per module.

    Modules without docstrings are left out.

    Args:
        packages: top-level import names, or `STANDARD_LIBRARY`. The order matters if two packages
            share a paragraph: the first one keeps it.
        progress: show a progress bar.
        workers: processes that parse. More than one needs a main module that is safe to import
            (``if __name__ == "__main__":``). The documents are the same for any number.

    Raises:
        ValueError: if none of the packages is installed. If only some are missing, they are logged.
    """
    return _documents(find_sources(packages), Counter(), progress, workers)


def write_corpus(
    packages: Sequence[str],
    train_path: str | Path,
    validation_path: str | Path,
    *,
    docstrings_path: str | Path | None = None,
    min_words: int = 64,
    validation_fraction: float = 0.1,
    seed: int = 0,
    progress: bool = True,
    workers: int = 1,
) -> CorpusCounts:
    """Write `documents` to two UTF-8 text files, one document per line.

    A hash of the module's name and `seed` decides which of the two files it goes to, so that adding
    a package moves no module of the others.

    Args:
        packages: see `documents`.
        train_path, validation_path: overwritten; missing folders are created.
        docstrings_path: a file for every `Docstring` of the two, as JSON lines, with
            its module and whether that is held out.
        min_words: documents of fewer words are left out.
        validation_fraction: expected share of modules in the validation file, in [0, 1].
        seed: the seed of the split.
        progress: show a progress bar.
        workers: see `documents`.

    Raises:
        ValueError: if none of the packages is installed, or for a fraction outside [0, 1].
    """
    if not 0 <= validation_fraction <= 1:
        raise ValueError(f"validation_fraction must lie in [0, 1], not {validation_fraction}.")
    sources = find_sources(packages)
    paths = {"train": Path(train_path), "validation": Path(validation_path)}
    for path in paths.values():
        path.parent.mkdir(parents=True, exist_ok=True)
    counts: Counter[str] = Counter(dict.fromkeys(CorpusCounts._fields, 0))
    with (
        open(docstrings_path or os.devnull, "w", encoding="utf-8") as single,
        paths["train"].open("w", encoding="utf-8", newline="\n") as train,
        paths["validation"].open("w", encoding="utf-8", newline="\n") as validation,
    ):
        for document in _documents(sources, counts, progress, workers):
            words = document.text.count(" ") + 1
            if words < min_words:
                counts["short_documents"] += 1
                continue
            held_out = _share(document.module, seed) < validation_fraction
            part, file = ("validation", validation) if held_out else ("train", train)
            file.write(document.text + "\n")
            for one in document.docstrings:
                about = {"module": document.module, "held_out": held_out}
                single.write(json.dumps({**one._asdict(), **about}) + "\n")
            counts.update({f"{part}_documents": 1, f"{part}_words": words})
    return CorpusCounts(**counts)


def docstrings(code: bytes) -> list[str]:
    """Return the docstrings of a module, its classes and functions in source order, not indented.

    Raises:
        SyntaxError, ValueError: if `code` is not a Python module.
    """
    return [text for _, text in _named_docstrings(code)]


def _named_docstrings(code: bytes) -> list[tuple[str, str]]:
    """Return the docstrings of a module with what they are of, such as `".Class.method"`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The code of others may have "\\d" in plain strings.
        tree = ast.parse(code)
    return list(_docstrings(tree, ""))


def _docstrings(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        name += "" if isinstance(node, ast.Module) else f".{node.name}"
        text = ast.get_docstring(node)
        if text:
            yield name, text
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler):  # Expressions hold no definitions.
            yield from _docstrings(child, name)


def _documents(
    sources: Sequence[Source], counts: Counter[str], progress: bool, workers: int
) -> Iterator[Document]:
    """Yield the documents of `sources`, and count in `counts` what is left out."""
    seen: set[bytes] = set()
    files = _parsed([source.path for source in sources], workers)
    bar = tqdm(files, "reading docstrings", len(sources), unit="file", disable=not progress)
    for source, (found, error) in zip(sources, bar, strict=True):
        if error:
            logger.info("%s left out: %s", source.path, error)
            counts["unreadable_files"] += 1
        kept, single = [], []
        for name, paragraphs in found:
            new = []
            for paragraph in paragraphs:
                digest = hashlib.blake2b(paragraph.encode(), digest_size=16).digest()
                if digest in seen:
                    counts["duplicate_paragraphs"] += 1
                else:
                    seen.add(digest)
                    new.append(paragraph)
            kept += new
            if new and new[0] == paragraphs[0]:
                single.append(Docstring(source.module + name, new[0], " ".join(new[1:])))
        if kept:
            yield Document(source.module, " ".join(kept), tuple(single))


def _parsed(paths: Sequence[Path], workers: int) -> Iterator[tuple[list[_Found], str]]:
    """Yield the result of `_paragraphs` for each file, in order."""
    if workers <= 1 or len(paths) <= _FILES_A_TASK:
        yield from map(_paragraphs, paths)
        return
    # Forking is unsafe if the caller has started threads of torch.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        yield from pool.map(_paragraphs, paths, chunksize=_FILES_A_TASK)


def _paragraphs(path: Path) -> tuple[list[_Found], str]:
    """Return the names and paragraphs of all docstrings of a file, and the error or ""."""
    try:
        found = _named_docstrings(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return [], str(error) or type(error).__name__
    split = ((name, map(_line, _BLANK_LINES.split(text))) for name, text in found)
    named = ((name, [line for line in lines if line]) for name, lines in split)
    return [(name, lines) for name, lines in named if lines], ""


def _line(paragraph: str) -> str:
    # Encoding with "replace" turns lone surrogates, which UTF-8 cannot hold, into "?".
    return " ".join(paragraph.encode("utf-8", "replace").decode().split())


def _share(module: str, seed: int) -> float:
    """Return a number in [0, 1) that depends on the module's name and the seed alone."""
    digest = hashlib.blake2b(f"{seed} {module}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
