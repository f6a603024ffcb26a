"""Reports: their contents, and the agreement of Markdown and JSON."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from declutr.evaluation.report.averages import averages
from declutr.evaluation.report.comparison import Comparison
from declutr.evaluation.report.dimensions import by_family
from declutr.evaluation.report.plots import Picture
from declutr.evaluation.report.quoted import quoted
from declutr.evaluation.report.report import CONVENTION, About, Report
from declutr.evaluation.report.truncated_encoders import add_with_dimensions
from declutr.evaluation.results import Record, ResultFolder
from declutr.evaluation.run import Run
from declutr.evaluation.suite import evaluate
from declutr.evaluation.task import PUBLISHED
from tests.evaluation.fakes import Absent, Encoder, Failing, Positive, Similar, Spread, hashed

ABOUT = About(
    "declutr evaluate-embeddings data a b",
    "data",
    {"name": "published", "kfold": 10},
    {"declutr": "1.0"},
    "2026-01-02T03:04:05+00:00",
    ["No pictures."],
)


def constant(texts: list[str]) -> np.ndarray:
    return np.ones((len(texts), 4), dtype=np.float32)


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Compare two encoders and a collapsed one on most groups of tasks; one task has no data."""
    folder = ResultFolder(tmp_path_factory.mktemp("out"))
    texts = [f"text {number}" for number in range(80)]
    tasks = [
        Positive("MR", texts),
        Absent("CR|new"),
        Similar(),
        Positive("Tense", texts[:20], "probing"),
        Spread(texts),
        Failing(RuntimeError("a | bar"), "odd"),
        Positive("map of MR", texts, "map"),
    ]
    run = Run(folder, tasks, PUBLISHED, "1.0", say=lambda line: None)
    run.add(Encoder("first"))
    run.add(Encoder("second|bar", lambda texts: hashed([text + "?" for text in texts])))
    run.add(Encoder("flat", constant))
    names = ["first", "second|bar", "flat"]
    return run.comparison(names, [task.name for task in tasks])[0]


@pytest.fixture(scope="module")
def report(comparison) -> Report:
    means = {name: averages(comparison.values(name)) for name in comparison.encoders}
    pictures = [Picture(Path("out/plots/tasks.png"), "Tasks", "What it shows.")]
    return Report(comparison, means, ABOUT, pictures, Path("out"), {"fourth": "There is no file."})


@pytest.fixture(scope="module")
def markdown(report) -> str:
    return report.markdown()


def section(markdown: str, title: str) -> str:
    (found,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", markdown, re.DOTALL | re.MULTILINE)
    return found


def row(text: str, *starts: str) -> list[str]:
    """Return the remaining cells of the table row that begins with `starts`."""
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line[:1] == "|"]
    cells = [[cell.strip() for cell in found] for found in rows]
    (found,) = [found for found in cells if tuple(found[: len(starts)]) == starts]
    return found[len(starts) :]


class TestMarkdown:
    def test_rows_of_a_table_have_equal_numbers_of_cells(self, markdown) -> None:
        for table in re.findall(r"(?:^\|.*\n)+", markdown, re.MULTILINE):
            widths = {len(re.split(r"(?<!\\)\|", line)) for line in table.splitlines()}
            assert len(widths) == 1, table

    def test_scores_with_half_widths_and_the_best_bold(self, markdown, comparison) -> None:
        cells = row(section(markdown, "Scores"), "MR", "accuracy")
        expected = []
        for name in comparison.encoders:
            cell = comparison.cell(name, "MR")
            text = f"{cell.value:.2f} ± {cell.half_width:.2f}"
            expected.append(f"**{text}**" if name in comparison.best("MR") else text)
        assert cells == expected and sum(cell[:2] == "**" for cell in cells) == 1

    def test_a_score_that_is_not_a_number_is_called_so(self, markdown) -> None:
        cells = row(section(markdown, "Scores"), "STS12", "all Spearman")
        assert cells[2] == "not a number"  # equal cosines have no order

    def test_every_convention_is_shown_but_not_subsets(self, markdown) -> None:
        text = section(markdown, "Similarity in every convention")
        assert len(row(text, "**STS12**", "all Spearman")) == 3
        assert len(row(text, "", "mean Spearman")) == len(row(text, "", "wmean Pearson")) == 3
        assert "part Spearman" not in text
        text = section(markdown, "Other scores")
        assert "| part Spearman |" in text and len(row(text, "**MR**", "dev_accuracy")) == 3

    def test_a_collapse_is_told_at_the_top_and_with_the_geometry(self, markdown) -> None:
        alarm = "**flat**"
        assert alarm in markdown.split("## ")[0] and "COLLAPSE" in markdown.split("## ")[0]
        geometry = section(markdown, "Geometry")
        assert alarm in geometry and len(row(geometry, "flat")) == 2
        assert row(geometry, "flat")[0].startswith("1 ±")

    def test_differences_from_the_first(self, markdown, report) -> None:
        cells = row(section(markdown, "Differences from first"), "MR", "accuracy")
        assert len(cells) == 2
        found = report.differences["flat"]["MR"]
        text = f"{found.value:+.2f}"
        text = f"**{text}**" if found.certain else text
        assert cells[1] == f"{text} [{found.interval.low:+.2f}, {found.interval.high:+.2f}]"

    def test_missing_data_and_failures(self, markdown) -> None:
        assert "CR\\|new: CR|new.txt is" not in markdown  # a bar is escaped wherever it appears
        assert "* CR\\|new: CR\\|new.txt is not there." in section(markdown, "Missing data")
        text = section(markdown, "Failed")
        assert row(text, "fourth", "all") == ["There is no file."]
        assert row(text, "first", "odd") == ["RuntimeError: a \\| bar"]
        assert "CR" not in text

    def test_averages_name_what_they_lack(self, markdown) -> None:
        text = section(markdown, "Averages")
        lacks = r"^\* SimCSE STS: lacks STS13, STS14, STS15, STS16, STS-B, SICK-R$"
        assert re.search(lacks, text, re.M)

    def test_the_time_of_each_encoder_is_told(self, markdown) -> None:
        cells = row(section(markdown, "Time"), "first")
        embedded, requested = 80 + 120 + 2, 80 + 120 + 20 + 80 + 2 + 80
        assert cells[4:6] == [str(embedded), str(requested)]
        shares = [int(re.findall(r" s \((\d+) %\)$", cell)[0]) for cell in cells[1:4]]
        assert 97 <= sum(shares) <= 102

    def test_command_data_and_versions_are_told(self, markdown) -> None:
        text = section(markdown, "How this was made")
        assert "`declutr evaluate-embeddings data a b`" in text and "kfold 10" in text
        assert "declutr 1.0" in text and "2026-01-02T03:04:05" in text
        assert "> No pictures." in markdown
        assert row(section(markdown, "Encoders"), "first")[0] == "`fake:first`"

    def test_pictures_are_linked_from_where_the_report_is(self, markdown) -> None:
        assert "![Tasks](plots/tasks.png)\n\n*What it shows.*" in markdown

    def test_maps_appear_in_no_table(self, markdown) -> None:
        assert not re.search(r"^\| map of MR", markdown, re.MULTILINE)


class TestJson:
    def test_the_report_is_json_and_has_every_score(self, report, comparison) -> None:
        found = json.loads(json.dumps(report.as_json(), allow_nan=False))
        first = found["encoders"]["first"]["tasks"]
        cell = comparison.cell("first", "MR")
        accuracy = {"value": cell.value, "interval": list(cell.interval)}
        assert first["MR"]["scores"]["accuracy"] == accuracy
        assert first["MR"]["scores"]["dev_accuracy"] == {"value": 100.0, "interval": None}
        assert "part Spearman" in first["STS12"]["scores"]
        flat = found["encoders"]["flat"]["tasks"]["STS12"]["scores"]["all Spearman"]
        assert flat == {"value": None, "interval": None}
        assert first["CR|new"]["missing"] and first["odd"]["error"] == "RuntimeError: a | bar"

    def test_missing_data_differences_pictures_averages_and_times_are_there(self, report) -> None:
        found = report.as_json()
        assert found["missing"] == {"CR|new": "CR|new.txt is not there."}
        assert found["not_opened"] == {"fourth": "There is no file."}
        assert found["differences"]["from"] == "first"
        assert set(found["differences"]["of"]) == {"second|bar", "flat"}
        assert found["pictures"] == ["plots/tasks.png"]
        average = found["encoders"]["first"]["averages"]["SimCSE STS"]
        assert average["value"] is None and "STS13" in average["missing"]
        time = found["encoders"]["first"]["time"]
        assert time["embedded_sentences"] == 202 and 0 <= time["scoring_share"] <= 1


def test_an_average_that_all_have_is_a_row() -> None:
    tasks = [Similar(name) for name in ("STS12", "STS13", "STS14", "STS15", "STS16")]
    tasks += [Positive(f"own {n}", [f"{m}" for m in range(20 * n)], "extra") for n in (1, 2)]
    records = {}
    for name in ("a", "b"):
        of_one = evaluate(lambda texts, n=name: hashed([t + n for t in texts]), tasks)
        records[name] = {result.task: Record(result, {}) for result in of_one}
    found = Comparison(["a", "b"], [task.name for task in tasks], records)
    means = {name: averages(found.values(name)) for name in "ab"}
    text = section(Report(found, means, ABOUT).markdown(), "Averages")
    cells = row(text, "STS12-16 mean Spearman")
    names = [task.name for task in tasks if task.group == "sts"]
    by_hand = [np.mean([found.cell(a, n, "mean Spearman").value for n in names]) for a in "ab"]
    assert [cell.strip("*") for cell in cells] == [f"{value:.2f}" for value in by_hand]
    assert cells[int(np.argmax(by_hand))].startswith("**")
    by_hand = [np.mean([found.value(a, f"own {n}") for n in (1, 2)]) for a in "ab"]
    own = row(text, "Other tasks, accuracy, mean of 2")
    assert [cell.strip("*") for cell in own] == [f"{value:.2f}" for value in by_hand]


@pytest.mark.parametrize("own", [["intents"], ["intents", "topics"]])
def test_a_report_on_own_tasks_has_nothing_of_published_ones(own: list[str]) -> None:
    tasks = [Positive(name, [f"{number}" for number in range(20)], "extra") for name in own]
    records = {"a": {one.task: Record(one, {}) for one in evaluate(hashed, tasks)}}
    found = Comparison(["a"], own, records)
    rows = quoted(["scd:table1", "declutr_acl:table3"])
    report = Report(found, {"a": averages(found.values("a"))}, ABOUT, quoted=rows)
    text = report.markdown()
    assert ("## Averages" in text) == (len(own) > 1)
    assert not re.search("lack|SimCSE STS:|SCD-BERT", text.split("## Beside published numbers")[0])
    why = section(text, "Beside published numbers")
    assert "Not shown: scd:table1: it prints STS12 (all Spearman), STS13" in why
    assert "declutr_acl:table3" in why and "SCD-BERT" not in section(text, "Encoders")
    assert any("No row of scd:table1 is shown" in line for line in report.summary())


def test_a_report_on_one_encoder_without_scores() -> None:
    found = Comparison(["a"], [], {"a": {}})
    text = Report(found, {"a": averages({})}, ABOUT).markdown()
    assert "No task has a score." in text and "Differences" not in text


def test_a_summary_for_a_terminal(report) -> None:
    lines = report.summary()
    assert lines[0].split() == ["first", "second|bar", "flat"]
    assert lines[1].startswith("MR") and len(lines[1].split()) == 4
    assert "No data: CR|new" in lines
    assert "Failed: first on odd: RuntimeError: a | bar" in lines


def test_names_of_conventions_are_told_from_those_of_subsets() -> None:
    for name in ("all Pearson", "trained Spearman dev", "MTEB Spearman"):
        assert CONVENTION.fullmatch(name), name
    for name in ("MSRpar Spearman", "images Pearson", "all"):
        assert not CONVENTION.fullmatch(name), name


class Small(Similar):
    def __init__(self, name: str) -> None:
        super().__init__(name, pairs=24)


class Wide(Encoder):
    def __init__(self, name: str) -> None:
        super().__init__(name, lambda texts: hashed([text + name for text in texts], 8))

    def describe(self) -> dict[str, object]:
        return {"fingerprint": "0123456789abcdef", "dimension": 8}


class TestDimensions:
    """Reports on encoders of 8 dimensions, two of which also have truncated encoders."""

    @pytest.fixture(scope="class")
    @staticmethod
    def comparison(tmp_path_factory) -> Comparison:
        texts = [f"text {number}" for number in range(40)]
        tasks = [Positive("MR", texts), *map(Small, ("STS12", "STS13")), Spread(texts)]
        run = Run(ResultFolder(tmp_path_factory.mktemp("out")), tasks, PUBLISHED, "1.0", say=print)
        for name, dimensions in (("first|bar", [4]), ("second", [2, 4]), ("whole", [])):
            add_with_dimensions(run, Wide(name), dimensions)
        return by_family(run.comparison(["first|bar"], [task.name for task in tasks])[0])[0]

    @pytest.fixture(scope="class")
    @staticmethod
    def report(comparison) -> Report:
        means = {name: averages(comparison.values(name)) for name in comparison.encoders}
        pictures = [Picture(Path("plots/dimensions.png"), "Dimensions", "What it shows.")]
        return Report(comparison, means, ABOUT, pictures)

    @pytest.fixture(scope="class")
    @staticmethod
    def text(report) -> str:
        return section(report.markdown(), "Dimension against quality")

    @pytest.mark.slow
    def test_each_truncated_encoder_has_a_row_with_its_share(self, text, comparison) -> None:
        mean = {
            name: np.mean([comparison.cell(name, task).value for task in ("STS12", "STS13")])
            for name in ("second", "second@4")
        }
        share = 100 * mean["second@4"] / mean["second"]
        rate = comparison.cell("second@4", "MR").value
        of_all = 100 * rate / comparison.cell("second", "MR").value
        cells = row(text, "second@4")
        assert cells[:2] == ["4", f"{rate:.2f} ({of_all:.1f} %)"]
        # A share of a score of 0 or less has no meaning.
        shown = f" ({share:.1f} %)" if mean["second"] > 0 else ""
        assert cells[2] == f"{mean['second@4']:.2f}{shown}"
        assert row(text, "second", "8")[1] == f"{mean['second']:.2f}"
        header = row(text, "encoder", "dimensions")
        assert header == ["MR, accuracy", "Semantic similarity, mean of 2"]
        assert "Semantic similarity, mean of 2: STS12, STS13." in text
        names = re.findall(r"^\| (\S+@\d)", text, re.MULTILINE)
        assert names == ["first\\|bar@4", "second@4", "second@2"]

    def test_losses_are_shown_with_intervals(self, text, report) -> None:
        table = text[text.index("| second | score | 4 | 2 |") :]
        found = report.losses["second"]["second@4"]["STS13"]
        cell = row(table, "STS13", "all Spearman")[0]
        assert f"{found.value:+.2f}" in cell
        assert cell.endswith(f"[{found.interval.low:+.2f}, {found.interval.high:+.2f}]")
        assert found.certain == cell.startswith("**")

    def test_other_tables_have_whole_encoders_only(self, report) -> None:
        markdown = report.markdown()
        assert "3 encoders on 4 tasks" in markdown
        assert len(row(section(markdown, "Scores"), "MR", "accuracy")) == 3
        differences = section(markdown, r"Differences from first\\\|bar")
        assert row(differences, "task", "score") == ["second", "whole"]
        assert "@" not in section(markdown, "Geometry")

    def test_the_picture_is_linked_and_truncated_encoders_embed_nothing(self, report, text) -> None:
        assert "![Dimensions](plots/dimensions.png)\n\n*What it shows.*" in text
        markdown = report.markdown()
        cells = row(section(markdown, "Time"), "second@2")
        assert cells[4] == "0" and cells[7] == "–"
        cells = row(section(markdown, "Encoders"), "second@2")
        assert cells[1:] == ["–", "2", "leading dimensions of second", "`0123456789ab@2`"]

    def test_json_has_truncated_encoders_and_losses(self, report) -> None:
        found = json.loads(json.dumps(report.as_json(), allow_nan=False))
        assert list(found["losses"]) == ["first|bar", "second"]
        lost = found["losses"]["second"]["second@2"]["MR"]
        assert lost["value"] == pytest.approx(report.losses["second"]["second@2"]["MR"].value)
        assert len(lost["interval"]) == 2
        assert set(found["differences"]["of"]) == {"second", "whole"}
        assert found["encoders"]["second@2"]["description"]["dimension"] == 2

    def test_the_summary_has_a_row_for_each_truncated_encoder(self, report) -> None:
        lines = report.summary()
        assert lines[0].split() == ["first|bar", "second", "whole"]
        (line,) = [line for line in lines if line.startswith("second@2")]
        assert line.split()[1] == "2"


def test_no_section_of_dimensions_without_truncated_encoders(markdown, report) -> None:
    assert "Dimension against quality" not in markdown
    assert report.as_json()["losses"] == {}
