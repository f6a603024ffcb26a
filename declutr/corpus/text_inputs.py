"""Texts in memory: checks of what a user gives as texts, names of files, and blocks of texts.

The checks are needed because iterating over a DataFrame gives the names of its columns, over a dict
its keys, and over a string its characters. They recognise the classes of other packages without
importing them.
"""

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

logger = logging.getLogger(__name__)

_EXPECTED = "Expected texts: a list of strings, or a tuple, Series, array or generator of them"

_LONGEST_NAME = 4096  # Characters. No system has longer names.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")

# For each package, the call that turns a column into a list.
_AS_LIST = {"pandas": ".tolist()", "polars": ".to_list()", "pyarrow": ".to_pylist()"}


def as_texts(inputs: Any) -> list[str]:
    """Return a list of the texts; a single string is one text.

    # Raises

    `TypeError` : if the input is not an ordered collection of strings; the message says what to
        give instead.

    >>> as_texts("One text."), as_texts(("Two", "texts."))
    (['One text.'], ['Two', 'texts.'])
    """
    if isinstance(inputs, str):
        return [inputs]
    if type(inputs) is not list:
        require_rows(inputs)
    texts = list(inputs)
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise no_text(text, position)
    return texts


def require_rows(inputs: Any) -> None:
    """Raise if iterating over the input would not give texts, as far as its type tells.

    # Raises

    `TypeError` : if it would give something else or cannot be iterated over.
    """
    told = _told(inputs)
    if told:
        raise TypeError(f"{_EXPECTED}; got {told}.")


def no_text(value: Any, position: int) -> TypeError:
    """Return the error for a value among texts that is not a string, at a position from 0."""
    name = type(value).__name__
    if isinstance(value, (bytes, bytearray)):
        what = "decode it: value.decode('utf-8')"
    elif _is_missing(value):
        name = "nan" if isinstance(value, float) else name
        what = 'a missing text? Leave it out, or give "" (of a Series: series.fillna(""))'
    elif isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) != 0:
        what = "texts are not nested: join its parts, or give a flat list"
    elif isinstance(value, Mapping):
        what = "give the text in it"
    else:
        what = "give str(value) if it stands for a text"
    return TypeError(f"Expected strings, got {name} at position {position}: {what}.")


def _told(inputs: Any) -> str:
    """Return what is wrong with the input and what to give instead; `""` if nothing is."""
    name = type(inputs).__name__
    if isinstance(inputs, str):
        return "a single one; put it in a list"
    if isinstance(inputs, os.PathLike):
        read = "read_documents(source_files(path), encoding_errors='replace')"
        return f"{name}; the texts of a file come from declutr.corpus.documents: {read}"
    if isinstance(inputs, (bytes, bytearray, memoryview)):
        return f"{name}; decode it, inputs.decode('utf-8')"
    if isinstance(inputs, Mapping):
        return f"{name} with the keys {_some(inputs)}; give list(inputs.values()), or one of them"
    columns = _columns(inputs)
    if columns is not None:
        column = columns[0] if columns and "text" not in columns else "text"
        last = _AS_LIST.get(type(inputs).__module__.partition(".")[0], "")
        return f"{name} with the columns {_some(columns)}; give one: frame[{_quoted(column)}]{last}"
    if isinstance(inputs, (set, frozenset)):
        return f"{name}, which has no order; give a list, such as sorted(inputs)"
    dimensions = getattr(inputs, "ndim", 1)
    if dimensions != 1:
        shape = tuple(getattr(inputs, "shape", ()))
        return f"{name} of shape {shape}; give one dimension: array.ravel().tolist() or array[:, 0]"
    if not isinstance(inputs, Iterable) and not hasattr(inputs, "__getitem__"):
        return name
    return ""


def _columns(inputs: Any) -> list[Any] | None:
    """Return the names of the columns of a table; `None` if the input is not a table."""
    if getattr(inputs, "ndim", None) == 1:  # `columns` may be a label of a Series.
        return None
    # datasets and pyarrow have `column_names` (`columns` of pyarrow are the data); pandas, polars
    # and Spark have `columns`.
    for name in ("column_names", "columns"):
        columns = getattr(inputs, name, None)
        if columns is not None and not callable(columns):
            return list(columns)
    return None


def _is_missing(value: Any) -> bool:
    missing = value is None or type(value).__name__ in ("NAType", "NaTType")
    return missing or (isinstance(value, float) and value != value)


def _quoted(column: Any) -> str:
    return f'"{column}"' if isinstance(column, str) else repr(column)


def _some(names: Iterable[Any]) -> str:
    names = list(names)
    return repr(names[:10])[:-1] + (", …]" if len(names) > 10 else "]")


@dataclass
class NamedFiles:
    """A check of inputs that warns once about a text that names a file.

    # Parameters

    instead : what to do if the file was meant, for the warning.
    """

    instead: str
    _told: bool = False

    def texts(self, inputs: Any) -> Any:
        """Return the texts of the files at a path, and any other input as it is.

        Only an `os.PathLike` is a path. A string is never opened, whatever it names, because texts
        may be untrusted.

        # Raises

        `declutr.corpus.documents.SourceError` (a `ValueError`) : if nothing is at the path, or it
            cannot be read.
        """
        if isinstance(inputs, os.PathLike):
            from declutr.corpus.documents import read_documents
            from declutr.corpus.source_files import source_files

            return list(read_documents(source_files(inputs), encoding_errors="replace"))
        if isinstance(inputs, str) and not self._told and names_a_file(inputs):
            self._told = True
            logger.warning(
                f"{inputs!r} names a file, and is embedded as the text it is. If its lines were "
                f"meant: {self.instead}. Further names are not told of."
            )
        return inputs


def names_a_file(text: str) -> bool:
    """Return whether a text is the name of an existing file, or a URL and nothing else.

    Any text is allowed, including one that cannot be a file name.
    """
    if len(text) > _LONGEST_NAME or "\n" in text:
        return False
    # `isfile` returns false for NUL bytes, lone surrogates and components that are too long.
    return os.path.isfile(text) or _URL.fullmatch(text) is not None


def text_blocks(texts: Iterable[str], most: int, characters: int) -> Iterator[list[str]]:
    """Yield lists of consecutive texts.

    # Parameters

    texts : the texts.
    most : a list is full with this many texts.
    characters : a list is full with the text that brings it to this many characters.
    """
    block: list[str] = []
    held = 0
    for text in texts:
        block.append(text)
        held += len(text)
        if len(block) == most or held >= characters:
            yield block
            block, held = [], 0
    if block:
        yield block
