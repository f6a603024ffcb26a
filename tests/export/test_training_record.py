"""The training record on a model card has no private details."""

import json
import tarfile
from pathlib import Path

import pytest

from declutr.export import ExportError
from declutr.export.training_record import add_scores, training_record, without_places
from declutr.inference.trained_model import content_of

CONFIG = {
    "train_data_path": "/home/someone/secret/wiki.txt",
    "model": {"type": "declutr", "model_name": "org/name", "archive": "~/runs/old"},
    "trainer": {"parameter_groups": [[["^.*bias$", ".*norm"], {"lr": 0.1}]]},
}


def write(folder: Path, **files: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_paths_are_reduced_to_names() -> None:
    assert without_places(
        {
            "train_data_path": ["data/a.txt", "s3://bucket/b.txt"],
            "x": ["/a/b/c", "~/d", "C:\\users\\me\\e.txt", "\\\\host\\f", "file:///g/h", "../i/j/"],
        }
    ) == {"train_data_path": ["a.txt", "b.txt"], "x": ["c", "d", "e.txt", "f", "h", "j"]}


def test_other_strings_than_paths_are_kept() -> None:
    kept = {
        "model_name": "org/name",
        "regexes": ["^.*bias$", ".*norm", "a/b"],
        "n": 3,
        "none": None,
    }
    assert without_places(kept) == kept


def test_the_record_of_a_serialization_directory(tmp_path: Path) -> None:
    write(tmp_path, config=CONFIG, run={"documents": 24}, metrics={"best_epoch": 0})
    record = training_record(str(tmp_path))
    assert record.recipe["train_data_path"] == "wiki.txt"
    assert record.recipe["model"]["archive"] == "old"
    assert record.recipe["trainer"] == CONFIG["trainer"]
    assert (record.run, record.metrics) == ({"documents": 24}, {"best_epoch": 0})


@pytest.mark.parametrize("same", [True, False])
def test_the_record_of_an_archive_uses_its_folder_if_it_matches(tmp_path: Path, same: bool) -> None:
    write(tmp_path, config=CONFIG, run={"documents": 24})
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "config.json", "config.json")
    if not same:  # the archive was copied to the folder of another run
        write(tmp_path, config=CONFIG | {"random_seed": 2})
    record = training_record(str(tmp_path / "model.tar.gz"))
    assert record.recipe["model"]["model_name"] == "org/name"
    assert record.run == ({"documents": 24} if same else {})


def test_a_transformer_has_no_record(tmp_path: Path) -> None:
    write(tmp_path, config={"model_type": "bert"}, run={"documents": 24})
    assert training_record(str(tmp_path)).recipe == {}


def results(encoder: dict) -> dict:
    return {
        "data": "/home/someone/SentEval/data",
        "versions": {"declutr": "1"},
        "protocol": {"seed": 1},
        "encoders": {"mine": encoder},
    }


DESCRIBED = {"content": "abc", "pooling": "mean", "whitening": None, "truncate_dim": None}
COMPUTED = {"dtype": "float32", "max_length": 128, "normalize": False}
ENCODER = {
    "description": {**DESCRIBED, "normalize": False},
    "averages": {"STS": {"value": 71.5}, "SentEval": {"value": None}},
    "tasks": {
        "STS12": {"main": "spearman", "scores": {"spearman": {"value": 70.25}}},
        "MR": {"main": "accuracy", "scores": {"accuracy": {"value": None}}},
    },
}


def test_scores_of_the_model_are_added(tmp_path: Path) -> None:
    record = training_record(str(tmp_path))
    add_scores(record, write(tmp_path, results=results(ENCODER)), str(tmp_path), DESCRIBED)
    assert record.scores == {"STS": 71.5, "STS12": 70.25}
    assert record.scored_by["data"] == "data"


def test_scores_of_a_run_count_for_its_archive_and_the_other_way(tmp_path: Path) -> None:
    run = write(tmp_path / "run", config=CONFIG)
    weights, archive = run / "weights.th", run / "model.tar.gz"
    weights.write_bytes(b"weights")
    with tarfile.open(archive, "w:gz") as packed:
        for name in ("config.json", "weights.th"):
            packed.add(run / name, name)
    described = {place: DESCRIBED | {"content": content_of(str(place))} for place in (run, archive)}
    for scored, exported in ((run, archive), (archive, run)):
        folder = write(tmp_path, results=results(ENCODER | {"description": described[scored]}))
        record = training_record(str(exported))
        add_scores(record, folder, str(exported), described[exported])
        assert record.scores["STS"] == 71.5
    weights.write_bytes(b"weights that were trained on")  # and are not archived yet
    now = DESCRIBED | {"content": content_of(str(run))}
    with pytest.raises(ExportError, match=r"their files, .* differ"):
        add_scores(record, folder, str(run), now)


@pytest.mark.parametrize("other", [{"prompt": "query: "}, {"pooling": "cls"}])
def test_scores_of_other_settings_are_refused(tmp_path: Path, other: dict) -> None:
    encoder = ENCODER | {"description": DESCRIBED | other}
    folder = write(tmp_path, results=results(encoder))
    with pytest.raises(ExportError, match=r"pooling, prompt or whitening differ"):
        add_scores(training_record("nowhere"), folder, "nowhere", DESCRIBED)


@pytest.mark.parametrize("other", [{"dtype": "int8"}, {"max_length": 8}, {"normalize": True}])
def test_settings_count_that_both_descriptions_have(tmp_path: Path, other: dict) -> None:
    exported = DESCRIBED | COMPUTED
    folders = {}
    for name, settings in (("same", COMPUTED), ("less", {}), ("other", COMPUTED | other)):
        encoder = ENCODER | {"description": DESCRIBED | settings}
        folders[name] = write(tmp_path / name, results=results(encoder))
    for name in ("same", "less"):
        add_scores(record := training_record("nowhere"), folders[name], "nowhere", exported)
        assert record.scores["STS"] == 71.5
    with pytest.raises(ExportError, match=r"dtype, maximum length, scaling .* DATA nowhere -o"):
        add_scores(training_record("nowhere"), folders["other"], "nowhere", exported)
    with pytest.raises(ExportError, match=r" DATA nowhere\?normalize=true -o FOLDER"):
        normalized = exported | {"normalize": True}
        add_scores(training_record("nowhere"), folders["same"], "nowhere", normalized)


@pytest.mark.parametrize("other", [{"content": "xyz"}, {"whitening": [4, 2]}])
def test_scores_of_another_model_are_refused(tmp_path: Path, other: dict) -> None:
    folder = write(tmp_path, results=results(ENCODER))
    with pytest.raises(ExportError, match=r"None of the encoders in .* \(mine\) is .*differ"):
        add_scores(training_record("nowhere"), folder, "nowhere", DESCRIBED | other)


def test_a_folder_without_scores_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"No results.json .*declutr evaluate-embeddings"):
        add_scores(training_record("nowhere"), tmp_path, "nowhere", DESCRIBED)
