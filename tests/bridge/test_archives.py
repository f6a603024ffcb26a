"""Tests of the additions to AllenNLP's archives: carried transformers, and safe extraction."""

import glob
import importlib.util
import os
import pickle
import sys
import tarfile
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from declutr.bridge import archives, finder
from tests.hostile_archives import changed, packed, regular, special, tar_of, with_torch_pickle


@pytest.fixture
def archival(bare: Any) -> ModuleType:
    """Return AllenNLP's archival module with functions that return their arguments."""
    module = bare("allennlp.models.archival")

    def archive_model(
        serialization_dir: Any,
        weights: str = "best.th",
        archive_path: Any = None,
        include_in_archive: Any = None,
    ) -> Any:
        return serialization_dir, weights, archive_path, include_in_archive

    module._load_dataset_readers = lambda config, serialization_dir: (config, serialization_dir)
    module._load_model = lambda *args: args
    module.archive_model = archive_model
    return module


@pytest.fixture
def ours(monkeypatch: Any) -> Any:
    """Return a stand-in for `declutr.archives.carried`."""
    module = ModuleType("fake_archives")
    module.__spec__ = importlib.util.spec_from_loader("fake_archives", loader=None)
    module.use_archived_transformer = lambda c, d: f"{c} from {d}"  # type: ignore[attr-defined]
    module.archive_transformer = lambda d, w: [f"{d}/ours"]  # type: ignore[attr-defined]
    module.checked = []  # type: ignore[attr-defined]
    module.require_whole_weights = module.checked.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fake_archives", module)
    monkeypatch.setattr(archives, "CARRIED", "fake_archives")
    return module


def test_archives_are_loaded_with_the_carried_transformer(
    archival: ModuleType, ours: Any, tmp_path: Path
) -> None:
    archives.carried_transformers(archival)
    folder = str(tmp_path)
    assert archival._load_dataset_readers("config", folder) == ("config", folder)  # none carried
    (tmp_path / "transformer").mkdir()
    (tmp_path / "transformer" / "names.json").touch()
    assert archival._load_dataset_readers("config", folder) == (f"config from {folder}", folder)
    expected = (f"config from {folder}", "weights", folder, -1)
    assert archival._load_model("config", "weights", folder, -1) == expected


def test_carried_transformers_are_used_without_the_plugin(monkeypatch: Any) -> None:
    """The rules for untrusted archives hold there, too, and let pass what is replaced."""
    monkeypatch.setenv("DECLUTR_PLUGIN", "0")
    switches = finder._repairs_of("allennlp.models.archival")
    assert archives.carried_transformers in switches
    assert archives.archived_transformers not in switches


def test_a_vocabulary_that_is_a_file_is_not_extracted(archival: ModuleType, tmp_path: Path) -> None:
    archives.folders_as_vocabularies(archival)
    arguments = ("config", "weights", str(tmp_path), -1)
    assert archival._load_model(*arguments) == arguments
    tar_of(tmp_path / "vocabulary", [special("link", tarfile.SYMTYPE, "/etc")])
    with pytest.raises(ValueError, match="'vocabulary' is a file; expected a folder"):
        archival._load_model(*arguments)


def test_archives_carry_the_files_of_the_transformer(archival: ModuleType, ours: Any) -> None:
    archives.archived_transformers(archival)
    assert archival.archive_model("dir") == ("dir", "best.th", None, ["dir/ours"])
    given = archival.archive_model("dir", "w.th", None, ["log"])  # by position, too
    assert given == ("dir", "w.th", None, ["log", "dir/ours"])
    assert ours.checked == [os.path.join("dir", name) for name in ("best.th", "w.th")]
    ours.archive_transformer = lambda folder, weights: []
    assert archival.archive_model("dir", include_in_archive=None) == ("dir", "best.th", None, None)


def test_archives_are_extracted_by_the_rules_of_this_package(
    bare: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    honest = tar_of(tmp_path / "honest.tar.gz", [regular("config.json", b"{}")])
    hostile = tar_of(tmp_path / "hostile.tar.gz", [regular("../escaped")])
    temporary = tmp_path / "a" / "temporary"
    temporary.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    module = bare("allennlp.models.archival")
    archives.checked_extraction(module)
    with module.extracted_archive(str(honest)) as folder:
        assert Path(folder, "config.json").read_text() == "{}"
    assert list(temporary.iterdir()) == []
    with module.extracted_archive(str(honest), cleanup=False) as folder:
        pass
    assert [str(path) for path in temporary.iterdir()] == [folder]  # AllenNLP removes it itself
    for cleanup in (True, False):
        with (
            pytest.raises(
                ValueError, match=r"hostile\.tar\.gz: .*'\.\./escaped' climbs out of its"
            ),
            module.extracted_archive(str(hostile), cleanup=cleanup),
        ):
            pytest.fail("it was extracted")
    assert [str(path) for path in temporary.iterdir()] == [folder]
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.slow
def test_plain_allennlp_loads_no_pickles_and_escapes_nowhere(trained: Path, tmp_path: Path) -> None:
    """Open an archive as `allennlp predict` does, without a check of its configuration."""
    from allennlp.models.archival import load_archive

    marker = tmp_path / "marker"
    change = with_torch_pickle("weights.th", marker)
    folder = changed(trained / "model.tar.gz", tmp_path / "content", change)
    archive = packed(folder, tmp_path / "model.tar.gz")
    with pytest.raises(pickle.UnpicklingError, match=r"(?s)Weights only load failed.*mkdir"):
        load_archive(archive)
    assert not marker.exists()
    with pytest.raises(ValueError, match="'link' is a symbolic link to '/etc'"):
        load_archive(tar_of(archive, [special("link", tarfile.SYMTYPE, "/etc")]))


@pytest.mark.parametrize("kind", [str, Path])
def test_files_are_included_from_a_folder_of_any_name(
    bare: Any, tmp_path: Path, kind: type
) -> None:
    folder = tmp_path / "[lr=1e-5]"
    files = ["config.json", "best.th", "vocabulary/tokens.txt", "inside/a.txt", "b.txt", "c.csv"]
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)

    def archived(module: Any, included: list[str]) -> set[str]:
        with tarfile.open(module.archive_model(kind(folder), include_in_archive=included)) as file:
            return {member.name for member in file if member.isfile()} - {
                "config.json", "weights.th", "vocabulary/tokens.txt",
            }  # fmt: skip

    module = bare("allennlp.models.archival")
    assert archived(module, ["inside", "*.txt"]) == set()
    archives.included_files(module)
    assert archived(module, ["inside", "*.txt"]) == {"inside/a.txt", "b.txt"}
    assert archived(module, ["[bc].*", "none"]) == {"b.txt", "c.csv"}
    assert module.glob is glob
