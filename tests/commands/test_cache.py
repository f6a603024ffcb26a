"""`declutr cache` lists entries, and prunes those that its conditions choose."""

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

from declutr.commands import cache as command
from declutr.corpus.token_store import TokenStore
from declutr.corpus.token_store_writer import TokenStoreWriter

OLD, LARGE = "a" * 32, "b" * 32


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with a small corpus that was used 40 days ago, a large one, and timings."""
    monkeypatch.setenv("DECLUTR_CACHE", str(tmp_path))
    monkeypatch.delenv("DECLUTR_TRACEBACK", raising=False)
    for name, count in ((OLD, 10), (LARGE, 500_000)):
        with TokenStoreWriter(tmp_path / name, np.uint16) as writer:
            writer.append(np.zeros(count), np.array([count]), np.array([count]))
            writer.meta = {"files": [f"{name[0]}.txt"], "num_tokens": count}
    then = time.time() - 40 * 86400
    for path in (*(tmp_path / OLD).iterdir(), tmp_path / OLD):
        os.utime(path, (then, then))
    (tmp_path / "kernels.json").write_text("{}")
    (tmp_path / "thesis.txt").write_text("mine")
    return tmp_path


def left(folder: Path) -> str:
    return "".join(sorted(path.name[0] for path in folder.iterdir()))


def test_list_shows_kind_size_age_and_what_it_is_of(folder: Path, capsys) -> None:
    command.main(["list"])
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{folder}: 3 entries, 1.")
    assert lines[0].split()[:3] == ["corpus", lines[0].split()[1], "MB"]
    assert "just now" in lines[0] and "b.txt, 500,000 tokens" in lines[0]
    assert any("40 days ago" in line and "a.txt, 10 tokens" in line for line in lines)
    assert any("thesis.txt  (not of declutr; it is left alone)" in line for line in lines)


def test_list_as_json_has_whole_paths_and_bytes(folder: Path, capsys) -> None:
    command.main(["list", "--json"])
    listed = json.loads(capsys.readouterr().out)
    assert listed["folder"] == str(folder)
    first = listed["entries"][0]
    assert first["path"] == str(folder / LARGE) and first["kind"] == "corpus"
    assert first["size"] >= 1_000_000


@pytest.mark.parametrize(
    "conditions, expected",
    [
        ("--older-than 30d", "bkt"),
        ("--older-than 7w", "abkt"),
        ("--larger-than 500K", "akt"),
        ("--larger-than 1.5GB", "abkt"),
        ("--kind timings", "abt"),
        ("--kind corpus --older-than 30d", "bkt"),
        ("--kind corpus --kind timings", "t"),
        ("--kind timings --older-than 30d", "abkt"),
        ("--all", "t"),
    ],
)
def test_prune_removes_what_meets_all_conditions(
    folder: Path, capsys, conditions: str, expected: str
) -> None:
    command.main(["prune", *conditions.split(), "--dry-run"])
    planned = capsys.readouterr().out
    assert left(folder) == "abkt"
    command.main(["prune", *conditions.split()])
    done = capsys.readouterr().out
    assert left(folder) == expected
    assert planned.replace("would remove", "removed").replace("would be ", "") == done


def test_prune_tells_what_it_keeps(folder: Path, capsys) -> None:
    store = TokenStore(folder / LARGE)
    command.main(["prune", "--all"])
    printed = capsys.readouterr()
    assert printed.err == f"declutr cache prune: kept {LARGE}: a running process uses it.\n"
    assert "2 entries removed" in printed.out and "; 1 kept" in printed.out
    assert len(store[0]) == 500_000


@pytest.mark.parametrize(
    "arguments, told",
    [
        ("prune", "Expected either --all, or conditions"),
        ("prune --all --kind corpus", "Expected either --all, or conditions"),
        ("prune --older-than soon", "got 'soon', expected an age such as 12h, 30d or 8w"),
        ("prune --older-than 0d", "got '0d', expected an age"),
        ("prune --larger-than 5x", "got '5x', expected a size such as 500M or 2G"),
        ("prune --kind models", "invalid choice: 'models'"),
    ],
)
def test_unclear_arguments_remove_nothing(folder: Path, capsys, arguments: str, told: str) -> None:
    with pytest.raises(SystemExit) as end:
        command.main(arguments.split())
    assert end.value.code == 2
    assert told in capsys.readouterr().err.splitlines()[-1]
    assert left(folder) == "abkt"


@pytest.mark.parametrize(
    "size, words",
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (1 << 20, "1.0 MB"),
        (5 << 50, "5120.0 TB"),
    ],
)
def test_sizes_in_words(size: int, words: str) -> None:
    assert command.in_bytes(size) == words
