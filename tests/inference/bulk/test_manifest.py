"""Tests of manifests, which are loaded as they were saved, or refused with the reason."""

import json

import pytest

from declutr.inference.bulk.manifest import (
    Counts,
    DamagedManifest,
    EmbeddingFolderError,
    Manifest,
    OtherRelease,
    Shard,
    remove_all,
    remove_unfinished,
    require_ours,
    shard_name,
    shard_number,
)

SETTINGS = {"format": "npy", "dtype": "float32", "dimension": 4, "shard_rows": 10, "encoder": {}}


def shard(number: int, rows: int = 10, **counts: int) -> Shard:
    name = shard_name(number, "npy")
    return Shard(name, rows, 288, f"digest {number}", Counts(**counts), f"{number:016x}")


@pytest.fixture
def manifest() -> Manifest:
    shards = {1: shard(1, 3, blank_rows=2, truncated_rows=1), 0: shard(0, blank_rows=1)}
    return Manifest(SETTINGS, {"inputs": ["naïve.txt"]}, shards, finished=True)


def test_a_saved_manifest_is_loaded_unchanged(manifest, tmp_path):
    assert Manifest.load(tmp_path) is None
    manifest.save(tmp_path)
    assert Manifest.load(tmp_path) == manifest
    content = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert content["rows"] == 13 and content["finished"]
    assert [shard["rows"] for shard in content["shards"]] == [10, 3]
    none = dict.fromkeys(("replaced_rows", "unreadable_rows", "not_finite_rows"), 0)
    assert content["counts"] == {"blank_rows": 3, "truncated_rows": 1, **none}
    manifest.about["inputs"] = ["a\udcff.txt"]  # not UTF-8
    manifest.save(tmp_path)
    assert Manifest.load(tmp_path) == manifest


@pytest.mark.parametrize(
    "content",
    ["{}", "[1]", '{"version": 1', '{"version": 3, "name": "an app"}', "\xff"],
)
def test_a_file_with_other_content_is_refused(content, tmp_path):
    (tmp_path / "manifest.json").write_text(content, encoding="latin-1")
    for look in (Manifest.load, require_ours):
        message = "is not the manifest of a folder of embeddings.*left as it is. Choose another"
        with pytest.raises(EmbeddingFolderError, match=message):
            look(tmp_path)


def test_a_manifest_of_another_release_is_refused(tmp_path):
    content = {"version": 99, "settings": {}, "shards": "in another way"}
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(OtherRelease, match=r"is of version 99, expected 1.*--overwrite"):
        Manifest.load(tmp_path)
    require_ours(tmp_path)


@pytest.mark.parametrize("name", ["../embeddings-00000.npy", "/etc/passwd", "embeddings-0.npy", 3])
def test_shards_outside_of_the_folder_are_refused(manifest, name, tmp_path):
    manifest.save(tmp_path)
    content = json.loads((tmp_path / "manifest.json").read_text())
    content["shards"][0]["file"] = name
    del content["checksum"]
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(EmbeddingFolderError, match="is not the manifest"):
        Manifest.load(tmp_path)


def test_a_flipped_bit_is_refused_or_harmless(manifest, tmp_path):
    manifest.save(tmp_path)
    path = tmp_path / "manifest.json"
    sound, refused = path.read_bytes(), 0
    for number in range(0, 8 * len(sound), 29):
        damaged = bytearray(sound)
        damaged[number // 8] ^= 1 << number % 8
        path.write_bytes(damaged)
        try:
            assert Manifest.load(tmp_path) == manifest
        except EmbeddingFolderError:
            refused += 1
    assert refused > 0.6 * 8 * len(sound) / 29  # the rest is mostly indentation


def test_a_damaged_manifest_may_be_overwritten(manifest, tmp_path):
    manifest.save(tmp_path)
    path = tmp_path / "manifest.json"
    path.write_text(path.read_text().replace('"rows": 10', '"rows": 11'))
    with pytest.raises(DamagedManifest, match=r"is damaged: .*Begin anew with --overwrite"):
        Manifest.load(tmp_path)
    require_ours(tmp_path)


@pytest.mark.parametrize("number", [0, 7, 99_999, 100_000, 1_234_567])
def test_names_of_shards(number):
    assert shard_number(shard_name(number, "parquet")) == number
    assert shard_name(3, "jsonl") == "embeddings-00003.jsonl"


def test_only_our_files_are_removed(manifest, tmp_path):
    manifest.save(tmp_path)
    ours = ["embeddings-00000.npy", "embeddings-00001.jsonl", "embeddings-00002.parquet.tmp"]
    theirs = ["embeddings.npy", "embeddings-1.npy", "notes.txt", "notes.tmp", "embeddings-00000.pt"]
    for name in [*ours, *theirs, "manifest.json.tmp"]:
        (tmp_path / name).write_text("")
    remove_unfinished(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {*ours[:2], *theirs, "manifest.json"}
    remove_all(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(theirs)
