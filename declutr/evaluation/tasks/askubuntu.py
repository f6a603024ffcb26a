"""AskUbuntu: which of twenty questions are similar to a question (Lei et al., 2016).

Files, texts and what is left out are those of USEB, the benchmark of TSDAE (Wang et al., 2021): a
question is its title, and a query without a similar candidate does not count. MTEB's set of this
name has the queries of both parts, without those of which all candidates are similar.
"""

from functools import partial
from pathlib import Path

from declutr.evaluation.task import BrokenData, Protocol, Task
from declutr.evaluation.tasks.reranking import CandidateLists, Candidates
from declutr.evaluation.tasks.scored_parts import ScoredParts
from declutr.evaluation.text_files import fields_of, other_size, read_lines, words

TEXTS = "text_tokenized.txt"
"""The file of all questions: identifier, title, body."""
PARTS = {"test": "test.txt", "dev": "dev.txt"}
"""The files of queries: identifiers of the query, of similar candidates, and of all candidates."""
PUBLISHED = {"test": 186, "dev": 189}
"""The published numbers of queries that have a similar candidate."""


def tasks(data: Path, protocol: Protocol) -> list[Task]:
    """Return AskUbuntu, which lies in `extra/askubuntu`."""
    read = partial(read_askubuntu, data / "extra" / "askubuntu")
    return [ScoredParts("AskUbuntu", "reranking", "MAP", read)]


def read_askubuntu(folder: Path) -> dict[str, CandidateLists]:
    """Read the queries of both parts with their candidates.

    # Raises

    `MissingData` : a file does not exist.
    `BrokenData` : a file has wrong content.
    """
    titles = {}
    for number, line in enumerate(read_lines(folder / TEXTS, latin_1=False), start=1):
        name, title = fields_of(line, "\t", 2, folder / TEXTS, number)[:2]
        titles[name.strip()] = words(title)
    return {part: _queries(folder / file, titles, PUBLISHED[part]) for part, file in PARTS.items()}


def _queries(path: Path, titles: dict[str, str], published: int) -> CandidateLists:
    found = []
    for number, line in enumerate(read_lines(path, latin_1=False), start=1):
        fields = fields_of(line, "\t", 3, path, number)[:3]
        query, similar, candidates = (field.split() for field in fields)
        for name in (*query, *similar, *candidates):
            if name not in titles:
                raise BrokenData(
                    f"{path}, line {number}: got question {name}, expected one of {TEXTS}. A file "
                    "may be truncated."
                )
        grades = [float(name in similar) for name in candidates]
        if any(grades):
            texts = [titles[name] for name in candidates]
            found.append(Candidates([titles[name] for name in query], texts, grades))
    if not found:
        raise BrokenData(f"{path}: no query has a similar candidate.")
    return CandidateLists(found, other_size("queries", len(found), published))
