"""Benchmarks against rivals and of runs that are killed: what is compared does the same work."""

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import bulk, processor_peak, step, timed_worker
from benchmarks.flops import forward_flops
from benchmarks.inputs import SpansBatch
from benchmarks.rival_quality import require_alike, scored_pairs
from benchmarks.rival_texts import draw_texts, model_length
from benchmarks.static_texts import passages
from benchmarks.timed_process import STEP, STEP_TEXTS, TimedProcess
from benchmarks.timing import Timing
from declutr.archives.static_folder import StaticTable
from declutr.static_vectors.tokenizers import trained_word_pieces


def test_texts_are_of_the_lengths_that_are_asked_for(checkpoint: Path, tmp_path: Path) -> None:
    corpus, counts = tmp_path / "corpus.txt", {"short": 30, "mixed": 60, "long": 3}
    corpus.write_text("\n".join(f"ka lo{i} mi" for i in range(2000)))
    drawn, most = draw_texts(corpus, checkpoint, counts), model_length(checkpoint)
    words = {kind: [len(text.split()) for text in each.texts] for kind, each in drawn.items()}
    assert {kind: len(each) for kind, each in words.items()} == counts
    assert min(words["short"]) >= 5 and max(words["short"]) <= 15
    assert min(words["long"]) >= 200 and max(words["long"]) <= 900
    mixed = drawn["mixed"].lengths
    assert mixed.min() >= 3 and mixed.max() <= most and mixed.double().median() < most / 3
    assert drawn["long"].lengths.tolist() == [most] * 3
    again = draw_texts(corpus, checkpoint, counts)
    assert all(again[kind].texts == each.texts for kind, each in drawn.items())
    corpus.write_text("too few words")
    with pytest.raises(ValueError, match="has 3 words"):
        draw_texts(corpus, checkpoint, counts)


def test_texts_of_static_encoders_have_no_unknown_tokens(tmp_path: Path) -> None:
    corpus, counts = tmp_path / "corpus.txt", {"short": 9, "few": 4, "mixed": 9, "long": 2}
    corpus.write_text("\n".join(f"ka lo mi{i} \u65e5" for i in range(900)))
    tokenizer = trained_word_pieces(lambda: ["ka lo mi 0123456789"] * 9, 100)
    drawn = passages(corpus, StaticTable(tokenizer, np.zeros((100, 2))), counts)
    assert {kind: len(texts) for kind, texts in drawn.items()} == counts
    assert all(5 <= len(text.split()) <= 15 for text in drawn["short"] + drawn["few"])
    assert "ka lo mi" in drawn["long"][0] and "\u65e5" not in "".join(drawn["long"])


def test_the_first_text_with_another_vector_is_named() -> None:
    texts = ["alike", "cut", "also cut"]
    require_alike("a and b", np.array([1.0, 0.9991, 1.0]), texts)
    message = r"a and b differ in 2 of 3 texts, first in text 1 .*'cut'"
    with pytest.raises(ValueError, match=message):
        require_alike("a and b", np.array([1.0, np.nan, 0.9]), texts)


def test_scored_pairs_of_the_benchmark(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="SentEval"):
        scored_pairs(tmp_path)
    file = tmp_path / "downstream" / "STS" / "STSBenchmark" / "sts-test.csv"
    file.parent.mkdir(parents=True)
    file.write_text("main\tfile\t2012\t1\t4.5\ta man\ta person\n" * 2)
    name, pairs = scored_pairs(tmp_path)
    assert (name, pairs.gold[0]) == ("STS-B", 4.5)
    assert pairs.sentences == ["a man"] * 2 + ["a person"] * 2


def test_a_worker_embeds_what_it_is_asked_for(checkpoint: Path, tmp_path: Path) -> None:
    from declutr import Encoder

    texts = {"some": ["ka lo mi", "ka"], "other": ["lo"]}
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    settings = {
        **{"what": "declutr", "model": str(checkpoint), "dtype": "float32"},
        **{"threads": torch.get_num_threads(), "texts": str(tmp_path / "texts.json")},
    }
    saved, answers = tmp_path / "vectors.npy", io.StringIO()
    questions = [{"kind": "some", "size": 1}, {"kind": "some", "save": str(saved)}]
    timed_worker.serve(settings, map(json.dumps, questions), answers)
    begun, ready, *times = map(json.loads, answers.getvalue().splitlines())
    assert begun == {"begun": True} and ready["dtype"] == "float32"
    assert ready["processor_seconds"] > 0
    assert len(times) == 2 and all(answer["seconds"] > 0 for answer in times)
    expected = Encoder(checkpoint, device="cpu", dtype="float32")(texts["some"])
    assert np.array_equal(np.load(saved), expected)


@pytest.mark.parametrize("whose", ["ours", "reference"])
def test_a_worker_takes_a_training_step_a_question(
    whose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[object, ...]] = []
    way = "reference_of" if whose == "reference" else "ours_of"
    monkeypatch.setattr(step, way, lambda *asked: lambda: taken.append(asked))
    (tmp_path / "texts.json").write_text(json.dumps(STEP_TEXTS))
    settings = {
        **{"what": "training step", "whose": whose, "shape": "tiny", "dtype": "float32"},
        **{"documents": 3, "dropout": 0.2, "threads": torch.get_num_threads()},
        "texts": str(tmp_path / "texts.json"),
    }
    questions = [json.dumps({"kind": STEP})] * 2
    timed_worker.serve(settings, questions, io.StringIO())
    assert len(taken) == 3  # one to be ready, and one a question
    shape, dropout, precision, batch, device = taken[-1]
    assert isinstance(batch, SpansBatch)
    assert (shape, dropout, precision, device) == ("tiny", 0.2, "float32", "cpu")
    assert batch.num_documents == 3


@pytest.mark.slow
def test_a_process_that_fails_shows_its_log(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"exit status 1(.|\n)*KeyError: 'nothing'"):
        TimedProcess({"what": "nothing", "threads": 1}, [], tmp_path, watch=True)


def test_operations_of_a_forward_pass() -> None:
    layers, width, inner, operations = 3, 8, 20, 0
    for length in (2, 5):  # of each layer: four projections, two of the feed-forward layer,
        shapes = [(length, width, width)] * 4 + [(length, width, inner), (length, inner, width)]
        shapes += [(length, width, length), (length, length, width)]  # scores, and what they weigh
        operations += layers * sum(2 * rows * inside * columns for rows, inside, columns in shapes)
    assert forward_flops(layers, width, inner, torch.tensor([2, 5])) == operations


def test_products_of_the_peak_are_products() -> None:
    for dtype, ways in processor_peak._products(64).items():
        plain, *others = ways.values()
        for other in others:
            try:
                found = other()
            except (AttributeError, NotImplementedError, RuntimeError, TypeError):
                continue  # not in this torch: it is left out there too
            scale = 1e-4 if dtype == "int8" else 1.0
            assert torch.allclose(found.float(), scale * plain().float(), rtol=0.02, atol=0.05)


def test_killed_runs_must_take_as_long_as_the_work_they_do(tmp_path: Path) -> None:
    def runs(kills: int, processor: float, **changes: Any) -> bulk.Runs:
        made = bulk.Runs(tmp_path, tmp_path, tmp_path, 1, kills, f"killed {kills} times")
        made.parts, made.processor_seconds = [[1.0] * (kills + 1)], [processor]
        made.digests = ["same"]
        return dataclasses.replace(made, **changes)

    whole, killed = Timing("whole", [10.0]), Timing("killed", [12.0])
    bulk.require_consistent(whole, killed, runs(0, 10), runs(2, 12))
    with pytest.raises(SystemExit, match=r"took 0\.50 .* of the time of"):
        bulk.require_consistent(whole, Timing("killed", [5.0]), runs(0, 10), runs(2, 12))
    with pytest.raises(SystemExit, match="of the processor time of"):
        bulk.require_consistent(whole, killed, runs(0, 10), runs(2, 9))
    with pytest.raises(SystemExit, match="different files"):
        bulk.require_consistent(whole, killed, runs(0, 10), runs(2, 12, digests=["other"]))
    with pytest.raises(SystemExit, match="before they were killed"):
        bulk.require_consistent(whole, killed, runs(0, 10), runs(2, 12, parts=[[12.0]]))
