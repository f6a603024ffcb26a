"""Folders of transformers: what is refused in them, and what of others' habits is not."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from declutr.archives.safety import UnsafeArchive, check_transformer
from declutr.inference.encoder import Encoder
from tests import hostile_archives as hostile


@pytest.fixture
def folder(checkpoint: Path, tmp_path: Path) -> Path:
    place = tmp_path / "model"
    shutil.copytree(checkpoint, place)
    return place


def check(place: Path) -> None:
    check_transformer(str(place))


def tokenizer(**entries: Any) -> Callable[[Path], None]:
    return hostile.with_json("tokenizer_config.json", **entries)


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "code": (
        hostile.with_json("config.json", auto_map={"AutoModel": "a.B"}),
        r"config\.json: 'auto_map' names Python code",
    ),
    "code of a tokenizer": (
        tokenizer(auto_map=["a.B", None]),
        r"tokenizer_config\.json: 'auto_map(\.\d)?' names Python code",
    ),
    "attention of the web": (
        hostile.with_json("config.json", _attn_implementation="someone/attention"),
        r"config\.json: '_attn_implementation' is 'someone/attention': attention from there is co",
    ),
    "a switch": (
        hostile.with_json("config.json", trust_remote_code=True),
        r"'trust_remote_code' is True, which lets code from the web run",
    ),
    "another model": (
        hostile.with_text("adapter_config.json", '{"base_model_name_or_path": "/x"}'),
        r"adapter_config\.json has another model loaded, to which it belongs",
    ),
    "files of a tokenizer": (
        tokenizer(vocab_file="vocab.txt"),
        r"'vocab_file' names a file, 'vocab\.txt'; expected it beside the settings",
    ),
    "a dictionary": (
        tokenizer(sudachi_kwargs={"sudachi_resource_dir": "../resources"}),
        r"'sudachi_kwargs\.sudachi_resource_dir' names a file, '\.\./resources'",
    ),
    "options that name files": (
        tokenizer(mecab_kwargs={"mecab_option": "-r /etc/hosts"}),
        r"'mecab_kwargs\.mecab_option' is '-r /etc/hosts'; options of MeCab can name files",
    ),
    "shards elsewhere": (
        hostile.with_text("model.safetensors.index.json", '{"weight_map": {"a": "../m.bin"}}'),
        r"index\.json names weights in '\.\./m\.bin', which is no file of weights",
    ),
    "shards above": (
        hostile.with_text("x.index.json", '{"weight_map": {"a": "../model.safetensors"}}'),
        r"index\.json names weights in '\.\./model\.safetensors'; expected them beside it",
    ),
    "a key twice": (
        hostile.with_text("config.json", '{"model_type": "roberta", "model_type": "bert"}'),
        r"config\.json has the key 'model_type' twice in one object",
    ),
    "no settings": (
        hostile.with_text("config.json", "[1]"),
        r"config\.json should hold a JSON obj",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, folder: Path) -> None:
    change, message = REFUSED[name]
    change(folder)
    with pytest.raises(UnsafeArchive, match=message) as refusal:
        check(folder)
    assert str(refusal.value).startswith(str(folder))


def test_pickles(folder: Path, tmp_path: Path) -> None:
    """transformers reads them as tensors too; its error would say how to read them otherwise."""
    hostile.with_torch_pickle("pytorch_model.bin", tmp_path / "marker")(folder)
    check(folder)  # there is model.safetensors, which comes first
    (folder / "model.safetensors").unlink()
    with pytest.raises(UnsafeArchive, match=r"pytorch_model\.bin should hold tensors only") as one:
        Encoder(folder, device="cpu")
    assert "weights_only" not in str(one.value)
    assert not (tmp_path / "marker").exists()


def test_what_others_leave_in_their_folders(folder: Path) -> None:
    check(folder)
    hostile.with_json("config.json", _name_or_path="/home/me/roberta", time_limit=float("inf"))(
        folder
    )
    tokenizer(
        name_or_path="/content/model",
        special_tokens_map_file="/root/.cache/x",
        vocab_file=None,
        auto_map={},
        chat_template="{{ '/x' }} ../",
        unk_token="/unk",
        additional_special_tokens=["../a"],
        added_tokens_decoder={"0": {"content": "/s"}},
        mecab_kwargs={"mecab_dic": "unidic_lite", "mecab_option": None},
    )(folder)
    torch.save({"args": object}, folder / "training_args.bin")  # nothing reads it
    check(folder)


def test_a_transformer_below_a_folder(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "whole"
    shutil.move(folder, place / "0_Transformer")
    hostile.with_json("config.json", auto_map={"AutoModel": "a.B"})(place / "0_Transformer")
    with pytest.raises(UnsafeArchive, match=r"whole: 0_Transformer/config\.json: 'auto_map'"):
        check_transformer(str(place), folder="0_Transformer")


def test_the_hub_is_asked_for_settings_alone(folder: Path, monkeypatch: Any) -> None:
    asked = []

    def cached_file(place: str, name: str, **options: Any) -> str | None:
        asked.append((place, name, options["revision"]))
        return str(folder / name)

    monkeypatch.setattr("transformers.utils.cached_file", cached_file)
    check_transformer("someone/model", revision="v1")
    files = ("config.json", "tokenizer_config.json")
    assert asked == [("someone/model", name, "v1") for name in files]
    REFUSED["code"][0](folder)
    with pytest.raises(UnsafeArchive, match=r"^someone/model: config\.json: 'auto_map' names"):
        check_transformer("someone/model")
