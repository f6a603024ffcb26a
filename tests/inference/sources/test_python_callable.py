"""Tests of encoders that are Python functions of the user."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from declutr.inference.official_protocols import MtebEncoder
from declutr.inference.sources import EncoderError, open_encoder
from declutr.inference.sources.python_callable import source_files

SOURCE = """
import numpy as np
import torch

def lengths(sentences):
    assert type(sentences) is list
    return np.array([[len(text), 1] for text in sentences])

def lists(sentences):
    return [[len(text), 1.5] for text in sentences]

def tensors(sentences):
    return torch.tensor([[len(text), 1.5] for text in sentences], dtype=torch.bfloat16,
                        requires_grad=True)

class Model:
    fingerprint = "weights of may"

    def __call__(self, sentences):
        return lengths(sentences)

    def encode(self, sentences):
        return 2 * lengths(sentences)

model = Model()
number = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Write a module with a name that no other test has into the current folder."""
    name = f"encoders_of_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


def test_functions_and_methods_embed(module: str) -> None:
    texts = ["one", "", "three"]
    for name in ("lengths", "lists", "tensors", "model", "model.encode"):
        encoder = open_encoder(f"{module}:{name}")
        assert encoder.dimension is None
        rows = encoder(texts)
        assert rows.dtype == np.float32 and rows.shape == (3, 2) and encoder.dimension == 2
        assert rows[:, 0].tolist() == [6, 0, 10] if "encode" in name else [3, 0, 5]
        assert np.array_equal(open_encoder(f"call:{module}:{name}")(texts), rows)


def test_the_current_folder_hides_no_installed_package(module: str, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit('hidden')")
    open_encoder(f"{module}:lengths")
    assert sys.path[-1] == str(tmp_path)


def fingerprint(place: str) -> str:
    return open_encoder(f"mine={place}").describe()["fingerprint"]


def test_fingerprints_of_functions_and_objects(module: str, tmp_path: Path) -> None:
    before = {name: fingerprint(f"{module}:{name}") for name in ("lengths", "model", "lists")}
    assert {name: fingerprint(f"{module}:{name}") for name in before} == before
    assert len({*before.values()}) == 3  # although all are in one file
    method = fingerprint(f"{module}:model.encode")
    sys.modules[module].model.fingerprint = "weights of june"
    assert fingerprint(f"{module}:model") != before["model"]
    assert fingerprint(f"{module}:model.encode") != method  # a method of that object
    assert fingerprint(f"{module}:lengths") == before["lengths"]


def test_embeddings_are_stored_if_a_fingerprint_says_when_they_change(module: str) -> None:
    for place in (f"{module}:lengths", f"{module}:lists"):
        assert f"'{place}' has no attribute `fingerprint`" in str(open_encoder(place).not_stored)
        version = open_encoder(f"{place}?fingerprint=v1")
        assert version.not_stored is None and version.name == place
        assert fingerprint(f"{place}?fingerprint=v2") != version.describe()["fingerprint"]
    assert open_encoder(f"{module}:model.encode").not_stored is None


def test_mteb_tells_functions_apart(module: str) -> None:
    one, other = (MtebEncoder(open_encoder(f"mine={module}:{n}")) for n in ("lengths", "lists"))
    assert one.name == other.name and one.revision != other.revision


def test_a_file_that_changes_after_its_import(module: str, tmp_path: Path) -> None:
    """Change a file after its import: the imported code may match neither old nor new content."""
    before = fingerprint(f"{module}:lengths")
    (tmp_path / f"{module}.py").write_text(SOURCE.replace("len(text), 1]", "len(text), 2]"))
    assert len({before, fingerprint(f"{module}:lengths"), fingerprint(f"{module}:lengths")}) == 3
    importlib.reload(sys.modules[module])
    reloaded = fingerprint(f"{module}:lengths")
    assert reloaded != before and reloaded == fingerprint(f"{module}:lengths")


HELPERS = {
    "at_the_top": "from {0}_helper import shift\ndef encode(texts): return shift(texts)",
    "in_a_function": "def encode(texts):\n    import {0}_helper as h\n    return h.shift(texts)",
    "through_another": "from {0}_between import shift as encode",
}


@pytest.mark.parametrize("name", HELPERS)
def test_the_fingerprint_covers_imported_modules(module: str, tmp_path: Path, name: str) -> None:
    """Change imported modules, and embed in a state like that of a new process."""
    prints = []
    for number, value in enumerate((1, 2, 1)):
        folder = tmp_path / f"{name}{number}"
        folder.mkdir()
        (folder / f"{module}_between.py").write_text(f"from {module}_helper import *")
        (folder / f"{module}_helper.py").write_text(f"def shift(texts): return [[{value}]]")
        (folder / f"{module}_other.py").write_text(f"unused = {number}")
        (folder / f"{module}_of.py").write_text(HELPERS[name].format(module))
        files = source_files(f"{module}_of", folder / f"{module}_of.py")
        assert files == [folder / f"{module}_of.py"]  # the folder is not on the path yet
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            prints.append(fingerprint(f"{module}_of:encode"))
            for known in [known for known in sys.modules if known.startswith(f"{module}_")]:
                del sys.modules[known]
            sys.path.remove(str(folder))
    assert prints[0] == prints[2] != prints[1]


def test_source_files_of_a_package(tmp_path: Path) -> None:
    """Follow relative imports; leave out numpy, and files that cannot be parsed or found."""
    package = tmp_path / "made_of_parts"
    for name, content in {
        "__init__": "import numpy, os.path, sys, absent_everywhere",
        "inner/__init__": "from .. import settings",
        "inner/deep": "from ..words import table\nfrom .broken import x",
        "inner/broken": "def (",
        "settings": "from ....beyond import nothing",
        "words": "from declutr import Encoder",
        "unused": "",
    }.items():
        (package / f"{name}.py").parent.mkdir(parents=True, exist_ok=True)
        (package / f"{name}.py").write_text(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        files = source_files("made_of_parts.inner.deep", package / "inner" / "deep.py")
    expected = ["__init__", "inner/__init__", "inner/broken", "inner/deep", "settings", "words"]
    assert [str(file.relative_to(package).with_suffix("")) for file in files] == expected


def test_source_files_of_packages_without_init(tmp_path: Path) -> None:
    """Find namespace packages that are not imported yet; leave out installed packages."""
    inner = tmp_path / "parts_of_it" / "inner"
    inner.mkdir(parents=True)
    (inner / "words.py").write_text("")
    installed = tmp_path / "lib" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "somebodys_package.py").write_text("")
    own = tmp_path / "own_encoder.py"
    imports = ("from parts_of_it.inner import words", "import somebodys_package")
    own.write_text("\n    ".join(["def encode(s):", *imports]))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        patch.syspath_prepend(installed)
        assert source_files("own_encoder", own) == [own, inner / "words.py"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("absent_module:encode", r"No module 'absent_module'.*absent_module\.py in"),
        ("MODULE.inside:encode", r"No module 'encoders_of_\d+\.inside'"),
        ("MODULE:absent", r"'encoders_of_\d+' \(.*\.py\) has no 'absent'"),
        ("MODULE:model.absent", r"has no 'model\.absent'"),
        ("MODULE:number", r"to be a function.*got an object of type int"),
        ("MODULE:Model", r"to be a function.*got the class Model"),
        ("call:MODULE", r"Expected MODULE:FUNCTION, got 'encoders_of_\d+'"),
    ],
)
def test_places_that_are_no_function_are_refused(module: str, spec: str, message: str) -> None:
    with pytest.raises(EncoderError, match=message):
        open_encoder(spec.replace("MODULE", module))


def test_import_errors_of_the_module_are_raised_as_they_are(module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}_b.py").write_text("import absent_dependency")
    with pytest.raises(ModuleNotFoundError, match="absent_dependency"):
        open_encoder(f"{module}_b:encode")
