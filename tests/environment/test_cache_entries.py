"""Everything that this package writes into its cache is recognised; nothing else is removed."""

import gzip
import os
import pickle
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from declutr.corpus.file_digests import file_digests
from declutr.corpus.token_store import TokenStore
from declutr.corpus.token_store_writer import TokenStoreWriter
from declutr.environment import cache_entries
from declutr.environment.cache_entries import Entry, entries, remove, remove_free_locks
from declutr.inference.sources.word_vector_files import open_word_vectors
from declutr.runs.first_tables import first_table
from declutr.system import kernel_choices
from tests.conftest import make_documents

NAME = "0123456789abcdef" * 2


def write_store(folder: Path, count: int = 3) -> Path:
    with TokenStoreWriter(folder, np.uint16) as writer:
        writer.append(np.arange(count), np.ones(count, int), np.ones(count, int))
        writer.meta = {"files": ["wiki.txt", "news.txt"], "num_tokens": writer.num_tokens}
    return folder


def kinds(cache: Path) -> dict[str, str | None]:
    return {str(entry.path.relative_to(cache)): entry.kind for entry in entries(cache)}


def removed(chosen: list[Entry]) -> dict[str, str | None]:
    return {removal.entry.path.name: removal.kept for removal in remove(chosen)}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own."""
    monkeypatch.setenv("DECLUTR_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DECLUTR_KERNELS", raising=False)
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


@pytest.fixture
def full(cache: Path, tmp_path: Path) -> Path:
    """The cache after each part of the package that writes to it has written."""
    write_store(cache / NAME)
    begun = TokenStoreWriter(cache / NAME[::-1], np.uint16)
    with pytest.raises(KeyboardInterrupt), begun:
        begun.append(np.arange(2), np.ones(2, int), np.ones(2, int))
        raise KeyboardInterrupt
    with gzip.open(tmp_path / "vectors.gz", "wt") as file:
        file.write("ka 1 2\nlo 3 4\n")
    open_word_vectors(tmp_path / "vectors.gz", NAME)
    file_digests([tmp_path / "vectors.gz"], cache)
    (tmp_path / "docs.txt").write_text("\n".join(make_documents(8, 200)))
    first_table({"type": "declutr"}, str(tmp_path / "docs.txt"))
    kernel_choices.kept_seconds("nothing", lambda: {"plain": int, "quick": int})
    return cache


def test_what_each_writer_leaves_is_recognised(full: Path) -> None:
    (table,) = (full / "static-tables").glob("*[0-9a-f]")
    assert kinds(full) == {
        f"static-tables/{table.name}": "static-table",
        NAME: "corpus",
        f"{NAME[::-1]}.partial": "unfinished",
        f"word-vectors/{NAME}-1": "word-vectors",
        "digests.json": "digests",
        "kernels.json": "timings",
    }
    assert set(kinds(full).values()) == set(cache_entries.KINDS)
    about = {entry.path.name: entry for entry in entries(full)}
    assert about[NAME].about == "wiki.txt and 1 more, 3 tokens"
    assert re.fullmatch(r"/.*/docs.txt, \d+ vectors", about[table.name].about)
    assert about[NAME].size > 0 and abs(about[NAME].used - time.time()) < 60


def test_all_of_it_can_be_removed_and_made_again(full: Path) -> None:
    assert set(removed(entries(full)).values()) == {None}
    remove_free_locks(full)
    assert {path.name for path in full.rglob("*")} == {"static-tables", "word-vectors"}
    write_store(full / NAME)
    assert TokenStore(full / NAME)[1].tolist() == [1]


def test_an_absent_folder_has_no_entries(tmp_path: Path) -> None:
    assert entries(tmp_path / "nowhere") == []
    remove_free_locks(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["thesis.txt", "model", NAME, f"{NAME}.txt", "kernels.json.bak"])
def test_what_is_not_ours_is_kept(cache: Path, name: str) -> None:
    if "." in name:
        (cache / name).write_text("mine")
    else:
        (cache / name).mkdir()
        (cache / name / "notes.txt").write_text("mine")
    (entry,) = entries(cache)
    assert entry.kind is None and "not of declutr" in entry.about
    assert removed([entry]) == {name: "it is not of declutr"}
    assert entries(cache) == [entry]


def test_links_out_of_the_folder_are_kept(cache: Path, tmp_path: Path) -> None:
    outside = write_store(tmp_path / "elsewhere")
    (cache / NAME).symlink_to(outside)
    (cache / "kernels.json").symlink_to(outside / "meta.json")
    assert set(kinds(cache).values()) == {None}
    assert None not in removed(entries(cache)).values()
    assert len(TokenStore(outside)) == 3


def test_a_corpus_that_is_written_is_kept(cache: Path) -> None:
    (cache / f"{NAME}.partial").mkdir()
    with FileLock(cache / f"{NAME}.lock"):
        assert removed(entries(cache)) == {f"{NAME}.partial": "a running process uses it"}
        remove_free_locks(cache)
        assert (cache / f"{NAME}.lock").exists()
    assert removed(entries(cache)) == {f"{NAME}.partial": None}


def test_a_corpus_that_is_read_is_kept(cache: Path) -> None:
    store = TokenStore(write_store(cache / NAME))
    copy = pickle.loads(pickle.dumps(store))
    del store
    assert removed(entries(cache)) == {NAME: "a running process uses it"}
    assert copy[2].tolist() == [2]
    del copy
    assert removed(entries(cache)) == {NAME: None}


def test_word_vectors_that_are_read_are_kept(full: Path) -> None:
    table = open_word_vectors(full.parent / "vectors.gz", NAME)
    (entry,) = [entry for entry in entries(full) if entry.kind == "word-vectors"]
    assert removed([entry]) == {f"{NAME}-1": "a running process uses it"}
    assert table.vectors_of(np.array([1])).tolist() == [[3, 4]]
    del table
    assert removed([entry]) == {f"{NAME}-1": None}


@pytest.mark.slow
def test_another_process_keeps_its_corpus_until_it_ends(cache: Path) -> None:
    write_store(cache / NAME)
    code = f"""
from declutr.corpus.token_store import TokenStore
store = TokenStore({str(cache / NAME)!r})
print("open", flush=True); input()
print(store[1].tolist())
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "open\n"
        assert removed(entries(cache)) == {NAME: "a running process uses it"}
        assert other.communicate("\n")[0] == "[1]\n"
    assert removed(entries(cache)) == {NAME: None}


def test_opening_a_corpus_counts_as_use_and_listing_does_not(cache: Path) -> None:
    folder = write_store(cache / NAME)
    long_ago = time.time() - 10**6
    for path in (*folder.iterdir(), folder):
        os.utime(path, (long_ago, long_ago))
    for _ in range(2):
        (entry,) = entries(cache)
        assert entry.used == pytest.approx(long_ago, abs=2)
    TokenStore(folder)
    (entry,) = entries(cache)
    assert time.time() - entry.used < 60


def test_a_temporary_file_is_removed_when_its_writer_must_be_gone(cache: Path) -> None:
    file = cache / "kernels.json.12345.tmp"
    file.write_text("{")
    assert removed(entries(cache)) == {file.name: "a running process uses it"}
    os.utime(file, (0, time.time() - 2 * cache_entries._FRESH))
    assert removed(entries(cache)) == {file.name: None}


def test_a_removal_that_was_killed_is_finished_by_the_next(cache: Path, monkeypatch: Any) -> None:
    write_store(cache / NAME)
    monkeypatch.setattr("shutil.rmtree", lambda path: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        removed(entries(cache))
    monkeypatch.undo()
    assert not TokenStore.exists(cache / NAME)
    assert kinds(cache) == {f"{NAME}.pruned": "unfinished"}
    assert removed(entries(cache)) == {f"{NAME}.pruned": None}
    assert kinds(cache) == {}


def test_what_cannot_be_removed_is_told(cache: Path, monkeypatch: Any) -> None:
    write_store(cache / NAME)

    def refused(*names: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.rename", refused)
    assert removed(entries(cache)) == {NAME: "it cannot be removed: Permission denied"}


def test_a_corpus_that_is_damaged_is_listed_as_such(cache: Path) -> None:
    (write_store(cache / NAME) / "meta.json").write_text("{")
    (entry,) = entries(cache)
    assert entry.kind == "corpus" and "damaged" in entry.about


def test_a_pipe_in_the_cache_is_not_of_ours(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (entry,) = entries(tmp_path)
    assert entry.kind is None


def test_locks_of_runs_are_ours(tmp_path: Path) -> None:
    """They were listed as those of another program, and stayed for ever."""
    lock = tmp_path / f"run-{'0' * 32}.lock"
    lock.touch()
    assert entries(tmp_path) == []
    remove_free_locks(tmp_path)
    assert not lock.exists()
