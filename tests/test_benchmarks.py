"""The benchmarks: what they compare with is right, and their machinery works. No speed is asserted.

They are run from the root of the repository and are not installed with the package.
"""

import importlib
import json
import math
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import memory, part_times, report, results, timing
from benchmarks.inputs import SHAPES, build_model, save_checkpoint, spans_batch
from benchmarks.reference import (
    IGNORE,
    reference_loss,
    reference_mask,
    reference_optimizer,
    reference_step,
)
from declutr.sampling.row_draws import document_rng
from declutr.sampling.spans import SpanSampler

SHORT = SpanSampler(num_anchors=2, num_positives=2, min_span_len=4, max_span_len=12)


def tiny_batch() -> tuple[Any, ...]:
    """A model without dropout, and the arguments of `reference_loss` after it."""
    size = SHAPES["tiny"]
    batch = spans_batch(3, 5, vocab_size=size.vocab_size, max_length=12, sampler=SHORT)
    masked, labels = batch.masked(size.vocab_size)
    model = build_model("tiny", dropout=0.0)
    return model, masked, labels, batch.anchors_mask, batch.positives, batch.positives_mask


def naive_loss(
    model: Any, masked: Any, labels: Any, mask: Any, positives: Any, positives_mask: Any
) -> float:
    """The same value: text by text without padding, pair by pair, masked token by masked token."""

    def passed(ids: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        output = model(input_ids=ids[None, :length], output_hidden_states=True)
        return output.hidden_states[-1][0].mean(dim=0), output.logits[0]

    embedded, losses = [], []
    for ids, targets, kept in zip(masked, labels, mask, strict=True):
        vector, logits = passed(ids, int(kept.sum()))
        embedded.append(vector)
        for position, target in enumerate(targets.tolist()):
            if target != IGNORE:
                losses.append(-logits[position].log_softmax(0)[target])
    pairs = zip(positives, positives_mask, strict=True)
    apart = [passed(ids, int(kept.sum()))[0] for ids, kept in pairs]
    count = len(apart) // len(embedded)
    means = [torch.stack(apart[i : i + count]).mean(dim=0) for i in range(0, len(apart), count)]
    rows = torch.nn.functional.normalize(torch.stack(embedded + means))
    n, contrast = len(embedded), 0.0
    for i in range(2 * n):
        scores = [float(rows[i] @ rows[k]) / 0.05 for k in range(2 * n)]
        others = sum(math.exp(s) for k, s in enumerate(scores) if k != i)
        contrast += math.log(others) - scores[(i + n) % (2 * n)]
    return contrast / (2 * n) + float(torch.stack(losses).mean())


def test_the_reference_loss_is_what_a_naive_computation_gives() -> None:
    arguments = tiny_batch()
    with torch.no_grad():
        loss = float(reference_loss(*arguments))
        in_bfloat16 = float(reference_loss(*arguments, bfloat16=True))
        assert loss == pytest.approx(naive_loss(*arguments), rel=1e-5)
    assert in_bfloat16 == pytest.approx(loss, rel=0.05)


def test_the_reference_step_learns() -> None:
    model, *arguments = tiny_batch()
    optimizer = reference_optimizer(model)
    losses = [reference_step(model, optimizer, *arguments) for _ in range(3)]
    assert losses[2] < losses[0]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]
    decayed = {id(parameter) for parameter in optimizer.param_groups[0]["params"]}
    assert all((id(p) in decayed) == (p.dim() == 2) for p in model.parameters())


def test_ours_gives_the_same_loss(tmp_path: Path) -> None:
    from allennlp.common import Params
    from allennlp.data import Vocabulary
    from allennlp.models import Model

    import declutr.plugin  # noqa: F401
    from declutr.sampling import masking

    model, masked, labels, *rest = tiny_batch()
    folder = save_checkpoint(tmp_path / "tiny", "tiny", ["a text of some words"] * 3, dropout=0.0)
    embedder = {"type": "pretrained_transformer_mlm", "model_name": str(folder)}
    params = {
        "type": "declutr",
        "text_field_embedder": {"type": "mlm", "token_embedders": {"tokens": embedder}},
        "loss": {"type": "nt_xent"},
        "precision": "float32",
    }
    ours = Model.from_params(Params(params), vocab=Vocabulary.empty()).train()
    batch = spans_batch(3, 5, vocab_size=300, max_length=12, sampler=SHORT)
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        for module in (masking, importlib.import_module("declutr.models.training_step")):
            patch.setattr(module, "mask_tokens", lambda *args, **kwargs: (masked, labels))
        loss = float(ours(**batch.text_fields())["loss"])
        assert loss == pytest.approx(float(reference_loss(model, masked, labels, *rest)), rel=1e-5)


def test_reference_masking(checkpoint: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    ids = torch.randint(5, len(tokenizer), (40, 60))
    ids[:, 0], ids[:, -3:] = tokenizer.bos_token_id, tokenizer.pad_token_id
    masked, labels = reference_mask(ids, tokenizer)
    chosen = labels != IGNORE
    assert torch.equal(labels[chosen], ids[chosen]) and torch.equal(masked[~chosen], ids[~chosen])
    assert not chosen[:, 0].any() and not chosen[:, -3:].any()
    assert 0.1 < chosen[:, 1:-3].float().mean() < 0.2
    assert 0.7 < (masked[chosen] == tokenizer.mask_token_id).float().mean() < 0.9


def test_batches_have_the_spans_of_the_sampler() -> None:
    document = torch.arange(5, 5 + 60).numpy()
    batch = spans_batch([document], 7, max_length=12, sampler=SHORT)
    assert (batch.num_documents, len(batch.anchors), len(batch.positives)) == (1, 2, 4)
    spans = SHORT.sample(60, document_rng(7, 0, 0))
    start, end = spans.anchors[0].tolist()
    kept = batch.anchors[0][batch.anchors_mask[0]].tolist()
    assert kept == [0, *document[start:end].tolist()[:10], 2]
    assert batch.num_tokens == int(batch.anchors_mask.sum() + batch.positives_mask.sum())
    assert batch.text_fields()["positives"]["tokens"]["token_ids"].shape[:2] == (1, 4)


@pytest.mark.parametrize("units", ["words", "word_pieces"])
def test_reference_spans_are_texts_of_the_document(checkpoint: Path, units: str) -> None:
    from transformers import AutoTokenizer

    from benchmarks.reference_reader import span_texts

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    text = " ".join(f"kalo{i} mi" for i in range(60))
    anchors, positives = span_texts(text, SHORT, document_rng(0, 0, 0), units, tokenizer)
    assert (len(anchors), len(positives)) == (2, 4)
    assert all(span in text for span in [*anchors, *positives])
    if units == "words":
        assert all(4 <= len(span.split()) <= 12 for span in anchors)


def test_rounds_are_interleaved() -> None:
    calls: list[str] = []
    functions = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    first, second = timing.compare(functions, rounds=3, warmup=1, progress=False)
    assert calls == list("abababab")
    assert (first.name, second.name) == ("a", "b")
    assert len(first.seconds) == len(second.seconds) == 3
    with pytest.raises(ValueError, match="at least one function and one round"):
        timing.compare({}, progress=False)


def test_ratios_are_taken_round_by_round() -> None:
    slow, fast = timing.Timing("slow", [2.0, 40.0, 9.0]), timing.Timing("fast", [1.0, 10.0, 3.0])
    assert timing.ratio(slow, fast) == (3.0, 2.0, 4.0)
    assert str(timing.ratio(slow, fast)) == "3.00 (2.00 to 4.00)"


def test_parts_of_a_program_do_not_include_each_other(monkeypatch: Any) -> None:
    class Program:
        def inner(self, taken: int) -> int:
            clock[0] += taken
            return taken

        def outer(self) -> None:
            clock[0] += 1
            assert self.inner(2) + self.inner(5) == 7
            clock[0] += 10

    clock = [100]
    monkeypatch.setattr(part_times.time, "process_time", lambda: clock[0])
    times, program = part_times.PartTimes(), Program()
    times.replace(Program, "inner", "inside")
    times.replace(program, "outer", "around")
    for _ in range(2):
        times.begin()
        with times.part("all else"):
            clock[0] += 100
            program.outer()
        clock[0] += 1000  # between parts
        assert times.end() == {"inside": 7, "around": 11, "all else": 100}


@pytest.mark.slow
def test_memory_of_a_fresh_process() -> None:
    result, peak = memory.in_fresh_process("benchmarks.startup.load", {"code": "b'x' * (64 << 20)"})
    assert result < 60
    assert peak.resident > 64 << 20 and peak.private_before < 64 << 20
    with pytest.raises(RuntimeError, match=r"startup.load failed in its own process"):
        memory.in_fresh_process("benchmarks.startup.load", {"code": "raise SystemExit(3)"})


@pytest.mark.slow
def test_memory_of_a_command_counts_its_children() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    child = "import time; b = bytearray(48 << 20); time.sleep(0.5)"
    peak = memory.run_and_watch([sys.executable, "-c", code, child])
    assert peak.private > 48 << 20
    with pytest.raises(RuntimeError, match=r"exit status 1(.|\n)*ZeroDivisionError"):
        memory.run_and_watch([sys.executable, "-c", "1 / 0"])
    assert os.getpid() in memory.process_tree(os.getppid())


def test_report_from_results(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "reader", "--data", "/some/where/text.txt"])
    rows = [
        {"way": "original", "documents a second": 39.444, "ratio": ""},
        {"way": "declutr", "documents a second": 12345.6, "ratio": "3.0 (2.9 to 3.1)"},
    ]
    bars = results.Plot("speed", "Speed", "bars", "way", "documents a second", baseline="original")
    curve = results.Plot("memory", "Memory", "lines", "MB", "MiB", logarithmic="xy")
    for _ in range(2):
        results.record("reader", "Reading", rows, note="Noted.", plots=[bars], folder=tmp_path)
    sizes = [{"MB": 10, "MiB": 300.0}, {"MB": 1000, "MiB": 300.5}]
    results.record("corpus", "Sizes", sizes, plots=[curve], folder=tmp_path)
    assert len(json.loads((tmp_path / "reader.json").read_text())) == 2

    compared = [{"step": "ours float32", "speed, reference float32 = 1": "4.0 (3.0 to 5.0)"}]
    results.record("step", "Steps", compared, folder=tmp_path)

    arguments = ["report", "--results", str(tmp_path), "--output", str(tmp_path / "docs")]
    command.main([*arguments, "--no-plots"])
    text = (tmp_path / "docs" / "BENCHMARKS.md").read_text()
    summary = text.partition("\n## ")[0]
    assert summary.count("| the original recipe with padding | 4.0 (3.0 to 5.0) |") == 1
    assert summary.count("\n| ") == 3  # lines of which there are no results are left out
    assert "| declutr | 12,346 | 3.0 (2.9 to 3.1) |" in text and "| original | 39.4 |" in text
    assert "## Reading" in text and "Noted." in text and "--data text.txt`" in text
    pytest.importorskip("matplotlib")
    command.main(arguments)
    assert "(1.00×)" in (tmp_path / "docs" / "benchmarks" / "speed.svg").read_text()
    assert "313×" in (tmp_path / "docs" / "benchmarks" / "speed.svg").read_text()


def test_tables_of_a_named_processor_lie_beside_the_others(tmp_path: Path) -> None:
    bars = results.Plot("speed", "Speed", "bars", "texts", "texts/s", "way", "a")
    for processor in (None, "Xeon with AMX"):
        results.record("rivals", "Rivals", [], plots=[bars], processor=processor, folder=tmp_path)
    (plain,), (named,) = (json.loads(file.read_text()) for file in sorted(tmp_path.iterdir()))
    assert (plain["name"], plain["title"], plain["plots"][0]["file"]) == (
        "rivals",
        "Rivals",
        "speed",
    )
    assert named["name"] == "rivals_xeon_with_amx" and named["title"] == "Rivals, Xeon with AMX"
    (plot,) = named["plots"]
    assert (plot["file"], plot["title"]) == ("speed_xeon_with_amx", "Speed, Xeon with AMX")


def test_report_without_results_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"benchmarks all --quick"):
        command.main(["report", "--results", str(tmp_path)])


@pytest.mark.parametrize("name", [*command.BENCHMARKS, "all"])
def test_every_benchmark_parses(name: str) -> None:
    parsed = command.parse([name, "--quick"])
    expected = [each for each in command.BENCHMARKS if each != "gpu"] if name == "all" else [name]
    assert [chosen for chosen, _ in parsed] == expected
    assert all(args.quick for _, args in parsed)


def test_options_of_all_go_to_those_that_know_them(capsys: Any) -> None:
    parsed = dict(command.parse(["all", "--quick", "--megabytes", "7", "--data", "text.txt"]))
    assert parsed["corpus"].megabytes == [7] and not hasattr(parsed["startup"], "megabytes")
    assert parsed["reader"].data == parsed["corpus"].data == "text.txt"
    with pytest.raises(SystemExit):
        command.parse(["all", "--nonsense"])
    assert "no benchmark knows --nonsense" in capsys.readouterr().err


def test_numbers_are_shown_to_three_digits() -> None:
    shown = [report.shown(value) for value in (0.012345, 1.5, 123.4, 98765.4, 12345, None, "a|b")]
    assert shown == ["0.0123", "1.50", "123", "98,765", "12,345", "–", "a\\|b"]


@pytest.mark.slow
def test_import_times_are_read() -> None:
    from benchmarks.startup import import_seconds

    assert "json" in import_seconds("import json")


def test_a_corpus_of_a_given_size(tmp_path: Path) -> None:
    from benchmarks.corpus import repeated

    source = tmp_path / "source.txt"
    source.write_text("one two\n\nthree\n")
    file = repeated(source, tmp_path / "corpus.txt", 100)
    text = file.read_bytes()
    assert len(text) == 100 and text.startswith(b"one two\nthree\none") and text.endswith(b"\n")
    with pytest.raises(OSError, match="--scratch"):
        repeated(source, tmp_path / "large.txt", 1 << 60)


def test_the_command_names_its_benchmarks(capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        command.parse(["--help"])
    assert not ended.value.code
    assert set(command.BENCHMARKS) <= set(re.findall(r"\w+", capsys.readouterr().out))
