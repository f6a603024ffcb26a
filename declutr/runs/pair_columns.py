"""The columns that the reader "text_pairs" reads, by its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def columns_of(reader: Mapping[str, Any]) -> list[str]:
    """Return the names of the columns that the reader "text_pairs" reads, each once, in order."""
    inference = _is_of_inference(reader)
    usual = ("premise", "hypothesis") if inference else ("anchor", "positive")
    negative = reader.get("negative")
    parts = [reader.get("anchor"), reader.get("positive")]
    columns = [name if part is None else part for part, name in zip(parts, usual, strict=True)]
    columns += negative if isinstance(negative, list) else [] if negative is None else [negative]
    if _is_labelled(reader):
        label = reader.get("label")
        columns.append("label" if label is None else label)
    numbers = [column for column in columns if not isinstance(column, str)]
    if numbers:
        raise ValueError(
            f"The recipe's reader has columns by number, {numbers}, which only files have. Give a "
            "path, or names as the keys of dataset_reader."
        )
    return list(dict.fromkeys(columns))


def text_columns(reader: Mapping[str, Any]) -> list[str]:
    """Return the same names without that of labels or scores."""
    return columns_of(reader)[:-1] if _is_labelled(reader) else columns_of(reader)


def _is_labelled(reader: Mapping[str, Any]) -> bool:
    return _is_of_inference(reader) or bool(reader.get("labels"))


def _is_of_inference(reader: Mapping[str, Any]) -> bool:
    return "nli" in (reader.get("format"), reader.get("labels"))
