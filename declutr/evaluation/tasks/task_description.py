"""Descriptions of one's own tasks: `task.json` in a folder, which says what its files are.

{
  "type": "classification",
  "train": "train.csv",
  "test": "test.csv",
  "text": "question",
  "label": "intent"
}
"""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from declutr.evaluation.task import BrokenData
from declutr.evaluation.tasks.table_rows import DELIMITERS, Column, Layout, TableRow, read_table
from declutr.evaluation.text_files import read_text

DESCRIPTION = "task.json"
"""The name of the file that makes a folder a task."""

_RANKED = ("documents", "queries", "relevance", "id", "text", "title", "query", "document", "grade")
_LABELLED = ("file", "train", "dev", "test", "text", "label")
KEYS: dict[str, tuple[str, ...]] = {
    "classification": _LABELLED,
    "few-shot": (*_LABELLED, "shots", "draws"),
    "knn": (*_LABELLED, "neighbours"),
    "clustering": (*_LABELLED, "draws", "sample"),
    "sts": ("file", "train", "dev", "test", "text", "score", "subset"),
    "pair-classification": ("file", "dev", "test", "text", "label", "positive"),
    "bitext-mining": ("file", "dev", "test", "text", "subset"),
    "retrieval": _RANKED,
    "reranking": ("file", "dev", "test", "positive", "negative", *_RANKED),
    "summarisation": (
        *("file", "dev", "test"),
        *("human_summaries", "machine_summaries", "relevance"),
    ),
}
"""The keys of a description by type of the task, without those that all types have."""
SPELLINGS = {"summarization": "summarisation"}
"""Other spellings of types."""
OF_EACH = ("type", "name", "delimiter", "header", "quoted", "encoding")
"""The keys that every description may have."""


@dataclass(frozen=True)
class Description:
    """The content of a `task.json`, checked for its keys; wrong values raise `BrokenData`."""

    path: Path
    keys: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the task, by default that of its folder."""
        return self.of_kind("name", str, self.path.absolute().parent.name)

    @property
    def types(self) -> list[str]:
        """The types of tasks that are made of the data, at least one."""
        given = self.keys.get("type")
        names = given if isinstance(given, list) else [given]
        found = [str(name).lower().replace("_", "-").replace(" ", "-") for name in names]
        found = [SPELLINGS.get(name, name) for name in found]
        for name in found or [""]:
            if name not in KEYS:
                raise self.wrong("type", f"one or a list of {', '.join(KEYS)}")
        return list(dict.fromkeys(found))

    @property
    def layout(self) -> Layout:
        """How delimited files are written."""
        delimiter = self.of_kind("delimiter", str, None)
        if delimiter is not None and len(DELIMITERS.get(delimiter, delimiter)) != 1:
            raise self.wrong("delimiter", f"one character, or one of {', '.join(DELIMITERS)}")
        encoding = self.of_kind("encoding", str, None)
        try:
            "a".encode("utf-8" if encoding is None else encoding)  # refuses what is none of text
        except (LookupError, ValueError):
            raise self.wrong("encoding", "the name of an encoding, such as latin-1") from None
        return Layout(
            None if delimiter is None else DELIMITERS.get(delimiter, delimiter),
            self.of_kind("header", bool, True),
            self.of_kind("quoted", bool, None),
            encoding,
        )

    def of_kind(self, key: str, kind: type, default: Any) -> Any:
        """Return the value of a key, which must be of a kind; `default` if it is not given."""
        if key not in self.keys:
            return default
        value = self.keys[key]
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            names = {str: "a text", bool: "true or false", int: "a whole number"}
            raise self.wrong(key, names[kind])
        return value

    def number(self, key: str, default: int, most: int = 2**31) -> int:
        """Return a whole number from 1 to `most`."""
        value = self.keys.get(key, default)
        if type(value) is not int or not 0 < value <= most:
            raise self.wrong(key, f"a whole number from 1 to {most:,}")
        return value

    def numbers(self, key: str, default: Sequence[int]) -> list[int]:
        """Return one or several whole numbers above 0, in order."""
        value = self.keys.get(key, list(default))
        found = value if isinstance(value, list) else [value]
        whole = [number for number in found if type(number) is int and number > 0]
        if len(whole) < len(found) or not found:
            raise self.wrong(key, "a whole number above 0, or a list of them")
        return sorted(set(whole))

    def column(self, key: str, default: str, file: str = "") -> Column:
        """Return the name or the number of a column; an object has one for each kind of file."""
        value = self.keys.get(key, default)
        if file and isinstance(value, dict):
            value = value.get(file, default)
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise self.wrong(key, "the name of a column, or its number from 0")
        return value

    def columns(self, key: str, *default: str) -> list[Column]:
        """Return the names or the numbers of one or several columns."""
        value = self.keys.get(key, list(default))
        found = value if isinstance(value, list) else [value]
        if not found or any(isinstance(c, bool) or not isinstance(c, (str, int)) for c in found):
            raise self.wrong(key, "the name of a column or its number from 0, or a list of them")
        return found

    def files(self, key: str) -> dict[str, Path]:
        """Return the files of a key by name of the subset, which is empty for a single file."""
        if key not in self.keys:
            return {}
        value = self.keys[key]
        named = value if isinstance(value, dict) else {"": value}
        if not named or not all(isinstance(file, str) and file for file in named.values()):
            raise self.wrong(key, "the name of a file, or an object of subsets and their files")
        return {subset: self.path.parent / file for subset, file in named.items()}

    def file(self, key: str) -> Path:
        """Return the file of a key that has no subsets."""
        files = self.files(key)
        if list(files) != [""]:
            raise self.wrong(key, "the name of one file")
        return files[""]

    def parts(self, names: Sequence[str], alone: str = "test") -> dict[str, Path]:
        """Return the file of each part that is given; the part `test` must be, if it is `alone`.

        # Parameters

        names : the names of parts, which are keys.
        alone : the part that the key "file" stands for, beside which there is no other.
        """
        return {part: self.file(key) for part, key in self._keys_of(names, alone).items()}

    def parts_of_subsets(self, names: Sequence[str]) -> dict[str, dict[str, Path]]:
        """Return the files of each part that is given, `test` among them, by name of the subset."""
        return {part: self.files(key) for part, key in self._keys_of(names, "test").items()}

    def _keys_of(self, names: Sequence[str], alone: str) -> dict[str, str]:
        given = [key for key in ("file", *names) if key in self.keys]
        if "file" in given and len(given) > 1:
            raise self.wrong("file", f"either that or {', '.join(names)}, not both")
        found = {alone if key == "file" else key: key for key in given}
        if alone == "test" and alone not in found:
            raise self.wrong("test", 'the name of a file (or "file")')
        return found

    def rows(self, path: Path, columns: Sequence[Column]) -> list[TableRow]:
        """Return the rows of a file, which have the columns; see `read_table`."""
        return read_table(path, columns, self.layout)

    def wrong(self, key: str, expected: str) -> BrokenData:
        """Return the error for the value of a key."""
        if key not in self.keys:
            return BrokenData(f'{self.path}: "{key}" is missing, expected {expected}.')
        got = json.dumps(self.keys[key], ensure_ascii=False)[:60]
        return BrokenData(f'{self.path}: got {got} as "{key}", expected {expected}.')


def read_description(path: Path) -> Description:
    """Read a `task.json`, and check its type and the names of its keys.

    # Raises

    `BrokenData` : the file has wrong content.
    """
    text = read_text(path, latin_1=False)
    try:
        keys = json.loads(text)
    except RecursionError:
        raise BrokenData(f"{path}: nested too deeply; expected an object of a few keys.") from None
    except ValueError as error:
        where = f"line {getattr(error, 'lineno', 1)}: {getattr(error, 'msg', error)}"
        raise BrokenData(
            f'{path}, {where}. Expected a JSON object, such as {{"type": "classification", '
            '"file": "texts.csv", "text": "question", "label": "intent"}.'
        ) from error
    if not isinstance(keys, dict):
        raise BrokenData(f"{path}: expected a JSON object in braces, got {text.strip()[:40]!r}.")
    found = Description(path, keys)
    _ = found.layout, found.name  # which raise
    known = list(dict.fromkeys(key for kind in found.types for key in KEYS[kind]))
    for key in keys:
        if key not in (*known, *OF_EACH):
            near = difflib.get_close_matches(key, [*known, *OF_EACH], 1)
            hint = f' Is it "{near[0]}"?' if near else ""
            raise BrokenData(
                f'{path}: unknown key "{key}".{hint} A task of type {", ".join(found.types)} has '
                f"{', '.join((*known, *OF_EACH))}."
            )
    return found


def without_description(place: Path) -> list[Path]:
    """Return the folders in a folder of tasks that hold files, and no description."""
    if (place / DESCRIPTION).is_file():
        return []
    return [
        folder
        for folder in sorted(place.iterdir())
        if folder.is_dir()
        and not folder.name.startswith(".")
        and not (folder / DESCRIPTION).is_file()
        and any(file.is_file() for file in folder.iterdir())
    ]


def descriptions(place: Path) -> Iterator[Path]:
    """Yield the description at a place, in that folder, or else in the folders that it holds."""
    if place.is_file():
        yield from [place] if place.name == DESCRIPTION else []
    elif (place / DESCRIPTION).is_file():
        yield place / DESCRIPTION
    else:
        yield from sorted(place.glob(f"*/{DESCRIPTION}"))
