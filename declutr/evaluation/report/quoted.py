"""Numbers that papers print, quoted beside one's own and always marked.

`quoted.json` has a row for each encoder of a table, typed from the papers, with the task and the
name of the score of each column. So a quoted number stands beside one's own only where both follow
the same convention: SCD's STS12 is `all Spearman`, DeCLUTR's is `mean Spearman`.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Quoted:
    """An encoder in a table of a paper.

    # Parameters

    table : the paper and the table, such as `scd:table1`.
    encoder : the name that the table gives it.
    source : the citation of the paper, with the table.
    through : the paper that this one quotes itself; None if it measured the numbers.
    scores : printed scores in percent, by task, then by name of the score.
    averages : averages of the table by name, not numbers where there is none for the encoder.
    parameters : the number of parameters as printed, such as `125M`; None if it is not printed.
    dimension : the printed dimension of embeddings; None if it is not printed.
    """

    table: str
    encoder: str
    source: str
    through: str | None
    scores: Mapping[str, Mapping[str, float]]
    averages: Mapping[str, float]
    parameters: str | None
    dimension: int | None

    @property
    def label(self) -> str:
        """The name for tables, with the mark of a quotation."""
        return f"{self.encoder} [{self.table}]"


class UnknownQuotation(ValueError):
    """Error raised when no table of a paper has the wanted name."""


@cache
def quotations() -> tuple[Quoted, ...]:
    """Return all rows of all tables, in the order of the papers."""
    found = []
    for paper, of_paper in papers().items():
        for name, table in of_paper["tables"].items():
            for row in table["rows"]:
                averages = row.get("averages") or [math.nan] * len(table["averages"])
                found.append(
                    Quoted(
                        f"{paper}:{name}",
                        row["encoder"],
                        f"{of_paper['citation']}, table {name.removeprefix('table')}",
                        row.get("through"),
                        _scores(table["scores"], row["values"]),
                        dict(zip(table["averages"], averages, strict=True)),
                        row.get("parameters"),
                        row.get("dimension"),
                    )
                )
    return tuple(found)


def papers() -> dict[str, Any]:
    """Return the content of `quoted.json`: by paper, its citation and its tables."""
    text = files("declutr.evaluation.report").joinpath("quoted.json").read_text(encoding="utf-8")
    return json.loads(text)


def _scores(columns: Iterable[tuple[str, str]], values: Iterable[float | None]) -> Any:
    scores: dict[str, dict[str, float]] = {}
    for (task, name), value in zip(columns, values, strict=True):
        if value is not None:
            scores.setdefault(task, {})[name] = value
    for of_task in scores.values():
        if {"accuracy", "f1"} <= set(of_task):  # the mean that DeCLUTR averages
            of_task["accuracy_and_f1"] = (of_task["accuracy"] + of_task["f1"]) / 2
    return scores


def quoted(patterns: Iterable[str]) -> list[Quoted]:
    """Return the rows that are asked for, in the order of the papers.

    # Parameters

    patterns : tables such as `scd:table1`, or rows of them, `scd:table1/SCD-*`; a `*` stands for
        anything, as in `declutr_acl:*`.

    # Raises

    `UnknownQuotation` : a pattern fits nothing.

    >>> [row.label for row in quoted(["scd:table1/SCD-BERT*"])]
    ['SCD-BERT-base [scd:table1]']
    """
    wanted: set[int] = set()
    for pattern in patterns:
        whole = pattern if "/" in pattern else f"{pattern}/*"
        fitting = {
            place
            for place, row in enumerate(quotations())
            if fnmatchcase(f"{row.table}/{row.encoder}".casefold(), whole.casefold())
        }
        if not fitting:
            tables = ", ".join(dict.fromkeys(row.table for row in quotations()))
            raise UnknownQuotation(
                f"No row of a paper's table is called {pattern!r}. Expected one of {tables}, or "
                "rows of one, as scd:table1/SCD-*."
            )
        wanted |= fitting
    return [row for place, row in enumerate(quotations()) if place in wanted]
