"""Tests of small transformers made from scratch.

The oracles are the round trip through a folder, and golden ids that hold for every version of
transformers and tokenizers.
"""

import hashlib
import json

import numpy as np
import pytest
import torch

from declutr.quickstart.small_checkpoints import (
    SMALLEST_VOCABULARY,
    SPECIAL_TOKENS,
    make_checkpoint,
    train_tokenizer,
)
from tests.conftest import script

TEXTS = [
    "The quick brown fox jumps over the lazy dog, again and again.",
    "The lazy dog sleeps; the brown fox jumps again.",
    "Sleeping dogs lie, and quick foxes run over the brown field.",
] * 3
SENTENCES = [
    "The quick fox",
    "  two  spaces, “quotes” and ünïcode 😀 <mask> x <mask>.",
    "<s> a </s>",
    "it's\n new\tline",
    "日本語",
    "",
]
SIZES = {"layers": 2, "hidden_size": 16, "heads": 2, "max_length": 24}


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, 300, max_length=32)


@pytest.fixture(scope="module")
def checkpoint(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint") / "new"
    make_checkpoint(folder, tokenizer, **SIZES)
    return folder


def test_saved_files_have_the_mode_of_the_umask(checkpoint):
    (checkpoint.parent / "file").touch()
    expected = (checkpoint.parent / "file").stat().st_mode
    assert (checkpoint / "model.safetensors").is_file()
    assert {file.stat().st_mode for file in checkpoint.iterdir()} == {expected}


def encoded(tokenizer) -> dict[str, list]:
    return dict(tokenizer(SENTENCES, return_offsets_mapping=True))


def digest(model) -> str:
    weights = sorted(model.named_parameters())
    return hashlib.sha256(b"".join(w.detach().numpy().tobytes() for _, w in weights)).hexdigest()


class TestTokenizer:
    def test_special_tokens_and_their_ids(self, tokenizer):
        assert len(tokenizer) == 300 and tokenizer.is_fast
        assert tokenizer.convert_ids_to_tokens(range(5)) == list(SPECIAL_TOKENS)
        assert (tokenizer.cls_token, tokenizer.bos_token) == ("<s>", "<s>")
        assert (tokenizer.sep_token, tokenizer.eos_token) == ("</s>", "</s>")
        assert (tokenizer.pad_token, tokenizer.unk_token) == ("<pad>", "<unk>")
        assert tokenizer.mask_token_id == 4
        assert tokenizer.model_max_length == 32

    def test_golden_ids_and_offsets(self, tokenizer):
        """The values hold for transformers 4.57.6 / tokenizers 0.22.2 and 5.23.0 / 0.23.3."""
        batch = encoded(tokenizer)
        assert batch["input_ids"][0] == [0, 282, 297, 288, 278, 2]
        assert batch["offset_mapping"][0] == [(0, 0), (0, 3), (4, 6), (6, 9), (10, 13), (0, 0)]
        everything = json.dumps([batch["input_ids"], batch["offset_mapping"]])
        assert hashlib.sha256(everything.encode()).hexdigest()[:16] == "39cd33f062153e6a"

    def test_pairs_and_padding(self, tokenizer):
        one, two = (tokenizer(t, add_special_tokens=False)["input_ids"] for t in ("The", " dog"))
        assert tokenizer("The", " dog")["input_ids"] == [0, *one, 2, 2, *two, 2]
        batch = tokenizer(["The", "The dog sleeps"], padding=True)
        assert batch["input_ids"][0][-1] == tokenizer.pad_token_id
        assert batch["attention_mask"][0][-1] == 0

    def test_truncation_keeps_the_last_special(self, tokenizer):
        ids = tokenizer("The lazy dog " * 30, truncation=True)["input_ids"]
        assert len(ids) == 32 and ids[0] == 0 and ids[-1] == 2

    def test_every_text_survives_a_round_trip(self, tokenizer):
        for text in (*SENTENCES[3:5], *TEXTS, "".join(map(chr, range(1, 0x2000)))):
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            assert tokenizer.unk_token_id not in ids
            assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text

    def test_same_texts_same_tokenizer(self, tokenizer):
        again = train_tokenizer(iter(TEXTS), 300, max_length=32)
        assert again.get_vocab() == tokenizer.get_vocab()
        assert encoded(again) == encoded(tokenizer)

    def test_the_smallest_vocabulary_is_bytes(self):
        assert SMALLEST_VOCABULARY < len(train_tokenizer(["aaaa aaaa"], 10_000)) < 280
        assert len(train_tokenizer(TEXTS, SMALLEST_VOCABULARY)) == SMALLEST_VOCABULARY == 261

    def test_invalid_arguments_are_refused(self):
        with pytest.raises(ValueError, match=r"vocab_size is 260; a byte-level .* at least 261"):
            train_tokenizer(TEXTS, 260)
        with pytest.raises(ValueError, match="the texts are empty or too short to learn from"):
            train_tokenizer([], 300)
        with pytest.raises(TypeError, match="not one string; put it in a list"):
            train_tokenizer("text", 300)


class TestCheckpoint:
    def test_loaded_tokenizer_equals_the_one_in_memory(self, tokenizer, checkpoint):
        from transformers import AutoTokenizer

        loaded = AutoTokenizer.from_pretrained(checkpoint)
        assert encoded(loaded) == encoded(tokenizer)
        assert loaded.get_vocab() == tokenizer.get_vocab()
        assert loaded.special_tokens_map == tokenizer.special_tokens_map
        assert loaded.all_special_ids == tokenizer.all_special_ids
        assert loaded.model_max_length == 24  # The saved one has the limit of the model.
        assert tokenizer.model_max_length == 32  # The given one is not modified.

    def test_model_loads_and_takes_the_longest_input(self, tokenizer, checkpoint):
        from transformers import AutoModel, AutoModelForMaskedLM

        ids = torch.randint(5, 300, (2, 24), generator=torch.Generator().manual_seed(0))
        logits = AutoModelForMaskedLM.from_pretrained(checkpoint)(ids).logits
        assert logits.shape == (2, 24, 300)
        hidden = AutoModel.from_pretrained(checkpoint)(ids).last_hidden_state
        assert hidden.shape == (2, 24, 16)

    def test_config(self, checkpoint):
        config = json.loads((checkpoint / "config.json").read_text())
        assert config["model_type"] == "roberta"
        assert config["max_position_embeddings"] == 26
        assert config["intermediate_size"] == 64
        assert (config["pad_token_id"], config["bos_token_id"], config["eos_token_id"]) == (1, 0, 2)
        assert config["vocab_size"] == 300 and config["type_vocab_size"] == 1

    def test_weights_follow_the_seed_alone(self, tokenizer, checkpoint, tmp_path):
        from transformers import AutoModelForMaskedLM

        torch.manual_seed(1)
        state = torch.get_rng_state()
        again = make_checkpoint(tmp_path / "again", tokenizer, **SIZES)
        assert torch.equal(state, torch.get_rng_state())
        other = make_checkpoint(tmp_path / "other", tokenizer, **SIZES, seed=1)
        saved = AutoModelForMaskedLM.from_pretrained(checkpoint)
        assert digest(again) == digest(saved) != digest(other)

    def test_initial_weights_are_robertas(self, tokenizer, tmp_path):
        sizes = {"layers": 1, "hidden_size": 64, "heads": 1, "intermediate_size": 80}
        model = make_checkpoint(tmp_path, tokenizer, **sizes)
        parameters = dict(model.named_parameters())
        embeddings = parameters["roberta.embeddings.word_embeddings.weight"]
        assert (embeddings[tokenizer.pad_token_id] == 0).all()
        for name, weight in parameters.items():
            if weight.dim() == 2 and weight.numel() > 1000:
                assert weight.std().item() == pytest.approx(0.02, rel=0.1), name
            elif weight.dim() == 1:
                assert (weight == ("orm.weight" in name)).all(), name
        assert parameters["roberta.encoder.layer.0.intermediate.dense.weight"].shape == (80, 64)

    def test_golden_weights(self, tokenizer, tmp_path):
        """The weights are the same for every version of transformers, up to rounding."""
        model = make_checkpoint(tmp_path, tokenizer, **SIZES)
        name = "roberta.encoder.layer.0.attention.self.query.weight"
        query = dict(model.named_parameters())[name]
        expected = [0.054146, -0.015847, -0.012626]
        np.testing.assert_allclose(query[0, :3].detach().numpy(), expected, atol=2e-6)

    def test_an_earlier_transformer_is_replaced(self, tokenizer, tmp_path):
        (tmp_path / "vocab.json").write_text('{"stale": 0}')
        (tmp_path / "notes.txt").write_text("mine")
        make_checkpoint(tmp_path, tokenizer, **SIZES)
        vocabulary = tmp_path / "vocab.json"
        assert not vocabulary.exists() or "stale" not in vocabulary.read_text()
        assert (tmp_path / "notes.txt").read_text() == "mine"

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"heads": 3}, "hidden_size 16 is not a multiple of heads 3"),
            ({"layers": 0}, "layers must be at least 1, not 0"),
            ({"max_length": -1}, "max_length must be at least 1, not -1"),
        ],
    )
    def test_invalid_sizes_are_refused(self, tokenizer, tmp_path, change, message):
        with pytest.raises(ValueError, match=message):
            make_checkpoint(tmp_path, tokenizer, **{**SIZES, **change})


class TestScript:
    @pytest.fixture
    def main(self):
        return script("make_checkpoint").main

    @pytest.fixture
    def text(self, tmp_path):
        path = tmp_path / "text.txt"
        path.write_text("\n".join(TEXTS), encoding="utf-8")
        return path

    def test_makes_a_checkpoint_once(self, main, text, tmp_path, capsys):
        from transformers import AutoTokenizer

        folder = tmp_path / "out"
        sizes = {"vocab-size": 300, "layers": 1, "hidden-size": 8, "heads": 2, "max-length": 20}
        arguments = [str(text), "--output", str(folder)]
        arguments += [f"--{name}={value}" for name, value in sizes.items()]
        main(arguments)
        assert f"{folder}: 300 tokens, " in capsys.readouterr().out
        assert AutoTokenizer.from_pretrained(folder).model_max_length == 20

        with pytest.raises(SystemExit):
            main(arguments)
        assert "is not empty; give --force" in capsys.readouterr().err
        main([*arguments, "--force"])

    @pytest.mark.parametrize(
        ("prepare", "extra", "message"),
        [
            (lambda path: path.unlink(), [], "there is no file"),
            (lambda path: path.write_text(""), [], "is empty"),
            (lambda path: path.write_text("a"), [], "too short to learn from"),
            (lambda path: None, ["--heads", "3"], "not a multiple of heads 3"),
            (lambda path: None, ["--vocab-size", "5"], "vocab_size is 5"),
            (lambda path: (path.parent / "out").write_text(""), [], "out is a file"),
        ],
    )
    def test_invalid_calls_are_refused(self, main, text, tmp_path, capsys, prepare, extra, message):
        prepare(text)
        with pytest.raises(SystemExit):
            main([str(text), "--output", str(tmp_path / "out"), *extra])
        assert message in capsys.readouterr().err
