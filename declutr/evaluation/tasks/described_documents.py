"""Documents and queries of one's own: to search all of the documents, or to rank candidates."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from declutr.evaluation.task import Protocol, Task
from declutr.evaluation.tasks.relevance_sets import (
    BEIR_FILES,
    Judgement,
    RelevanceSet,
    judged,
    read_beir,
)
from declutr.evaluation.tasks.reranking import CandidateLists, Candidates, contrasted
from declutr.evaluation.tasks.retrieval import Retrieval
from declutr.evaluation.tasks.scored_parts import ScoredParts
from declutr.evaluation.tasks.task_description import Description
from declutr.evaluation.text_files import words

_TABLES = ("documents", "queries", "relevance")
_OF_TABLES = ("id", "text", "title", "document", "grade")
_OF_LISTS = ("positive", "negative")
"""Keys of columns that reranking has in one layout only."""


def retrieval(about: Description, protocol: Protocol) -> Task:
    """Return the task of a description of type "retrieval"."""
    if not any(key in about.keys for key in _TABLES):
        if (about.path.parent / BEIR_FILES[0]).is_file():
            return Retrieval(about.name, about.path.parent, read_beir)
        raise about.wrong("documents", f"the name of a file, or {', '.join(BEIR_FILES)} beside it")
    return Retrieval(about.name, about.path.parent, partial(_relevance, about, _files(about)))


def reranking(about: Description, protocol: Protocol) -> Task:
    """Return the task of a description of type "reranking", of lists or of tables."""
    tables = [key for key in _TABLES if key in about.keys]
    lists = [key for key in ("file", "dev", "test") if key in about.keys]
    if tables and lists:
        raise about.wrong(lists[0], f"either that or {', '.join(_TABLES)}, not both")
    if not tables and not lists:
        raise about.wrong("file", f"the name of a file, or {', '.join(_TABLES)}")
    for key in _OF_LISTS if tables else _OF_TABLES:
        if key in about.keys and len(about.types) == 1:
            raise about.wrong(key, f"no such key beside {(tables or lists)[0]!r}")
    if tables:
        files = _files(about)
        return _reranked(about, lambda: {"test": _from_tables(about, files)})
    parts = about.parts(("test", "dev"))
    return _reranked(about, lambda: {part: _from_lists(about, parts[part]) for part in parts})


def _reranked(about: Description, read: Callable[[], Mapping[str, CandidateLists]]) -> Task:
    return ScoredParts(about.name, "reranking", "MAP", read)


def _from_lists(about: Description, path: Path) -> CandidateLists:
    """Read queries that have lists of candidates, the relevant ones and the others."""
    query, positive, negative = (about.column(k, k) for k in ("query", "positive", "negative"))
    found = []
    for row in about.rows(path, [query, positive, negative]):
        right, wrong = (row.texts(column, candidates=True) for column in (positive, negative))
        grades = [1.0] * len(right) + [0.0] * len(wrong)
        texts = [*map(words, row.texts(query))], [*map(words, [*right, *wrong])]
        found.append(Candidates(*texts, grades))
    return contrasted(found, str(path), f"texts in {positive!r} and in {negative!r}")


def _from_tables(about: Description, files: dict[str, Path]) -> CandidateLists:
    """Read queries whose candidates are the documents that a table names for them."""
    tables = _read(about, files)
    candidates: dict[str, dict[str, float]] = {query: {} for query in tables.queries}
    for query, document, grade in tables.judgements:
        candidates[query][document] = grade
    found = (
        Candidates(
            [tables.queries[query]], [tables.documents[d] for d in grades], [*grades.values()]
        )
        for query, grades in candidates.items()
    )
    return contrasted(found, str(files["relevance"]), "grades above 0 and grades of 0")


class _Tables(NamedTuple):
    documents: dict[str, str]
    """Texts by identifier."""
    queries: dict[str, str]
    judgements: list[Judgement]


def _files(about: Description) -> dict[str, Path]:
    return {key: about.file(key) for key in _TABLES}


def _relevance(about: Description, files: dict[str, Path], folder: Path) -> RelevanceSet:
    """Read documents, queries and the table of which documents answer a query."""
    documents, queries, judgements = _read(about, files)
    itself = {name for name, text in queries.items() if documents.get(name) == text}
    return judged(documents, queries, judgements, files["relevance"], itself)


def _read(about: Description, files: dict[str, Path]) -> _Tables:
    documents, queries = (_texts(about, key, files[key]) for key in ("documents", "queries"))
    query, document = about.column("query", "query"), about.column("document", "document")
    grade = about.column("grade", "grade")
    needed = [query, document, *([grade] if "grade" in about.keys else [])]
    grades: dict[tuple[str, str], float] = {}
    for row in about.rows(files["relevance"], needed):
        for column, known, key in ((query, queries, "queries"), (document, documents, "documents")):
            if row.label(column) not in known:
                row.refuse(column, f"an identifier of {files[key].name}")
        value = row.number(grade) if grade in row.values else 1.0
        pair = row.label(query), row.label(document)
        if grades.setdefault(pair, value) != value:
            row.refuse(grade, f"{grades[pair]:g}, which a row before has for the same document")
    return _Tables(documents, queries, [(*pair, value) for pair, value in grades.items()])


def _texts(about: Description, key: str, path: Path) -> dict[str, str]:
    """Return the texts of a file by identifier, each after its title if there is one.

    Documents have a title by default. What queries have in a column of that name, such as a topic,
    counts only if the description names it for them. A text that begins with its title has it
    already.
    """
    name, text = about.column("id", "id", key), about.column("text", "text", key)
    named = about.keys.get("title")
    titled = key == "documents" or (isinstance(named, dict) and key in named)
    title = about.column("title", "title", key) if titled else text
    needed = [name, text, *([title] if "title" in about.keys and key == "documents" else [])]
    found: dict[str, str] = {}
    for row in about.rows(path, needed):
        if row.label(name) in found:
            row.refuse(name, "an identifier of its own, which no row before it has")
        before = words(str(row.values.get(title) or ""))
        # A document may be blank, as some of published sets are: it is among those that are ranked.
        blank = key == "documents" and not str(row.values.get(text) or "").strip()
        whole = "" if blank else words(row.text(text))
        if title in (name, text, None) or before == "." or whole.startswith(before):
            before = ""
        found[row.label(name)] = words(f"{before} {whole}")
    return found
