"""AllenNLP's transformer modules read the checkpoints that are written today."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from allennlp.modules.transformer import T5, TransformerEmbeddings, TransformerStack
from safetensors.torch import load_file

from declutr.bridge import module_weights

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
    assert module_weights.checkpoint_files(module)
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
