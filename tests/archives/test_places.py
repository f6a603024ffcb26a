"""The kind of a model at a place is recognised, and a place without a model is reported."""

import gzip
import json
from pathlib import Path

import pytest

from declutr.archives import (
    EXPECTED,
    Kind,
    NoModel,
    is_transformer,
    kind_of,
    require_model,
)
from declutr.archives.safety import UnsafeArchive


def folder(place: Path, name: str, content: object) -> Path:
    place.mkdir(exist_ok=True)
    (place / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return place


KINDS = {
    "trained": (Kind.TRAINED, "config.json", {"model": {"type": "declutr"}}),
    "transformer": (Kind.TRANSFORMER, "config.json", {"model_type": "bert"}),
    "sentence-transformers": (Kind.SENTENCE_TRANSFORMERS, "modules.json", []),
    "no object": (Kind.TRAINED, "config.json", ["model_type"]),
    "Jsonnet": (Kind.TRAINED, "config.json", "{model: {type: 'declutr'}}"),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_folders(name: str, tmp_path: Path) -> None:
    kind, file, content = KINDS[name]
    place = folder(tmp_path / "model", file, content)
    require_model(place)
    assert kind_of(place) is kind
    assert is_transformer(place) == (kind in (Kind.TRANSFORMER, Kind.SENTENCE_TRANSFORMERS))


@pytest.mark.parametrize("name", ["model.tar.gz", "model.tgz", "downloaded"])
def test_a_gzip_file_counts_as_archive(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"anything"))
    assert kind_of(tmp_path / name) is Kind.ARCHIVE and not is_transformer(tmp_path / name)


def test_a_damaged_archive_is_recognised_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "model.tar.gz").write_bytes(b"half")
    assert kind_of(tmp_path / "model.tar.gz") is Kind.ARCHIVE


@pytest.mark.parametrize(
    ("name", "message"),
    [("nowhere", "No model at '{}'."), ("a.txt", "'{}' is not an archive."), ("", "'{}' holds no")],
)
def test_places_without_a_model(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    place = tmp_path / name
    for check in (kind_of, require_model):
        with pytest.raises(NoModel) as error:
            check(place)
        assert str(error.value).startswith(message.format(place))
        assert str(error.value).endswith(EXPECTED)
    with pytest.raises(FileNotFoundError, match=r"'https://x/y'"):
        require_model(place, "https://x/y")
    assert not is_transformer(place)


def test_a_deeply_nested_configuration_is_refused(tmp_path: Path) -> None:
    place = folder(tmp_path / "model", "config.json", "[" * 100_000)
    for check in (kind_of, is_transformer):
        with pytest.raises(UnsafeArchive, match=r"config\.json is nested too deeply"):
            check(place)


@pytest.mark.parametrize("kind", ["hf", "st", "archive"])
def test_the_forms_of_evaluations_are_no_places(kind: str) -> None:
    with pytest.raises(NoModel, match=f"Leave out '{kind}:', which is for evaluations"):
        require_model(Path(f"{kind}:roberta-base"))
