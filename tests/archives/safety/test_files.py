"""Files that could run code when they are loaded are refused without running it."""

import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from declutr.archives.safety import BrokenArchive, UnsafeArchive, check_transformer
from declutr.archives.safety.files import check_no_pickle
from declutr.inference.encoder import Encoder
from tests import hostile_archives as hostile
from tests.hostile_archives import Payload, with_pickle, with_torch_pickle


def refused(file: Path, match: str, marker: Path) -> None:
    with pytest.raises(UnsafeArchive, match=match):
        check_no_pickle(file, f"inside/{file.name}")
    assert not marker.exists(), "the payload has run"


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("name", ["weights.th", "model.bin", "model.pt", "notes.txt"])
def test_code_beside_tensors_is_refused(name: str, zipped: bool, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    with_torch_pickle(name, marker, zipped)(tmp_path)
    message = rf"inside/{name} should hold tensors only, but names \w+\.mkdir: a pickle could run"
    refused(tmp_path / name, message, marker)


@pytest.mark.parametrize("protocol", range(6))
def test_plain_pickles_are_refused(protocol: int, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    with_pickle("weights.th", marker, protocol)(tmp_path)
    refused(tmp_path / "weights.th", r"inside/weights\.th (should hold|cannot be read)", marker)
    with_pickle("data.pkl", marker, protocol)(tmp_path)
    refused(tmp_path / "data.pkl", r"data\.pkl is a pickle, which could run anything", marker)
    # Pickles of older protocols begin like any text, and loading does not read such files.
    if protocol >= 2:
        with_pickle("notes.txt", marker, protocol)(tmp_path)
        refused(tmp_path / "notes.txt", r"notes\.txt (should hold tensors|cannot be)", marker)


def test_the_payload_of_these_tests_runs_when_unpickled(tmp_path: Path) -> None:
    """If the payload did not run, the other tests would prove nothing."""
    with_torch_pickle("weights.th", tmp_path / "marker")(tmp_path)
    torch.load(tmp_path / "weights.th", weights_only=False)
    assert (tmp_path / "marker").is_dir()


def test_torchscript_is_refused(tmp_path: Path) -> None:
    """torch recognises TorchScript by an entry of this name, and would run it."""
    torch.save({"a": torch.zeros(1)}, tmp_path / "weights.th")
    with zipfile.ZipFile(tmp_path / "weights.th", "a") as opened:
        opened.writestr("weights/constants.pkl", b"")
    refused(tmp_path / "weights.th", r"cannot be read as tensors: .*TorchScript", tmp_path / "none")


def test_compressed_tensors_are_refused(tmp_path: Path) -> None:
    """Compressed entries could unpack to any size in memory."""
    torch.save({"a": torch.zeros(100_000)}, tmp_path / "stored.th")
    with (
        zipfile.ZipFile(tmp_path / "stored.th") as stored,
        zipfile.ZipFile(tmp_path / "weights.th", "w", zipfile.ZIP_DEFLATED) as deflated,
    ):
        for entry in stored.namelist():
            deflated.writestr(entry, stored.read(entry))
    check_no_pickle(tmp_path / "stored.th", "stored.th")
    refused(tmp_path / "weights.th", "holds compressed records", tmp_path / "none")


def test_a_zip_file_without_tensors_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "arrays.npz", a=np.zeros(2))
    refused(tmp_path / "arrays.npz", r"arrays\.npz cannot be read as tensors", tmp_path / "none")


def test_a_truncated_file_of_tensors_is_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(1000)}, tmp_path / "weights.th")
    whole = (tmp_path / "weights.th").read_bytes()
    (tmp_path / "weights.th").write_bytes(whole[:-700])
    refused(tmp_path / "weights.th", r"cannot be read as tensors: .*Get it anew", tmp_path / "none")


def test_a_flipped_bit_in_a_tensor_is_reported_as_damage(tmp_path: Path) -> None:
    """torch itself would load a wrong number without an error."""
    torch.save({"a": torch.ones(1000)}, tmp_path / "weights.th")
    content = bytearray((tmp_path / "weights.th").read_bytes())
    content[content.index(torch.ones(9).numpy().tobytes())] ^= 1
    (tmp_path / "weights.th").write_bytes(content)
    assert not torch.load(tmp_path / "weights.th")["a"].equal(torch.ones(1000))
    with pytest.raises(BrokenArchive, match=r"inside/weights\.th is damaged: .* Get it anew"):
        check_no_pickle(tmp_path / "weights.th", "inside/weights.th")


def test_arrays_of_objects_are_refused(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    np.save(tmp_path / "objects.npy", np.array([Payload(marker)], dtype=object))
    refused(tmp_path / "objects.npy", r"objects\.npy is no plain array: Array can't be", marker)
    np.save(tmp_path / "numbers.npy", np.zeros((2, 2)))
    check_no_pickle(tmp_path / "numbers.npy", "numbers.npy")


@pytest.mark.parametrize("zipped", [True, False])
def test_state_dicts_pass(zipped: bool, tmp_path: Path) -> None:
    state = {"a": torch.zeros(3), "b": torch.ones(2, dtype=torch.bfloat16), "n": 1, "s": "text"}
    torch.save(state, tmp_path / "weights.th", _use_new_zipfile_serialization=zipped)
    check_no_pickle(tmp_path / "weights.th", "weights.th")


def test_safetensors_that_begin_like_a_pickle_pass(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_file({"a": torch.zeros(1)}, file, metadata={"x": "y" * 560})
    assert file.read_bytes()[:2] == pickle.PROTO + b"\x02", "the test is about this length"
    check_no_pickle(file, "model.safetensors")


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
def test_an_unsafe_transformer_is_refused(name: str, folder: Path) -> None:
    change, message = REFUSED[name]
    change(folder)
    with pytest.raises(UnsafeArchive, match=message) as refusal:
        check(folder)
    assert str(refusal.value).startswith(str(folder))


def test_pickled_weights_are_checked_if_transformers_would_load_them(
    folder: Path, tmp_path: Path
) -> None:
    """transformers refuses pickles as well, but its message explains how to load them anyway."""
    hostile.with_torch_pickle("pytorch_model.bin", tmp_path / "marker")(folder)
    check(folder)  # transformers loads model.safetensors, and ignores the pickle.
    (folder / "model.safetensors").unlink()
    with pytest.raises(UnsafeArchive, match=r"pytorch_model\.bin should hold tensors only") as one:
        Encoder(folder, device="cpu")
    assert "weights_only" not in str(one.value)
    assert not (tmp_path / "marker").exists()


def test_harmless_traces_of_other_machines_pass(folder: Path) -> None:
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
    torch.save({"args": object}, folder / "training_args.bin")  # loading does not read it
    check(folder)


def test_a_transformer_in_a_subfolder_is_checked(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "whole"
    shutil.move(folder, place / "0_Transformer")
    hostile.with_json("config.json", auto_map={"AutoModel": "a.B"})(place / "0_Transformer")
    with pytest.raises(UnsafeArchive, match=r"whole: 0_Transformer/config\.json: 'auto_map'"):
        check_transformer(str(place), folder="0_Transformer")


def test_only_settings_are_downloaded_from_the_hub(folder: Path, monkeypatch: Any) -> None:
    asked = []

    def cached_file(place: str, name: str, **options: Any) -> str | None:
        asked.append((place, name, options["revision"]))
        return str(folder / name) if (folder / name).exists() else None

    monkeypatch.setattr("transformers.utils.cached_file", cached_file)
    check_transformer("someone/model", revision="v1")
    files = ("config.json", "tokenizer_config.json", "adapter_config.json")
    assert asked == [("someone/model", name, "v1") for name in files]
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(UnsafeArchive, match=r"^someone/model: adapter_config\.json has another"):
        check_transformer("someone/model")
    REFUSED["code"][0](folder)
    with pytest.raises(UnsafeArchive, match=r"^someone/model: config\.json: 'auto_map' names"):
        check_transformer("someone/model")
