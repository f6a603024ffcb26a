"""Archives carry the configuration and tokenizer of their transformer, and load with them."""

import copy
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.models.archival import archive_model, load_archive
from transformers import AutoConfig, AutoTokenizer

from declutr.archives import TRANSFORMERS, WHITENING
from declutr.archives.carried import (
    archive_transformer,
    is_ours,
    use_archived_transformer,
)
from declutr.archives.fitted_weights import digest_of_model, noted_in
from declutr.archives.safety import UnsafeArchive
from declutr.inference.whitening import Whitening
from tests.conftest import run_config
from tests.hostile_archives import with_remote_code


def written(folder: Path, config: dict[str, Any]) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.mark.slow
def test_the_archive_holds_the_transformer(trained: Path, checkpoint: Path, tmp_path: Path) -> None:
    with tarfile.open(trained / "model.tar.gz") as archive:
        names = set(archive.getnames())
        archive.extractall(tmp_path, filter="data")
    assert {"config.json", "weights.th", f"{TRANSFORMERS}/names.json"} <= names
    assert not any(name.endswith((".safetensors", ".bin")) for name in names)  # weights.th has them
    saved = tmp_path / TRANSFORMERS / "0"
    ours, theirs = (AutoConfig.from_pretrained(place) for place in (saved, checkpoint))
    assert ours.hidden_size == theirs.hidden_size and ours.model_type == theirs.model_type
    text = "ka lo mi <mask> tu"
    tokenizers = [AutoTokenizer.from_pretrained(place) for place in (saved, checkpoint)]
    assert tokenizers[0](text)["input_ids"] == tokenizers[1](text)["input_ids"]
    assert tokenizers[0].model_max_length == tokenizers[1].model_max_length == 128


@pytest.mark.slow
def test_the_configuration_keeps_the_names_of_the_user(trained: Path) -> None:
    """The names in `config.json` document what a model was trained from."""
    folder = json.loads((trained / TRANSFORMERS / "names.json").read_text())
    config = load_archive(trained / "model.tar.gz").config
    assert config["dataset_reader"]["tokenizer"]["model_name"] in folder
    embedder = config["model"]["text_field_embedder"]["token_embedders"]["tokens"]
    assert "load_weights" not in embedder.as_dict()


@pytest.mark.slow
def test_overridden_names_are_kept(trained: Path, checkpoint: Path) -> None:
    path = "model.text_field_embedder.token_embedders.tokens"
    archive = load_archive(
        trained / "model.tar.gz",
        overrides={
            f"{path}.model_name": str(checkpoint),
            "dataset_reader.tokenizer.model_name": str(checkpoint),
        },
    )
    embedder = archive.model._text_field_embedder.token_embedder
    assert embedder.model_name == str(checkpoint)
    assert archive.dataset_reader._tokenizer._model_name == str(checkpoint)
    indexer = archive.dataset_reader._token_indexers["tokens"]
    assert indexer._allennlp_tokenizer._model_name != str(
        checkpoint
    )  # this name was not overridden
    expected = load_archive(trained / "model.tar.gz").model.state_dict()
    for key, value in archive.model.state_dict().items():
        assert torch.equal(value, expected[key])  # weights always come from the archive


@pytest.mark.slow
def test_a_run_can_be_archived_twice(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    assert archive_transformer(str(tmp_path / "run")) == [TRANSFORMERS]
    archive_model(tmp_path / "run", archive_path=str(tmp_path / "again.tar.gz"))
    with tarfile.open(tmp_path / "again.tar.gz") as archive:
        assert f"{TRANSFORMERS}/names.json" in archive.getnames()
    assert load_archive(tmp_path / "again.tar.gz").model


@pytest.mark.parametrize(
    "config, ours",
    [
        ({"model": {"type": "declutr"}}, True),
        ({"dataset_reader": {"type": "declutr"}, "model": {"type": "from_archive"}}, True),
        ({"model": {"type": "basic_classifier"}, "dataset_reader": {"type": "snli"}}, False),
        ({"model": {}, "dataset_reader": None}, False),
        # A class that is derived from that of this package, under a name of its own.
        ({"model": {"type": "mine", "e": [{"type": "pretrained_transformer_mlm"}]}}, True),
        ({"model": {"type": "mine", "e": {"type": "declutr-pretrained_transformer_mlm"}}}, True),
        ({}, False),
        ({"model": {"pooler": [{"type": "declutr", "archive": "output"}]}}, True),
        ({"model": {"pooler": {"type": "other", "archive": "output"}}}, False),
        ({"model": {"pooler": {"type": "declutr", "archive": None}}}, False),
    ],
)
def test_runs_of_this_package_are_recognised(config: dict, ours: bool) -> None:
    assert is_ours(config) is ours


def test_other_runs_are_left_alone(checkpoint: Path, tmp_path: Path) -> None:
    pretrained = {"type": "pretrained_transformer", "model_name": str(checkpoint)}
    model = {"type": "basic_classifier", "text_field_embedder": {"token_embedders": pretrained}}
    config = {"model": model, "dataset_reader": {"type": "text_classification_json"}}
    folder = written(tmp_path, config)
    assert archive_transformer(folder) == []
    assert [file.name for file in tmp_path.iterdir()] == ["config.json"]
    params = Params(config)
    assert use_archived_transformer(params, folder) is params


def test_a_run_without_a_transformer_carries_nothing(tmp_path: Path) -> None:
    config = {"model": {"type": "declutr"}, "dataset_reader": {"type": "declutr"}}
    assert archive_transformer(written(tmp_path, config)) == []
    assert archive_transformer(str(tmp_path / "nowhere")) == []
    assert not (tmp_path / TRANSFORMERS).exists()


def test_every_transformer_of_a_configuration_is_saved_once(
    checkpoint: Path, corpus_file: Path, tmp_path: Path
) -> None:
    """The names may be anywhere in the configuration, including lists."""
    other = tmp_path / "other"
    shutil.copytree(checkpoint, other)
    config = run_config(checkpoint, corpus_file)
    kind = "pretrained_transformer"
    config["extra"] = [
        {"deep": {"type": kind, "model_name": str(other)}},
        {"type": kind, "model_name": 3},
        {"type": "of_something_else", "model_name": "no transformer"},
    ]
    assert archive_transformer(written(tmp_path / "run", config)) == [TRANSFORMERS]
    names = json.loads((tmp_path / "run" / TRANSFORMERS / "names.json").read_text())
    assert sorted(names) == sorted([str(checkpoint), str(other)])
    assert sorted(names.values()) == ["0", "1"]


@pytest.mark.parametrize(
    "kind, without_weights",
    [
        ("pretrained_transformer_mlm", True),
        ("pretrained_transformer", True),
        ("pretrained_transformer_mismatched", True),
        ("some_other", False),
    ],
)
def test_embedders_from_an_archive_load_no_pretrained_weights(
    kind: str, without_weights: bool, checkpoint: Path, corpus_file: Path, tmp_path: Path
) -> None:
    """The archive has no such weights. Tokenizers and indexers do not take `load_weights`."""
    config = run_config(checkpoint, corpus_file)
    embedders = config["model"]["text_field_embedder"]["token_embedders"]
    embedders["tokens"] = {"type": kind, "model_name": str(checkpoint)}
    config["lists"] = [{"model_name": ["unhashable"]}, {"model_name": None}]
    folder = written(tmp_path, config)
    archive_transformer(folder)
    used = use_archived_transformer(Params(config), folder).as_dict(quiet=True)
    place = str(tmp_path / TRANSFORMERS / "0")
    embedder = used["model"]["text_field_embedder"]["token_embedders"]["tokens"]
    expected = {"type": kind, "model_name": place}
    assert embedder == ({**expected, "load_weights": False} if without_weights else expected)
    for part in (
        used["dataset_reader"]["tokenizer"],
        used["dataset_reader"]["token_indexers"]["tokens"],
    ):
        assert part == {"type": "pretrained_transformer", "model_name": place}
    assert used["lists"] == [{"model_name": ["unhashable"]}, {"model_name": None}]


def classifier(archive: Path | str, **more: Any) -> dict[str, Any]:
    """Return the configuration of an AllenNLP classifier with parts of `archive`."""
    return {
        "dataset_reader": {"type": "snli", "tokenizer": {"type": "declutr", "archive": archive}},
        "model": {
            "type": "basic_classifier",
            "text_field_embedder": {"type": "declutr", "archive": archive},
            **more,
        },
    }


@pytest.mark.slow
@pytest.mark.parametrize("place", ["", "model.tar.gz"])
def test_archives_of_parts_are_carried_without_weights(
    place: str, trained: Path, tmp_path: Path
) -> None:
    source = str(trained / place)
    folder = written(tmp_path, classifier(source))
    assert archive_transformer(folder) == [TRANSFORMERS]
    assert json.loads((tmp_path / TRANSFORMERS / "archives.json").read_text()) == {
        source: "archive0"
    }
    carried = tmp_path / TRANSFORMERS / "archive0"
    assert json.loads((carried / "config.json").read_text()) == json.loads(
        (trained / "config.json").read_text()
    )
    files = [file.name for file in carried.rglob("*") if file.is_file()]
    assert f"{TRANSFORMERS}/names.json" in {str(f.relative_to(carried)) for f in carried.rglob("*")}
    assert not any(name.endswith((".th", ".safetensors", ".bin", ".gz")) for name in files)

    used = use_archived_transformer(Params(classifier(source)), folder).as_dict(quiet=True)
    place_there = {"type": "declutr", "archive": str(carried), "load_weights": False}
    assert used["model"]["text_field_embedder"] == place_there
    assert used["dataset_reader"]["tokenizer"] == place_there


def test_an_exported_folder_is_carried_as_an_archive(checkpoint: Path, tmp_path: Path) -> None:
    archive_transformer(written(tmp_path, classifier(str(checkpoint))))
    carried = tmp_path / TRANSFORMERS / "archive0"
    assert json.loads((carried / TRANSFORMERS / "names.json").read_text()) == {str(checkpoint): "0"}
    assert json.loads((carried / "config.json").read_text())["model"]["type"] == "declutr-declutr"
    assert (carried / TRANSFORMERS / "0" / "tokenizer.json").exists()
    assert not list(carried.rglob("*.safetensors"))


def test_an_archive_and_a_transformer_may_have_the_same_name(
    checkpoint: Path, tmp_path: Path
) -> None:
    name = str(checkpoint)
    config = classifier(name, other={"type": "pretrained_transformer", "model_name": name})
    folder = written(tmp_path, config)
    archive_transformer(folder)
    used = use_archived_transformer(Params(config), folder).as_dict(quiet=True)["model"]
    assert used["other"]["model_name"] == str(tmp_path / TRANSFORMERS / "0")
    assert used["text_field_embedder"]["archive"] == str(tmp_path / TRANSFORMERS / "archive0")


@pytest.mark.slow
def test_an_archive_that_the_user_overrides_is_left_alone(trained: Path, tmp_path: Path) -> None:
    folder = written(tmp_path, classifier(str(trained)))
    archive_transformer(folder)
    changed = classifier("another")
    assert use_archived_transformer(Params(changed), folder).as_dict(quiet=True) == changed


@pytest.mark.slow
def test_archives_carry_archives_recursively(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A classifier uses parts of a declutr model, which itself uses parts of another one."""
    monkeypatch.chdir(trained.parent)
    inner = written(tmp_path / "inner", {**classifier(trained.name), "model": {"type": "declutr"}})
    archive_transformer(inner)
    outer = written(tmp_path / "outer", classifier(inner))
    archive_transformer(outer)
    carried = tmp_path / "outer" / TRANSFORMERS / "archive0"
    assert (carried / TRANSFORMERS / "archive0" / "config.json").exists()
    config = Params(json.loads((carried / "config.json").read_text()))
    used = use_archived_transformer(config, str(carried)).as_dict(quiet=True)
    assert used["dataset_reader"]["tokenizer"]["archive"] == str(
        carried / TRANSFORMERS / "archive0"
    )


def test_unsafe_archives_are_not_carried(tmp_path: Path) -> None:
    hostile = written(tmp_path / "hostile", {"model": {"type": "antigravity.Thing"}})
    folder = written(tmp_path / "run", classifier(hostile))
    with pytest.raises(UnsafeArchive, match="antigravity"):
        archive_transformer(folder)
    assert not (tmp_path / "run" / TRANSFORMERS / "names.json").exists()


@pytest.mark.slow
def test_a_whitening_of_earlier_weights_is_removed(
    trained: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A whitening no longer fits the embeddings when training continues in its folder."""
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    stale = run / "whitening.safetensors"
    stale.write_bytes(b"of other weights")
    with caplog.at_level("WARNING"):
        archive_transformer(str(run))
    assert not stale.exists() and "Fit it again afterwards: declutr whiten" in caplog.text
    caplog.clear()
    assert archive_transformer(str(run)) == ["transformer"] and not caplog.text


@pytest.mark.slow
def test_weights_in_the_format_before_torch_1_6_are_archived(trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    weights = torch.load(run / "best.th")
    torch.save(weights, run / "best.th", _use_new_zipfile_serialization=False)
    assert load_archive(archive_model(run)).model
    content = (run / "best.th").read_bytes()
    (run / "best.th").write_bytes(content[: len(content) // 2])
    with pytest.raises(ConfigurationError, match=r"best\.th, are damaged: .*Put a copy"):
        archive_model(run)


def whitened(folder: Path) -> bytes:
    """Store a whitening of the weights in the folder of a run, and return its file."""
    numbers = np.random.default_rng(0).normal(size=(20, 3))
    whitening = Whitening.fit([numbers], 2).with_weights(digest_of_model(folder))
    return whitening.save(folder).read_bytes()


def archived(place: str) -> bytes | None:
    """Return the whitening in an archive; `None` if it has none."""
    with tarfile.open(place) as archive:
        if WHITENING not in archive.getnames():
            return None
        return archive.extractfile(WHITENING).read()


@pytest.mark.slow
def test_a_whitening_is_archived_with_its_own_weights(
    trained: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    stored = whitened(run)
    place = archive_model(run, include_in_archive=[WHITENING])  # named by the user, too
    with tarfile.open(place) as archive:
        assert archive.getnames().count(WHITENING) == 1
    assert digest_of_model(run) == digest_of_model(Path(place)) == noted_in(run / WHITENING)
    assert archived(archive_model(run)) == stored
    other = {name: value + 1 for name, value in torch.load(run / "best.th").items()}
    torch.save(other, run / "other.th")
    assert archived(archive_model(run, "other.th", str(tmp_path / "other.tar.gz"))) is None
    assert (run / WHITENING).read_bytes() == stored and "declutr whiten" not in caplog.text
    (run / "other.th").replace(run / "best.th")
    assert archived(archive_model(run)) is None
    assert not (run / WHITENING).exists() and "was fitted to other weights than" in caplog.text


@pytest.mark.slow
def test_a_whitening_stays_until_weights_are_trained_on(
    checkpoint: Path, corpus_file: Path, tmp_path: Path
) -> None:
    """Recovering a finished run trains nothing; with another epoch, it trains on."""
    run = tmp_path / "run"
    config = run_config(checkpoint, corpus_file)
    config["trainer"] |= {"callbacks": [{"type": "run_record"}]}
    train_model(Params(copy.deepcopy(config)), str(run))
    stored = whitened(run)
    train_model(Params(copy.deepcopy(config)), str(run), recover=True)
    assert (run / WHITENING).read_bytes() == stored == archived(str(run / "model.tar.gz"))
    config["trainer"]["num_epochs"] = 2
    (run / "config.json").write_text(json.dumps(config))
    train_model(Params(copy.deepcopy(config)), str(run), recover=True)
    assert not (run / WHITENING).exists() and archived(str(run / "model.tar.gz")) is None
    told = "was fitted to weights that are trained on, and is removed"
    assert (run / "out.log").read_text().count(told) == 1


def test_remote_code_is_archived_only_if_the_recipe_trusts_it(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asked"))
    modules = str(tmp_path / "modules")
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", modules)
    place = tmp_path / "model"
    shutil.copytree(checkpoint, place)
    with_remote_code(tmp_path / "marker")(place)
    config = run_config(place, tmp_path / "documents.txt")
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        archive_transformer(written(tmp_path / "run", config))
    assert not (tmp_path / "marker").exists()
    embedder = config["model"]["text_field_embedder"]["token_embedders"]["tokens"]
    embedder["transformer_kwargs"] = {"trust_remote_code": True}
    assert archive_transformer(written(tmp_path / "run", config)) == [TRANSFORMERS]
    saved = json.loads((tmp_path / "run" / TRANSFORMERS / "0" / "config.json").read_text())
    assert saved["model_type"] == "theirs" and (tmp_path / "marker").exists()


def test_damaged_weights_are_not_archived(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "vocabulary").mkdir(parents=True)
    (run / "config.json").write_text("{}")
    torch.save({"weight": torch.ones(100)}, run / "best.th")
    archive_model(str(run))
    (run / "model.tar.gz").unlink()
    content = bytearray((run / "best.th").read_bytes())
    content[content.index(torch.ones(100).numpy().tobytes())] ^= 1
    (run / "best.th").write_bytes(content)
    message = r"best.th, are damaged: its record best/data/0 is not.*Put a copy.*--recover"
    with pytest.raises(ConfigurationError, match=message):
        archive_model(str(run))
    assert not (run / "model.tar.gz").exists()
