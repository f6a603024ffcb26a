"""The command `leaderboard` on stored results, and what it refuses."""

import json

import pytest
from allennlp.common.checks import ConfigurationError

import declutr.plugin  # noqa: F401
from declutr.evaluation.results import ResultFolder
from declutr.evaluation.run import Run
from declutr.evaluation.task import PUBLISHED
from tests.evaluation.fakes import Encoder, Positive, hashed

TEXTS = [f"text {number}" for number in range(40)]


@pytest.fixture
def results(tmp_path):
    for name in ("a", "b"):
        place = ResultFolder(tmp_path / name)
        run = Run(place, [Positive("MR", TEXTS)], PUBLISHED, "1", say=lambda line: None)
        run.add(Encoder(name, lambda texts, n=name: hashed([n + text for text in texts]), name))
    return tmp_path


def test_a_report_without_evaluating(results, command) -> None:
    names = [str(results / name) for name in "ab"]
    formats = ("--format", "csv", "latex", "--quote", "scd:table2", "--no-plots")
    output = command("leaderboard", *names, "-o", results / "out", "--by", "MR", *formats)
    assert f"Report: {results / 'out' / 'report.md'}, {results / 'out' / 'report.html'}" in output
    text = (results / "out" / "report.md").read_text()
    assert "## Leaderboard" in text and "By MR." in text and "SimCSE-BERT-base [scd:table2]" in text
    assert list(json.loads((results / "out" / "results.json").read_text())["encoders"]) == [
        "a",
        "b",
    ]
    assert "a,b," in (results / "out" / "tables" / "pairs.csv").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-o", "{}/a"), "is one of the folders of results"),
        (("-o", "{}/out", "--by", "XY"), "no average or task 'XY'"),
        (("-o", "{}/out", "--quote", "scd:table9"), "No row of a paper's table is called"),
        (("-o", "{}/out", "--resamples", "-1"), "Expected 0 or more samples"),
    ],
)
def test_what_is_refused_before_anything_is_written(results, command, options, message) -> None:
    with pytest.raises(ConfigurationError, match=message):
        command("leaderboard", results / "a", *(word.format(results) for word in options))
    assert not (results / "out").exists()
