"""Unsafe files beside the configuration of an archive are refused."""

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from declutr.archives.safety import UnsafeArchive, check_content
from tests import hostile_archives as hostile

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """Return a folder with the content of a safe archive."""
    return hostile.changed(trained / "model.tar.gz", tmp_path / "content", lambda folder: None)


def names_json(folder: Path, place: str) -> None:
    names = json.loads((folder / "transformer" / "names.json").read_text())
    new = dict.fromkeys(names, place)
    (folder / "transformer" / "names.json").write_text(json.dumps(new))


def test_safe_content_passes(folder: Path, trained: Path) -> None:
    check_content(folder)
    check_content(folder, trust=True)
    check_content(trained, everything=False)


@pytest.mark.parametrize("place", ["..", "../vocabulary", "/etc", "", ".", "0/../..", "1", "\0"])
def test_a_transformer_outside_the_archive_is_refused(place: str, folder: Path) -> None:
    names_json(folder, place)
    for trust in (False, True):
        with pytest.raises(UnsafeArchive, match=r"transformer/names\.json says that .* lies in '"):
            check_content(folder, trust)


def test_names_of_folders_must_be_strings(folder: Path) -> None:
    hostile.with_json("transformer/names.json", x=[1])(folder)
    with pytest.raises(UnsafeArchive, match=r"names\.json should map names to folders beside it"):
        check_content(folder)


def test_a_local_transformer_that_the_archive_lacks_is_refused(folder: Path) -> None:
    hostile.without("transformer")(folder)
    message = r"config\.json: '.*model_name' is '/.*', a place outside the archive"
    with pytest.raises(UnsafeArchive, match=message):
        check_content(folder)
    check_content(folder, trust=True)


def carry(folder: Path, change: Callable[[Path], None]) -> None:
    """Make an archive carry a changed copy of itself, as if its parts were used."""
    inner = folder / "transformer" / "archive0"
    shutil.copytree(folder, folder.with_name("copy"))
    folder.with_name("copy").rename(inner)
    change(inner)
    (folder / "transformer" / "archives.json").write_text('{"/home/me/other.tar.gz": "archive0"}')
    part = {"type": "declutr", "archive": "/home/me/other.tar.gz"}
    hostile.with_config("dataset_reader", "part", value=part)(folder)


def test_a_carried_archive_must_be_inside(folder: Path) -> None:
    carry(folder, lambda inner: None)
    check_content(folder)
    check_content(folder, everything=False)
    hostile.with_text("transformer/archives.json", '{"x": "../.."}')(folder)
    with pytest.raises(UnsafeArchive, match=r"transformer/archives\.json says that 'x' lies in"):
        check_content(folder)


def test_carried_archives_count_only_beside_the_names_of_transformers(folder: Path) -> None:
    """Loading replaces no archive without them (`declutr.archives.carried`)."""
    carry(folder, lambda inner: None)
    check_content(folder)
    names = json.loads((folder / "transformer" / "names.json").read_text())
    (folder / "transformer" / "names.json").unlink()
    config = (folder / "config.json").read_text()
    for name in names:  # so that only the archive leads outside
        config = config.replace(json.dumps(name), '"hub/name"')
    (folder / "config.json").write_text(config)
    with pytest.raises(
        UnsafeArchive, match=r"part\.archive' is '/home/me/other\.tar\.gz', another"
    ):
        check_content(folder)


CARRIED = {
    "dotted type": (
        hostile.with_config("model", "type", value="x.Y"),
        r"In 'archive0', which it carries, config\.json: 'model\.type' is 'x\.Y'",
    ),
    "names outside": (
        hostile.with_json("transformer/names.json", x="/etc"),
        r"In 'archive0', which it carries, transformer/names\.json says that 'x' lies in '/etc'",
    ),
    "nothing": (
        hostile.without("config.json"),
        r"The archive it carries in 'archive0' holds no config\.json",
    ),
}


@pytest.mark.parametrize("name", CARRIED)
def test_a_carried_archive_is_checked_too(name: str, folder: Path) -> None:
    change, message = CARRIED[name]
    carry(folder, change)
    with pytest.raises(UnsafeArchive, match=message):
        check_content(folder)


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_a_transformer_with_code_of_its_own_is_refused(file: str, folder: Path) -> None:
    name = f"transformer/0/{file}"
    hostile.with_json(name, auto_map={"AutoModel": "modelling.Model"})(folder)
    with pytest.raises(UnsafeArchive, match=rf"{name}: 'auto_map' names Python code .*--trust"):
        check_content(folder)
    check_content(folder, trust=True)


@pytest.mark.parametrize("trust", [False, True])
def test_pickles_are_refused_in_every_folder(trust: bool, folder: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    hostile.with_torch_pickle("transformer/0/pytorch_model.bin", marker)(folder)
    with pytest.raises(UnsafeArchive, match=r"transformer/0/pytorch_model\.bin should hold tens"):
        check_content(folder, trust)
    hostile.without("transformer/0/pytorch_model.bin")(folder)
    (folder / "elsewhere").mkdir()
    hostile.with_pickle("elsewhere/notes", marker)(folder)
    with pytest.raises(UnsafeArchive, match=r"elsewhere/notes should hold tensors only"):
        check_content(folder, trust)
    assert not marker.exists()
    check_content(folder, trust, everything=False)  # loading does not read the file


@pytest.mark.parametrize("name", ["vocabulary/.lock", "transformer/0/config.json", "vocabulary"])
def test_links_out_of_a_folder_are_refused(name: str, folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    if (folder / name).exists():
        (folder / name).rename(outside)
    (folder / name).symlink_to(outside)
    with pytest.raises(
        UnsafeArchive, match=rf"{name}.* is a link to '.*outside', outside the folder"
    ):
        check_content(folder, everything=False)
    check_content(folder, trust=True, everything=False)


def test_links_inside_a_folder_or_into_the_blobs_of_the_hub_pass(
    folder: Path, tmp_path: Path
) -> None:
    snapshot = tmp_path / "models--a--b" / "snapshots" / "0123"
    blob = snapshot.parents[1] / "blobs" / "4567"
    blob.parent.mkdir(parents=True)
    snapshot.parent.mkdir()
    folder.rename(snapshot)
    settings = snapshot / "transformer" / "0" / "config.json"
    settings.rename(blob)
    settings.symlink_to("../../../../blobs/4567")
    (snapshot / "vocabulary" / "tags.txt").write_text("tag")
    (snapshot / "vocabulary" / "labels.txt").symlink_to("tags.txt")
    (tmp_path / "link").symlink_to(snapshot)
    for place in (snapshot, tmp_path / "link"):
        check_content(place, everything=False)
    snapshot.parent.rename(snapshot.parents[1] / "others")
    with pytest.raises(UnsafeArchive, match="is a link to"):
        check_content(snapshot.parents[1] / "others" / "0123", everything=False)


@pytest.mark.parametrize("trust", [False, True])
def test_a_file_as_vocabulary_is_refused(trust: bool, folder: Path) -> None:
    """AllenNLP extracts such a file, through links and to any place."""
    carry(folder, lambda inner: None)
    inner = folder / "transformer" / "archive0"
    for place, named in ((inner, "In 'archive0', which it carries, 'voc"), (folder, "^'voc")):
        shutil.rmtree(place / "vocabulary")
        hostile.tar_of(place / "vocabulary", [hostile.special("s", tarfile.SYMTYPE, "/etc")])
        with pytest.raises(UnsafeArchive, match=rf"{named}abulary' is a file; expected a folder"):
            check_content(folder, trust)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a\0b"])
def test_vocabularies_must_be_text(content: bytes, folder: Path) -> None:
    (folder / "vocabulary" / "tags.txt").write_bytes(content)
    with pytest.raises(UnsafeArchive, match=r"vocabulary/tags\.txt (is no UTF-8 text|holds zero)"):
        check_content(folder)


def test_only_weights_that_would_be_loaded_are_checked(folder: Path, tmp_path: Path) -> None:
    """A serialization directory may hold checkpoints and other weights as well."""
    shutil.copy(folder / "weights.th", folder / "best.th")
    hostile.with_torch_pickle("training_state_e1_b0.th", tmp_path / "marker")(folder)
    hostile.with_torch_pickle("best.th", tmp_path / "marker")(folder)
    check_content(folder, everything=False)
    hostile.without("weights.th")(folder)
    with pytest.raises(UnsafeArchive, match=r"best\.th should hold tensors only"):
        check_content(folder, everything=False)
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("depth", [2_000, 100_000])
def test_a_deeply_nested_configuration_is_refused(depth: int, folder: Path) -> None:
    (folder / "config.json").write_text('{"a": ' * depth + "1" + "}" * depth)
    with pytest.raises(UnsafeArchive, match=r"config\.json is nested too deeply"):
        check_content(folder)


BOMBS = {
    "config.json": 2**20,
    "transformer/0/config.json": 2**20,
    "transformer/0/tokenizer_config.json": 2**23,
    "transformer/0/tokenizer.json": 2**26,
}


@pytest.mark.parametrize("name", BOMBS)
def test_oversized_settings_are_refused(name: str, folder: Path) -> None:
    """Parsed JSON takes many times the size of its file in memory."""
    with (folder / name).open("r+b") as file:
        file.truncate(BOMBS[name] + 1)
    message = rf"{name.rpartition('/')[2]} has {BOMBS[name] / 2**20:.1f} MiB; expected at most"
    with pytest.raises(UnsafeArchive, match=message):
        check_content(folder)


def test_settings_that_nothing_reads_are_ignored(folder: Path) -> None:
    (folder / "notes").mkdir()
    for name in ("my_config.json", "notes/config.json"):
        (folder / name).write_text("[" * 100_000)
    check_content(folder)


def test_a_hub_name_that_is_also_a_local_folder_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers would load the folder, which may hold anything."""
    hostile.without("transformer")(folder)
    for keys in (("dataset_reader", "tokenizer"), ("dataset_reader", "token_indexers", "tokens")):
        hostile.with_config(*keys, "model_name", value="someone/model")(folder)
    embedder = ("model", "text_field_embedder", "token_embedders", "tokens", "model_name")
    hostile.with_config(*embedder, value="someone/model")(folder)
    monkeypatch.chdir(tmp_path)
    check_content(folder)  # Archives of older releases carry no transformer, but name one.
    (tmp_path / "someone" / "model").mkdir(parents=True)
    with pytest.raises(UnsafeArchive, match=r"model_name' is 'someone/model', a place outside"):
        check_content(folder)
    check_content(folder, trust=True)


def test_a_hub_model_with_code_of_its_own_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile.without("transformer")(folder)
    text = (folder / "config.json").read_text()
    names = {
        part["model_name"] for part in json.loads(text)["dataset_reader"]["token_indexers"].values()
    }
    (name,) = names
    (folder / "config.json").write_text(text.replace(json.dumps(name), '"someone/model"'))
    cached = tmp_path / "cached" / "config.json"
    cached.parent.mkdir()
    cached.write_text('{"auto_map": {"AutoModel": "modelling.Model"}}')
    found = lambda place, file, **_: str(cached) if file == "config.json" else None  # noqa: E731
    monkeypatch.setattr("transformers.utils.cached_file", found)
    message = r"someone/model: config\.json: 'auto_map' names Python code"
    with pytest.raises(UnsafeArchive, match=message):
        check_content(folder)


def test_a_transformer_folder_is_checked(checkpoint: Path, tmp_path: Path) -> None:
    place = tmp_path / "model"
    shutil.copytree(checkpoint, place)
    check_content(place, everything=False)
    hostile.with_json("tokenizer_config.json", auto_map={"AutoTokenizer": ["a.B", None]})(place)
    with pytest.raises(UnsafeArchive, match=r"tokenizer_config\.json: 'auto_map' names Python"):
        check_content(place, everything=False)
    check_content(place, trust=True, everything=False)
    hostile.with_text("modules.json", "{}")(place)
    with pytest.raises(UnsafeArchive, match=r"modules\.json should hold a list"):
        check_content(place, everything=False)


def test_a_folder_without_a_configuration_is_no_model(tmp_path: Path) -> None:
    torch.save({}, tmp_path / "weights.th")
    with pytest.raises(FileNotFoundError, match=r"holds no config\.json. Expected the folder"):
        check_content(tmp_path)
