"""Tests of parsing texts that name encoders, and of the errors for other texts."""

import json
import tarfile
from pathlib import Path

import pytest

from declutr.inference.sources import EncoderError, parse_spec
from declutr.inference.sources.spec import FORMS, OPTIONS

TWO = {"dim": "8", "pooling": "cls"}


@pytest.mark.parametrize(
    ("text", "kind", "place", "options", "name"),
    [
        ("hf:roberta-base", "hf", "roberta-base", {}, "roberta-base"),
        (
            "hf:org/model?dim=8&pooling=cls",
            "hf",
            "org/model",
            TWO,
            "org/model (dim=8, pooling=cls)",
        ),
        ("SBERT=st:org/model", "st", "org/model", {}, "SBERT"),
        ("My GloVe = words:a/glove.txt", "words", "a/glove.txt", {}, "My GloVe"),
        ("words:a/glove.txt?tokens=words", "words", "a/glove.txt", {"tokens": "words"}, None),
        ("random:300", "random", "300", {}, "random:300"),
        ("chance=random-sentence:8?seed=3", "random-sentence", "8", {"seed": "3"}, "chance"),
        ("call:my.module:Model.encode", "call", "my.module:Model.encode", {}, None),
        ("my_module:encode", "call", "my_module:encode", {}, "my_module:encode"),
        ("https://host/model.tar.gz", "archive", "https://host/model.tar.gz", {}, None),
        ("archive:runs/one/model.tar.gz", "archive", "runs/one/model.tar.gz", {}, "one"),
    ],
)
def test_every_form_is_parsed(
    text: str, kind: str, place: str, options: dict, name: str | None
) -> None:
    spec = parse_spec(text)
    assert (spec.kind, spec.place, spec.options) == (kind, place, options)
    assert spec.name == (name or spec.name) and spec.name
    assert parse_spec(spec.text) == parse_spec(spec.text.strip())


def test_folders_and_files_are_recognised(tmp_path: Path) -> None:
    def folder(name: str, **files: object) -> str:
        (tmp_path / name).mkdir()
        for file, content in files.items():
            (tmp_path / name / f"{file}.json").write_text(json.dumps(content))
        return str(tmp_path / name)

    transformer = folder("transformer", config={"model_type": "roberta"})
    sentences = folder("sentences", config={"model_type": "roberta"}, modules=[])
    run = folder("run", config={"model": {"type": "declutr"}, "dataset_reader": {}})
    vectors = tmp_path / "glove.txt"
    vectors.write_text("a 1 2\n")
    archive = tmp_path / "run" / "model.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(vectors, "glove.txt")
    places = (transformer, sentences, run, vectors, archive)
    kinds = [parse_spec(str(place)).kind for place in places]
    assert kinds == ["hf", "st", "archive", "words", "archive"]
    assert parse_spec(f"{run}/").name == "run" == parse_spec(str(archive)).name
    assert parse_spec(f"{transformer}?pooling=max").options == {"pooling": "max"}


def test_an_existing_path_with_special_characters_is_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lr=0.1").mkdir()
    Path("lr=0.1", "config.json").write_text('{"model": {}}')
    assert parse_spec("lr=0.1").place == "lr=0.1"
    assert (parse_spec("x=lr=0.1").place, parse_spec("x=lr=0.1").name) == ("lr=0.1", "x")
    Path("what?.txt").write_text("a 1\n")
    assert parse_spec("words:what?.txt").place == "what?.txt"
    Path("word.py").touch()  # a module may be named almost like a kind
    assert parse_spec("word:glove").kind == "call"


def test_the_home_folder_is_known_where_shells_leave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "glove.txt").write_text("a 1 2\n")
    vectors = str(tmp_path / "glove.txt")
    for text in ("mine=~/glove.txt", "words:~/glove.txt", "mine=words:~/glove.txt?tokens=words"):
        assert (parse_spec(text).kind, parse_spec(text).place) == ("words", vectors)
    assert parse_spec("hf:~/m").place == str(tmp_path / "m")
    assert parse_spec("words:x?counts=~/c.txt").options == {"counts": str(tmp_path / "c.txt")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hff:roberta-base", r"did you mean hf:\?"),
        ("word:glove", r"did you mean words:\?"),
        ("org/model", r"no such file or folder.*hf:org/model or st:org/model"),
        ("nowhere/at all", r"no such file or folder. `declutr evaluate-embeddings --help` says"),
        ("hf:", r"Expected the name of an encoder, got 'hf:'"),
        ("", r"Expected the name of an encoder, got ''"),
        ("hf:x?pool=cls", r"Unknown option 'pool'.*pooling, revision, precision, dim"),
        ("archive:x?pooling=cls", r"archive takes precision, dim"),
        ("hf:x?pooling", r"Expected KEY=VALUE.*'pooling'"),
        ("hf:x?pooling=cls&pooling=max", r"'pooling' stands twice"),
    ],
)
def test_texts_of_no_form_are_refused_with_a_hint(text: str, message: str) -> None:
    with pytest.raises(EncoderError, match=message) as caught:
        parse_spec(text)
    assert "\n" not in str(caught.value)


def test_all_forms_are_listed() -> None:
    for kind, options in OPTIONS.items():
        assert f"{kind}:" in FORMS
        assert all(f"{option}=" in FORMS for option in options)


def test_places_without_a_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=r"holds no config\.json\. Expected the folder"):
        parse_spec(str(tmp_path))
    (tmp_path / "notes.md").write_text("words")
    with pytest.raises(EncoderError, match=r"is not an archive.*word vectors end in \.vec"):
        parse_spec(str(tmp_path / "notes.md"))
