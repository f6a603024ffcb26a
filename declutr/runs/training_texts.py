"""Texts in memory as files that the reader of a recipe takes, and a held-out share of texts.

Documents and pairs become JSON lines, in which a text may hold line ends. The files lie with the
run, so that it can be resumed when the texts are not in memory any more.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from declutr.bridge.component_names import short
from declutr.corpus import SourceError, without_surrogates
from declutr.corpus.documents import read_documents
from declutr.corpus.source_files import source_files
from declutr.corpus.tables import read_rows
from declutr.corpus.text_inputs import names_a_file, no_text, require_rows
from declutr.runs.pair_columns import columns_of, text_columns
from declutr.runs.recipe_parameters import as_json
from declutr.system.files import write_whole

NAMES = ("train.jsonl", "validation.jsonl")
"""The names of the files of texts."""

_READERS_OF_TEXTS = ("declutr", "sentences", "augmented", "text_lines")
_READER_OF_PAIRS = "text_pairs"
_DRAWN_BY = 13370  # the seed of the held-out share, the same for all seeds of training

Record = dict[str, Any]


class TextFiles:
    """The texts of a run, as files.

    # Parameters

    reader : the configuration of the recipe's dataset reader.
    follows : whether batches hold texts that follow each other.
    """

    def __init__(self, reader: Mapping[str, Any], follows: bool = False) -> None:
        self._reader = reader
        self._kind = str(short(reader.get("type")))
        self._follows = follows or bool(reader.get("positives"))

    @functools.cached_property
    def _columns(self) -> list[str]:
        """The columns of a pair in the order of its tuple; none for a reader of texts."""
        return columns_of(self._reader) if self._kind == _READER_OF_PAIRS else []

    @property
    def texts_read(self) -> list[str]:
        """The keys or columns of the texts of a record, in order."""
        key = str(self._reader.get("text_key", "text"))
        return text_columns(self._reader) if self._columns else [key]

    def texts(self, path: Any) -> Iterator[str]:
        """Yield the texts of files that are not blank; of pairs, those of both sides.

        # Raises

        `SourceError` : the files lack a column, or cannot be read.
        `TypeError` : the reader takes no files of texts.
        """
        self._require_known("has no texts to make a first table of")
        try:
            names = self.texts_read
            for record in self._read(path):
                found = (record[name] for name in names)
                yield from (text for text in found if isinstance(text, str) and text.strip())
        except ValueError as error:
            told = isinstance(error, SourceError)
            raise error if told else SourceError(f"'{path}': {error}") from error

    def write(self, folder: Path, data: Any, validation: Any) -> tuple[Any, Any]:
        """Write what is in memory to files in a folder.

        # Parameters

        folder : the folder, which is made if there is something to write.
        data, validation : paths, which are left where they are, or texts in memory; for validation
            also `None`, or the share of the data that is held out, such as 0.1.

        # Returns

        For each of the two: its path, if it was given as one; the name of its file in the folder;
        or `None`.

        # Raises

        `TypeError`, `ValueError` : the texts are not what the reader takes.
        """
        places: list[Any] = [as_path(data), as_path(validation)]
        shared = isinstance(validation, (int, float))
        if shared:
            rows = list(self._rows(data) if places[0] is None else self._read(places[0]))
            held = self._held_out(rows, float(validation))
            data = [row for number, row in enumerate(rows) if number not in held]
            validation = [row for number, row in enumerate(rows) if number in held]
            places = [None, None]
        given: dict[str, Iterable[Record]] = {
            name: self._rows(texts)
            for name, texts, place in zip(NAMES, (data, validation), places, strict=True)
            if place is None and texts is not None
        }
        if given and self._reader.get("labels") == "class":
            given = {**self._with_class_numbers(given)}
        for number, name in enumerate(NAMES):
            if name in given:
                folder.mkdir(parents=True, exist_ok=True)
                write_whole(folder / name, functools.partial(_write, given[name]))
                places[number] = name
        return places[0], places[1]

    def _rows(self, data: Any) -> Iterator[Record]:
        """Yield the records of texts or pairs in memory."""
        self._require_known(f"takes files, got {type(data).__name__}. Give the path of its file")
        if isinstance(data, (list, tuple)) and data and all(map(_names_a_file, data)):
            raise ValueError(
                f"All {len(data)} texts name files, the first is {data[0]!r}. A string in a list "
                "is a text; to read files, give one path, or a list of pathlib.Path."
            )
        for position, item in enumerate(_records(data)):
            yield self._pair(item, position) if self._columns else self._text(item, position)

    def _require_known(self, otherwise: str) -> None:
        if self._kind not in (*_READERS_OF_TEXTS, _READER_OF_PAIRS):
            raise TypeError(f"The reader '{self._kind}' of this recipe {otherwise}.")

    def _text(self, item: Any, position: int) -> Record:
        key = str(self._reader.get("text_key", "text"))
        if isinstance(item, (tuple, list)):
            raise TypeError(
                f"The reader '{self._kind}' of this recipe takes texts, got "
                f"{type(item).__name__} of {len(item)} at position {position}. Pairs are for "
                "recipes such as 'simcse_supervised', 'sbert_triplet' and 'sup_con'."
            )
        if isinstance(item, Mapping) and key in item:
            item = item[key]
        if not isinstance(item, str):
            raise no_text(item, position)
        return {key: without_surrogates(item)}

    def _pair(self, item: Any, position: int) -> Record:
        expected = f"({', '.join(self._columns)})"
        if isinstance(item, Mapping):
            missing = [name for name in self._columns if name not in item]
            if missing:
                raise ValueError(
                    f"Position {position} has the keys {sorted(map(str, item))}, expected "
                    f"{expected} as the recipe's reader does; {missing[0]!r} is missing."
                )
            record = {name: item[name] for name in self._columns}
        elif isinstance(item, str) or not isinstance(item, Sequence):
            raise TypeError(
                f"Expected rows of {expected}, tuples or dicts, got {type(item).__name__} at "
                f"position {position}."
            )
        elif len(item) != len(self._columns):
            raise ValueError(
                f"Expected rows of {expected}, got one of {len(item)} at position {position}. "
                "Another recipe, or keys of its dataset_reader, take other columns."
            )
        else:
            record = dict(zip(self._columns, item, strict=True))
        return {k: without_surrogates(v) if isinstance(v, str) else v for k, v in record.items()}

    def _read(self, path: Any) -> Iterator[Record]:
        """Yield the records of files."""
        errors = str(self._reader.get("encoding_errors", "strict"))
        files = source_files(path)
        if self._columns:
            for row in read_rows(files, encoding_errors=errors):
                yield self._pair({name: row.value(name) for name in self._columns}, 0)
            return
        key = str(self._reader.get("text_key", "text"))
        for text in read_documents(files, key, errors):
            yield {key: text}

    def _held_out(self, rows: Sequence[Record], share: float) -> set[int]:
        """Return the numbers of about this share of rows; equal first texts stay together."""
        if not 0 < share < 1:
            raise ValueError(
                f"validation={share:g} is no share of the data: expected texts, a path, or a "
                "number above 0 and below 1."
            )
        if self._follows:
            raise ValueError(
                "This recipe learns from texts that follow each other, which a random share would "
                "tear apart. Give validation texts of their own."
            )
        groups: dict[Any, list[int]] = {}
        for number, row in enumerate(rows):
            groups.setdefault(next(iter(row.values())), []).append(number)
        groups.pop("", None)
        order = list(groups)
        random.Random(_DRAWN_BY).shuffle(order)
        wanted = max(1, round(share * len(rows)))
        held: set[int] = set()
        for first in order[:-1]:  # something is left to train on
            if len(held) >= wanted:
                break
            held.update(groups[first])
        if not held:
            raise ValueError(
                f"validation={share:g} holds out a share of different texts, got {len(order)}."
            )
        return held

    def _with_class_numbers(self, given: dict[str, Iterable[Record]]) -> dict[str, list[Record]]:
        """Return the records, with numbers from 0 for classes that are named."""
        rows = {name: list(part) for name, part in given.items()}
        label = self._columns[-1]
        every = [row[label] for row in itertools.chain.from_iterable(rows.values())]
        if any(isinstance(one, str) and not one.strip().isdecimal() for one in every):
            numbers = {name: number for number, name in enumerate(sorted(set(map(str, every))))}
            for row in itertools.chain.from_iterable(rows.values()):
                row[label] = numbers[str(row[label])]
        return rows


def as_path(data: Any) -> str | list[str] | None:
    """Return what `train_data_path` is for files: a string, a path or a list of `pathlib.Path`.

    It is `None` for anything else, which is texts.
    """
    if isinstance(data, (str, os.PathLike)):
        return os.fspath(data)
    paths = isinstance(data, (list, tuple)) and all(isinstance(one, os.PathLike) for one in data)
    return [os.fspath(one) for one in data] if paths and data else None


def _names_a_file(item: Any) -> bool:
    return isinstance(item, str) and names_a_file(item)


def _records(data: Any) -> Iterable[Any]:
    """Return the rows of a table of another package as dicts, and anything else as it is."""
    for method in ("to_dicts", "to_pylist"):  # of polars, of pyarrow
        if hasattr(data, method) and hasattr(data, "columns"):
            return getattr(data, method)()
    if getattr(data, "ndim", 1) == 2 and hasattr(data, "to_dict"):  # pandas
        return data.to_dict("records")
    if not (hasattr(data, "column_names") and hasattr(data, "features")):  # not of datasets
        require_rows(data)
    return data


def _write(rows: Iterable[Record], file: BinaryIO) -> None:
    for row in rows:
        file.write(f"{as_json(row)}\n".encode())
