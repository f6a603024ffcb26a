"""Folders of sentence-transformers embed as in that package, which is not needed."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from declutr.inference.encoder import Encoder
from declutr.inference.open_text_model import EncoderError

TEXTS = ["ka lo mi", "", "Tu re sa no", "ka " * 300, "ve"]


def write(place: Path, content: Any) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(content))


def modules(*names: str, folders: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    paths = folders or tuple(
        "" if name == "Transformer" else f"{number}_{name}" for number, name in enumerate(names)
    )
    return [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{name}"}
        for n, (name, path) in enumerate(zip(names, paths, strict=True))
    ]


@pytest.fixture
def folder(checkpoint: Path, tmp_path: Path) -> Path:
    """Return a model with mean pooling, a dense layer, normalisation, lower case and 16 tokens."""
    place = tmp_path / "model"
    shutil.copytree(checkpoint, place)
    write(place / "modules.json", modules("Transformer", "Pooling", "Dense", "Normalize"))
    write(place / "sentence_bert_config.json", {"max_seq_length": 16, "do_lower_case": True})
    write(
        place / "1_Pooling" / "config.json",
        {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True},
    )
    dense = {
        "in_features": 32,
        "out_features": 5,
        "bias": True,
        "activation_function": "torch.nn.modules.activation.Tanh",
    }
    write(place / "2_Dense" / "config.json", dense)
    torch.manual_seed(0)
    weights = {"linear.weight": torch.randn(5, 32), "linear.bias": torch.randn(5)}
    save_file(weights, place / "2_Dense" / "model.safetensors")
    return place


def encoder(place: Path, **settings: Any) -> Encoder:
    return Encoder(place, device="cpu", dtype="float32", **settings)


def test_every_module_is_applied(folder: Path, checkpoint: Path) -> None:
    from safetensors.torch import load_file

    ours = encoder(folder)
    plain = encoder(checkpoint, max_length=16)([text.lower() for text in TEXTS])
    weights = load_file(folder / "2_Dense" / "model.safetensors")
    layer = np.tanh(plain @ weights["linear.weight"].numpy().T + weights["linear.bias"].numpy())
    expected = layer / np.linalg.norm(layer, axis=1, keepdims=True)
    assert ours.dimension == 5 and ours.max_length == 16
    assert np.abs(ours(TEXTS) - expected).max() < 1e-6
    assert ours.truncated_texts == 1
    assert np.abs(encoder(folder, normalize=False)(TEXTS) - layer).max() < 1e-6
    # With an explicit pooling, only the transformer of the folder is used.
    alone = encoder(folder, pooling="cls")(TEXTS)
    assert np.abs(alone - encoder(checkpoint, pooling="cls")(TEXTS)).max() < 1e-6


def test_embeddings_equal_those_of_sentence_transformers(folder: Path) -> None:
    package = pytest.importorskip("sentence_transformers")
    theirs = package.SentenceTransformer(str(folder), device="cpu")
    assert np.abs(encoder(folder)(TEXTS) - theirs.encode(TEXTS)).max() < 1e-5
    again = folder.parent / "again"
    # The installed release saves in its own layout, and some releases lose the lower case.
    theirs.save(str(again))
    expected = package.SentenceTransformer(str(again), device="cpu").encode(TEXTS)
    assert np.abs(encoder(again)(TEXTS) - expected).max() < 1e-5


def test_the_transformer_may_be_in_a_subfolder(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "other"
    names = ("Transformer", "Pooling", "Dense", "Normalize")
    folders = ("0_Transformer", "1_Pooling", "2_Dense", "3_Normalize")
    shutil.copytree(folder, place / "0_Transformer")
    for name in ("1_Pooling", "2_Dense"):
        shutil.move(place / "0_Transformer" / name, place / name)
    (place / "0_Transformer" / "modules.json").unlink()
    write(place / "modules.json", modules(*names, folders=folders))
    assert np.abs(encoder(place)(TEXTS) - encoder(folder)(TEXTS)).max() < 1e-6


def test_a_default_prompt_is_put_before_texts(folder: Path) -> None:
    settings = {"prompts": {"query": "sa no "}, "default_prompt_name": "query"}
    without = encoder(folder)(["sa no " + text for text in TEXTS])
    write(folder / "config_sentence_transformers.json", settings)
    assert np.abs(encoder(folder)(TEXTS) - without).max() < 1e-6


@pytest.mark.parametrize(("kept", "width"), [(3, 3), (5, 5), (9, 5)])
def test_as_many_dimensions_are_kept_as_the_folder_says(
    folder: Path, kept: int, width: int
) -> None:
    whole = encoder(folder, normalize=False)(TEXTS)
    write(folder / "config_sentence_transformers.json", {"truncate_dim": kept})
    found = encoder(folder)
    scaled = whole[:, :width] / np.linalg.norm(whole[:, :width], axis=1, keepdims=True)
    assert found.dimension == width
    assert np.abs(found(TEXTS) - scaled).max() < 1e-6
    assert np.abs(encoder(folder, truncate_dim=5, normalize=False)(TEXTS) - whole).max() < 1e-6


PROMPTS = {
    "prompts": {"query": "Sa no: ", "document": "ve ", "other": "mi", "none": ""},
    "default_prompt_name": "other",
    "similarity_fn_name": "dot",
}
ASKED: list[dict[str, str]] = [
    {},
    {"prompt_name": "query"},
    {"prompt_name": "document"},
    {"prompt_name": "none"},
    {"prompt": "Tu re: "},
    {"prompt": ""},
    {"prompt": "ka lo " * 40},  # longer than the maximum length
]


@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize("mode", ["mean", "cls", "max", "mean_sqrt_len", "last"])
def test_embeddings_with_prompts_equal_those_of_sentence_transformers(
    folder: Path, mode: str, include_prompt: bool
) -> None:
    package = pytest.importorskip("sentence_transformers")
    flag = "pooling_mode_lasttoken" if mode == "last" else f"pooling_mode_{mode}_token"
    flag += "s" if mode.startswith(("mean", "max")) else ""
    pooling = {"word_embedding_dimension": 32, "include_prompt": include_prompt, flag: True}
    write(folder / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": False} | pooling)
    write(folder / "config_sentence_transformers.json", PROMPTS)
    theirs, ours = package.SentenceTransformer(str(folder), device="cpu"), encoder(folder)
    for asked in ASKED:
        assert np.abs(ours(TEXTS, **asked) - theirs.encode(TEXTS, **asked)).max() < 1e-5, asked
    assert np.abs(ours(TEXTS) - ours(TEXTS, prompt_name="query")).max() > 1e-4


@pytest.mark.parametrize(
    ("prompts", "default"),
    [
        ({"query": "sa: ", "document": "ve: "}, None),
        ({"query": "sa: ", "document": "ve: "}, "query"),
        ({"query": "sa: "}, "query"),
        ({"document": "ve: "}, None),
    ],
)
def test_queries_and_documents_embed_as_in_sentence_transformers(
    folder: Path, prompts: dict, default: str | None
) -> None:
    package = pytest.importorskip("sentence_transformers", minversion="5")
    settings = {"prompts": prompts, "default_prompt_name": default}
    write(folder / "config_sentence_transformers.json", settings)
    theirs, ours = package.SentenceTransformer(str(folder), device="cpu"), encoder(folder)
    sides = ours.prompts.sides
    assert sides is not None
    document, query = ours(TEXTS, prompt=sides.document), ours(TEXTS, prompt=sides.query)
    assert np.abs(document - theirs.encode_document(TEXTS)).max() < 1e-5
    assert np.abs(query - theirs.encode_query(TEXTS)).max() < 1e-5


def test_chunked_texts_exclude_the_prompt_in_the_first_chunk(folder: Path) -> None:
    write(folder / "1_Pooling" / "config.json", {"include_prompt": False})
    write(folder / "modules.json", modules("Transformer", "Pooling"))
    chunked = encoder(folder, long_texts="chunk", max_length=12)
    text, prompt = "ka lo mi tu re sa no ve pi du " * 3, "sa no "
    tokens = chunked._model.tokenize([text], prompt)[0]
    count = -(-len(tokens) // 10)
    assert count > 1
    parts = [
        tokens[n * len(tokens) // count : (n + 1) * len(tokens) // count] for n in range(count)
    ]
    assert [part.prompt > 0 for part in parts] == [True] + [False] * (count - 1)
    vectors = chunked._model.embed(parts).numpy()
    expected = np.average(vectors, axis=0, weights=[len(part) for part in parts])
    assert np.abs(chunked([text], prompt=prompt)[0] - expected).max() < 1e-6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prompts": ["q: "]}, "the prompts in config_sent.* should be texts by their names"),
        ({"prompts": {"q": 3}}, "the prompts in config_sent.* should be texts by their names"),
        (
            {"prompts": {"q": "q: "}, "default_prompt_name": "p"},
            r"the default_prompt_name 'p', which is none of its prompts \('q'\)",
        ),
    ],
)
def test_invalid_prompts_are_refused(folder: Path, settings: dict, message: str) -> None:
    write(folder / "config_sentence_transformers.json", settings)
    with pytest.raises(EncoderError, match=message):
        encoder(folder)


def test_empty_prompts_count_as_none(folder: Path) -> None:
    """sentence-transformers writes null and "" under its predefined names."""
    plain = encoder(folder)(TEXTS)
    settings = {"prompts": {"query": None, "document": ""}, "default_prompt_name": "query"}
    write(folder / "config_sentence_transformers.json", settings)
    assert encoder(folder).prompts.sides is None
    assert np.abs(encoder(folder)(TEXTS) - plain).max() < 1e-6


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, "mean-sqrt-length"),
        ({"pooling_mode": "lasttoken"}, "last"),
        ({"pooling_mode": ["cls"]}, "cls"),
        ({}, "mean"),
    ],
)
def test_poolings_of_old_and_new_releases(folder: Path, config: dict, pooling: str) -> None:
    write(folder / "modules.json", modules("Transformer", "Pooling"))
    write(folder / "1_Pooling" / "config.json", config)
    lowered = [text.lower() for text in TEXTS]
    expected = encoder(folder, pooling=pooling, max_length=16)(lowered)
    assert encoder(folder).describe()["pooling"] == pooling
    assert np.abs(encoder(folder)(TEXTS) - expected).max() < 1e-6


LENGTHS = "sentence_bert_config.json"
TANH = {"activation_function": "torch.nn.modules.activation.Tanh"}
OF_TEXTS = {"method": "forward", "method_output_name": "last_hidden_state"}
NOT_FOLLOWED: list[tuple[str, Any]] = [
    ("transformer_task", "fill-mask"),
    ("module_output_name", "sentence_embedding"),
    ("modality_config", {"text": OF_TEXTS | {"method": "get_text_features"}}),
    ("modality_config", {"text": OF_TEXTS | {"method_output_name": "pooler_output"}}),
    ("modality_config", {"text": OF_TEXTS, "message": OF_TEXTS | {"format": "flat"}}),
    ("modality_config", {"image": OF_TEXTS}),
    ("processing_kwargs", {"text": {"add_special_tokens": False}}),
    ("processing_kwargs", {"common": {"truncation_side": "left"}}),
    ("tokenizer_args", {"add_eos_token": True}),
    ("processor_kwargs", {"model_max_length": 8}),
    ("config_args", {"num_hidden_layers": 1}),
    ("model_kwargs", {"num_hidden_layers": 1}),
]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        (LENGTHS, {"processing_kwargs": {"text": {"max_length": 8}, "chat_template": {"a": 1}}}),
        (LENGTHS, {"processing_kwargs": {"common": {"max_length": 8}}, "max_seq_length": 20}),
        (LENGTHS, {"max_seq_length": 8, "model_args": {"torch_dtype": "float32"}}),
        (LENGTHS, {"max_seq_length": 8, "modality_config": {"text": OF_TEXTS}}),
        ("sentence_roberta_config.json", {"max_seq_length": 8}),
        ("sentence_xlnet_config.json", {"max_seq_length": 8}),
    ],
)
def test_settings_of_new_and_old_releases(folder: Path, name: str, settings: Any) -> None:
    write(folder / LENGTHS, {"max_seq_length": 8})
    expected = encoder(folder)(TEXTS)
    (folder / LENGTHS).unlink()
    write(folder / name, settings)
    assert encoder(folder).max_length == 8
    assert np.abs(encoder(folder)(TEXTS) - expected).max() < 1e-6


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("modules.json", modules("Transformer", "Pooling", "LSTM"), "module 2, LSTM"),
        ("modules.json", modules("WordEmbeddings", "Pooling"), "module 0, WordEmbeddings"),
        (
            "1_Pooling/config.json",
            {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True},
            "pooling pooling_mode_cls_token, pooling_mode_max_tokens",
        ),
        ("1_Pooling/config.json", {"pooling_mode": "weightedmean"}, "pooling weightedmean"),
        ("2_Dense/config.json", {"activation_function": "os.system"}, "activation 'system'"),
        ("2_Dense/config.json", TANH | {"use_residual": True}, "a dense layer beside which"),
        ("2_Dense/config.json", TANH | {"module_input_name": "token_embeddings"}, "a dense layer"),
        *((LENGTHS, {key: value}, key) for key, value in NOT_FOLLOWED),
    ],
)
def test_unsupported_modules_are_named(folder: Path, name: str, content: Any, message: str) -> None:
    write(folder / name, content)
    with pytest.raises(EncoderError, match=f"{message}.* which is not followed here.*st:"):
        encoder(folder)


BROKEN = {
    "no list": ("modules.json", {"0": "Transformer"}, r"modules\.json should hold a list of modul"),
    "no modules in it": ("modules.json", ["Transformer"], r"modules\.json should hold a list of m"),
    "a folder above": ("modules.json", modules("Transformer", folders=("..",)), r"folder '\.\.'"),
    "a folder elsewhere": (
        "modules.json",
        modules("Transformer", folders=("/etc",)),
        "'/etc', whi",
    ),
    "no folder": ("modules.json", [{"type": "a.Transformer", "path": 7}], "names the folder 7, wh"),
    "no settings": (
        "1_Pooling/config.json",
        ["mean"],
        r"1_Pooling/config\.json should hold a JSON",
    ),
    "no length": (
        "sentence_bert_config.json",
        {"max_seq_length": "many"},
        r"sentence_bert_config\.json has max_seq_length 'many'; expected a number of tokens",
    ),
    "no dimension": (
        "config_sentence_transformers.json",
        {"truncate_dim": 0},
        "truncate_dim 0; ex",
    ),
    "no pooling": ("1_Pooling/config.json", {"pooling_mode": {"a": 1}}, "which is not followed he"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_malformed_settings_are_refused(name: str, folder: Path) -> None:
    file, content, message = BROKEN[name]
    write(folder / file, content)
    with pytest.raises(EncoderError, match=message):
        encoder(folder)


def test_a_module_behind_a_symbolic_link_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    write(folder / "modules.json", modules("Transformer", "Pooling", folders=("", "linked")))
    with pytest.raises(EncoderError, match="the folder 'linked', which is none inside"):
        encoder(folder)


@pytest.mark.parametrize("content", [b"{}", b"\xff" * 64])
def test_damaged_dense_layers_are_refused(content: bytes, folder: Path) -> None:
    (folder / "2_Dense" / "model.safetensors").write_bytes(content)
    with pytest.raises(EncoderError, match=r"model\.safetensors' holds no linear layer"):
        encoder(folder)


def test_settings_that_are_not_json_are_refused(folder: Path) -> None:
    (folder / "1_Pooling" / "config.json").write_text("{")
    with pytest.raises(EncoderError, match=r"1_Pooling/config\.json' is not plain JSON"):
        encoder(folder)
