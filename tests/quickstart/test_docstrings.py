"""Tests of the corpus of docstrings; the oracle is a package whose texts are known."""

import logging
import sys
from pathlib import Path

import pytest

from declutr.quickstart.docstrings import (
    DEFAULT_PACKAGES,
    STANDARD_LIBRARY,
    docstrings,
    documents,
    find_sources,
    write_corpus,
)
from tests.conftest import script

FILES = {
    "__init__.py": '"""The package\n\n    over two paragraphs.\n    """\nraise RuntimeError\n',
    "alpha.py": '''
"""Module alpha."""

def outer():
    """Outer function."""
    def inner():
        """Inner function."""
    text = """Not a docstring."""

if True:
    try:
        class Thing:
            r"""A \\d thing.

            Parameters:
                x:\tan\u2028x
            """
            async def method(self):
                "Method, in single quotes."
    except ValueError:
        def fallback():
            """Fallback."""
''',
    "beta.py": '"""Module beta."""\ndef f():\n    """Outer    function."""\n',
    "deep/gamma.py": '"""Gamma, deep down."""\n',
    "silent.py": "x = 1\n",
    "latin.py": b'# -*- coding: latin-1 -*-\n"""Caf\xe9."""\n',
    "surrogate.py": '"""Half a \\ud83d pair."""\n',
    "broken.py": '"""Broken."""\ndef (\n',
    "undecodable.py": b'"""\xff\xfe"""\n',
    "data-2/odd.py": '"""Not a module name."""\n',
    "tests/test_alpha.py": '"""In a folder of tests."""\n',
    "test_beta.py": '"""A test file."""\n',
    "conftest.py": '"""Fixtures."""\n',
    "_vendor/other.py": '"""Vendored."""\n',
    "notes.txt": "Not Python.",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Write a package that raises when it is imported; return its name."""
    for name, content in FILES.items():
        path = tmp_path / "declutr_fake" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "declutr_single.py").write_text('"""A module without a package."""\n')
    monkeypatch.syspath_prepend(tmp_path)
    return "declutr_fake"


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Write a package of 100 modules, the i-th with i + 1 words of its own; return its name."""
    folder = tmp_path / "declutr_library"
    folder.mkdir()
    for i in range(100):
        words = " ".join(f"word{i}x{j}" for j in range(i + 1))
        (folder / f"module{i:02}.py").write_text(f'"""{words}"""\n')
    monkeypatch.syspath_prepend(tmp_path)
    return "declutr_library"


def read(*packages, **options):
    return [one[:2] for one in documents(packages, progress=False, **options)]


def test_documents_hold_the_known_words(package):
    expected = {
        "declutr_fake": "The package over two paragraphs.",
        "declutr_fake.alpha": "Module alpha. Outer function. Inner function. A \\d thing. "
        "Parameters: x: an x Method, in single quotes. Fallback.",
        "declutr_fake.beta": "Module beta.",
        "declutr_fake.deep.gamma": "Gamma, deep down.",
        "declutr_fake.latin": "Café.",
        "declutr_fake.surrogate": "Half a ? pair.",
        "declutr_single": "A module without a package.",
    }
    assert read(package, "declutr_single") == list(expected.items())
    assert package not in sys.modules
    assert read(package, package) == read(package)  # a package that is named twice is read once


def test_unreadable_files_are_logged(package, caplog):
    with caplog.at_level(logging.INFO, logger="declutr.quickstart.docstrings"):
        read(package)
    names = {Path(record.args[0]).name for record in caplog.records}
    assert names == {"broken.py", "undecodable.py"}


def test_a_repeated_paragraph_stays_where_it_first_appears(tmp_path, monkeypatch):
    (tmp_path / "declutr_copies.py").write_text(
        '"""One."""\ndef f():\n    """Two.\n\n    One.\n\n    Three.\n    """\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert read("declutr_copies") == [("declutr_copies", "One. Two. Three.")]
    (document,) = documents(["declutr_copies"], progress=False)
    assert document.docstrings == (
        ("declutr_copies", "One.", ""),
        ("declutr_copies.f", "Two.", "Three."),
    )


def test_progress_goes_to_standard_error(package, capsys):
    list(documents([package]))
    printed = capsys.readouterr()
    assert printed.out == "" and "reading docstrings" in printed.err


@pytest.mark.slow
def test_several_processes_give_the_same_documents(library):
    assert len(find_sources([library])) == 100  # These are enough for more than one task.
    assert read(library, workers=2) == read(library)


def test_warnings_about_the_code_of_others_are_not_shown(recwarn):
    assert docstrings(b'"""A \\d."""\nx = "\\d"\n') == ["A \\d."]
    assert not recwarn.list


def test_the_standard_library_is_read():
    sources = dict(find_sources([STANDARD_LIBRARY]))
    assert {"json.decoder", "argparse", "xml.dom.minidom"} <= set(sources)
    assert not any(module.split(".")[0] in {"test", "numpy", "pytest"} for module in sources)
    assert docstrings(sources["this"].read_bytes()) == []


def test_default_packages_are_not_imported():
    before = set(sys.modules)
    assert len(find_sources(DEFAULT_PACKAGES)) > 1000
    tops = {name.partition(".")[0] for name in set(sys.modules) - before}
    assert not tops & {name for name in DEFAULT_PACKAGES if name not in before}


class TestWriteCorpus:
    def write(self, packages, folder, **options):
        paths = folder / "a" / "train.txt", folder / "b" / "validation.txt"
        counts = write_corpus(packages, *paths, progress=False, **options)
        return counts, [path.read_text(encoding="utf-8").splitlines() for path in paths]

    def test_files_and_counts_agree(self, library, tmp_path):
        options = {"min_words": 11, "validation_fraction": 0.3}
        counts, (train, validation) = self.write([library], tmp_path, **options)
        assert counts.train_documents == len(train)
        assert counts.validation_documents == len(validation)
        assert counts.train_words == sum(len(line.split()) for line in train)
        assert counts.validation_words == sum(len(line.split()) for line in validation)
        assert counts.short_documents == 10
        assert len(train) + len(validation) == 90
        assert 0.15 < len(validation) / 90 < 0.45  # Five standard deviations are 0.24.
        assert all(line.count("word") == len(line.split()) > 10 for line in train + validation)

    def test_what_is_left_out_is_counted(self, package, tmp_path):
        counts, _ = self.write([package], tmp_path, min_words=1)
        assert counts.unreadable_files == 2
        assert counts.duplicate_paragraphs == 1
        assert counts.train_documents + counts.validation_documents == 6

    def test_the_split_depends_on_the_seed_and_not_on_others(self, library, package, tmp_path):
        options = {"min_words": 1, "validation_fraction": 0.5}
        _, first = self.write([library], tmp_path, **options)
        _, again = self.write([library], tmp_path, **options)
        _, more = self.write([package, library], tmp_path, **options)
        _, other = self.write([library], tmp_path, **options, seed=1)
        assert first == again
        assert set(first[0]) <= set(more[0]) and set(first[1]) <= set(more[1])
        assert first != other

    @pytest.mark.parametrize(("fraction", "filled"), [(0.0, 0), (1.0, 1)])
    def test_fractions_0_and_1_give_one_file(self, library, tmp_path, fraction, filled):
        _, parts = self.write([library], tmp_path, min_words=1, validation_fraction=fraction)
        assert len(parts[filled]) == 100 and parts[1 - filled] == []

    def test_a_fraction_outside_0_to_1_is_refused(self, library, tmp_path):
        with pytest.raises(ValueError, match=r"validation_fraction must lie in \[0, 1\], not 1.5"):
            self.write([library], tmp_path, validation_fraction=1.5)

    def test_no_package_leaves_no_file(self, tmp_path):
        with pytest.raises(ValueError, match="no Python source found for any of: declutr_absent"):
            self.write(["declutr_absent"], tmp_path)
        assert list(tmp_path.iterdir()) == []


class TestErrors:
    @pytest.mark.parametrize(
        ("packages", "error", "message"),
        [
            ([], ValueError, "no package named"),
            ("numpy", TypeError, r"not one string; use \['numpy'\]"),
            (["numpy.linalg"], ValueError, r"'numpy\.linalg' is not a top-level package; use 'nu"),
        ],
    )
    def test_names_that_are_no_packages(self, packages, error, message):
        with pytest.raises(error, match=message):
            documents(packages)

    @pytest.mark.parametrize("name", ["declutr_absent", "scikit-learn", "sys", "__main__"])
    def test_no_package_found(self, name, monkeypatch):
        monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
        with pytest.raises(ValueError, match=rf"any of: {name}.*sklearn, not scikit-learn"):
            documents([name])

    def test_some_missing_are_logged(self, package, caplog):
        with caplog.at_level(logging.INFO, logger="declutr.quickstart.python_sources"):
            assert find_sources(["declutr_absent", package])
        assert "No Python source found for: declutr_absent" in caplog.text


class TestScript:
    @pytest.fixture
    def main(self):
        return script("docstring_corpus").main

    def test_writes_and_reports(self, main, library, tmp_path, capsys):
        train, validation = tmp_path / "train.txt", tmp_path / "validation.txt"
        arguments = [str(train), str(validation), "--packages", library, "--workers", "1"]
        main([*arguments, "--min-words", "91", "--validation-fraction", "0"])
        assert len(train.read_text().splitlines()) == 10
        printed = capsys.readouterr().out
        assert f"{train}: 10 documents, 955 words" in printed
        assert "left out: 90 documents below 91 words, 0 repeated paragraphs" in printed

        with pytest.raises(SystemExit):
            main(arguments)
        assert "exist already; give --force to overwrite" in capsys.readouterr().err
        main([*arguments, "--force"])

    def test_errors(self, main, tmp_path, capsys):
        with pytest.raises(SystemExit):
            main([str(tmp_path / "t"), str(tmp_path / "v"), "--packages", "declutr_absent"])
        assert "no Python source found for any of: declutr_absent" in capsys.readouterr().err
