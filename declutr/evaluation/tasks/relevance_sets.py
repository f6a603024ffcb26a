"""Reading of retrieval data sets, in the layouts of Cranfield and of BEIR.

A data set has documents, queries, and judgements of which documents are relevant to a query.
"""

import html
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from declutr.evaluation.task import BrokenData
from declutr.evaluation.tasks.table_rows import Layout, read_table
from declutr.evaluation.text_files import read_lines, words

TREC_FILES = ("cran.all.1400.xml", "cran.qry.xml", "cranqrel.trec.txt")
"""The files of Cranfield: documents, topics and judgements."""
BEIR_FILES = ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")
"""The files of BEIR's layout: documents, queries and judgements."""
_ABSENT = 0.01
"""The share of judgements of a BEIR folder that may name documents which are not there.

Published sets have such judgements: ArguAna's name one document that is not in its corpus (issue
101 of beir-cellar/beir), and five in MTEB's copy. A truncated file lacks more.
"""


@dataclass(frozen=True)
class RelevanceSet:
    """Documents, queries, and the grades of relevant documents."""

    documents: list[str]
    queries: list[str]
    relevant: list[dict[int, float]]
    """For each query, the numbers of relevant documents with their grades, which are above 0.

    Relevant documents that are not among `documents` have numbers below 0: they are never found.
    """
    itself: dict[int, int] = field(default_factory=dict)
    """Queries that are also documents, by number, with the number of that document.

    A query is not expected to find itself.
    """
    notes: list[str] = field(default_factory=list)
    """Remarks for a reader of the scores."""


def read_trec(folder: Path) -> RelevanceSet:
    """Read Cranfield in TREC's format: marked-up documents and topics, judgements in four columns.

    Cranfield's topics have the numbers 1, 2, 4, 8 to 365, but its judgements number the topics from
    1 to 225. If judgements name a topic that has no such number, all of them are taken to be
    numbered in the latter way.

    # Raises

    `MissingData` : a file does not exist.
    `BrokenData` : a file has wrong content.
    """
    documents_file, topics_file, judgements_file = (folder / name for name in TREC_FILES)
    documents = {
        # Most of Cranfield's texts begin with their title.
        number: text if text.startswith(title) else words(f"{title} {text}")
        for number, title, text in _elements(documents_file, "doc", ("docno", "title", "text"))
    }
    topics = dict(_elements(topics_file, "top", ("num", "title")))
    # The columns are query, iteration, document and grade.
    judgements = list(_judgements(judgements_file, None, 4))
    notes = []
    if not {query for query, _, _ in judgements} <= set(topics):
        topics = {str(count): text for count, text in enumerate(topics.values(), start=1)}
        notes.append(
            f"{judgements_file.name} counts topics from 1; their own numbers are not used."
        )
    found = judged(documents, topics, judgements, judgements_file)
    return replace(found, notes=[*notes, *found.notes])


def read_beir(folder: Path) -> RelevanceSet:
    """Read BEIR's layout (Thakur et al., 2021): two JSON-lines files and a table with a header.

    A document consists of its title and its text. If a query has both the identifier and the text
    of a document, it is not expected to find this document. Up to one in a hundred judgements may
    name a document that is not there. If it is relevant it counts as never found, as in BEIR.

    # Raises

    `MissingData` : a file does not exist.
    `BrokenData` : a file has wrong content.
    """
    corpus_file, queries_file, judgements_file = (folder / name for name in BEIR_FILES)
    texts, documents = {}, {}
    for identifier, row in _json_rows(corpus_file):
        texts[identifier] = words(row["text"])
        documents[identifier] = words(f"{row.get('title') or ''} {row['text']}")
    queries = {identifier: words(row["text"]) for identifier, row in _json_rows(queries_file)}
    itself = {
        query
        for query, text in queries.items()
        if query in texts and text in (texts[query], documents[query])
    }
    # The columns are query, document and grade, after a header.
    judgements = (
        (_unquoted(query), _unquoted(document), grade)
        for query, document, grade in _judgements(judgements_file, "\t", 3, header=1)
    )
    return judged(documents, queries, judgements, judgements_file, itself, _ABSENT)


Judgement = tuple[str, str, float]
"""The identifiers of a query and of a document, and a grade."""


def judged(
    documents: Mapping[str, str],
    queries: Mapping[str, str],
    judgements: Iterable[Judgement],
    file: Path,
    itself: Collection[str] = (),
    absent: float = 0.0,
) -> RelevanceSet:
    """Make a relevance set of the queries that have a relevant document.

    # Parameters

    documents, queries : texts by identifier.
    judgements : grades of documents; 0 means not relevant.
    file : the file of the judgements, for errors.
    itself : identifiers of queries that are also documents.
    absent : the largest share of judgements that may name a document which is not there.
    """
    places = {identifier: place for place, identifier in enumerate(documents)}
    relevant: dict[str, dict[int, float]] = {}
    elsewhere: dict[str, int] = {}  # the numbers of documents that are not there
    count = of_absent = unfound = 0
    for query, document, grade in judgements:
        if query not in queries:
            raise _not_there(file, f"query {query!r}")
        count += 1
        place = places.get(document)
        if place is None:
            of_absent += 1
            place = elsewhere.setdefault(document, -1 - len(elsewhere))
            unfound += grade > 0
        if grade > 0 and not (query == document and query in itself):
            relevant.setdefault(query, {})[place] = grade
    if of_absent > absent * count:
        raise _not_there(file, f"document {next(iter(elsewhere))!r}")
    answered = [query for query in queries if query in relevant]
    if not answered:
        raise BrokenData(f"{file} names no relevant document.")
    left_out = len(queries) - len(answered)
    notes = [f"{left_out:,} queries without an answer left out."] if left_out else []
    if unfound:
        notes.append(f"{unfound:,} relevant documents are not there, and count as not found.")
    return RelevanceSet(
        list(documents.values()),
        [queries[query] for query in answered],
        [relevant[query] for query in answered],
        itself={number: places[query] for number, query in enumerate(answered) if query in itself},
        notes=notes,
    )


def _not_there(file: Path, what: str) -> BrokenData:
    return BrokenData(f"{file} names {what}, which is not there. A file may be truncated.")


def _elements(path: Path, tag: str, fields: Sequence[str]) -> Iterator[list[str]]:
    """Yield the fields of each element `<tag>`.

    The file need not be well-formed XML, because Cranfield's is not.
    """
    text = "\n".join(read_lines(path, latin_1=False))
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", text, flags=re.DOTALL)
    if not found or text.count(f"<{tag}>") != len(found):
        raise BrokenData(
            f"{path} has {text.count(f'<{tag}>')} of <{tag}> and {len(found)} that end, expected "
            "the same number above 0. The file may be truncated."
        )
    return ([_field(part, field, path) for field in fields] for part in found)


def _field(part: str, tag: str, path: Path) -> str:
    found = re.search(rf"<{tag}>(.*?)</{tag}>", part, flags=re.DOTALL)
    if found is None:
        raise BrokenData(f"{path}: expected <{tag}> in {part.strip()[:80]!r}.")
    return words(html.unescape(found[1]))


def _judgements(
    path: Path, separator: str | None, columns: int, header: int = 0
) -> Iterator[Judgement]:
    """Yield judgements from rows that begin with a query and end with a document and a grade."""
    for number, line in _lines(path):
        if number <= header:
            continue
        parts = line.split(separator)
        if len(parts) != columns:
            raise BrokenData(f"{path}, line {number}: expected {columns} columns, got {line!r}.")
        try:
            grade = float(parts[-1])
        except ValueError:
            grade = math.nan
        if not math.isfinite(grade):
            raise BrokenData(f"{path}, line {number}: expected a grade, got {parts[-1]!r}.")
        yield parts[0], parts[-2], grade


def _unquoted(field: str) -> str:
    """Return an identifier as it is; BEIR's writer encloses those in quotes that have any."""
    inside = field[1:-1]
    quoted = len(field) > 1 and field[0] == field[-1] == '"' and '"' not in inside.replace('""', "")
    return inside.replace('""', '"') if quoted else field


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield lines that are not blank, with their numbers."""
    lines = enumerate(read_lines(path, latin_1=False), start=1)
    return ((number, line) for number, line in lines if line.strip())


def _json_rows(path: Path) -> Iterator[tuple[str, dict]]:
    for row in read_table(path, ("_id", "text"), Layout()):
        text = row.values["text"]
        yield str(row.values["_id"]), {**row.values, "text": "" if text is None else str(text)}
