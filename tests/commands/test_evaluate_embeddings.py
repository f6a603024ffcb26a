"""Tests of the command `evaluate-embeddings` on tiny data: reports, resuming and errors.

Words give the labels away, so bags of words are expected to reach 100 %.
"""

import json
from pathlib import Path

import pytest
from allennlp.common.checks import ConfigurationError

import declutr.plugin  # noqa: F401
from declutr.evaluation.report import plots

pytestmark = pytest.mark.slow

CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
ENCODERS = """
import zlib
import numpy as np

def letters(sentences):
    return np.array([[text.count(c) for c in "abcdefghijklmnopqrstuvwxyz"] for text in sentences])

def constant(sentences):
    return np.ones((len(sentences), 3))

def broken(sentences):
    raise OSError("the file is gone")
"""


def trec(rows: int) -> str:
    lines = []
    for number in range(rows):
        name = CLASSES[number % len(CLASSES)]
        lines.append(f"{name}:fine {name.lower() * 3} w{number} ?")
    return "\n".join(lines) + "\n"


def pairs(rows: int, split: str) -> str:
    lines = []
    for number in range(rows):
        other = f"{split} word{number}" if number % 2 else f"nothing like it {number}"
        score = 4.5 if number % 2 else number % 5 / 5
        lines.append(f"main\tnews\t2012\t{number}\t{score}\t{split} word{number}\t{other}")
    return "\n".join(lines) + "\n"


TREC_ROWS = trec(90).splitlines()


@pytest.fixture
def data(tmp_path) -> Path:
    """Make a folder with TREC and pairs in the layout of STS-B, and no other tasks."""
    folder = tmp_path / "data"
    similar, questions = folder / "downstream/STS/STSBenchmark", folder / "downstream/TREC"
    for part in (similar, questions):
        part.mkdir(parents=True)
    (questions / "train_5500.label").write_text(trec(90))
    (questions / "TREC_10.label").write_text(trec(24))
    for split in ("train", "dev", "test"):
        (similar / f"sts-{split}.csv").write_text(pairs(30, split))
    return folder


@pytest.fixture
def run(monkeypatch, command, data, tmp_path):
    """Return a function that runs the command with encoders of a test module; it returns output."""
    (tmp_path / "encoders_of_test.py").write_text(ENCODERS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plots, "draw", lambda *a: pytest.fail("no pictures were asked for"))

    def run(*arguments: str, plain: tuple[str, ...] = ("--no-plots",)) -> str:
        options = ("--output", tmp_path / "out", "--device", "cpu", "--protocol", "prototyping")
        return command("evaluate-embeddings", data, *arguments, *options, *plain)

    return run


@pytest.fixture
def found(tmp_path):
    return lambda: json.loads((tmp_path / "out" / "results.json").read_text())


SMALL = ("--tasks", "TREC", "STS-B", "STS12", "geometry")
LETTERS = "letters=encoders_of_test:letters"


def test_several_encoders_in_one_report(run, found, tmp_path) -> None:
    output = run(LETTERS, "random:300", *SMALL)
    assert "letters: 4 tasks to do" in output and "random:300: 4 tasks to do" in output
    results = found()
    assert list(results["encoders"]) == ["letters", "random:300"]
    for encoder in results["encoders"].values():
        assert encoder["tasks"]["TREC"]["scores"]["accuracy"]["value"] == 100
        assert encoder["tasks"]["STS-B"]["scores"]["cosine Spearman"]["value"] > 60
        # 90 questions; 30 pairs a split, of which every other one is a sentence with itself, or
        # else with one that all splits share.
        assert encoder["time"]["embedded_sentences"] == 90 + 3 * 30 + 15
        assert encoder["time"]["requested_sentences"] > 114 + 180
    assert list(results["missing"]) == ["STS12"]
    assert results["protocol"]["kfold"] == 5 and results["protocol"]["seed"] == 1111
    assert {"declutr", "torch", "python"} <= set(results["versions"])
    report = (tmp_path / "out" / "report.md").read_text()
    assert "| TREC | accuracy | 100.00 ± 0.00 | 100.00 ± 0.00 |" in report
    assert "No data: STS12" in output and f"Report: {tmp_path / 'out' / 'report.md'}" in output
    assert "evaluate-embeddings" in report and "## Differences from letters" in report


def test_another_encoder_and_another_task_are_added_to_the_report(run, found) -> None:
    run(LETTERS, "--tasks", "TREC")
    output = run("random:8", LETTERS, "--tasks", "TREC", "geometry")
    assert "letters: 1 task to do, 1 kept" in output
    assert list(found()["encoders"]) == ["random:8", "letters"]
    run("random:8", "--tasks", "geometry")
    assert list(found()["encoders"]) == ["random:8", "letters"]
    assert set(found()["encoders"]["letters"]["tasks"]) == {"TREC", "geometry"}


def test_no_other_run_embeds_a_stored_sentence(run, command, found, data, tmp_path) -> None:
    stored = f"it={LETTERS.partition('=')[2]}?fingerprint=v1"
    quick = ("--resamples", "0", "--classifier", "sklearn", "--no-plots")
    output = run(LETTERS, stored, "--tasks", "geometry", plain=quick)
    assert "letters: embeddings are not stored: 'encoders_of_test:letters' has no attr" in output
    time = found()["encoders"]["it"]["time"]
    count = time["embedded_sentences"]
    assert count > 30 and time["stored_sentences"] == 0
    again = ("evaluate-embeddings", data, stored, "--tasks", "geometry", *quick)
    again = (*again, "-o", tmp_path / "other", "--dimensions", "4")
    output = command(*again, "--store", tmp_path / "out" / "embeddings", "--store-limit", "0")
    assert f"it: 0 sentences embedded, {count} taken from" in output
    assert "MB removed, 0.0 MB left" in output
    results = json.loads((tmp_path / "other" / "results.json").read_text())["encoders"]
    assert "it@4" in results, "the dimension is known from what is stored"
    results = results["it"]
    assert results["time"]["stored_sentences"] == count and results["store"]["bytes"] > 9000
    report = (tmp_path / "other" / "report.md").read_text()
    assert "| asked for by tasks | stored before |" in report
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"no folder .* another folder as --store, or gi"):
        command(*again, "--overwrite", "--store", tmp_path / "file")
    assert not (tmp_path / "other" / "embeddings").exists()


def test_other_settings_are_refused_and_overwritten(run, found) -> None:
    run(LETTERS, "--tasks", "TREC")
    with pytest.raises(ConfigurationError, match=r"protocol: seed 1111 there, 1 now.*--overwrite"):
        run(LETTERS, "--tasks", "TREC", "--seed", "1")
    run(LETTERS, "--tasks", "TREC", "--seed", "1", "--overwrite")
    assert found()["protocol"]["seed"] == 1


def test_a_failing_encoder_ends_with_an_error_and_the_others_finish(run, found, capsys) -> None:
    with pytest.raises(SystemExit) as end:
        run("bad=encoders_of_test:broken", "nowhere=absent_module:encode", LETTERS, *SMALL)
    assert end.value.code == 1
    results = found()
    assert "the file is gone" in results["encoders"]["bad"]["tasks"]["TREC"]["error"]
    assert results["encoders"]["bad"]["tasks"]["STS12"]["missing"]
    assert "absent_module" in results["not_opened"]["nowhere"]
    assert results["encoders"]["letters"]["tasks"]["TREC"]["error"] is None


def test_span_retrieval_is_scored_on_a_corpus(run, found, corpus_file) -> None:
    run("random:64", "--tasks", "span retrieval", "--corpus", str(corpus_file))
    assert (
        found()["encoders"]["random:64"]["tasks"]["span retrieval"]["scores"]["accuracy"]["value"]
        > 20
    )


@pytest.fixture
def own(tmp_path) -> Path:
    """Make a folder with a task of one's own."""
    folder = tmp_path / "own" / "intents"
    folder.mkdir(parents=True)
    rows = [f"{text},{label}" for label, _, text in (row.partition(":") for row in TREC_ROWS)]
    (folder / "all.csv").write_text("\n".join(["text,label", *rows]))
    (folder / "task.json").write_text('{"type": ["classification", "knn"], "file": "all.csv"}')
    return folder


def test_own_tasks_are_scored_beside_published_ones(run, command, found, own, tmp_path) -> None:
    run(LETTERS, "--tasks", str(own.parent), "TREC", "knn:TREC")
    tasks = found()["encoders"]["letters"]["tasks"]
    assert list(tasks) == ["TREC", "intents", "knn:TREC", "knn:intents"]
    for name, task in tasks.items():
        main = task["scores"][task["main"]]
        assert main["value"] == 100 and main["interval"] == [100, 100], name
    words = ("--output", tmp_path / "alone", "--device", "cpu", "--protocol", "prototyping")
    output = command("evaluate-embeddings", own.parent, LETTERS, *words, "--no-plots")
    assert "letters: 2 tasks to do" in output
    assert "| intents | accuracy | 100.00" in (tmp_path / "alone" / "report.md").read_text()
    assert command("evaluate-embeddings", own, "--list").splitlines()[0].startswith("intents ")


def test_own_tasks_are_checked_before_anything_is_embedded(run, own, tmp_path) -> None:
    (own / "all.csv").write_text("text,label\na,b\nc\n")
    with pytest.raises(ConfigurationError, match=r"all.csv, line 3: got 1 fields, expected 2 as"):
        run("broken=encoders_of_test:broken", "--tasks", str(own), "TREC")
    assert not (tmp_path / "out").exists()


def test_list_prints_the_tasks(command, data) -> None:
    words = ("evaluate-embeddings", data, "--list", "--tasks", "downstream")
    lines = command(*words).splitlines()
    (trec_line,) = [line for line in lines if line.startswith("TREC")]
    assert "accuracy" in trec_line and "114 sentences, 90 different" in trec_line
    (missing,) = [line for line in lines if line.startswith("MR ")]
    assert "is not there" in missing


def test_columns_of_the_list_are_as_wide_as_names(command, data) -> None:
    from declutr.evaluation.suite import all_tasks

    names = [task.name for task in all_tasks(data)]
    lines = command("evaluate-embeddings", data, "--list").splitlines()
    starts = {
        len(line) - len(line[len(n) :].lstrip())
        for n, line in zip(names, lines[-len(names) :], strict=True)
    }
    assert starts == {max(map(len, names)) + 2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--classifier", "sklearn", "--hidden", "50"), "has no hidden layer.*--hidden 50"),
        (("--hidden", "-1"), "Expected 0 or more units as --hidden, got -1"),
        (("--batch-size", "0"), "Expected a --batch-size of at least 1, got 0"),
        (("--resamples", "-1"), "Expected 0 or more samples as --resamples, got -1"),
        (("--store-limit", "-1"), "Expected 0 or more gigabytes as --store-limit, got -1"),
        (("--no-store", "--store", "x"), "Got --store with --no-store; give one of them"),
        (("--dimensions", "16,0"), "--dimensions to be whole numbers above 0, .* got '16,0'"),
        (("--dimensions", "16 32"), "--dimensions to be whole numbers above 0, .* got '16 32'"),
    ],
)
def test_numbers_are_checked_before_anything_is_embedded(run, tmp_path, arguments, message) -> None:
    with pytest.raises(ConfigurationError, match=message):
        run(LETTERS, "--tasks", "geometry", *arguments)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Expected at least one ENCODER"),
        (("random:8", "--tasks", "nothing"), "No task or group matches 'nothing'"),
        (
            ("random:8", "random:8"),
            "Two encoders are called 'random:8'.*Give one a name of its own",
        ),
        (("absent/folder/x",), "no such file or folder"),
        (("random:8", "words:absent.txt"), "no file 'absent.txt', which words:absent.txt names"),
        (
            ("random:8", f"words:{__file__}?weights=sif&counts=absent.txt"),
            "no file 'absent.txt', which words:.*counts=absent.txt names",
        ),
        (
            ("x=random:8", "x@4=random:4", "--dimensions", "4"),
            "An encoder is called 'x@4', as the leading dimensions of another",
        ),
    ],
)
def test_wrong_arguments_are_refused(run, arguments, message) -> None:
    with pytest.raises(ConfigurationError, match=message):
        run(*arguments)


@pytest.mark.parametrize("inside", ["downstream", "downstream/STS"])
def test_a_folder_too_deep_or_too_high_is_refused(command, data, inside) -> None:
    with pytest.raises(ConfigurationError, match=rf"is {inside}/ itself, .*'{data}'. Give that"):
        command("evaluate-embeddings", data / inside, LETTERS, "-o", "out")
    with pytest.raises(ConfigurationError, match=rf"'{data}' has. Give that folder"):
        command("evaluate-embeddings", data.parent, LETTERS, "-o", "out")


def test_a_run_without_any_score_is_no_success(run, capsys, monkeypatch) -> None:
    for _ in range(2):
        with pytest.raises(SystemExit) as end:
            run(LETTERS, "--tasks", "MR", "STS12")
        assert end.value.code == 1
        assert "No task could be scored: there are no data for any" in capsys.readouterr().err
    run(LETTERS, "--tasks", "TREC", "MR")
    run(LETTERS, "--tasks", "TREC", "MR")  # kept from before
    monkeypatch.setattr(plots, "available", lambda: False)
    with pytest.raises(SystemExit):
        run(LETTERS, "--tasks", "MR", plain=())  # what is there of another task is no score of it


def test_a_missing_corpus_is_reported(run, tmp_path) -> None:
    with pytest.raises(ConfigurationError, match=r"Found no '.*docs.txt', expected a file of doc"):
        run(LETTERS, "--corpus", str(tmp_path / "docs.txt"))


def test_two_evaluations_in_one_folder_are_refused(run, tmp_path) -> None:
    from filelock import FileLock

    (tmp_path / "out").mkdir()
    with (
        FileLock(tmp_path / "out" / ".lock"),
        pytest.raises(ConfigurationError, match="Another evaluation is writing to"),
    ):
        run("random:8")


def test_without_matplotlib_the_report_says_how_to_get_pictures(run, found, monkeypatch, tmp_path):
    monkeypatch.setattr(plots, "available", lambda: False)
    run(LETTERS, *SMALL, plain=())
    report = (tmp_path / "out" / "report.md").read_text()
    assert "pip install 'declutr[plots]'" in report and "![" not in report
    assert "map of TREC" in found()["encoders"]["letters"]["tasks"]


def test_the_report_links_pictures(run, command, monkeypatch, tmp_path) -> None:
    pytest.importorskip("matplotlib", reason="pictures are an extra")
    monkeypatch.undo()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    words = ("evaluate-embeddings", "data", LETTERS, "random:8", *SMALL)
    command(*words, "-o", "pictured", "--protocol", "prototyping")
    report = (tmp_path / "pictured" / "report.md").read_text()
    for name in ("tasks", "similarities", "plane", "map"):
        assert f"](plots/{name}.png)" in report
        assert (tmp_path / "pictured" / "plots" / f"{name}.png").stat().st_size > 1000


def test_truncated_scores_equal_those_of_a_truncated_encoder(
    run, found, tmp_path, checkpoint
) -> None:
    spec = f"hf:{checkpoint}?normalize=true"
    tasks = ("--tasks", "TREC", "geometry")
    output = run(f"tiny={spec}", f"alone={spec}&dim=8", *tasks, "--dimensions", "8,32")
    assert "left out: 32, for it has 32 dimensions" in output
    assert "alone: left out: 8, 32, for it has 8 dimensions" in output
    encoders = found()["encoders"]
    assert list(encoders) == ["tiny", "tiny@8", "alone"]
    for task in ("TREC", "geometry"):
        scores = [encoders[name]["tasks"][task]["scores"] for name in ("tiny@8", "alone")]
        values = [{k: score["value"] for k, score in of_one.items()} for of_one in scores]
        assert values[0] == pytest.approx(values[1], abs=1e-3), task
    assert encoders["tiny@8"]["time"]["embedded_sentences"] == 0
    report = (tmp_path / "out" / "report.md").read_text()
    assert "## Dimension against quality" in report and "| tiny@8 | 8 |" in report
    assert "\ntiny@8 " in output


def test_truncated_encoders_are_resumed_and_refused_like_others(run, found) -> None:
    run(LETTERS, "--tasks", "TREC", "--dimensions", "4")
    before = found()["encoders"]
    output = run(LETTERS, "--tasks", "TREC", "--dimensions", "4,8")
    assert "letters@4: 0 tasks to do, 1 kept" in output and "letters@8: 1 task to do" in output
    after = found()["encoders"]
    assert list(after) == ["letters", "letters@8", "letters@4"]
    for name in before:
        assert after[name]["tasks"] == before[name]["tasks"]
    with pytest.raises(ConfigurationError, match=r"letters on TREC .* seed 1111 there"):
        run(LETTERS, "--tasks", "TREC", "--dimensions", "4", "--seed", "1")
