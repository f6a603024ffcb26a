"""Whole archives are refused if they are unsafe, and loaded if they are safe."""

import json
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.common import cached_transformers
from allennlp.predictors import Predictor

import declutr.components  # noqa: F401
from declutr.archives.safety import (
    BrokenArchive,
    UnsafeArchive,
    loaded_by_rules,
    opened_archive,
    safely_loaded_archive,
)
from tests import hostile_archives as hostile

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which temporary folders are created; it must be empty in the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the path of a folder that `hostile_module` and other unsafe code creates."""
    mark = tmp_path / "marker"
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "hostile_module.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    monkeypatch.syspath_prepend(str(modules))
    yield mark
    sys.modules.pop("hostile_module", None)


# Of each step of the check one; the other tests of this folder have all that each refuses.
HOSTILE: dict[str, tuple[Callable[[Path], Callable[[Path], None]], str]] = {
    "pickle in the weights": (
        lambda marker: hostile.with_torch_pickle("weights.th", marker),
        r"weights\.th should hold tensors only, but names \w+\.mkdir",
    ),
    "dotted type": (
        lambda marker: hostile.with_config("model", "type", value="hostile_module.Model"),
        r"'model\.type' is 'hostile_module\.Model', which AllenNLP would import and run",
    ),
    "bare dotted string": (
        lambda marker: hostile.with_config("model", "loss", value="hostile_module.Loss"),
        r"An? Objective is 'hostile_module\.Loss', which AllenNLP would import and run",
    ),
    "oversized": (
        lambda marker: hostile.with_json(
            "transformer/0/config.json", vocab_size=2**28, hidden_size=2
        ),
        r"asks for 1 parameters of 2,147,483,648 bytes .*weight of Embedding",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("kind", ["archive", "folder"])
def test_unsafe_archives_are_refused(
    name: str, kind: str, trained: Path, marker: Path, tmp_path: Path, temporary: Path
) -> None:
    make, message = HOSTILE[name]
    place = hostile.changed(trained / "model.tar.gz", tmp_path / "content", make(marker))
    if kind == "archive":
        place = hostile.packed(place, tmp_path / "model.tar.gz")
    with pytest.raises(UnsafeArchive, match=message):
        safely_loaded_archive(place)
    assert not marker.exists()
    assert "hostile_module" not in sys.modules
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("kind", ["archive", "folder"])
def test_safe_models_load(kind: str, trained: Path, documents: list[str], temporary: Path) -> None:
    place = trained / "model.tar.gz" if kind == "archive" else trained
    cached_transformers._clear_caches()
    loaded = safely_loaded_archive(str(place))
    assert list(temporary.iterdir()) == []
    weights = torch.load(trained / "best.th", weights_only=True)
    state = loaded.model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in weights.items())
    predictor = Predictor.from_archive(loaded, "declutr")  # needs no deleted files
    embeddings = predictor.predict_json({"text": documents[0]})["embeddings"]
    assert len(embeddings) == 6 or len(embeddings) == 32
    assert loaded.config["model"]["type"] == "declutr-declutr"


def test_no_other_archive_is_loaded_while_one_is_built(trained: Path, monkeypatch: Any) -> None:
    def load(place: Any, **others: Any) -> Any:
        return str(place)

    with opened_archive(trained) as folder:
        assert loaded_by_rules(load, folder, trust=False) == str(trained)
        with pytest.raises(UnsafeArchive, match=r"it loads another archive, 'other\.tar\.gz'"):
            loaded_by_rules(load, "other.tar.gz", trust=True)
    with opened_archive(trained, trust=True):
        assert loaded_by_rules(load, "other.tar.gz", trust=False) == "other.tar.gz"
    assert loaded_by_rules(load, "other.tar.gz", trust=True) == "other.tar.gz"


def test_overrides_change_the_configuration(trained: Path) -> None:
    changes = {"model.mlm_weight": 0.5, "dataset_reader.seed": 7}
    loaded = safely_loaded_archive(trained, overrides=changes)
    assert loaded.config["model"]["mlm_weight"] == 0.5
    loaded = safely_loaded_archive(trained, overrides=json.dumps(changes))
    assert loaded.config["dataset_reader"]["seed"] == 7


def test_trust_allows_jsonnet(trained: Path, tmp_path: Path) -> None:
    folder = hostile.changed(trained / "model.tar.gz", tmp_path / "content", lambda folder: None)
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(f"// a note\n{config}")
    with pytest.raises(UnsafeArchive, match=r"content: config\.json .* line 1 has the comment `//"):
        safely_loaded_archive(folder)
    assert safely_loaded_archive(folder, trust=True).config["model"]["type"] == "declutr-declutr"


def test_trust_does_not_allow_pickles(trained: Path, marker: Path, tmp_path: Path) -> None:
    make, message = HOSTILE["pickle in the weights"]
    folder = hostile.changed(trained / "model.tar.gz", tmp_path / "content", make(marker))
    with pytest.raises(UnsafeArchive, match=message):
        safely_loaded_archive(folder, trust=True)
    assert not marker.exists()


def test_an_opened_archive_is_a_temporary_folder(trained: Path, temporary: Path) -> None:
    with opened_archive(trained / "model.tar.gz") as folder:
        assert folder.parent == temporary
        assert {"config.json", "weights.th", "vocabulary"} <= {p.name for p in folder.iterdir()}
    assert list(temporary.iterdir()) == []
    with opened_archive(trained) as folder:
        assert folder == trained


def test_urls_are_downloaded_through_the_cache(trained: Path, monkeypatch: Any) -> None:
    asked = []

    def fetched(url: str) -> str:
        asked.append(url)
        return str(trained / "model.tar.gz")

    monkeypatch.setattr("allennlp.common.file_utils.cached_path", fetched)
    with opened_archive("https://somewhere/model.tar.gz") as folder:
        assert (folder / "config.json").exists()
    assert asked == ["https://somewhere/model.tar.gz"]


def test_a_place_without_a_model_is_reported(tmp_path: Path) -> None:
    with (
        pytest.raises(FileNotFoundError, match=r"No model at '.*nowhere'. Expected the folder"),
        opened_archive(tmp_path / "nowhere"),
    ):
        pytest.fail("it was opened")
    (tmp_path / "notes.txt").write_text("not an archive")
    with (
        pytest.raises(FileNotFoundError, match=r"notes\.txt' is not an archive. Expected the"),
        opened_archive(tmp_path / "notes.txt"),
    ):
        pytest.fail("it was opened")


def test_a_truncated_archive_is_reported(
    trained: Path, tmp_path: Path, temporary: Path, monkeypatch: Any
) -> None:
    whole = (trained / "model.tar.gz").read_bytes()
    cut = tmp_path / "model.tar.gz"
    cut.write_bytes(whole[: len(whole) // 2])
    message = r"^'.*model\.tar\.gz' cannot be read as .* it is damaged or cut off .*Copy it anew"
    with pytest.raises(BrokenArchive, match=message) as error, opened_archive(cut):
        pytest.fail("it was opened")
    # Commands print a `ValueError` without a traceback; users of tarfile catch its `ReadError`.
    assert isinstance(error.value, ValueError) and isinstance(error.value, tarfile.ReadError)
    assert list(temporary.iterdir()) == []
    monkeypatch.setattr("allennlp.common.file_utils.cached_path", lambda url: str(cut))
    with (
        pytest.raises(BrokenArchive, match=r"^'https://somewhere/m\.tar\.gz' cannot be read as"),
        opened_archive("https://somewhere/m.tar.gz"),
    ):
        pytest.fail("it was opened")


def test_an_archive_without_a_configuration_is_no_model(trained: Path, tmp_path: Path) -> None:
    change = hostile.without("config.json")
    folder = hostile.changed(trained / "model.tar.gz", tmp_path / "content", change)
    place = hostile.packed(folder, tmp_path / "model.tar.gz")
    with (
        pytest.raises(FileNotFoundError, match=rf"^'{place}' holds no config\.json"),
        opened_archive(place),
    ):
        pytest.fail("it was opened")
