"""Tests of which files there are at a path, a folder, a glob and a URL."""

import functools
import gzip
import http.server
import os
import threading
from pathlib import Path

import pytest

from declutr.corpus import SourceError
from declutr.corpus.source_files import source_files
from tests.corpus.test_documents import LINES, RECORDS, ROWS, read


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class TestSourceFiles:
    def test_a_file(self, write):
        file = write("a.txt", LINES)
        assert source_files(file) == source_files(str(file)) == [file]

    def test_folder_is_searched_in_sorted_order_without_hidden_files(self, write, tmp_path):
        names = ["b.txt", "a/z.txt", "a/b/c.jsonl", "c.parquet", "B.txt"]
        files = sorted(write(name, "x") for name in names)
        for name in (".DS_Store", ".git/x.txt", "a/.x"):
            write(name, "x")
        assert source_files(tmp_path) == files

    def test_lines_of_text_beside_records_are_told_of(self, write, tmp_path, caplog):
        """As the lines of the README in a clone of a data set."""
        caplog.set_level("WARNING", "declutr.corpus.source_files")
        readme, data = write("clone/README.md", LINES), write("clone/data/b.jsonl", LINES)
        write("clone/data/a.tsv", LINES)
        assert len(source_files(f"{tmp_path}/clone/data")) == 2 and not caplog.text
        for _ in range(2):
            assert source_files(tmp_path / "clone")[0] == readme
        told = f"At '{tmp_path}/clone', each line of '{readme}' is read as a text, beside the"
        assert caplog.text.count(f"{told} records of '{data}'") == 1

    def test_links_in_a_folder_are_followed(self, write, tmp_path):
        plain = write("corpus/y.txt", LINES)
        write("elsewhere/x.txt", LINES)
        folder = tmp_path / "corpus"
        (folder / "part").symlink_to(tmp_path / "elsewhere")
        linked = folder / "part" / "x.txt"
        assert source_files(folder) == source_files(f"{folder}/**/*.txt") == [linked, plain]
        (tmp_path / "elsewhere" / "again").symlink_to(folder)  # which the folder is in
        assert source_files(folder) == [linked, plain]

    @pytest.mark.parametrize("place", ["", "/*.txt"])
    def test_a_link_to_nothing_is_refused(self, write, tmp_path, place):
        write("corpus/y.txt", LINES)
        (tmp_path / "corpus" / ".z").symlink_to(tmp_path / "missing")
        assert len(source_files(tmp_path / "corpus")) == 1
        link = tmp_path / "corpus" / "z.txt"
        link.symlink_to(link)
        with pytest.raises(SourceError, match=r"z.txt' is a link to '.*z.txt', which is not"):
            source_files(f"{tmp_path}/corpus{place}")
        link.unlink()
        link.symlink_to(tmp_path / "missing")
        with pytest.raises(SourceError, match=r"z.txt' is a link to '.*missing', which is not"):
            source_files(f"{tmp_path}/corpus{place}")

    def test_a_folder_that_cannot_be_read(self, write, tmp_path, monkeypatch, caplog):
        """It is refused, and if it is in another one, left out with a warning."""
        plain = write("corpus/y.txt", LINES)
        write("corpus/lost+found/z.txt", LINES)
        scandir = os.scandir

        def guarded(folder: Path):
            if folder.name == closed:
                raise PermissionError(13, "no entry")
            return scandir(folder)

        monkeypatch.setattr("os.scandir", guarded)
        closed = "lost+found"
        assert source_files(tmp_path / "corpus") == [plain]
        assert "lost+found' cannot be read: no entry. Documents in it are left" in caplog.text
        closed = "corpus"
        with pytest.raises(SourceError, match="corpus' cannot be read: no entry"):
            source_files(tmp_path / "corpus")

    def test_folder_in_a_hidden_folder(self, write, tmp_path):
        file = write(".store/data/a.txt", LINES)
        assert source_files(tmp_path / ".store" / "data") == [file]
        assert read(file) == ROWS

    def test_a_glob(self, write, tmp_path):
        first, second = write("x1.txt", "1"), write("x/x2.txt", "2")
        write("y.txt", "3")
        (tmp_path / "x9.txt").mkdir()
        assert source_files(f"{tmp_path}/x*.txt") == [first]
        assert source_files(f"{tmp_path}/**/x?.txt") == [second, first]

    def test_a_glob_tells_of_folders_that_it_passes_over(self, write, tmp_path, caplog):
        file, _ = write("a.txt", "1"), write("more/b.txt", "2")
        (tmp_path / "empty").mkdir()
        caplog.set_level("WARNING", "declutr.corpus.source_files")
        assert source_files(f"{tmp_path}/**") == [file, tmp_path / "more" / "b.txt"]
        assert source_files(f"{tmp_path}/*.txt") == [file] and not caplog.text
        for _ in range(2):
            assert source_files(f"{tmp_path}/*") == [file]
        assert caplog.text.count(f"such as '{tmp_path}/more', and no file in them (1 in all)") == 1

    def test_list_keeps_its_order_and_may_repeat(self, write, tmp_path):
        first, second = write("a.txt", "1"), write("f/b.txt", "2")
        assert source_files([second, str(first)]) == [second, first]
        several = tmp_path / "f", first, f"{tmp_path}/a*", first
        assert source_files(several) == [second, *[first] * 3]

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
    def test_a_pipe_is_refused(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(SourceError, match=r"is a pipe, which can be read.* - for stan"):
            source_files(tmp_path / "pipe")

    def test_a_dataset_dict_is_told_with_what_to_write(self, write, tmp_path):
        write("saved/dataset_dict.json", '{"splits": ["train"]}')
        write("saved/train/data-00000-of-00001.arrow", "")
        for place in ("saved", "saved/**"):
            with pytest.raises(SourceError, match=r" is a DatasetDict, .*\['train'\]\.to_parq"):
                source_files(tmp_path / place)

    def test_the_home_folder_is_expanded(self, write, monkeypatch, tmp_path):
        file = write("a.txt", "1")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert source_files("~/a.txt") == [file]
        monkeypatch.chdir(tmp_path)
        assert source_files(write("~$a.txt", "1").name) == [Path("~$a.txt")]  # no user's home

    @pytest.mark.parametrize("name", ["a [1] *?.txt", "a#b %20 & é@c.txt", "[x]/{y}.txt"])
    def test_names_with_special_characters(self, write, name):
        file = write(name, LINES)
        assert source_files(file) == [file]
        assert read(file) == ROWS

    def test_a_relative_path(self, write, monkeypatch, tmp_path):
        write("a.txt", LINES)
        monkeypatch.chdir(tmp_path)
        assert read(*source_files("a.txt")) == read(*source_files("*.txt")) == ROWS

    @pytest.mark.parametrize("name", ["missing.txt", "none*.txt", "empty"])
    def test_a_path_without_files_is_refused(self, tmp_path, name):
        (tmp_path / "empty").mkdir()
        said = rf"Found no documents at '{tmp_path}/.*'. Expected a file .* a glob"
        for path in (tmp_path / name, [__file__, tmp_path / name]):
            with pytest.raises(SourceError, match=said):
                source_files(path)

    @pytest.mark.parametrize(("path", "got"), [("", "an empty path"), ([], "an empty list")])
    def test_an_empty_path_is_refused(self, path, got):
        with pytest.raises(SourceError, match=f"Got {got}.*; expected"):
            source_files(path)

    def test_the_name_of_a_url_tells_the_format(self, write, tmp_path, monkeypatch):
        write("www/a.jsonl.gz", gzip.compress(RECORDS.encode("utf-8")))
        write("www/b.txt.gz", gzip.compress(b"a\nb\xff\n"))
        monkeypatch.setattr("cached_path.common.CACHE_DIRECTORY", tmp_path / "downloads")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        handler = functools.partial(_Quiet, directory=str(tmp_path / "www"))
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{server.server_port}"
            assert read(*source_files(f"{url}/a.jsonl.gz?download=1")) == ROWS
            with pytest.raises(SourceError, match="line 2: byte 2"):
                read(*source_files(f"{url}/b.txt.gz"))
            server.shutdown()
