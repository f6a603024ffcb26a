"""Tests of synonyms from files and from WordNet."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from declutr.data.synonyms import NoSynonyms, from_file, from_wordnet


def test_from_file_reads_lines(tmp_path: Path) -> None:
    """The file has upper case, phrases, repetitions, the word itself and empty lines."""
    file = tmp_path / "synonyms.tsv"
    file.write_text("Old\taged ancient\n\nriver\tstream river River\nold\tancient long_lived\n")
    synonyms = from_file(file)
    assert synonyms("old") == ("aged", "ancient", "long lived")
    assert synonyms("river") == ("stream",)
    assert synonyms("unknown") == ()


@pytest.mark.parametrize("line", ["old aged", "old\t", "\taged", "old\t   "])
def test_from_file_refuses_lines_of_another_form(tmp_path: Path, line: str) -> None:
    file = tmp_path / "synonyms.tsv"
    file.write_text(f"a\tb\n{line}\n")
    with pytest.raises(NoSynonyms, match=r"line 2: expected 'word<TAB>synonym synonym \.\.\.', go"):
        from_file(file)


def test_from_file_refuses_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(NoSynonyms, match=r"Cannot read synonyms from '.*nowhere\.tsv'"):
        from_file(tmp_path / "nowhere.tsv")
    (tmp_path / "latin.tsv").write_bytes("é\tè\n".encode("latin-1"))
    with pytest.raises(NoSynonyms, match=r"Cannot read synonyms .*line 1: byte 1 is not valid UTF"):
        from_file(tmp_path / "latin.tsv")


class FakeWordNet:
    """A stand-in for nltk's corpus reader, with two senses of "ran"."""

    def __init__(self, installed: bool) -> None:
        self.installed = installed
        self.asked: list[str] = []

    def ensure_loaded(self) -> None:
        if not self.installed:
            raise LookupError("forty lines about nltk.download")

    def synsets(self, word: str) -> list[Any]:
        self.asked.append(word)
        senses = [["run", "run_away", "go"], ["ran", "go", "Flow"]] if word == "ran" else []
        return [
            SimpleNamespace(lemmas=lambda s=s: [SimpleNamespace(name=lambda n=n: n) for n in s])
            for s in senses
        ]


@pytest.fixture
def corpora(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a stand-in for the module `nltk.corpus`."""
    module = SimpleNamespace(wordnet=FakeWordNet(installed=True))
    monkeypatch.setitem(sys.modules, "nltk", SimpleNamespace(corpus=module))
    monkeypatch.setitem(sys.modules, "nltk.corpus", module)
    yield module


def test_from_wordnet_gives_all_senses_in_order(corpora: Any) -> None:
    synonyms = from_wordnet()
    assert synonyms("ran") == ("run", "run away", "go", "Flow")
    assert synonyms("xyzzy") == () and synonyms("ran") == ("run", "run away", "go", "Flow")
    assert corpora.wordnet.asked == ["ran", "xyzzy"]  # Each word is looked up once.


def test_from_wordnet_without_its_data_is_refused(corpora: Any) -> None:
    corpora.wordnet.installed = False
    with pytest.raises(NoSynonyms, match=r"no WordNet on this .*nltk\.downloader wordnet.*a file"):
        from_wordnet()


def test_from_wordnet_without_nltk_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nltk.corpus", None)
    with pytest.raises(
        NoSynonyms, match=r"nltk, which is not installed\. Run `pip install 'declutr\[nltk\]'`"
    ):
        from_wordnet()
