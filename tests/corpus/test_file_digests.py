"""Tests of the index of digests.

The oracles are hashlib for the whole file, and a count of how often files are read.
"""

import hashlib
import json
import multiprocessing
import os
import time
from pathlib import Path
from unittest import mock

import pytest

from declutr.corpus import file_digests as module
from declutr.corpus.documents import SourceError
from declutr.corpus.file_digests import check_unchanged, file_digests
from declutr.system.files import appearance


@pytest.fixture
def cache(tmp_path) -> Path:
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


@pytest.fixture
def file(tmp_path) -> Path:
    (tmp_path / "a.txt").write_text("some text\n")
    return tmp_path / "a.txt"


@pytest.fixture
def read(monkeypatch) -> list[str]:
    """Record the names of the files that are read for a digest, in order."""
    names: list[str] = []
    digest = module._digest

    def noted(file: Path, *rest):
        names.append(file.name)
        return digest(file, *rest)

    monkeypatch.setattr(module, "_digest", noted)
    return names


def digest(file: Path, cache: Path) -> str:
    return file_digests([file], cache)[file][0]


class TestIndex:
    def test_a_file_is_hashed_once(self, file, cache, read):
        expected = hashlib.sha256(file.read_bytes()).hexdigest()
        for _ in range(3):
            assert file_digests([file], cache) == {file: (expected, appearance(file))}
        assert read == ["a.txt"]

    def test_a_damaged_entry_is_not_used(self, file, cache, read):
        expected = digest(file, cache)
        index = cache / module.INDEX_NAME
        sound = index.read_bytes()
        for number in range(0, 8 * len(sound), 11):
            damaged = bytearray(sound)
            damaged[number // 8] ^= 1 << number % 8
            index.write_bytes(damaged)
            assert digest(file, cache) == expected
        assert len(read) > 50

    def test_an_entry_of_version_1_5_is_used(self, file, cache, read):
        expected = digest(file, cache)
        index = cache / module.INDEX_NAME
        index.write_text(json.dumps({n: e[:2] for n, e in json.loads(index.read_text()).items()}))
        assert digest(file, cache) == expected and read == ["a.txt"]

    def test_only_files_without_an_entry_are_read(self, tmp_path, cache, read):
        files = [tmp_path / f"{n}.txt" for n in range(4)]
        for number, file in enumerate(files):
            file.write_text(f"text {number}")
        file_digests(files[:2], cache)
        found = file_digests([*files, files[0]], cache)
        assert [found[f][0] for f in files] == [
            hashlib.sha256(f.read_bytes()).hexdigest() for f in files
        ]
        assert read == ["0.txt", "1.txt", "2.txt", "3.txt"]

    @pytest.mark.parametrize("name", ["relative", "link"])
    def test_other_names_of_a_file_share_its_entry(self, file, cache, read, monkeypatch, name):
        digest(file, cache)
        monkeypatch.chdir(file.parent)
        other = Path("a.txt")
        if name == "link":
            other = file.with_name("link.txt")
            other.symlink_to(file)
        assert digest(other, cache) == digest(file, cache)
        assert read == ["a.txt"]

    @pytest.mark.parametrize(
        "change",
        [
            lambda file: file.write_text("other text\n"),
            lambda file: file.write_text("SOME text\n"),  # The length is the same.
            lambda file: os.utime(file, ns=(1, 1)),
            lambda file: (file.with_name("b").write_text("SOME text\n"), swap(file)),
        ],
        ids=["size", "time", "touched", "replaced"],
    )
    def test_a_file_of_another_appearance_is_read_again(self, file, cache, read, change):
        digest(file, cache)
        change(file)
        assert digest(file, cache) == hashlib.sha256(file.read_bytes()).hexdigest()
        assert read == ["a.txt", "a.txt"]

    @pytest.mark.slow
    def test_a_file_rewritten_at_once_with_its_old_time(self, file, cache):
        """The change time cannot be set back, and hashing waits for a tick of the clock."""
        for number in range(20):
            file.write_text(f"text {number:02}")
            os.utime(file, ns=(10**18, 10**18))
            assert digest(file, cache) == hashlib.sha256(file.read_bytes()).hexdigest()

    @pytest.mark.parametrize(
        "content",
        [b"", b"{", b"[]", b"3", b"\xff\xfe", b'{"%s": 3}', b'{"%s": ["a"]}', b'{"%s": [1, {}]}'],
    )
    def test_an_unreadable_index_is_written_anew(self, file, cache, read, content):
        (cache / "digests.json").write_bytes(content.replace(b"%s", str(file).encode()))
        right = hashlib.sha256(file.read_bytes()).hexdigest()
        assert digest(file, cache) == digest(file, cache) == right
        assert read == ["a.txt"]

    def test_a_read_only_cache(self, file, cache, read, monkeypatch):
        refuse = mock.Mock(side_effect=PermissionError("read only"))
        monkeypatch.setattr("declutr.system.files.FileLock.acquire", refuse)
        monkeypatch.setattr(module, "write_whole", refuse)
        for _ in range(2):
            assert digest(file, cache) == hashlib.sha256(file.read_bytes()).hexdigest()
        assert read == ["a.txt", "a.txt"]

    def test_the_number_of_entries_is_bounded(self, tmp_path, cache, monkeypatch):
        monkeypatch.setattr(module, "_MOST", 3)
        for number in range(5):
            (tmp_path / f"{number}.txt").write_text("text")
            digest(tmp_path / f"{number}.txt", cache)
        names = [Path(path).name for path in json.loads((cache / "digests.json").read_text())]
        assert names == ["2.txt", "3.txt", "4.txt"]

    def test_the_cache_holds_the_index_and_locks_alone(self, file, cache):
        digest(file, cache)
        assert {p.name for p in cache.iterdir() if p.suffix != ".lock"} == {"digests.json"}


def swap(file: Path) -> None:
    stat = file.stat()
    os.utime(file.with_name("b"), ns=(stat.st_atime_ns, stat.st_mtime_ns))
    os.replace(file.with_name("b"), file)


def _digest_in_process(files: list[Path], cache: Path, log: Path, start) -> None:
    original = module._digest

    def noted(file: Path, *rest):
        with log.open("a") as lines:
            lines.write(f"{file.name}\n")
        time.sleep(0.2)  # In this time, the other processes ask, too.
        return original(file, *rest)

    module._digest = noted
    start.wait(60)
    assert len(file_digests(files, cache)) == len(files)


@pytest.mark.slow
def test_of_several_processes_one_reads(tmp_path, cache):
    files = [tmp_path / f"{n}.txt" for n in range(3)]
    for file in files:
        file.write_text(file.name)
    context = multiprocessing.get_context("fork")
    start = context.Barrier(4)
    processes = [
        context.Process(target=_digest_in_process, args=(files, cache, tmp_path / "log", start))
        for _ in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    assert (tmp_path / "log").read_text().split() == ["0.txt", "1.txt", "2.txt"]


class TestChanges:
    def test_a_change_while_a_file_is_read_is_refused(self, file, cache, monkeypatch):
        class Bar:
            def update(self, count):
                file.write_text("grown " * 9)

        with pytest.raises(SourceError, match=r"a.txt' changed while it was being read. Expected"):
            module._digest(file, Bar())

    def test_the_digest_of_a_changing_file_is_not_kept(self, file, cache, monkeypatch):
        looks = iter([(1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1), (2, 2, 2, 2)])
        monkeypatch.setattr(module, "appearance", lambda _: next(looks))
        with pytest.raises(SourceError, match="changed"):
            file_digests([file], cache)
        assert not (cache / "digests.json").exists()

    def test_check_unchanged_finds_later_changes(self, file, cache):
        digests = file_digests([file], cache)
        check_unchanged(digests)
        os.utime(file, (5, 5))
        check_unchanged(digests)  # It was only touched.
        assert digests[file][1] == appearance(file)
        for change in (lambda: file.write_text("SOME text\n"), file.unlink):
            change()
            with pytest.raises(SourceError, match="wait until it is finished"):
                check_unchanged(digests)


@pytest.mark.parametrize(("size", "shown"), [(5, True), (10**6, False)])
def test_large_files_show_a_progress_bar(file, cache, monkeypatch, capsys, size, shown):
    monkeypatch.setattr(module, "_SHOWN_FROM", size)
    file_digests([file], cache)
    assert ("looking for changes in the corpus: 100%" in capsys.readouterr().err) is shown
