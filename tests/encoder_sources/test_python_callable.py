"""Functions of the user's own."""

import sys
from pathlib import Path

import numpy as np
import pytest

from declutr.encoder_sources import EncoderError, open_encoder

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
    """A module in the current folder; each test has one of its own name."""
    name = f"encoders_of_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


def test_functions_and_methods(module: str) -> None:
    texts = ["one", "", "three"]
    for name in ("lengths", "lists", "tensors", "model", "model.encode"):
        encoder = open_encoder(f"{module}:{name}")
        assert encoder.dimension is None
        rows = encoder(texts)
        assert rows.dtype == np.float32 and rows.shape == (3, 2) and encoder.dimension == 2
        assert rows[:, 0].tolist() == [6, 0, 10] if "encode" in name else [3, 0, 5]
        assert np.array_equal(open_encoder(f"call:{module}:{name}")(texts), rows)


def test_the_current_folder_hides_nothing(module: str, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit('hidden')")
    open_encoder(f"{module}:lengths")
    assert sys.path[-1] == str(tmp_path)


def test_fingerprints(module: str, tmp_path: Path) -> None:
    def fingerprint(name: str) -> str:
        return open_encoder(f"{module}:{name}").describe()["fingerprint"]

    before = fingerprint("lengths"), fingerprint("model")
    assert (fingerprint("lengths"), fingerprint("model")) == before
    sys.modules[module].model.fingerprint = "weights of june"
    assert fingerprint("model") != before[1] and fingerprint("lengths") == before[0]
    (tmp_path / f"{module}.py").write_text(SOURCE + "# changed\n")
    assert fingerprint("lengths") != before[0]


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
def test_what_is_no_function(module: str, spec: str, message: str) -> None:
    with pytest.raises(EncoderError, match=message):
        open_encoder(spec.replace("MODULE", module))


def test_what_a_module_fails_to_import_is_its_own_matter(module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}_b.py").write_text("import absent_dependency")
    with pytest.raises(ModuleNotFoundError, match="absent_dependency"):
        open_encoder(f"{module}_b:encode")
