"""Commands of `declutr` that run without AllenNLP, and do as they do with it."""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from allennlp.commands import main

import declutr
from declutr.archives.static_folder import write_static
from declutr.bridge.component_names import SUBCOMMANDS
from declutr.commands.alone import run_alone
from declutr.commands.errors import TRACEBACK, CommandError
from tests.archives.test_static_folder import TABLE

HERE = {**os.environ, "PYTHONPATH": str(Path(declutr.__file__).parents[1])}
LINES = "static lines.txt"
EVALUATE = "evaluate-embeddings data random:8 static --no-plots --quote scd:table1 --tasks STS12"
COMMANDS = [
    f"embed {LINES} -o OUT/embedded --quiet",
    f"index {LINES} -o OUT/index --quiet",
    "search OUT/index kalo",
    f"{EVALUATE} -o OUT/scores --resamples 20",
    "leaderboard OUT/scores -o OUT/board --no-plots",
    "split-sentences lines.txt -o OUT/sentences.txt --quiet",
    "static-vectors lines.txt -o OUT/made --vocabulary 100 --dimension 2",
    "mine-negatives pairs.tsv -o OUT/triplets.tsv --index OUT/index --quiet",
]
"""Of which each may use what those before it made."""
WITHOUT_TORCH = 5
"""How many of them need neither torch nor scikit-learn: the rest trains, or calls a library."""
RUN = f"""
import shlex, sys
from declutr.__main__ import main
for number, line in enumerate(sys.argv[1:]):
    sys.argv = ["declutr", *shlex.split(line)]
    main()
    heavy = {{"allennlp", *(["torch", "sklearn", "transformers"] * (number < {WITHOUT_TORCH}))}}
    assert not heavy & set(sys.modules), (line, heavy & set(sys.modules))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the current folder, with a static encoder, lines, pairs and STS12."""
    write_static(TABLE, tmp_path / "static")
    lines = ["kalo mitu. resa nove", "pidu kalo", "nove sano mitu", "resa resa pidu"]
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n")
    rows = [f"{first}\t{second}" for first, second in itertools.pairwise(lines)]
    (tmp_path / "pairs.tsv").write_text("\n".join(["anchor\tpositive", *rows]) + "\n")
    folder = tmp_path / "data" / "downstream" / "STS" / "STS12-en-test"
    folder.mkdir(parents=True)
    for name in ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"):
        (folder / f"STS.input.{name}.txt").write_text("\n".join(rows) + "\n")
        (folder / f"STS.gs.{name}.txt").write_text("1.5\n4\n2\n")
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    yield tmp_path
    signal.signal(signal.SIGTERM, before)


def declutr_program(*words: str) -> subprocess.Popen:
    """Start `declutr` in a process of its own."""
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(
        [sys.executable, "-m", "declutr", *words], env=HERE, text=True, **streams
    )


@pytest.mark.slow
def test_they_give_what_they_give_with_allennlp(
    place: Path, command: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DECLUTR_SAFE", "1")
    lines = [line.replace("OUT", "alone") for line in COMMANDS]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *lines], env=HERE, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    told = "".join(command(*line.replace("OUT", "with").split()) for line in COMMANDS)
    assert done.stdout.replace("alone", "with") == told
    # Scores are compared as they are printed; a report tells seconds, too.
    names = "embedded/embeddings-00000.npy sentences.txt made/model.safetensors"
    for name in [*names.split(), "triplets.tsv"]:
        ours, theirs = ((place / part / name).read_bytes() for part in ("alone", "with"))
        assert ours.replace(b"alone", b"with") == theirs, name
    assert np.load(place / "alone" / names.split()[0]).shape == (4, 8)


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_help_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    told = []
    monkeypatch.setattr(sys, "argv", ["declutr", name, "--help"])
    for run in (lambda: main(prog="declutr"), lambda: run_alone([f"declutr-{name}", "--help"])):
        with pytest.raises(SystemExit) as end:
            run()
        told.append((end.value.code, capsys.readouterr().out))
    assert told[0] == told[1] and f"usage: declutr {name} " in told[0][1]
    assert "--include-package" in told[0][1] and "(default = " not in told[0][1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "plugin", "alone"),
    [
        ("embed ARCHIVE lines.txt -o out", "", False),
        ("index ARCHIVE lines.txt -o out", "", False),
        ("whiten ARCHIVE lines.txt", "", False),
        ("static-vectors ARCHIVE --method distil -o out", "", False),
        ("evaluate-embeddings data random:8 MINE=ARCHIVE -o out", "", False),
        ("evaluate-embeddings data random:8 --list --include-package json", "", False),
        ("evaluate-embeddings data json:dumps --list --tasks STS12", "", True),
        ("evaluate-embeddings data json:dumps --list --tasks STS12", "my_plugin", False),
        ("sample-spans recipe.jsonnet", "", False),
    ],
)
def test_what_allennlp_opens_is_left_to_it(
    place: Path, trained: Path, words: str, plugin: str, alone: bool
) -> None:
    (place / ".allennlp_plugins").write_text(plugin)
    assert run_alone(words.replace("ARCHIVE", str(trained)).split()) == alone


def test_errors_are_told_and_can_be_traced(place: Path, monkeypatch, capsys) -> None:
    words = ["embed", "static", "lines.txt", "-o", "out", "--max-length", "0"]
    with pytest.raises(CommandError, match="Expected a --max-length of at least 1, got 0"):
        run_alone(words)
    monkeypatch.delenv(TRACEBACK)
    with pytest.raises(SystemExit) as end:
        run_alone(words)
    told = "declutr embed: Expected a --max-length of at least 1, got 0.\n"
    assert end.value.code == 2 and capsys.readouterr().err == told
    # A place that is not there is told at once, also where AllenNLP is not installed.
    for nothing in ("./nowhere", "run/best/model", "run/model.tar.gz"):
        with pytest.raises(SystemExit) as end:
            run_alone(["embed", nothing, "lines.txt", "-o", "out"])
        told = f"declutr embed: No model at '{nothing}'. Expected the folder that"
        assert end.value.code == 2 and capsys.readouterr().err.startswith(told)
    (place / "large").mkdir()
    (place / "large" / "config.json").write_text(" " * (1 << 21))  # told before a command runs
    with pytest.raises(SystemExit) as end:
        run_alone(["embed", "large", "lines.txt", "-o", "out"])
    assert end.value.code == 2 and "config.json has 2.0 MiB" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", ["search index kalo", "mine-negatives pairs.tsv -o mined.tsv --index index --quiet"]
)
def test_what_to_do_about_a_model_that_was_moved_is_told(place: Path, words: str) -> None:
    run_alone(["index", "static", "lines.txt", "-o", "index", "--quiet"])
    (place / "static").rename("moved")
    with pytest.raises(CommandError, match=r"No model at .* Say where it is now with --model"):
        run_alone(words.split())
    assert run_alone([*words.split(), "--model", "moved"])


@pytest.mark.slow
def test_sigterm_ends_them_with_a_status(place: Path) -> None:
    run_alone(["index", "static", "lines.txt", "-o", "index", "--quiet"])
    process = declutr_program("search", "index", "--json")
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("kalo\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["query"] == "kalo"
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (143, "")
