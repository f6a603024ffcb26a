"""Tables for papers, files of them, and the page: with seeds, quotations and odd names."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from declutr.evaluation.report import exports, page
from declutr.evaluation.report.averages import DEFINITIONS, averages
from declutr.evaluation.report.comparison import Comparison
from declutr.evaluation.report.exports import as_csv, as_text, latex, write_tables
from declutr.evaluation.report.plots import Picture
from declutr.evaluation.report.quoted import quoted
from declutr.evaluation.report.ranking import UnknownRanking, definition_of
from declutr.evaluation.report.report import About, Report
from declutr.evaluation.report.score_tables import all_tables, beside_quotations, main_scores
from declutr.evaluation.results import Record, record
from declutr.evaluation.scores import Score
from declutr.evaluation.suite import TaskResult
from declutr.evaluation.text_files import CARE

STS = next(d for d in DEFINITIONS if d.name == "SimCSE STS")
ODD = "a_b & <i>c</i> | 50%"
ABOUT = About("command", "data", {"name": "prototyping"}, {}, "2026-01-02", [])


def results(noise: float, seed: int = 0) -> dict[str, Record]:
    found, rng = {}, np.random.default_rng(seed)
    for task, name in STS.members.items():
        gold = np.linspace(0, 5, 50)
        items = {"predicted": gold + noise * rng.normal(size=50), "gold": gold}
        result = TaskResult(task, "sts", name, [Score(name, "spearman_all", items)])
        found[task] = record(result, {}, resamples=20)
    return found


def report(
    by: str | None = None, folder: Path = Path(), pictures: tuple[Picture, ...] = ()
) -> Report:
    records = {ODD: results(9), "x@1": results(1), "x@2": results(1, 1), "y": results(20)}
    c = Comparison(list(records), list(STS.members), records, {}, resamples=50)
    means = {name: averages(c.values(name)) for name in records}
    rows = quoted(["scd:table1/SCD-BERT*", "declutr_acl:table2/DeCLUTR-base", "scd:table1/IS*"])
    ranked = None if by is None else definition_of(c, by)
    return Report(c, means, ABOUT, pictures, folder, quoted=rows, rank_by=ranked)


@pytest.fixture(scope="module")
def whole() -> Report:
    return report(by="")


def test_quotations_stand_where_the_convention_is_the_same(whole) -> None:
    (table,) = beside_quotations(whole)  # DeCLUTR prints other scores of these tasks
    labels = [row[0] for row in table.rows]
    assert labels == [
        ODD,
        "x (2 seeds)",
        "y",
        "IS-BERT-base [scd:table1]",
        "SCD-BERT-base [scd:table1]",
    ]
    assert list(table.header) == ["encoder", *STS.members, "Avg."]
    assert table.rows[4][1:3] == ["66.94", "78.03"] and table.rows[4][-1] == "74.19"
    of_seeds = [whole.averages_of(name)["SimCSE STS"] for name in ("x@1", "x@2")]
    expected = f"{np.mean(of_seeds):.2f} ± {np.std(of_seeds, ddof=1):.2f}"
    assert table.rows[1][-1] == expected and (1, len(table.header) - 1) in table.bold
    assert "from Zhang et al. (2020): IS-BERT-base." in table.notes[2]
    assert "protocol prototyping, not the published one" in table.notes[-1]


def test_a_part_of_an_average_stands_beside_papers_without_it(whole) -> None:
    c = whole.comparison
    some = {n: {t: of[t] for t in ("STS12", "SICK-R")} for n, of in c.records.items()}
    part = Comparison(c.encoders, list(STS.members), some)
    means = {name: averages(part.values(name)) for name in some}
    (table,) = beside_quotations(Report(part, means, ABOUT, quoted=whole.quoted))
    assert table.title == "SimCSE STS: 2 of 7 tasks"
    assert list(table.header) == ["encoder", "STS12", "SICK-R"]
    assert table.rows[-1] == ["SCD-BERT-base [scd:table1]", "66.94", "73.18"]
    records = part.records[ODD] | {"STS12": replace(part.records[ODD]["STS12"])}
    records["STS12"].result = replace(records["STS12"].result, notes=[f"3 pairs: {CARE}"])
    part.records = some | {ODD: records}
    (marked,) = beside_quotations(Report(part, means, ABOUT, quoted=whole.quoted))
    assert set(marked.notes) - set(table.notes) == {
        "Own data of STS12 are not the published: compare with care."
    }
    assert table.notes[0].startswith("No average: STS13, STS14, STS15, STS16, STS-B have no")


def test_main_scores_have_their_longer_side_down(whole) -> None:
    table = main_scores(whole)
    assert table.header[:4] == ["task", "score", ODD, "x (2 seeds)"] and len(table.rows) == 7
    whole_table = quoted(["scd:table1"])
    many = Report(whole.comparison, whole.averages, ABOUT, quoted=whole_table)
    assert main_scores(many).header[:2] == ["encoder", "STS12"]


def test_latex_is_escaped_with_booktabs_and_bold(whole) -> None:
    text = latex(beside_quotations(whole)[0])
    assert r"\begin{tabular}{lrrrrrrrr}" in text and text.count("rule\n") == 3
    assert r"a\_b \& <i>c</i> | 50\% & " in text and "textbf{" in text
    assert text.startswith("% SimCSE STS\n% Scores: all Spearman: STS12")


def test_files_in_every_format(whole, tmp_path) -> None:
    files = write_tables(whole, tmp_path / "tables", ["csv", "latex", "markdown", "svg"])
    names = {path.name for path in files}
    assert len(names) == 3 * len(all_tables(whole)) + 2
    assert {"SimCSE_STS.csv", "scores.tex", "STS12_16_all_Spearman.md", "pairs.csv"} <= names
    rows = list(csv.DictReader(io.StringIO((tmp_path / "tables/all_scores.csv").read_text())))
    own = [row for row in rows if row["encoder"] == ODD and row["task"] == "STS13"]
    cell = whole.comparison.cell(ODD, "STS13")
    assert float(own[0]["value"]) == cell.value and float(own[0]["low"]) == cell.interval.low
    quotes = [row for row in rows if row["source"].startswith("quoted: SCD")]
    assert {row["task"] for row in quotes} == {*STS.members, "SimCSE STS"}
    tests = list(csv.DictReader(io.StringIO((tmp_path / "tables/pairs.csv").read_text())))
    x, y = (
        np.mean([whole.comparison.value(n, "STS13") for n in of]) for of in (["x@1", "x@2"], "y")
    )
    (test,) = [t for t in tests if (t["first"], t["second"], t["what"]) == ("x", "y", "STS13")]
    assert float(test["first_minus_second"]) == pytest.approx(x - y)
    assert {row["what"] for row in tests if row["kind"] == "average"} == {
        "SimCSE STS",
        "STS12-16 all Spearman",
    }
    assert {(row["first"], row["second"]) for row in tests} == {(ODD, "x"), (ODD, "y"), ("x", "y")}
    assert write_tables(whole, tmp_path / "none", ["svg"]) == []
    assert as_csv(["a"], [["–"], [float("nan")], ["x,y"]]) == 'a\n""\n""\n"x,y"\n'
    assert "**" in as_text(all_tables(whole)[0], "markdown")


def test_what_latex_and_the_page_need_is_told(whole, monkeypatch) -> None:
    monkeypatch.setattr(exports.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'declutr\[tables\]'"):
        latex(all_tables(whole)[0])
    with pytest.raises(ModuleNotFoundError, match=r"report.html needs markdown-it-py"):
        page.page(whole, "")


def test_sections_on_ranks_pairs_and_seeds(whole) -> None:
    text = whole.markdown()
    ranks = re.findall(r"^\| (\d|–) \| (.+?) \| [\d.± ]+ \| (.+?) \|$", text, re.MULTILINE)
    assert [(rank, name) for rank, name, _ in ranks] == [
        ("1", "x (2 seeds)"),
        *(("–", f"{name}-BERT-base [scd:table1]") for name in ("SCD", "IS")),
        *(("2", ODD.replace("|", "\\|")), ("3", "y")),
    ]
    assert ranks[0][2] == ranks[1][2] == "–" and float(ranks[-1][2].strip("< ")) < 0.05
    assert "## Pairs of encoders" in text and "| x | y | 7 | 7 (7) | 0 (0) |" in text
    assert "## Training seeds" in text and "| task | score | x (2 seeds) |" in text
    found = whole.as_json()
    assert found["seeds"] == {"x": ["x@1", "x@2"]} and len(found["pairs"]["tasks"]) == 21
    assert "SCD-BERT-base [scd:table1]" in found["quoted"]


def test_what_to_order_by(whole) -> None:
    c = whole.comparison
    assert definition_of(c, "simcse sts") is STS and definition_of(c, "") is STS
    assert definition_of(c, "STS-B").members == {"STS-B": "cosine Spearman"}
    assert definition_of(c, "STS-B/cosine Spearman").name == "STS-B/cosine Spearman"
    some = Comparison(c.encoders, ["STS12", "SICK-R"], c.records)
    assert definition_of(some, "").name == "mean of the 2 tasks that all have"
    for by, message in {
        "MR": "no average or task 'MR'. Expected a task .STS12, STS13",
        "simcse st": "Did you mean 'SimCSE STS'. .* an average: SimCSE STS; MTEB STS, 7 of",
        "STS-B/F1": "STS-B has no score 'F1'",
    }.items():
        with pytest.raises(UnknownRanking, match=message):
            definition_of(c, by)
    with pytest.raises(UnknownRanking, match="no task that all encoders have"):
        definition_of(Comparison(["a"], [], {}), "")


def with_another_task(group: str, statistic: str) -> Comparison:
    """Return two encoders on STS12 and on a task of another group."""
    records, rng = {}, np.random.default_rng(0)
    for encoder, noise in (("a", 5), ("b", 6)):
        score = Score("level", statistic, {"value": rng.random(10)})
        other = record(TaskResult("other", group, "level", [score]), {}, resamples=20)
        records[encoder] = {"STS12": results(noise)["STS12"], "other": other}
    return Comparison(["a", "b"], ["STS12", "other"], records, {}, resamples=50)


def test_encoders_are_not_ordered_by_geometry() -> None:
    """Of uniformity less is better, so that the worst encoder would come first."""
    c = with_another_task("geometry", "log_mean")
    for by in ("other", "other/level"):
        with pytest.raises(UnknownRanking, match=r"no order by other: of alignment and uniformity"):
            definition_of(c, by)
    with pytest.raises(UnknownRanking, match=r"Expected a task \(STS12\)"):
        definition_of(c, "nothing")
    assert definition_of(c, "").members == {"STS12": "all Spearman"}


@pytest.mark.parametrize("by", ["", "other", "other/level"])
def test_clustering_is_not_tested_in_a_leaderboard_either(by: str) -> None:
    """Its items are draws of the same texts, which say nothing of others."""
    c = with_another_task("clustering", "mean")
    ranked = Report(c, {"a": [], "b": []}, ABOUT, rank_by=definition_of(c, by))
    assert [one.entry.value > 0 for one in ranked.ranking.rows] == [True, True]
    assert not ranked.pairs.averages and {test.what for test in ranked.pairs.tasks} == {"STS12"}


def test_the_page_is_one_file_in_which_nothing_of_a_name_runs(tmp_path) -> None:
    file = tmp_path / "plots" / "tasks.png"
    file.parent.mkdir()
    file.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x05\xdc")  # 1,500 pixels, 10 inches
    found = report(None, tmp_path, (Picture(file, "Tasks", "caption"),))
    markdown = found.markdown() + "\n\n![x](http://a.b/c.png)\n\n<script>alert(1)</script>\n"
    text = page.page(found, markdown)
    assert re.search('src="data:image/png;base64,iVBO[^"]+" [^>]*width="960"', text)
    assert "a.b/c.png" not in text
    assert "<i>c</i>" not in text and "<script>alert" not in text
    assert not re.search(r'(src|href)="(?!data:|#)[^"]', text)
    assert '<td class="quoted">SCD-BERT-base [scd:table1]</td>' in text
    assert "<summary>" in text and text.count("<details>") == text.count("</details>")
    assert '<a href="#section-1">Scores</a>' in text and '<h2 id="section-1">Scores</h2>' in text
    assert "default-src 'none'" in text and "prefers-color-scheme: dark" in text
