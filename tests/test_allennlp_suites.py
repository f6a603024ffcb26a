"""The runner of AllenNLP's suites: what it makes of results and of the expected failures."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.allennlp_suites import __main__ as command
from tests.allennlp_suites import report, suite_recorder
from tests.allennlp_suites.expectations import (
    Comparison,
    Expectation,
    compare,
    read_expectations,
)
from tests.allennlp_suites.rooms import PACKAGES, Result, read, rooms_of

DATA = "allennlp/tests/data/"
RESULTS = [
    Result(f"{DATA}a_test.py::test_one", "passed"),
    Result(f"{DATA}a_test.py::test_two[x]", "failed", error="No network."),
    Result(f"{DATA}a_test.py::test_three", "skipped"),
]


def compared(*expectations: Expectation, transformers: int = 5) -> Comparison:
    return compare(RESULTS, expectations, transformers=transformers, rooms=["allennlp/data"])


def expecting(*tests: str, **others: object) -> Expectation:
    return Expectation("network", "It asks a server.", [DATA + test for test in tests], **others)  # type: ignore[arg-type]


def test_a_failure_that_nobody_expects_is_unexpected() -> None:
    found = compared()
    assert [result.test for result in found.unexpected] == [RESULTS[1].test]
    assert not found.as_expected
    assert report.findings(found).startswith(f"failed unexpectedly: {RESULTS[1].test}\n")


@pytest.mark.parametrize("pattern", ["a_test.py::test_two[x]", "a_test.py::test_t*"])
def test_an_expected_failure_is_excused(pattern: str) -> None:
    found = compared(expecting(pattern))
    assert found.as_expected and list(found.excused) == [RESULTS[1].test]


def test_an_expected_failure_that_passes_is_told() -> None:
    found = compared(expecting("*"))
    assert not found.as_expected and not found.unexpected
    assert "passed, though expected to fail (network): " + RESULTS[0].test in report.findings(found)
    assert compared(expecting("*", sometimes=True)).as_expected


def test_a_pattern_of_no_test_is_stale_where_its_room_ran() -> None:
    network = expecting("a_test.py::test_two[x]", "gone_test.py::*")
    found = compared(network, Expectation("hub", "", ["allennlp/tests/nn/*"]))
    assert found.stale == [(f"{DATA}gone_test.py::*", network)] and not found.as_expected


def test_a_pattern_of_a_test_that_was_left_out_is_not_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--pytest "-k 'not accumulation'"` is no reason to take it from the list."""
    monkeypatch.setenv("SUITE_RESULTS", str(tmp_path / "lines"))
    suite_recorder.pytest_deselected([SimpleNamespace(nodeid="tests/data/b_test.py::test_sum[2]")])
    left_out = Result(**json.loads((tmp_path / "lines").read_text()))
    left_out.test = f"allennlp/{left_out.test}"
    network = expecting("a_test.py::test_two[x]", "b_test.py::test_sum[*]", "c_test.py::test_sum")
    rooms = ["allennlp/data"]
    found = compare([*RESULTS, left_out], [network], transformers=5, rooms=rooms)
    assert [pattern for pattern, _ in found.stale] == [f"{DATA}c_test.py::test_sum"]
    assert not found.unexpected and not found.passing


def test_expectations_are_of_a_release_or_of_a_missing_package() -> None:
    one = "a_test.py::test_two[x]"
    assert compared(expecting(one, transformers=5)).as_expected
    assert compared(expecting(one, transformers=5), transformers=4).unexpected
    assert compared(expecting(one, missing="no_such_package")).as_expected
    assert compared(expecting(one, missing="json")).unexpected


def test_the_list_has_a_cause_and_a_reason_for_each(tmp_path: Path) -> None:
    assert all(entry.cause and entry.why.endswith(".") for entry in read_expectations(LIST))
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('[[failures]]\ncause = "network"\ntests = ["a"]\n')
    with pytest.raises(ValueError, match=r"entry 'network': missing: \['why'\] of its keys"):
        read_expectations(wrong)
    wrong.write_text('[[failures]]\ncause = "hub"\nwhy = "W."\ntest = "a"\n')
    with pytest.raises(ValueError, match=r"entry 'hub': unknown: \['test'\] of its keys"):
        read_expectations(wrong)


LIST = Path(command.HERE) / "expected.toml"


@pytest.fixture
def clones(tmp_path: Path) -> tuple[Path, Path]:
    """Clones whose rooms ran already; the run of "models/rc" broke off."""
    folders = tmp_path / "allennlp", tmp_path / "models"
    for folder, package, room in zip(folders, PACKAGES.values(), ("data", "rc"), strict=True):
        (folder / "tests" / room).mkdir(parents=True)
        (folder / package).mkdir()
        (folder / package / "__init__.py").touch()
    return folders


def write(out: Path, name: str, status: int, *results: Result) -> None:
    file = command.results_of(name, out)
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [{**vars(result), "test": result.test.partition("/")[2]} for result in results]
    text = "".join(json.dumps(line) + "\n" for line in [*lines, {"status": status, "seconds": 6}])
    file.write_text(text)


def test_rooms_with_results_are_not_run_again(
    clones: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out" / f"transformers-{command.version('transformers')}"
    write(out, "allennlp/data", 1, *RESULTS)
    write(out, "models/rc", 2)
    expected = tmp_path / "expected.toml"
    expected.write_text(f'[[failures]]\ncause = "network"\nwhy = "W."\ntests = ["{DATA}*two*"]\n')
    arguments = [*map(str, clones), "--out", str(tmp_path / "out"), "--expected", str(expected)]
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    said = capsys.readouterr().out
    assert ended.value.code == 1
    assert "| allennlp/data | 1 | 1 | 1 (network: 1) | 0 | 0.1 |" in said
    assert "failed unexpectedly: models/rc as a whole\n    pytest ended with status 2" in said
    page = tmp_path / "page.md"
    major = command.version("transformers").partition(".")[0]
    page.write_text(
        f"<!-- transformers {major} -->\nold\n<!-- end -->\n<!-- causes -->\n<!-- end -->\n"
    )
    with pytest.raises(SystemExit) as ended:
        command.main([*arguments, "--rooms", "allennlp/data", "--page", str(page)])
    assert ended.value.code == 0
    assert "Everything is as expected." in capsys.readouterr().out
    assert "| **allennlp** | 1 | 1 | 1 (network: 1) | 0 | 0.1 |\n" in page.read_text()
    assert "| network | W. |\n<!-- end -->\n" in page.read_text() and "old" not in page.read_text()


def test_a_folder_that_is_no_clone_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.main([str(tmp_path), str(tmp_path), "--out", str(tmp_path / "out")])
    expected = f"{tmp_path} has no allennlp/ and tests/: expected a clone of its public repository."
    assert expected in capsys.readouterr().err


def test_a_page_without_the_part_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n")
    with pytest.raises(ValueError, match="has no line <!-- causes --> with <!-- end --> below it"):
        report.write_part(page, "causes", "")


def test_rooms_are_folders_and_files_of_tests(clones: tuple[Path, Path]) -> None:
    tests = clones[0] / "tests"
    (tests / "version_test.py").touch()
    (tests / "__pycache__").mkdir()
    names = [room.name for room in rooms_of("allennlp", clones[0])]
    assert names == ["allennlp/data", "allennlp/version_test"]


def test_results_are_read_with_the_suite_in_their_ids(tmp_path: Path) -> None:
    first = Result(RESULTS[1].test, "passed")  # and it fails when it is run again
    write(tmp_path, "allennlp/data", 0, RESULTS[0], first, *RESULTS[1:])
    results, seconds = read(command.results_of("allennlp/data", tmp_path), "allennlp/data")
    assert (results, seconds) == (RESULTS, 6)
