"""Reading of Cranfield's and BEIR's files, with their peculiarities."""

import csv
import json
from pathlib import Path

import pytest

from declutr.evaluation.task import BrokenData, MissingData
from declutr.evaluation.tasks.relevance_sets import read_beir, read_trec
from tests.evaluation.tasks.data_files import write


def write_trec(folder: Path, documents: dict, topics: dict, judgements: list) -> None:
    """Write documents `{number: (title, text)}`, topics and `(topic, document, grade)`."""
    of_document = (
        "<doc>\n<docno>{}</docno>\n<title>{}</title>\n<author>x</author>\n"
        "<bib></bib>\n<text>{}</text>\n</doc>"
    )
    write(folder / "cran.all.1400.xml", [of_document.format(n, *d) for n, d in documents.items()])
    of_topic = "<top>\n<num> {}</num> \n<title>\n{}\n</title>\n</top>"
    rows = [of_topic.format(*topic) for topic in topics.items()]
    write(folder / "cran.qry.xml", ["<?xml version='1.0'?>\n<xml>", *rows, "</xml>"])
    write(folder / "cranqrel.trec.txt", [f"{q} 0 {d}  {grade}\r" for q, d, grade in judgements])


def write_beir(folder: Path, documents: dict, queries: dict, judgements: list) -> None:
    """Write documents `{key: (title, text)}`, queries and `(query, document, grade)`."""
    rows = [{"_id": key, "title": title, "text": text} for key, (title, text) in documents.items()]
    write(folder / "corpus.jsonl", map(json.dumps, rows))
    rows = [{"_id": key, "text": text} for key, text in queries.items()]
    write(folder / "queries.jsonl", map(json.dumps, rows))
    rows = [f"{query}\t{document}\t{grade}" for query, document, grade in judgements]
    write(folder / "qrels/test.tsv", ["query-id\tcorpus-id\tscore", *rows])


DOCUMENTS = {"1": ("a wing .", "a wing .\n  it flies"), "2": ("heat", "of slabs &amp; rods")}


def test_a_title_is_not_repeated_and_an_empty_document_is_kept(tmp_path: Path) -> None:
    documents = {**DOCUMENTS, "3": ("", "")}
    write_trec(tmp_path, documents, {"1": "what\nflies"}, [("1", "1", "1")])
    found = read_trec(tmp_path)
    assert found.documents == ["a wing . it flies", "heat of slabs & rods", "."]
    assert found.queries == ["what flies"]
    assert (found.relevant, found.itself, found.notes) == ([{0: 1.0}], {}, [])


def test_judgements_of_cranfield_number_topics_from_1(tmp_path: Path) -> None:
    """The judgements number topics 1, 4 and 9 as 1, 2 and 3."""
    topics = {"1": "first", "4": "second", "9": "third"}
    judgements = [("1", "1", "1"), ("2", "2", "1"), ("3", "1", "0"), ("3", "2", "2")]
    write_trec(tmp_path, DOCUMENTS, topics, judgements)
    found = read_trec(tmp_path)
    assert found.queries == ["first", "second", "third"]
    assert found.relevant == [{0: 1.0}, {1: 1.0}, {1: 2.0}]
    note = "cranqrel.trec.txt counts topics from 1; their own numbers are not used."
    assert found.notes == [note]


def test_judgements_with_the_numbers_of_topics_are_used_as_they_are(tmp_path: Path) -> None:
    topics = {"1": "first", "4": "second", "9": "third"}
    write_trec(tmp_path, DOCUMENTS, topics, [("9", "1", "1"), ("4", "1", "-1")])
    found = read_trec(tmp_path)
    assert found.queries == ["third"]
    assert found.notes == ["2 queries without an answer left out."]


def test_faults_of_cranfield_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"cran.all.1400.xml is not there"):
        read_trec(tmp_path)

    def broken(message: str) -> None:
        with pytest.raises(BrokenData, match=message):
            read_trec(tmp_path)

    write_trec(tmp_path, DOCUMENTS, {"1": "first"}, [("1", "7", "1")])
    broken(r"cranqrel.trec.txt names document '7', which is not there")
    write_trec(tmp_path, DOCUMENTS, {"1": "first"}, [("5", "1", "1")])
    broken(r"cranqrel.trec.txt names query '5', which is not there")
    write_trec(tmp_path, DOCUMENTS, {"1": "first"}, [("1", "1", "0")])
    broken("names no relevant document")
    for grade in ("x", "nan", "inf"):
        write_trec(tmp_path, DOCUMENTS, {"1": "first"}, [("1", "1", grade)])
        broken(f"cranqrel.trec.txt, line 1: expected a grade, got '{grade}'")
    (tmp_path / "cranqrel.trec.txt").write_text("1 0 1\n")
    broken(r"line 1: expected 4 columns, got '1 0 1'")
    file = tmp_path / "cran.all.1400.xml"
    file.write_text(file.read_text()[:-30])
    broken(r"cran.all.1400.xml has 2 of <doc> and 1 that end")
    file.write_text("<doc><docno>1</docno></doc>")
    broken(r"cran.all.1400.xml: expected <title> in '<docno>1")


def test_the_layout_of_beir_is_read(tmp_path: Path) -> None:
    documents = {"d1": ("Wings", "they  fly"), "d2": ("", "heat"), "d3": ("Rods", "bend")}
    queries = {"q1": "what flies", "q2": "never judged", "q3": "what bends"}
    judgements = [("q1", "d1", 2), ("q1", "d2", 1), ("q3", "d3", 1), ("q3", "d2", 0)]
    write_beir(tmp_path, documents, queries, judgements)
    found = read_beir(tmp_path)
    assert found.documents == ["Wings they fly", "heat", "Rods bend"]
    assert found.queries == ["what flies", "what bends"]
    assert found.relevant == [{0: 2.0, 1: 1.0}, {2: 1.0}]
    assert found.itself == {}
    assert found.notes == ["1 queries without an answer left out."]


def test_a_query_that_is_a_document_does_not_find_itself(tmp_path: Path) -> None:
    """The text has to agree too, because some sets number queries and documents from 1 each."""
    documents = {"1": ("", "an argument"), "2": ("", "another"), "3": ("", "a third")}
    queries = {"3": "other text", "1": "an  argument", "2": "never judged"}
    judgements = [("1", "1", 1), ("1", "2", 1), ("3", "3", 1)]
    write_beir(tmp_path, documents, queries, judgements)
    found = read_beir(tmp_path)
    assert found.queries == ["other text", "an argument"]
    assert found.relevant == [{2: 1.0}, {1: 1.0}]
    assert found.itself == {1: 0}


def test_faults_of_beir_are_named(tmp_path: Path) -> None:
    def broken(message: str) -> None:
        with pytest.raises(BrokenData, match=message):
            read_beir(tmp_path)

    documents, queries = {"d": ("", "text")}, {"q": "query"}
    write_beir(tmp_path, documents, queries, [("q", "d", 1)])
    (tmp_path / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\n")
    broken(r"test.tsv, line 2: expected 3 columns")
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "te')
    broken(r"queries.jsonl, line 1: expected one JSON object on each line.*truncated")
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d"}\n')
    broken(r"corpus.jsonl, line 1: expected the columns '_id', 'text', found '_id'")
    (tmp_path / "corpus.jsonl").write_text("[1]\n")
    broken(r"corpus.jsonl, line 1: expected an object with '_id', 'text', got list")
    write_beir(tmp_path, documents, queries, [("q", "d", 1)])
    (tmp_path / "qrels/test.tsv").unlink()
    with pytest.raises(MissingData, match=r"test.tsv is not there"):
        read_beir(tmp_path)


def test_a_few_judgements_of_beir_may_name_documents_that_are_not_there(tmp_path: Path) -> None:
    """One in a hundred may; more are those of a truncated corpus. All queries must be there."""
    documents, queries = {f"{n}": ("", f"text {n}") for n in range(99)}, {"q": "query", "r": "more"}
    judgements = [("q", key, 1) for key in documents]
    write_beir(tmp_path, documents, queries, [*judgements, ("r", "gone", 3)])
    found = read_beir(tmp_path)
    assert found.queries == ["query", "more"]
    assert found.relevant == [dict.fromkeys(range(99), 1.0), {-1: 3.0}]
    assert found.notes == ["1 relevant documents are not there, and count as not found."]
    write_beir(tmp_path, documents, queries, [*judgements, ("r", "gone", 0)])
    assert read_beir(tmp_path).notes == ["1 queries without an answer left out."]

    def broken(message: str) -> None:
        with pytest.raises(BrokenData, match=message):
            read_beir(tmp_path)

    write_beir(tmp_path, documents, queries, [*judgements, ("r", "gone", 3), ("q", "lost", 0)])
    broken("test.tsv names document 'gone', which is not there. A file may be truncated")
    write_beir(tmp_path, documents, queries, [*judgements, ("s", "1", 1)])
    broken("test.tsv names query 's', which is not there")


def test_identifiers_in_quotes_are_those_of_documents(tmp_path: Path) -> None:
    """As `write_to_tsv` of BEIR writes them (beir-cellar/beir, beir/util.py, commit ef83d29307).

    Its `GenericDataLoader` reads them back by Python's csv.
    """
    names = ['<dbpedia:"Heroes"_(album)>', '"Weird_Al"_Yankovic', '"Heroes"', "plain"]
    documents = {name: ("", f"text {n}") for n, name in enumerate(names)}
    write_beir(tmp_path, documents, {'the "q"': "query"}, [])
    with (tmp_path / "qrels/test.tsv").open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t", quoting=csv.QUOTE_MINIMAL)
        writer.writerow(["query-id", "corpus-id", "score"])
        writer.writerows(['the "q"', name, grade] for grade, name in enumerate(names, 1))
    assert read_beir(tmp_path).relevant == [{0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}]
    rows = [f'the "q"\t{name}\t{grade}' for grade, name in enumerate(names[:2], 1)]
    write(tmp_path / "qrels/test.tsv", ["query-id\tcorpus-id\tscore", *rows])  # without quoting
    assert read_beir(tmp_path).relevant == [{0: 1.0, 1: 2.0}]


def test_a_document_of_beir_without_a_text_is_its_title(tmp_path: Path) -> None:
    write_beir(tmp_path, {"d": ("Wings", None), "e": ("", "heat")}, {"q": "query"}, [("q", "d", 1)])
    assert read_beir(tmp_path).documents == ["Wings", "heat"]
