"""Configurations that run code or name anything outside their archive are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from allennlp.common import Params
from hypothesis import given
from hypothesis import strategies as st

import declutr.components  # noqa: F401
from declutr.archives import entries
from declutr.archives.safety import UnsafeArchive
from declutr.archives.safety.configuration import (
    check_configuration,
    dotted,
    nearest_key,
    read_plain_json,
)
from declutr.recipes import recipe_names, recipe_path

JSONNET = {
    '{"a": importstr "/etc/passwd"}': "line 1 has the Jsonnet `importstr`",
    '{\n"a": 1,\n"b": import "other.jsonnet"}': "line 3 has the Jsonnet `import`",
    'local x = 1; {"a": x}': "`local`",
    '{"a": std.extVar("HOME")}': "`std`",
    "function(x) {}": "`function`",
    '{"a": 1} // a note': r"has the comment `//`",
    '# a note\n{"a": 1}': r"line 1 has the comment `#`",
    '{"a": /* a note */ 1}': r"has the comment `/\*`",
    "{'a': 1}": "has text in `'`",
    '{"a": 1,}': "Expecting property name|trailing comma",
    '{a: "import"}': "Expecting property name",
    '{"a": NaN}': "it holds NaN",
    "": "Expecting value",
}


@pytest.mark.parametrize("text", JSONNET)
def test_anything_but_plain_json_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(UnsafeArchive, match=JSONNET[text]) as refusal:
        read_plain_json(file)
    assert "config.json is not plain JSON: " in str(refusal.value)
    assert "--trust (trust=True)" in str(refusal.value)


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_other_encodings_than_utf8_are_refused(encoding: str, tmp_path: Path) -> None:
    """Jsonnet may decode such a file differently than the checks in Python."""
    (tmp_path / "config.json").write_text('{"ä": 1}', encoding=encoding)
    with pytest.raises(UnsafeArchive, match=r"config\.json is no UTF-8 text"):
        read_plain_json(tmp_path / "config.json")


def test_strings_may_contain_jsonnet_syntax(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"import": "importstr // # \\" local"}')
    assert read_plain_json(tmp_path / "config.json") == {"import": 'importstr // # " local'}


LEAVES = st.none() | st.booleans() | st.integers() | st.text()
VALUES = st.recursive(LEAVES, lambda v: st.lists(v) | st.dictionaries(st.text(), v), max_leaves=12)


@given(VALUES)
def test_entries_yields_every_nested_value(value: object) -> None:
    for path, held in entries(value):
        inner = value
        for key in path:
            inner = inner[key]  # type: ignore[index]
        assert inner is held
    count = sum(1 for _ in entries(value))
    assert count == len(list(_inside(value)))


def _inside(value: object) -> list[object]:
    items = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(items, list):
        return []
    return [*items, *(deeper for item in items for deeper in _inside(item))]


def test_paths_as_text_and_their_last_key() -> None:
    assert dotted(("model", "encoders", 0, "type")) == "model.encoders.0.type"
    assert nearest_key(("model", "encoders", 0, 1)) == "encoders"
    assert nearest_key((0,)) == ""


CONFIG: dict[str, Any] = {
    "dataset_reader": {
        "type": "declutr",
        "tokenizer": {"type": "pretrained_transformer", "model_name": "/home/me/roberta"},
        "cache_dir": "/scratch/cache",
    },
    "vocabulary": {"type": "from_files", "directory": "/home/me/vocabulary"},
    "train_data_path": "/home/me/docs.txt",
    "model": {
        "type": "declutr",
        "text_field_embedder": {
            "type": "mlm",
            "token_embedders": {
                "tokens": {
                    "type": "pretrained_transformer_mlm",
                    "model_name": "/home/me/roberta",
                    "transformer_kwargs": {"rope_scaling": {"type": "yarn"}},
                    "compile": {"mode": "max-autotune", "dynamic": False},
                    "pretrained_file": "https://somewhere/vectors.txt",
                }
            },
        },
        "initializer": {"regexes": [[".*", {"type": "pretrained", "weights_file_path": "/w"}]]},
        "part": {"type": "declutr", "archive": "/home/me/model.tar.gz"},
        "start_token": "/",
        "separators": ["..", "~", "./"],
        "language": "en_core_web_sm",
        "hub_model": "sentence-transformers/all-MiniLM-L6-v2",
        "version": "1.0",
        "pattern": "layer\\.[0-9]+\\.bias",
    },
    "trainer": {"callbacks": [{"type": "unknown_here", "path": "/home/me/logs"}]},
}


def check(config: Any, folder: Path) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    check_configuration(file, {"/home/me/roberta"}, {"/home/me/model.tar.gz"}, evaluation=True)


def changed(keys: str, value: Any) -> Any:
    config = json.loads(json.dumps(CONFIG))
    inner, *path = config, *keys.split(".")
    for key in path[:-1]:
        inner = inner.setdefault(key, {})
    inner[path[-1]] = value
    return config


def test_a_safe_configuration_passes(tmp_path: Path) -> None:
    check(CONFIG, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", recipe_names())
def test_every_recipe_passes(recipe: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TRANSFORMER_MODEL", "distilroberta-base")
    check(Params.from_file(str(recipe_path(recipe))).as_dict(quiet=True), tmp_path)


EMBEDDER = "model.text_field_embedder.token_embedders.tokens"
REFUSED = {
    "dotted type": ("model.type", "os.path.Model", r"'model\.type' is 'os\.path\.Model', which"),
    "dotted model": ("model", "subprocess.Popen", r"'model' is 'subprocess\.Popen', which Allen"),
    "dotted far from what is built": (
        "trainer.callbacks",
        [{"a": [{"type": "x.Y"}]}],
        r"'trainer\.callbacks\.0\.a\.0\.type' is 'x\.Y', which AllenNLP would import and run",
    ),
    "dotted vocabulary": ("vocabulary", "x.Y", r"'vocabulary' is 'x\.Y'"),
    "dotted reader": ("validation_dataset_reader", "x.Y", r"'validation_dataset_reader' is 'x\."),
    "another archive": ("model.type", "from_archive", r"'model\.type' loads another archive"),
    "another archive, short": ("model", "from_archive", r"'model' loads another archive"),
    "archive_file": ("model.archive_file", "m", r"'model\.archive_file' names another archive"),
    "a part of an archive": (
        "model.part.archive",
        "other.tar.gz",
        r"'model\.part\.archive' is 'other\.tar\.gz', another archive, of which this one carries",
    ),
    "a part that is not replaced": (
        "model.part.type",
        "basic",
        r"'model\.part\.archive' is '/home/me/model\.tar\.gz', another archive",
    ),
    "_pretrained": (
        "model.encoder",
        {"_pretrained": {"archive_file": "m"}},
        r"'model\.encoder\._pretrained' names another archive",
    ),
    "remote code": (
        f"{EMBEDDER}.transformer_kwargs.trust_remote_code",
        True,
        r"tokens\.transformer_kwargs\.trust_remote_code' is True, which lets code from the web run",
    ),
    "remote code as text": (
        "dataset_reader.tokenizer.tokenizer_kwargs",
        {"trust_remote_code": "false"},
        r"trust_remote_code' is 'false', which lets code",
    ),
    "kernels": (f"{EMBEDDER}.transformer_kwargs.use_kernels", 1, "lets code from the web run"),
    "attention kernels": (
        f"{EMBEDDER}.transformer_kwargs.attn_implementation",
        {"text_config": "evil/attention"},
        r"is 'evil/attention': attention from there is code",
    ),
    "auto_map": ("anything.auto_map", {"AutoModel": "x.Y"}, r"'anything\.auto_map' names Python"),
    "compiler options": (
        f"{EMBEDDER}.compile",
        {"options": {"cpp.cxx": ["touch"]}},
        r"gives torch\.compile \['options'\], which can name programs to run",
    ),
    "compiler backend": (f"{EMBEDDER}.compile", {"backend": "x"}, r"\['backend'\]"),
    "spaCy": ("dataset_reader.tokenizer.language", "numpy", r"'numpy', a package that spaCy would"),
    "a folder": (
        f"{EMBEDDER}.model_name",
        "/home/me/other",
        r"model_name' is '/home/me/other', a place outside the archive, which does not carry",
    ),
    "a folder above": (f"{EMBEDDER}.model_name", "../other", r"'\.\./other', a place outside"),
    "a folder here": (f"{EMBEDDER}.model_name", "./other", r"'\./other', a place outside"),
    "this folder": (f"{EMBEDDER}.model_name", ".", r"'\.', a place outside"),
    "a URL": (f"{EMBEDDER}.model_name", "http://x/y", r"'http://x/y', a place outside"),
    "names that are not replaced": (
        f"{EMBEDDER}.model_name",
        ["/home/me/roberta"],
        r"model_name\.0' names a place outside the archive, '/home/me/roberta'",
    ),
    "weights": (
        f"{EMBEDDER}.override_weights_file",
        "weights.bin",
        r"override_weights_file' names a place outside the archive, 'weights\.bin'",
    ),
    "weights on the web": (
        f"{EMBEDDER}.weight_file",
        "https://elsewhere/w.hdf5",
        r"weight_file' names a place outside the archive, 'https://elsewhere/w\.hdf5'",
    ),
    "vectors in a list": (
        "model.parts",
        [{"pretrained_file": "vectors.txt"}],
        r"'model\.parts\.0\.pretrained_file' names a place outside",
    ),
    "any file": ("validation_dataset_reader.schema", "~/schema", r"'validation_dataset_reader\.s"),
    "a Windows path": ("model.schema", "C:\\schema", r"names a place outside the archive, 'C:"),
    "climbing": ("model.schema", "a/../../b", r"'a/\.\./\.\./b'"),
    "files in a dictionary": (
        "model.vocab_files",
        {"tokens": "x"},
        r"'model\.vocab_files\.tokens'",
    ),
    "an initializer that is not stripped": (
        "model.parts",
        [{"initializer": {"regexes": [[".*", {"weights_file_path": "w"}]]}}],
        r"'model\.parts\.0\.initializer\.regexes\.0\.1\.weights_file_path' names a place",
    ),
    "parameters of a program": (
        "model.metric",
        {"type": "evalb", "evalb_param_filename": "other.prm"},
        r"'model\.metric\.evalb_param_filename' names a place outside",
    ),
    "a BERT of another key": ("model.bert_model", "./bert", r"'\./bert', a place outside"),
    "a reader's transformer": (
        "dataset_reader.transformer_model_name",
        "tests",  # a folder that is there where the tests run
        r"'dataset_reader\.transformer_model_name' is 'tests', a place outside",
    ),
    "options of MeCab": (
        "dataset_reader.tokenizer.tokenizer_kwargs",
        {"mecab_kwargs": {"mecab_option": "-r rc"}},
        r"mecab_option' is '-r rc'; options of MeCab can name files",
    ),
    "a transformer that a loader names": (
        "validation_data_loader.collate_fn",
        {"type": "language_model", "model_name": "/home/me/roberta"},
        r"collate_fn\.model_name' is '/home/me/roberta', a place outside",
    ),
    "features of images": (
        "dataset_reader",
        {"type": "image_text", "images": "features.npy"},
        r"'dataset_reader\.images' names a place outside the archive, 'features\.npy'",
    ),
    "the cache of another reader": (
        "dataset_reader",
        {"type": "somebodys", "cache_dir": "/home/me/cache"},
        r"'dataset_reader\.cache_dir' names a place outside",
    ),
    "a module as a language": ("model.language", "pip", r"'pip', a package that spaCy would"),
    "a list of arguments": (
        f"{EMBEDDER}.transformer_kwargs",
        [["weights_only", False]],
        r"transformer_kwargs' is \[\['weights_only', False\]\]; expected a dictionary",
    ),
    "pickles": (
        f"{EMBEDDER}.transformer_kwargs.use_safetensors",
        False,
        r"use_safetensors' is False, which has pickles loaded",
    ),
}


ARGUMENTS = (
    *("weights_only", "revision", "subfolder", "cache_dir", "state_dict", "config", "token"),
    *("code_revision", "gguf_file", "adapter_kwargs", "proxies", "quantization_config"),
    *("device_map", "tokenizer_type", "pretrained_model_name_or_path", "anything"),
)


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_unknown_arguments_of_transformers_are_refused(argument: str, tmp_path: Path) -> None:
    """Of transformers on the hub, `weights_only` alone makes transformers run a pickle."""
    message = rf"_kwargs\.{argument}' sets '{argument}', which is not among the arguments"
    for place in (EMBEDDER, "dataset_reader.tokenizer", "model.a.b"):
        for kind in ("transformer_kwargs", "tokenizer_kwargs"):
            for value in (False, "x", {}):
                with pytest.raises(UnsafeArchive, match=message):
                    check(changed(f"{place}.{kind}", {"dtype": "auto", argument: value}), tmp_path)


def test_known_arguments_of_transformers_pass(tmp_path: Path) -> None:
    known = {
        **{"attn_implementation": "sdpa", "hidden_dropout_prob": 0.0, "attention_dropout": 0},
        **{"max_position_embeddings": 1024, "rope_scaling": {"type": "yarn"}, "use_cache": False},
        **{"use_safetensors": True, "trust_remote_code": False, "torch_dtype": "bfloat16"},
    }
    check(changed(f"{EMBEDDER}.transformer_kwargs", known), tmp_path)
    known = {
        **{"use_fast": False, "do_lower_case": True, "add_prefix_space": True, "max_length": 512},
        **{"additional_special_tokens": ["<one>"], "pad_token": "<pad>"},
    }
    check(changed("dataset_reader.tokenizer.tokenizer_kwargs", known), tmp_path)
    check(changed("dataset_reader.tokenizer.tokenizer_kwargs", None), tmp_path)


def test_a_language_is_no_module_of_the_current_folder(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("qq", "en_core_web_sm"):
        check(changed("model.language", name), tmp_path)
        for place in (name, f"{name}.py"):
            (tmp_path / place).touch()
            with pytest.raises(UnsafeArchive, match="a package that spaCy would import"):
                check(changed("model.language", name), tmp_path)
            (tmp_path / place).unlink()


@pytest.mark.parametrize("name", REFUSED)
def test_an_unsafe_configuration_is_refused(name: str, tmp_path: Path) -> None:
    keys, value, message = REFUSED[name]
    with pytest.raises(UnsafeArchive, match=message) as refusal:
        check(changed(keys, value), tmp_path)
    assert str(refusal.value).startswith("config.json: ")
    assert str(refusal.value).endswith("allow it with --trust (trust=True).")


LOADER = {"data_loader": {"batch_sampler": {"type": "bucket", "sorting_keys": ["text"]}}}


def check_for_evaluation(config: dict[str, Any], folder: Path) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**LOADER, **config}))
    check_configuration(file, set(), set(), evaluation=True)


@pytest.mark.parametrize("section", ["data_loader", "validation_data_loader", "evaluation"])
def test_what_is_built_after_loading_is_judged_for_evaluation(section: str, tmp_path: Path) -> None:
    check_for_evaluation({}, tmp_path)
    for value in ("x.Y", {"a": "x.Y"}, {"a": ["x.Y"]}, {"a": [{"b": "x.Y"}]}):
        with pytest.raises(UnsafeArchive, match=rf"'{section}.*' is 'x\.Y', which AllenNLP would"):
            check_for_evaluation({section: value}, tmp_path)
    with pytest.raises(UnsafeArchive, match=r"file' names a place outside the archive, 'words'"):
        check_for_evaluation({section: {"file": "words"}}, tmp_path)


def test_what_the_user_sets_is_not_judged(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(changed(f"{EMBEDDER}.model_name", "/home/other/roberta")))
    carried = ({"/home/me/roberta"}, {"/home/me/model.tar.gz"})
    with pytest.raises(UnsafeArchive, match="/home/other/roberta"):
        check_configuration(file, *carried, overrides={"model.separators": ["/mine"]})
    own = {f"{EMBEDDER}.model_name": str(tmp_path), "model.separators": ["/mine", ".."]}
    check_configuration(file, *carried, overrides=own)


AUGMENTED = {"type": "augmented", "augmentation": {"type": "eda", "synonyms": "/home/me/synonyms"}}


def augmented(**changes: Any) -> Any:
    """Return the configuration of a reader "augmented" with changes of its augmentation."""
    return {**AUGMENTED, "augmentation": {**AUGMENTED["augmentation"], **changes}}


@pytest.mark.parametrize("section", ["dataset_reader", "validation_dataset_reader"])
def test_an_augmentation_may_name_files_and_functions(section: str, tmp_path: Path) -> None:
    """Synonyms are read and functions imported when texts are augmented, not by loading."""
    check(changed(section, AUGMENTED), tmp_path)
    check(changed(section, {**AUGMENTED, "type": "semi_supervised"}), tmp_path)
    check(changed(section, augmented(synonyms="https://somewhere/synonyms")), tmp_path)
    calling = {"type": "callable", "function": "package.module:function"}
    check(changed(section, {"type": "augmented", "augmentation": calling}), tmp_path)
    predicting = {"type": "masked_lm", "transformer": "/home/me/language_model"}
    chained = {"type": "chain", "augmentations": [predicting, AUGMENTED["augmentation"]]}
    for reader in ("augmented", "glue", "declutr-text_pairs"):
        nested = {"type": "chain", "augmentations": [chained]}
        check(changed(section, {"type": reader, "augmentation": nested}), tmp_path)


TEACHER = {"type": "distillation", "targets": "/home/me/targets"}


def test_distillation_may_name_the_embeddings_of_a_teacher(tmp_path: Path) -> None:
    """Training reads them, loading does not."""
    check(changed("model.loss", TEACHER), tmp_path)
    check(changed("model.loss", {"type": "matryoshka", "loss": TEACHER}), tmp_path)
    for keys, value in (
        ("model.loss", {"type": "nt_xent", "loss": TEACHER}),
        ("model.other", TEACHER),
        ("model.loss", {**TEACHER, "type": "of_a_plugin"}),
    ):
        with pytest.raises(UnsafeArchive, match=r"names a place outside the archive, '/home/me/"):
            check(changed(keys, value), tmp_path)


NOT_SYNONYMS = {
    "of another reader": ("dataset_reader", {**AUGMENTED, "type": "declutr"}),
    "of a reader without a type": ("dataset_reader", {"augmentation": AUGMENTED["augmentation"]}),
    "of another augmentation": ("dataset_reader", augmented(type="of_a_plugin")),
    "deeper": ("dataset_reader", {"type": "multitask", "readers": {"a": AUGMENTED}}),
    "in another augmentation": (
        "dataset_reader",
        augmented(synonyms=None, type="of_a_plugin", inner=AUGMENTED["augmentation"]),
    ),
    "in a list": ("dataset_reader", augmented(synonyms=["/home/me/synonyms"])),
    "in a dictionary": ("dataset_reader", augmented(synonyms={"a": "/home/me/synonyms"})),
    "under another key": ("dataset_reader", augmented(stop_words=["/home/me/words"])),
    "of the model": ("model.reader", AUGMENTED),
    "of masked_lm": ("dataset_reader", augmented(type="masked_lm", transformer="x")),
    "in no chain": (
        "dataset_reader",
        augmented(synonyms=None, augmentations=[AUGMENTED["augmentation"]]),
    ),
    "in a chain of another key": (
        "dataset_reader",
        augmented(type="chain", synonyms=None, others=[AUGMENTED["augmentation"]]),
    ),
}


@pytest.mark.parametrize("name", NOT_SYNONYMS)
def test_synonyms_elsewhere_than_in_the_reader_are_refused(name: str, tmp_path: Path) -> None:
    keys, value = NOT_SYNONYMS[name]
    with pytest.raises(UnsafeArchive, match=r"names a place outside the archive, '/home/me/"):
        check(changed(keys, value), tmp_path)


@pytest.mark.parametrize("value", [False, None])
def test_a_switch_for_remote_code_may_be_off(value: Any, tmp_path: Path) -> None:
    check(changed(f"{EMBEDDER}.transformer_kwargs.trust_remote_code", value), tmp_path)


def test_a_registered_name_may_have_a_dot(tmp_path: Path) -> None:
    from allennlp.common import Registrable
    from allennlp.nn import Activation

    Activation.register("of.a.plugin")(Activation)
    try:
        check(changed("model.activation", {"type": "of.a.plugin"}), tmp_path)
    finally:
        del Registrable._registry[Activation]["of.a.plugin"]


def test_a_configuration_must_be_an_object(tmp_path: Path) -> None:
    with pytest.raises(UnsafeArchive, match=r"config\.json holds no JSON object"):
        check(["model"], tmp_path)
