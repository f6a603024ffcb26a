"""Transformer modules read the checkpoints that are written today, and models all their weights."""

import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from allennlp.common import Params
from allennlp.data import Vocabulary
from allennlp.models import load_archive
from allennlp.modules.token_embedders import PretrainedTransformerEmbedder
from allennlp.modules.transformer import T5, TransformerEmbeddings, TransformerStack
from allennlp.nn import util as nn_util
from safetensors.torch import load_file

from declutr import Encoder
from declutr.bridge import module_weights
from declutr.pretrained_parts.opened import open_model

NAME = "allennlp.modules.transformer.transformer_module"


@pytest.fixture(scope="module")
def layouts(bert: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return folders with the same BERT as one file, as shards, and as AllenNLP knows them."""
    root = tmp_path_factory.mktemp("layouts")
    model = transformers.AutoModel.from_pretrained(bert)
    model.save_pretrained(root / "shards", max_shard_size="8KB")
    assert len(list((root / "shards").glob("*.safetensors"))) > 2
    state = load_file(Path(bert) / "model.safetensors")
    for name in ("bin", "bin_shards"):
        (root / name).mkdir()
        shutil.copy(Path(bert) / "config.json", root / name)
    torch.save(state, root / "bin" / "pytorch_model.bin")
    index = (root / "shards" / "model.safetensors.index.json").read_text()
    (root / "bin_shards" / "pytorch_model.bin.index.json").write_text(
        index.replace(".safetensors", ".bin")
    )
    for shard in (root / "shards").glob("*.safetensors"):
        torch.save(load_file(shard), root / "bin_shards" / f"{shard.stem}.bin")
    return {"safetensors": bert, **{path.name: str(path) for path in root.iterdir()}}


@pytest.mark.parametrize("layout", ["safetensors", "shards", "bin", "bin_shards"])
def test_every_layout_of_weights_is_read(layouts: dict[str, str], layout: str) -> None:
    expected = transformers.AutoModel.from_pretrained(layouts["safetensors"]).eval()
    stack = TransformerStack.from_pretrained_module(layouts[layout]).eval()
    embeddings = TransformerEmbeddings.from_pretrained_module(layouts[layout]).eval()
    ids = torch.tensor([[2, 7, 8, 3]])
    out = stack(embeddings(ids, torch.zeros_like(ids)), attention_mask=torch.ones(1, 4))
    torch.testing.assert_close(out.final_hidden_states, expected(ids).last_hidden_state)


def test_the_repair_is_needed(layouts: dict[str, str], bare: Any) -> None:
    plain = bare(NAME).TransformerModule
    assert plain._get_pretrained_state_dict(layouts["bin"])
    for layout in ("safetensors", "shards"):
        with pytest.raises(Exception, match=r"Repo id must|pytorch_model\.bin|not a valid"):
            plain._get_pretrained_state_dict(layouts[layout])
    module = bare(NAME)
    module_weights.checkpoint_files(module)
    assert module.TransformerModule._get_pretrained_state_dict(layouts["safetensors"])


def test_a_path_of_weights_and_patterns_to_ignore(layouts: dict[str, str]) -> None:
    read = TransformerStack._get_pretrained_state_dict
    file = Path(layouts["safetensors"], "model.safetensors")
    whole = read(layouts["bin"], weights_path=file, relevant_module="encoder.layer.1")
    assert "attention.self.query.weight" in whole
    ignored = read(layouts["bin"], file, "encoder.layer.1", [r".*attention\..*"])
    assert ignored and all("attention.self" not in key for key in ignored)
    assert set(ignored) < set(whole)


def test_names_of_one_tensor_are_all_there(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=30,
        d_model=8,
        d_kv=4,
        d_ff=16,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=0,
    )
    original = transformers.T5ForConditionalGeneration(config).eval()
    original.save_pretrained(tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    model = T5.from_pretrained_module(str(tmp_path)).eval()
    ids, labels = torch.tensor([[4, 5, 6, 1]]), torch.tensor([[7, 8, 1]])
    torch.testing.assert_close(
        model(ids, labels=labels).loss, original(input_ids=ids, labels=labels).loss
    )


def test_errors_name_the_folder_and_the_files(layouts: dict[str, str], tmp_path: Path) -> None:
    shutil.copy(Path(layouts["bin"], "config.json"), tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no weights in '.*safetensors.*save_"):
        TransformerStack.from_pretrained_module(str(tmp_path))
    shutil.copy(Path(layouts["shards"], "model.safetensors.index.json"), tmp_path)
    with pytest.raises(FileNotFoundError, match=r"names the shard 'model-00001-of-.*not there"):
        TransformerStack.from_pretrained_module(str(tmp_path))


def test_names_of_the_hub_are_found_in_its_cache(
    layouts: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = tmp_path / "models--someone--tiny" / "snapshots" / "0123"
    shutil.copytree(layouts["shards"], snapshot)
    (tmp_path / "models--someone--tiny" / "refs").mkdir()
    (tmp_path / "models--someone--tiny" / "refs" / "main").write_text("0123")
    for module in ("huggingface_hub.constants", "transformers.utils.hub"):
        for name in ("HF_HUB_CACHE", "TRANSFORMERS_CACHE"):
            monkeypatch.setattr(f"{module}.{name}", str(tmp_path), raising=False)
    state = TransformerStack._get_pretrained_state_dict("someone/tiny")
    assert "layer.1.attention.self.query.weight" in state


class Classifier(torch.nn.Module):
    """A pretrained transformer with a head, to be a Model together with AllenNLP's base class."""

    def __init__(self, vocab: Vocabulary, model_name: str, tied: bool = False) -> None:
        super().__init__(vocab)  # type: ignore[call-arg]
        self.embedder = PretrainedTransformerEmbedder(model_name)
        self.embedder.register_buffer("position_ids", torch.arange(3))
        self.head = torch.nn.Linear(16, 2)
        if tied:
            words = self.embedder.transformer_model.get_input_embeddings()
            self.head = torch.nn.Linear(*words.weight.shape[::-1])
            self.head.weight = words.weight
        self.head.register_buffer("position_ids", torch.arange(3))


@pytest.fixture
def stored(bert: str, tmp_path: Path) -> Any:
    """Return a function that stores changed weights of a model, and loads them by a module."""
    Vocabulary().save_to_files(str(tmp_path / "vocabulary"))

    def load(module: Any, change: Any, **options: Any) -> bool:
        """Return whether all weights were loaded."""
        cls = type("Classifier", (Classifier, module.Model), {"__init__": Classifier.__init__})
        module.Model.register("classifier_of_tests", exist_ok=True)(cls)
        weights = cls(Vocabulary(), bert, **options).state_dict()
        torch.nn.init.normal_(weights["head.weight"])
        kept = {name: value.clone() for name, value in weights.items()}
        change(weights)
        torch.save(weights, tmp_path / "best.th")
        settings = {"type": "classifier_of_tests", "model_name": bert, **options}
        model = module.Model.load(Params({"model": settings}), str(tmp_path))
        return all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())

    return load


def repaired(bare: Any) -> Any:
    module = bare("allennlp.models.model")
    module_weights.missing_weights(module)
    return module


def test_weights_without_a_part_of_the_model_are_refused(stored: Any, bare: Any) -> None:
    def without_head(weights: Any) -> None:
        del weights["head.weight"]

    assert not stored(bare("allennlp.models.model"), without_head)  # it is random
    module = repaired(bare)
    with pytest.raises(
        RuntimeError,
        match=r"Missing keys: \['head.weight'\]\n.*\nWhat is missing would stay random",
    ):
        stored(module, without_head)
    assert stored(module, lambda weights: None)
    with pytest.raises(RuntimeError, match=r"Missing keys: \[\]\n\tUnexpected keys: \['other'\]$"):
        stored(module, lambda weights: weights.update(other=torch.ones(1)))


def test_parts_that_may_be_missing_are_those_of_their_module(stored: Any, bare: Any) -> None:
    module = repaired(bare)
    assert stored(module, lambda weights: weights.pop("embedder.position_ids"))
    with pytest.raises(RuntimeError, match=r"Missing keys: \['head.position_ids'\]"):
        stored(module, lambda weights: weights.pop("head.position_ids"))


@pytest.mark.parametrize("under_both_names", [True, False])
def test_a_tied_head_is_there_with_what_it_is_tied_to(
    under_both_names: bool, stored: Any, bare: Any
) -> None:
    def change(weights: Any) -> None:
        if not under_both_names:
            del weights["head.weight"]

    assert stored(repaired(bare), change, tied=True)


def test_buffers_that_transformers_once_stored_are_left_out(stored: Any, bare: Any) -> None:
    gone = "embedder.transformer_model.embeddings.position_ids"

    def of_that_time(weights: Any) -> None:
        weights[gone] = torch.arange(64)[None]

    module = repaired(bare)
    with pytest.raises(RuntimeError, match=rf"Unexpected keys: \['{gone}'\]"):
        stored(module, of_that_time)
    module_weights.gone_buffers(module)
    assert stored(module, of_that_time)
    for other in ("head.attn.bias", f"{gone}.other"):
        with pytest.raises(RuntimeError, match=rf"Unexpected keys: \['{other}'\]$"):
            stored(module, lambda weights: weights.update({other: torch.ones(1)}))  # noqa: B023


SIZES = {"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 9, "n_positions": 9}
NEO = {"hidden_size": 8, "num_layers": 1, "num_heads": 2, "attention_types": [[["global"], 1]]}
DISTIL = {"dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 8, "vocab_size": 9}
NEOX = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 9}


@pytest.mark.parametrize(
    ("name", "sizes", "gone"),
    [
        ("gpt2", SIZES, ["h.0.attn.bias", "h.0.attn.masked_bias"]),
        ("gpt_neo", NEO, ["h.0.attn.attention.bias", "h.0.attn.attention.masked_bias"]),
        ("gpt_neox", NEOX, ["layers.0.attention.bias", "layers.0.attention.rotary_emb.inv_freq"]),
        ("distilbert", DISTIL, ["embeddings.position_ids"]),
    ],
)
def test_the_buffers_of_other_transformers(
    name: str, sizes: dict[str, Any], gone: list[str], bare: Any
) -> None:
    module = bare("allennlp.models.model")
    module_weights.gone_buffers(module)
    model = type("Holder", (module.Model,), {})(Vocabulary())
    model.inner = transformers.AutoModel.from_config(
        transformers.AutoConfig.for_model(name, **sizes)
    )
    state = model.state_dict()
    assert not {f"inner.{key}" for key in gone} & set(state)
    state.update({f"inner.{key}": torch.ones(1) for key in gone})
    before = list(state)
    assert not any(model.load_state_dict(state)) and list(state) == before
    state["inner.h.0.attn.other"] = torch.ones(1)
    with pytest.raises(RuntimeError, match=r'Unexpected key.*: "inner.h.0.attn.other"$'):
        model.load_state_dict(state)


@pytest.mark.slow
def test_encoders_and_parts_of_archives_of_that_time(trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    weights = torch.load(run / "best.th")
    (words,) = (name for name in weights if name.endswith("position_embeddings.weight"))
    weights[words.replace("position_embeddings.weight", "position_ids")] = torch.arange(130)[None]
    torch.save(weights, run / "best.th")
    texts = ["ka lo mi", "tu"]
    assert (Encoder(run, device="cpu")(texts) == Encoder(trained, device="cpu")(texts)).all()
    taken, expected = (open_model(str(place)).take("embedder") for place in (run, trained))
    for name, tensor in expected.state_dict().items():
        assert torch.equal(taken.state_dict()[name], tensor)


def test_the_functions_of_nn_util_are_those_of_now(bare: Any, monkeypatch: Any) -> None:
    module = repaired(bare)
    monkeypatch.setattr(nn_util, "get_device_of", lambda tensor: 7)
    assert module.util.get_device_of(torch.ones(1)) == 7


@pytest.mark.slow
def test_archives_of_this_package_are_whole(trained: Path, tmp_path: Path) -> None:
    """One of the small run of both objectives, whose masked language model has a tied head."""
    with tarfile.open(trained / "model.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    (file,) = tmp_path.glob("*.th")
    weights = torch.load(file)
    (tied,) = (name for name in weights if name.endswith("lm_head.decoder.weight"))
    del weights[tied]
    torch.save(weights, file)
    words = load_archive(tmp_path).model.state_dict()[tied]
    (name,) = (name for name in weights if name.endswith("word_embeddings.weight"))
    assert torch.equal(words, weights[name])
    for name in ("lm_head.dense.bias", "_feedforward._linear_layers.0.weight"):
        (found,) = (key for key in weights if key.endswith(name))
        torch.save({key: value for key, value in weights.items() if key != found}, file)
        with pytest.raises(RuntimeError, match=rf"Missing keys: \['{found}'\]"):
            load_archive(tmp_path)
