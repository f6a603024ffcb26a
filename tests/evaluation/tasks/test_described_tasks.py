"""Tasks of folders with a `task.json`: what is scored of them, and what is said of wrong ones."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from declutr.evaluation.classifiers import relatedness_regressor
from declutr.evaluation.report.comparison import GROUPS, WITHOUT_AVERAGE
from declutr.evaluation.result_keys import data_digest
from declutr.evaluation.suite import all_tasks, chosen
from declutr.evaluation.task import PROTOTYPING, Task
from declutr.evaluation.tasks.described_tasks import check_data
from declutr.evaluation.tasks.task_description import KEYS
from tests.evaluation.fakes import hashed
from tests.evaluation.tasks.data_files import QUICK, values, write, write_sick

INTENTS = [f"text {n} {n * 7919 % 97},{'abc'[n % 3]}" for n in range(60)]
PAIRS = [(f"one {n}", f"two {n % 7}", n % 11 / 2) for n in range(40)]
SCORED = [f"{a},{b},{score}" for a, b, score in PAIRS]


def described(folder: Path, files: dict[str, list[str]], **keys: Any) -> Path:
    """Write a folder of a task with its files, all in one."""
    for name, lines in files.items():
        write(folder / name, lines)
    write(folder / "task.json", [json.dumps(keys)])
    return folder


def tasks_of(*folders: Path) -> dict[str, Task]:
    tasks = chosen([], [str(folder) for folder in folders], QUICK)
    check_data(tasks)
    return {task.name: task for task in tasks}


def intents(folder: Path, **keys: Any) -> Path:
    files = {"train.csv": ["text,label", *INTENTS], "test.csv": ["text,label", *INTENTS[:9]]}
    return described(folder, files, **{"type": "classification", "train": "train.csv", **keys})


def test_a_published_task_written_as_csv_has_its_scores(tmp_path: Path, monkeypatch) -> None:
    """TREC, SICK-R and Cranfield's layout of BEIR are the same numbers as tasks of one's own."""
    monkeypatch.setattr(relatedness_regressor, "MAX_EPOCH", 50)
    data = tmp_path / "data"
    rows = [
        (("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")[n % 6], f"what {n} " * (n % 4))
        for n in range(90)
    ]
    lines = [f"{label}:x {text}" for label, text in rows]
    write(data / "downstream/TREC/train_5500.label", lines)
    write(data / "downstream/TREC/TREC_10.label", lines[:24])
    splits = {
        s: [(f"{s} {a}", b, 1 + 0.8 * g / 1.2) for a, b, g in PAIRS]
        for s in ("train", "dev", "test")
    }
    write_sick(data / "downstream/SICK", splits)
    table = ["label,text", *(f"{label},{text or '.'}" for label, text in rows)]
    questions = {"train.csv": table, "test.csv": table[:25]}
    described(tmp_path / "q", questions, type="classification", train="train.csv", test="test.csv")
    pairs = {f"{s}.csv": ["a;b;r", *(f"{a};{b};{g}" for a, b, g in p)] for s, p in splits.items()}
    keys = {"text": ["a", "b"], "score": "r", "train": "train.csv", "dev": "dev.csv"}
    described(tmp_path / "p", pairs, type="STS", test="test.csv", **keys)
    own = tasks_of(tmp_path / "q", tmp_path / "p")
    published = {task.name: task for task in all_tasks(data, QUICK)}
    assert values(own["q"], hashed).items() >= values(published["TREC"], hashed).items()
    theirs = values(published["SICK-R"], hashed)
    del theirs["MTEB Spearman"]  # over all splits of SICK-R
    assert values(own["p"], hashed).items() >= theirs.items()


def test_one_file_is_cross_validated_and_pairs_have_features(tmp_path: Path) -> None:
    one = intents(tmp_path / "one", file="train.csv")
    (one / "task.json").write_text('{"type": "classification", "file": "train.csv"}')
    header = ["sentence1,sentence2,label", *(f"{a},{b},{s > 2}" for a, b, s in PAIRS)]
    keys = {"type": "classification", "file": "p.csv", "text": ["sentence1", "sentence2"]}
    two = described(tmp_path / "two", {"p.csv": header}, **keys)
    found = tasks_of(one, two)
    assert set(values(found["one"], hashed)) == {"accuracy", "dev_accuracy", "macro F1"}
    assert len(found["one"].sentences()) == 60 and len(found["two"].sentences()) == 80
    assert 0 < values(found["two"], hashed)["accuracy"] < 100


def test_several_types_of_one_folder_and_variants_of_known_tasks(tmp_path: Path) -> None:
    types = ["classification", "few_shot", "knn", "clustering"]
    folder = intents(tmp_path / "x", type=types, test="test.csv", shots=[2, 4], draws=3, name="y")
    found = tasks_of(folder)
    assert list(found) == ["y", "few-shot:y", "knn:y", "clustering:y"]
    assert [task.group for task in found.values()] == ["extra", "few-shot", "knn", "clustering"]
    assert found["few-shot:y"].main == "2-shot accuracy"
    known = chosen(list(found.values()), ["few-shot:y", "knn:[xy]", "y"], QUICK)
    assert [task.name for task in known] == ["y", "few-shot:y", "knn:y"]
    again = chosen([found["y"]], ["few-shot:y", "knn:extra", "clustering:*"], QUICK)
    assert [task.name for task in again] == ["few-shot:y", "knn:y", "clustering:y"]
    assert values(again[1], hashed) == values(found["knn:y"], hashed)


def test_pairs_in_several_languages(tmp_path: Path) -> None:
    header = "sentence1,sentence2,score"
    files = {"de.csv": [header, *SCORED], "fr.csv": [header, *SCORED[::-2]]}
    two = {"type": "sts", "test": {"de": "de.csv", "fr": "fr.csv"}, "dev": "de.csv"}
    column = [f"{line},{'de' if n < 40 else 'fr'}" for n, line in enumerate(SCORED + SCORED[::-2])]
    one = {"type": "sts", "file": "all.csv", "subset": "language"}
    found = tasks_of(
        described(tmp_path / "two", files, **two),
        described(tmp_path / "one", {"all.csv": [f"{header},language", *column]}, **one),
        described(tmp_path / "plain", {"a.csv": [header, *SCORED]}, type="sts", file="a.csv"),
    )
    plain = values(found["plain"], hashed)
    assert set(plain) == {"cosine Pearson", "cosine Spearman"}
    scores = values(found["one"], hashed)
    assert (
        found["one"].main == "mean Spearman" and scores["de Spearman"] == plain["cosine Spearman"]
    )
    mean = (scores["de Spearman"] + scores["fr Spearman"]) / 2
    assert scores["mean Spearman"] == pytest.approx(mean)
    both = values(found["two"], hashed)
    assert both.items() >= scores.items() and both["all Spearman dev"] == plain["cosine Spearman"]
    assert found["plain"].notes() == ["40 pairs."]
    assert found["two"].notes() == ["40 pairs in de, 20 pairs in fr."]


def test_scores_of_any_scale_train_a_regressor(tmp_path: Path, monkeypatch) -> None:
    """Scores from 0 to 5 are taken as they are; others are stretched to them."""
    monkeypatch.setattr(relatedness_regressor, "MAX_EPOCH", 50)
    files = {"a.csv": ["sentence1,sentence2,score", *SCORED]}
    turned = [f"{a},{b},{7 - 20 * g}" for a, b, g in PAIRS]
    files["b.csv"] = ["sentence1,sentence2,score", *turned]
    found = {}
    for name in ("a", "b"):
        splits = dict.fromkeys(("train", "dev", "test"), f"{name}.csv")
        (task,) = tasks_of(described(tmp_path / name, files, type="sts", **splits)).values()
        found[name] = values(task, hashed)
        assert {"trained Spearman", "cosine Spearman dev"} <= set(found[name])
        gold = task._splits["train"].gold  # type: ignore[attr-defined]
        assert (gold.min(), gold.max()) == (0, 5) and task.notes() == ["40 pairs."]
    assert found["b"]["cosine Spearman"] == pytest.approx(-found["a"]["cosine Spearman"])


def test_pair_classification_names_the_positive_label(tmp_path: Path) -> None:
    rows = [(f"a {n}", f"b {n % 5}", n % 3 == 0) for n in range(30)]
    words = [f"{a}\t{b}\t{'same' if same else 'other'}" for a, b, same in rows]
    header = "sentence1\tsentence2\tlabel"
    files = {"w.tsv": [header, *words], "b.tsv": [header, *(f"{a}\t{b}\t{s}" for a, b, s in rows)]}
    kind = {"type": "pair classification"}
    named = described(tmp_path / "named", files, **kind, test="w.tsv", positive="same", dev="w.tsv")
    plain = described(tmp_path / "plain", files, **kind, file="b.tsv")
    found = tasks_of(named, plain)
    ours, others = (values(found[name], hashed) for name in ("named", "plain"))
    assert ours.items() >= others.items() and ours["max AP dev"] == ours["max AP"]
    assert "10 of which belong together" in found["plain"].notes()[0]


def test_retrieval_of_tables_is_that_of_beir(tmp_path: Path) -> None:
    documents = [("d1", "Title", "a text"), ("7", "", "other"), ("d3", "a", "a text of a")]
    queries, grades = (
        [("q1", "ask"), ("7", "other")],
        [("q1", "d3", 2), ("q1", "d1", 1), ("7", "d1", 1)],
    )
    beir = tmp_path / "beir"
    write(
        beir / "corpus.jsonl",
        [json.dumps({"_id": i, "title": t, "text": x}) for i, t, x in documents],
    )
    write(beir / "queries.jsonl", [json.dumps({"_id": i, "text": x}) for i, x in queries])
    write(beir / "qrels/test.tsv", ["q\td\tg", *("\t".join(map(str, row)) for row in grades)])
    write(beir / "task.json", ['{"type": "retrieval"}'])
    documents[2] = ("d3", "a", "a text of a".removeprefix("a "))  # a title is not repeated
    write(
        beir / "corpus.jsonl",
        [json.dumps({"_id": i, "title": t, "text": x}) for i, t, x in documents],
    )
    files = {
        "d.csv": [
            "id,title,body",
            *(",".join(row) for row in [*documents[:2], ("d3", "a", "a text of a")]),
        ],
        "q.jsonl": ['{"id": "q1", "text": "ask"}', '{"id": 7, "text": "other"}'],
        "r.tsv": ["query\tdocument\tgrade", *("\t".join(map(str, row)) for row in grades)],
    }
    keys = {"documents": "d.csv", "queries": "q.jsonl", "relevance": "r.tsv"}
    keys |= {"text": {"documents": "body"}}
    own = described(tmp_path / "own", files, type="retrieval", **keys)
    found = tasks_of(beir, own)
    assert values(found["own"], hashed) == values(found["beir"], hashed)
    assert found["own"].sentences() == found["beir"].sentences()


@pytest.mark.parametrize(
    ("title", "before"),
    [
        ({}, ("A ", "")),
        ({"title": "title"}, ("A ", "")),
        ({"title": {"queries": "title"}}, ("A ", "T7 ")),
    ],
)
def test_queries_have_no_title_unless_it_is_named(
    tmp_path: Path, title: dict, before: tuple[str, str]
) -> None:
    files = {
        "d.csv": ["id,title,text", "1,A,alpha", "2,,delta"],
        "q.csv": ["id,title,text", "q,T7,where is alpha"],
        "r.csv": ["query,document", "q,1"],
    }
    keys = {"documents": "d.csv", "queries": "q.csv", "relevance": "r.csv"}
    own = described(tmp_path / "own", files, type="retrieval", **keys, **title)
    texts = [f"{before[0]}alpha", "delta", f"{before[1]}where is alpha"]
    assert sorted(tasks_of(own)["own"].sentences()) == sorted(texts)


def test_data_folders_hold_own_tasks_alone_or_beside_those_of_senteval(tmp_path: Path) -> None:
    intents(tmp_path / "a", test="test.csv")
    intents(tmp_path / "b", test="test.csv")
    assert [task.name for task in all_tasks(tmp_path, QUICK)] == ["a", "b"]
    assert [task.name for task in all_tasks(tmp_path / "a", QUICK)] == ["a"]
    own = all_tasks(tmp_path, QUICK)
    assert chosen(own, [str(tmp_path / "b"), str(tmp_path)], QUICK) == own
    (tmp_path / "retrieval").mkdir()
    (tmp_path / "retrieval" / "task.json").write_text('{"type": "knn", "file": "x.csv"}')
    assert [task.name for task in all_tasks(tmp_path, QUICK)] == ["a", "b", "retrieval"]
    (tmp_path / "retrieval" / "task.json").unlink()
    (tmp_path / "downstream").mkdir()
    names = [task.name for task in all_tasks(tmp_path, PROTOTYPING)]
    assert names[-2:] == ["a", "b"] and "MR" in names
    (tmp_path / "b" / "task.json").write_text('{"type": "knn", "file": "train.csv", "name": "MR"}')
    with pytest.raises(ValueError, match=r"b/task.json: another .* 'MR'. Give this one"):
        all_tasks(tmp_path, QUICK)
    with pytest.raises(ValueError, match="another task is called 'MR'"):
        chosen([], [str(tmp_path / "b")], QUICK)
    with pytest.raises(
        ValueError, match=r"Found no task.json in '.*downstream', expected one there"
    ):
        chosen([], [str(tmp_path / "downstream")], QUICK)


def test_results_depend_on_data_and_settings_alone(tmp_path: Path) -> None:
    def digest(number: int = 0, **keys: Any) -> str:
        folder = intents(tmp_path / str(number) / "x", test="test.csv", **keys)
        (task,) = tasks_of(folder).values()
        found = data_digest(task)
        task.scores(hashed)
        assert data_digest(task) == found
        return found

    few: dict[str, Any] = {"type": "few-shot", "shots": 2}
    assert digest(**few, draws=1) == digest(1, **few, draws=1) != digest(**few, draws=2)
    assert digest(type="knn") != digest(type="knn", neighbours=3)
    (source,) = tasks_of(intents(tmp_path / "x", test="test.csv")).values()
    unread = intents(tmp_path / "x", test="test.csv")
    variants = [chosen([s], ["few-shot:x"])[0] for s in (source, *chosen([], [str(unread)]))]
    assert data_digest(variants[0]) == data_digest(variants[1])


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"type": "classify"},
            '"classify" as "type", expected one or a list of classification, few',
        ),
        ({"type": []}, 'got [] as "type", expected one or a list'),
        (
            {"type": "knn", "lable": "x"},
            'unknown key "lable". Is it "label"? A task of type knn has',
        ),
        ({"type": "sts", "file": "a.csv", "label": 1}, 'unknown key "label"'),
        ({"name": 3}, 'got 3 as "name", expected a text'),
        (
            {"delimiter": "||"},
            'got "||" as "delimiter", expected one character, or one of comma, tab',
        ),
        (
            {"encoding": "latin-99"},
            'got "latin-99" as "encoding", expected the name of an encoding',
        ),
        ({"header": "no"}, 'got "no" as "header", expected true or false'),
        ({"text": ["a", "b", "c"]}, '"text", expected one column, or two for pairs'),
        ({"text": 1.5}, 'got 1.5 as "text", expected the name of a column or its number from 0'),
        ({"label": True}, 'got true as "label", expected the name of a column, or its number'),
        ({"file": 3}, 'got 3 as "file", expected the name of a file, or an object of subsets'),
        ({"file": {"a": "x.csv"}}, '"file", expected the name of one file'),
        ({"file": None, "test": "x.csv"}, 'got test, expected "file" alone, or "train" and "test"'),
        ({"train": "x.csv"}, '"file", expected either that or train, dev, test'),
        ({"encoding": ""}, 'got "" as "encoding", expected the name of an encoding'),
        ({"type": "few-shot", "draws": [1, 2]}, 'draws", expected a whole number from 1 to 10,000'),
        ({"type": "clustering", "draws": 10**9}, 'got 1000000000 as "draws", expected a whole'),
        ({"type": "few-shot", "shots": 0}, 'got 0 as "shots", expected a whole number above 0'),
        ({"type": "sts", "text": "a"}, 'got "a" as "text", expected a list of two columns'),
        ({"type": "sts", "file": "a.csv", "test": "b.csv"}, "expected either that or train, dev"),
        (
            {"type": "sts", "file": None, "dev": "b.csv"},
            'task.json: "test" is missing, expected the',
        ),
        ({"type": "sts", "file": None, "train": "b", "test": "c"}, "a regressor needs"),
        ({"type": "pair-classification", "file": None}, '"test" is missing, expected the name of'),
        (
            {"type": "retrieval", "file": None},
            '"documents" is missing, expected the name of a file, or',
        ),
        ({"type": "retrieval", "file": None, "queries": "q"}, '"documents" is missing, expected'),
        (
            {"type": "reranking", "file": None},
            '"file" is missing, expected the name of a file, or documents, queries, relevance',
        ),
        (
            {"type": "reranking", "queries": "q.csv"},
            'got "train.csv" as "file", expected either that or documents, queries, relevance, not',
        ),
        ({"type": "reranking", "file": None, "dev": "d"}, '"test" is missing, expected the name'),
        ({"type": "reranking", "file": None, "queries": "q"}, '"documents" is missing, expected'),
        ({"type": "reranking", "grade": "g"}, 'got "g" as "grade", expected no such key beside'),
        ({"type": "reranking", "negativ": "n"}, 'unknown key "negativ". Is it "negative"?'),
        ({"type": "bitext-mining", "text": "a"}, 'got "a" as "text", expected a list of two'),
        ({"type": "bitext-mining", "score": "a"}, 'unknown key "score"'),
        ({"type": "summarisation", "relevance": [1]}, 'got [1] as "relevance", expected the name'),
        ({"type": "summarization", "file": {"a": "b"}}, '"file", expected the name of one file'),
    ],
)
def test_a_wrong_description_is_told_in_one_line(tmp_path: Path, keys, message: str) -> None:
    keys = {"type": "classification", "file": "train.csv", **keys}
    folder = described(tmp_path / "x", {}, **{k: v for k, v in keys.items() if v is not None})
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        tasks_of(folder)
    assert str(folder / "task.json") in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("keys", "rows", "message"),
    [
        ({}, ["a,x", "b,"], "data.csv, line 3, column 'label': got nothing, expected a label"),
        ({}, ["a,x", "b,x"], "column 'label': all labels are 'x', expected at least two classes"),
        (
            {},
            ["a,x", "b,y"],
            "data.csv: the largest class has 1 texts, too few for 3-fold cross-val",
        ),
        (
            {"test": "t.csv"},
            ["a,x", "b,y"],
            "t.csv, line 2, column 'label': got 'z', expected a label",
        ),
        (
            {"type": "knn"},
            ["a,x", "b,y"],
            "knn: expected at least 10 other texts as neighbours, got 1",
        ),
        (
            {"type": "few-shot"},
            ["a,x", "b,y"],
            "x/task.json: few-shot: expected a class of two",
        ),
        (
            {"type": "few-shot"},
            ["a,x", "b,x", "c,y"],
            "few-shot: half of the texts, which draws are from, have one class alone. Expected two",
        ),
        ({"type": "clustering"}, ["a,x", "b,x", "c,y"], None),
        ({"file": "x" * 300}, [], "File name too long"),
        ({"encoding": "punycode"}, ["a,x-!"], "is not punycode, the encoding that the descr"),
        (
            {"type": "clustering", "sample": 1},
            ["a,x", "b,y"],
            "got 2 classes, 2 texts, samples of 1",
        ),
        (
            {"type": "clustering", "text": ["text", "label"]},
            ["a,x", "b,y"],
            "single texts to cluster",
        ),
        ({"type": "sts", "text": ["text", "text"], "score": "label"}, ["a,x"], "expected a number"),
        (
            {"type": "sts", "text": ["text", "text"], "score": "label"},
            ["a,1", "b,1"],
            "all 2 scores",
        ),
        (
            {"type": "pair-classification", "text": ["text", "text"]},
            ["a,x"],
            "got 'x', expected 1 or 0",
        ),
        (
            {"type": "pair-classification", "text": ["text", "text"]},
            ["a,1"],
            "all of 1 pairs belong",
        ),
        (
            {"type": "bitext-mining", "text": ["text", "label"]},
            ["a,b"],
            "data.csv: got one pair, expected two or more",
        ),
        (
            {"type": "bitext-mining", "text": ["text", "text"], "subset": "label"},
            ["a,x", "b,y", "c,y"],
            "data.csv, subset 'x': got one pair, expected two or more",
        ),
        (
            {"type": "reranking", "query": "text", "positive": "text", "negative": "label"},
            ["a,b", "b,"],
            "data.csv, line 3, column 'label': got nothing, expected a text or a list of texts",
        ),
        (
            {
                "type": "summarisation",
                **{"human_summaries": "text", "machine_summaries": "text", "relevance": "label"},
            },
            ["a,1"],
            "data.csv, line 2, column 'label': got '1', expected a list of numbers",
        ),
    ],
)
def test_bad_data_are_told_before_anything_is_embedded(
    tmp_path: Path, keys, rows: list[str], message: str | None
) -> None:
    keys = {"type": "classification", "file": "data.csv", **keys}
    if "test" in keys:
        keys["train"] = keys.pop("file")
    files = {"data.csv": ["text,label", *rows], "t.csv": ["text,label", "a,z"]}
    folder = described(tmp_path / "x", files, **keys)
    if message is None:
        assert tasks_of(folder)
        return
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        tasks_of(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("keys", "rows", "message"),
    [
        (
            {"type": "reranking"},
            [{"query": "a", "positive": ["b"], "negative": []}, {"query": "c", "negative": ["d"]}],
            "a.jsonl, line 2: expected the columns 'query', 'positive', 'negative', found 'query'",
        ),
        (
            {"type": "reranking"},
            [{"query": [], "positive": ["b"], "negative": ["c"]}],
            "a.jsonl, line 1, column 'query': got [], expected a text or a list of texts",
        ),
        (
            {"type": "reranking"},
            [{"query": ["a", " "], "positive": ["b"], "negative": ["c"]}],
            "line 1, column 'query': got ['a', ' '], expected a text or a list of texts",
        ),
        (
            {"type": "reranking", "positive": "p"},
            [{"query": "a", "p": ["b", 3], "negative": ["c"]}],
            "line 1, column 'p': got ['b', 3], expected a text or a list of texts",
        ),
        (
            {"type": "reranking"},
            [{"query": "a", "positive": ["b"], "negative": None}],
            "line 1, column 'negative': got nothing, expected a text or a list of texts",
        ),
        (
            {"type": "reranking"},
            [{"query": "a", "positive": ["b"], "negative": []}],
            "a.jsonl: none of 1 queries has both relevant candidates and others, expected texts in "
            "'positive' and in 'negative'.",
        ),
        (
            {"type": "summarisation"},
            [{"human_summaries": "a", "machine_summaries": ["b", "c"], "relevance": [1]}],
            "line 1, column 'relevance': got [1], expected 2 numbers, one for each machine's",
        ),
        (
            {"type": "summarisation"},
            [{"human_summaries": ["a"], "machine_summaries": ["b"], "relevance": ["good"]}],
            "line 1, column 'relevance': got ['good'], expected a list of numbers",
        ),
        (
            {"type": "summarisation"},
            [{"human_summaries": [""], "machine_summaries": ["b"], "relevance": [1]}],
            "column 'human_summaries': got [''], expected a text or a list of texts",
        ),
        (
            {"type": "summarisation"},
            [{"human_summaries": ["a"], "machine_summaries": ["b", "c"], "relevance": [1, 1]}],
            "a.jsonl, column 'relevance': the summaries of each of 1 texts are all equally relev",
        ),
    ],
)
def test_bad_lists_are_told_with_line_and_column(
    tmp_path: Path, keys, rows: list[dict], message: str
) -> None:
    lines = {"a.jsonl": [json.dumps(row) for row in rows]}
    folder = described(tmp_path / "x", lines, file="a.jsonl", **keys)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        tasks_of(folder)
    assert "\n" not in str(error.value)


def test_a_table_without_grades_has_no_candidates_to_tell_from(tmp_path: Path) -> None:
    files = {
        "d.csv": ["id,text", "1,a", "2,b"],
        "q.csv": ["id,text", "1,q"],
        "r.csv": ["query,document", "1,1", "1,2"],
    }
    keys = {"documents": "d.csv", "queries": "q.csv", "relevance": "r.csv"}
    folder = described(tmp_path / "x", files, type="reranking", **keys)
    with pytest.raises(ValueError, match=r"r.csv: none of 1 .*, expected grades above 0 and grad"):
        tasks_of(folder)
    files["r.csv"] = ["query,document", "1,1", "1,3"]
    with pytest.raises(ValueError, match=r"r.csv, line 3, column 'document': got '3', expected an"):
        tasks_of(described(folder, files, type="reranking", **keys))
    files["r.csv"] = ["query,document,grade", "1,1,2", "1,2,0", "1,1,2", "1,1,0"]
    with pytest.raises(ValueError, match=r"line 5, column 'grade': got '0', expected 2, which a"):
        tasks_of(described(folder, files, type="reranking", **keys))


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    documents = {"d.csv": ["id,text", "1,a", "1,b"], "q.csv": ["id,text", "1,q"]}
    keys = {"documents": "d.csv", "queries": "q.csv", "relevance": "r.csv"}
    twice = described(tmp_path / "twice", documents, type="retrieval", **keys)
    files = documents | {"d.csv": ["id,text", "1,a"], "r.csv": ["query,document", "1,2"]}
    unknown = described(tmp_path / "unknown", files, type="retrieval", **keys)
    absent = described(tmp_path / "absent", {}, type="knn", file="x.csv")
    with pytest.raises(ValueError, match="3 of 3 tasks cannot be used:") as error:
        tasks_of(twice, unknown, absent)
    lines = str(error.value).splitlines()[1:]
    assert "d.csv, line 3, column 'id': got '1', expected an identifier of its own" in lines[0]
    assert "r.csv, line 2, column 'document': got '2', expected an identifier of d.csv" in lines[1]
    assert lines[2].endswith("x.csv is not there.")
    for folder in (twice, absent):
        (folder / "task.json").write_text('{\n"type": knn}')
    with pytest.raises(ValueError, match=r"absent/task.json, line 2: Expecting value") as error:
        all_tasks(tmp_path)
    assert str(error.value).startswith("2 of 3 tasks cannot be used:\n")
    (absent / "task.json").write_text("[]")
    with pytest.raises(ValueError, match=r"expected a JSON object in braces, got '\[\]'"):
        tasks_of(absent)
    (absent / "task.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"task.json: nested too deeply; expected an object of"):
        tasks_of(absent)


@pytest.mark.parametrize("kind", KEYS)
def test_every_type_has_its_place_in_reports(tmp_path: Path, kind: str) -> None:
    tables = {key: f"{key}.csv" for key in ("documents", "queries", "relevance")}
    files = tables if kind == "retrieval" else {"file": "a.jsonl"}
    (task,) = chosen([], [str(described(tmp_path / "x", {}, type=kind, **files))], QUICK)
    assert task.group in GROUPS and (task.group in WITHOUT_AVERAGE or kind == "sts")
