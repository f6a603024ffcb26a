"""Tests of the command `sample-spans` against the reader's own spans and text."""

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from allennlp.common.checks import ConfigurationError

import declutr.plugin  # noqa: F401
from declutr.commands.sample_spans import describe_coverage, describe_spans
from declutr.data.span_reader import DeCLUTRDatasetReader

pytestmark = pytest.mark.slow

RECIPE = Path(__file__).parents[2] / "training_config" / "declutr.jsonnet"
SMALL = {"max_span_len": 20, "min_span_len": 5, "short_documents": "shrink"}
SPAN = re.compile(r"\[(\d+), (\d+)\): ")
KINDS = "adjacent|subsumed|contains|partial"


@pytest.fixture
def run(monkeypatch, command, checkpoint, corpus_file):
    """Return a function that runs the command with spans that fit the tiny transformer."""
    monkeypatch.setenv("TRANSFORMER_MODEL", str(checkpoint))

    def run(*arguments: str, recipe: Path = RECIPE, data=corpus_file, **reader) -> str:
        overrides = {f"dataset_reader.{key}": value for key, value in (SMALL | reader).items()}
        overrides["train_data_path"] = str(data)
        return command("sample-spans", recipe, "-o", json.dumps(overrides), *arguments)

    return run


@pytest.fixture
def words() -> DeCLUTRDatasetReader:
    return DeCLUTRDatasetReader(
        num_anchors=2, num_positives=2, max_span_len=10, min_span_len=3, seed=4
    )


@pytest.fixture
def numbered(tmp_path) -> Path:
    """Make documents whose words are their places: `3.17` is word 17 of document 3."""
    file = tmp_path / "numbered.txt"
    rows = [" ".join(f"{row}.{n}" for n in range(60)) for row in range(1, 6)]
    file.write_text("\n\n".join(rows) + "\n")  # rows 2, 4, ... are blank
    return file


class TestCommand:
    def test_names_every_kind_of_span(self, run):
        output = run()
        assert output.count("\nDocument ") == 2
        for index in (1, 2):
            assert output.count(f"  anchor {index} [") == 2
        assert len(re.findall(rf"  positive \(({KINDS})\) \[", output)) == 2 * 2 * 2
        assert output.count("  hard negative (an anchor) [") == 2 * 2
        assert output.count("  hard negative (a positive of it) [") == 2 * 2 * 2
        assert len(re.findall(r"  easy negative \(document \d+\) \[", output)) == 2 * 2

    def test_prints_the_text_of_spans(self, run, documents):
        output = run("--width", "2000")
        known = set(" ".join(documents).split())
        for line in output.splitlines():
            if SPAN.search(line):
                # The first and the last word may be cut, as spans begin and end with any token.
                assert set(SPAN.split(line)[-1].split()[1:-1]) <= known

    def test_lines_are_no_longer_than_asked(self, run):
        assert max(map(len, run("--width", "60").splitlines())) <= 60

    def test_is_repeatable_and_new_every_epoch(self, run):
        assert run() == run("--epoch", "0") != run("--epoch", "1")

    def test_as_many_documents_as_asked(self, run):
        assert run("--documents", "3").count("\nDocument ") == 3
        assert run("--documents", "99").count("\nDocument ") == 24

    def test_documents_can_be_given(self, run, numbered):
        assert re.search(r"\nDocument [13579], \d+ tokens", run("--data", str(numbered)))

    def test_the_sampling_strategy_of_the_recipe_is_used(self, run):
        kinds = re.findall(rf"positive \(({KINDS})\)", run(sampling_strategy="adjacent"))
        assert set(kinds) == {"adjacent"}

    def test_coverage_by_eighths_is_printed(self, run, documents, tmp_path):
        """The documents are short for their spans, so anchors have few possible places."""
        file = tmp_path / "short.txt"
        file.write_text("\n".join(" ".join(text.split()[:40]) for text in documents) + "\n")
        middle = []
        for placement in ("uniform", "uniform_v1"):
            output = run("--data", str(file), max_span_len=120, placement=placement)
            found = re.findall(r"  (anchors|positives): +((?:\d\.\d\d *){8})\n", output)
            assert [name for name, _ in found] == ["anchors", "positives"]
            middle.append([float(numbers.split()[3]) for _, numbers in found])
        assert middle[0][0] < 0.15 < 0.3 < middle[1][0]

    def test_one_anchor_has_no_hard_negatives(self, run):
        output = run(num_anchors=1)
        assert "hard negative" not in output and "easy negative" in output


class TestLines:
    def test_spans_and_text_agree_with_the_reader(self, words, numbered):
        seen: dict[int, set[tuple[int, int]]] = {}
        for line in "\n".join(describe_spans(words, numbered, 2, 0, 10_000)).splitlines():
            if heading := re.match(r"Document (\d+), 60 tokens", line):
                document = int(heading.group(1))
                seen[document] = set()
            elif line.strip():
                start, end = map(int, SPAN.search(line).groups())
                shown = [word.split(".") for word in SPAN.split(line)[-1].split()]
                assert [int(n) for _, n in shown] == list(range(start, end))
                (owner,) = {int(row) * 2 - 1 for row, _ in shown}  # every other row is blank
                if easy := re.search(r"easy negative \(document (\d+)\)", line):
                    assert owner == int(easy.group(1)) != document
                else:
                    assert owner == document
                    seen[document].add((start, end))
        assert len(seen) == 2
        for document, found in seen.items():
            anchors, positives = words.sample(numbered, document - 1, 0)
            assert found == set(map(tuple, [*anchors.tolist(), *positives.reshape(-1, 2).tolist()]))

    def test_coverage_is_that_of_the_spans_of_the_reader(self, words, numbered):
        """The 1,000 draws are 200 epochs of five documents with 60 tokens each."""
        _, anchors, positives = describe_coverage(words, numbered, 3)
        rows = words.documents(numbered).tolist()
        for line, which in ((anchors, 0), (positives, 1)):
            counts = np.zeros(60)
            for row, epoch in itertools.product(rows, range(3, 203)):
                for start, end in words.sample(numbered, row, epoch)[which].reshape(-1, 2):
                    counts[start:end] += 1 / 1000
            per_token = np.repeat(counts, 8).reshape(8, 60).mean(axis=1)
            shown = [float(number) for number in line.split()[1:]]
            np.testing.assert_allclose(shown, per_token, atol=0.0051)

    def test_hard_negatives_belong_to_the_other_anchor(self, words, numbered):
        text = "\n".join(describe_spans(words, numbered, 1, 0, 10_000))
        first, second = re.split(r"\n\n(?=  anchor 2)", text)

        def named(part: str, label: str) -> list[str]:
            return [SPAN.search(line).group() for line in part.splitlines() if label in line]

        assert named(first, "hard negative (an anchor)") == named(second, "anchor 2 ")
        assert named(second, "hard negative (an anchor)") == named(first, "anchor 1 ")
        assert named(first, "(a positive of it)") == named(second, "  positive")
        assert named(second, "(a positive of it)") == named(first, "  positive")

    def test_a_single_document_has_no_easy_negative(self, words, tmp_path):
        (tmp_path / "a.txt").write_text("w " * 60)
        text = "\n".join(describe_spans(words, tmp_path / "a.txt", 5, 0))
        assert text.count("Document 1") == 1 and "easy negative" not in text


class TestErrors:
    @pytest.mark.parametrize(
        ("option", "value", "message"),
        [
            ("--width", "0", "Expected a --width of at least 1, got 0"),
            ("--documents", "-1", "Expected a --documents of at least 1, got -1"),
            ("--epoch", "-1", "Expected an --epoch of 0 or more, got -1"),
        ],
    )
    def test_numbers_out_of_range_are_refused(self, run, option, value, message):
        with pytest.raises(ConfigurationError, match=message):
            run(option, value)

    def test_a_recipe_without_documents_is_refused(self, command, monkeypatch, checkpoint):
        monkeypatch.setenv("TRANSFORMER_MODEL", str(checkpoint))
        with pytest.raises(ConfigurationError, match=r"no train_data_path. Name a file with --d"):
            command("sample-spans", RECIPE)

    def test_a_reader_that_samples_no_spans_is_refused(self, run):
        with pytest.raises(ConfigurationError, match=r"does not sample spans: expected .*num_anch"):
            run(num_anchors=None)

    @pytest.mark.parametrize(
        "reader",
        [{"type": "text_classification_json", "tokenizer": "whitespace"}, {"type": "sentences"}],
        ids=["of-allennlp", "of-sentences"],
    )
    def test_a_reader_of_another_type_is_refused(self, command, tmp_path, reader):
        recipe = tmp_path / "other.json"
        recipe.write_text(json.dumps({"dataset_reader": reader, "train_data_path": "x"}))
        with pytest.raises(ConfigurationError, match='expected a dataset reader of type "declutr"'):
            command("sample-spans", recipe)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"max_span_len": 4}, "min_span_len is 5, longer than max_span_len, which is 4"),
            ({"max_span_len": 200}, "max_span_len is 200, but the transformer takes 128 tokens"),
            ({"sampling_strategy": "subsumed"}, "unknown strategy 'subsumed'.*mean 'subsuming'"),
            ({"short_documents": "skip", "max_span_len": 128}, "none of the 24 documents is long"),
            ({"data": "missing.txt"}, "Found no documents at 'missing.txt'"),
        ],
    )
    def test_wrong_settings_of_a_recipe_are_reported(self, run, changes, message):
        if changes.get("short_documents"):
            changes = {**changes, "num_anchors": 3}
        with pytest.raises(ValueError if "data" in changes else ConfigurationError, match=message):
            run(**changes)
