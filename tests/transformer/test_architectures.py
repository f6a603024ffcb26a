"""Tests of what differs by family of transformers, on models of two layers without weights."""

import copy
import inspect
import pickle
from threading import Thread
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModel, AutoModelForMaskedLM

from declutr.transformer.architectures import (
    attends_nearby,
    configured_max_positions,
    embedding_part,
    freeze_never_used,
    masked_lm_logits,
    mend,
    output_width,
    remove_pooler,
)
from declutr.transformer.packing import texts_to_try
from declutr.transformer.unpadding import UnpaddedPass

_SMALL = {
    "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 16, "max_position_embeddings": 40, "pad_token_id": 1,
}  # fmt: skip
_DECODES = {
    "vocab_size": 50, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16, "max_position_embeddings": 40,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "Longformer": {**_SMALL, "attention_window": 8},
    "Bart": _DECODES,
    "MBart": _DECODES,
    "SqueezeBert": {
        **_SMALL, "embedding_size": 16,
        **{f"{part}_groups": 1 for part in ("q", "k", "v", "post_attention", "intermediate")},
        "output_groups": 1,
    },
    "LayoutLM": _SMALL,
    "IBert": _SMALL,
    "Albert": {**_SMALL, "embedding_size": 8},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_language_modelling_without_a_pooler(kind: str) -> None:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**KINDS[kind])
    model = AutoModelForMaskedLM.from_config(config).eval()
    remove_pooler(model.base_model)
    assert not [name for name, _ in model.base_model.named_parameters() if "pooler" in name]
    token_ids = torch.arange(2, 18)[None]
    with torch.no_grad():
        hidden = model.base_model(input_ids=token_ids).last_hidden_state[0]
        expected = model(input_ids=token_ids).logits[0]
        assert torch.allclose(masked_lm_logits(model, hidden), expected, atol=1e-6)
    assert texts_to_try(model.base_model, 1, torch.device("cpu"))[0].max() < config.vocab_size


_OPT = {"ffn_dim": 16, "word_embed_proj_dim": 8, "do_layer_norm_before": False}
_REFORMER = {"attn_layers": ["local"], "axial_pos_embds": False, "feed_forward_size": 16}


@pytest.mark.parametrize(
    ("kind", "settings", "width"),
    [
        ("Bert", {}, 16),
        ("OPT", _OPT, 8),
        ("Reformer", _REFORMER, 32),
        ("EmbeddingGemma2Text", {"embedding_dim": 12, "head_dim": 8, "num_key_value_heads": 1}, 12),
    ],
)
def test_the_width_of_token_embeddings(kind: str, settings: dict[str, Any], width: int) -> None:
    made = getattr(transformers, f"{kind}Config", None)
    if made is None:
        pytest.skip("this release of transformers does not know it")
    config = made(**_SMALL, **settings)
    with torch.no_grad():
        found = AutoModel.from_config(config).eval()(torch.arange(2, 18)[None])
    assert output_width(config) == found.last_hidden_state.size(-1) == width


@pytest.mark.parametrize("kind", ["Bert", "T5"])
def test_only_what_may_have_a_decoder_is_taken_for_its_encoder(kind: str) -> None:
    """A class of anybody may be called `AcmeEncoderModel`, and be a whole BERT."""
    config = getattr(transformers, f"{kind}Config")(**_SMALL, architectures=["AcmeEncoderModel"])
    config.is_encoder_decoder = False
    model = AutoModel.from_config(config)
    assert (embedding_part(model) is model) == (kind == "Bert")


def test_of_images_and_text_the_text_counts() -> None:
    text = {"hidden_size": 24, "sliding_window": 4, "max_position_embeddings": 30}
    images = transformers.CLIPConfig(text_config=text)
    assert (output_width(images), attends_nearby(images)) == (24, True)
    assert configured_max_positions(images) == 30


def test_mpt_takes_no_longer_texts() -> None:
    """Its biases by distance are those of a table."""
    config = transformers.MptConfig(vocab_size=50, d_model=16, n_heads=2, n_layers=1, max_seq_len=8)
    model = AutoModel.from_config(config)
    assert configured_max_positions(config) == 8
    assert model(torch.arange(8)[None]).last_hidden_state.isfinite().all()
    with pytest.raises(RuntimeError):
        model(torch.arange(9)[None])


@pytest.mark.skipif(
    transformers.__version__.startswith("4."), reason="its settings have other names there"
)
def test_longer_texts_do_not_turn_the_positions_of_others() -> None:
    """With the positions of Phi-3, a batch of more than 14 tokens has other frequencies."""
    torch.manual_seed(0)
    rotary = {"rope_type": "longrope", "rope_theta": 100.0, "original_max_position_embeddings": 14}
    rotary |= {"short_factor": [1.0] * 4, "long_factor": [3.0] * 4}
    others = {"original_max_position_embeddings": 14, "bos_token_id": 2, "eos_token_id": 3}
    config = transformers.Phi3Config(**_SMALL, **others, rope_parameters=rotary)
    model = AutoModel.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
        mask = torch.arange(32) < torch.tensor([32, 12, 26, 5])[:, None]
        ids = torch.randint(2, 50, mask.shape)
        alone = zip(ids, mask, strict=True)
        expected = torch.cat([model(row[inside][None])[0][0] for row, inside in alone])

        def run(**given: Any) -> Any:
            return model(**given)[0]

        for way in ("auto", "none"):
            found = UnpaddedPass(way, padding_id=1)(model, run, ids, mask)
            assert torch.allclose(found[mask], expected, atol=1e-5)
        padded = model(ids.where(mask, 1), mask.long())[0]
        assert not torch.allclose(padded[mask], expected, atol=1e-3)
        mend(model)
        frequencies = model.rotary_emb.inv_freq.clone()
        for mended in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert torch.allclose(mended(ids[:1])[0][0], expected[:32], atol=1e-5)
            # Where another thread would read them.
            assert torch.equal(mended.rotary_emb.inv_freq, frequencies)


@pytest.mark.parametrize("kind", ["BigBird", "BigBirdPegasus"])
def test_bigbird_attends_by_the_length_of_each_text(kind: str) -> None:
    """transformers attends fully to all texts after the first short one."""
    torch.manual_seed(0)
    sparse = {"attention_type": "block_sparse", "block_size": 2, "num_random_blocks": 1}
    model = AutoModel.from_config(
        getattr(transformers, f"{kind}Config")(**{**_SMALL, **_DECODES, **sparse})
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    plain = copy.deepcopy(model)
    mend(model)
    mask = torch.arange(32) < torch.tensor([32, 12, 26, 5])[:, None]  # 14 tokens attend fully
    ids = torch.randint(2, 50, mask.shape)
    alone = zip(ids, mask, strict=True)
    with torch.no_grad():
        expected = [copy.deepcopy(plain)(row[inside][None])[0][0] for row, inside in alone]
        state = torch.get_rng_state()
        for way in ("auto", "none"):
            unpadded = UnpaddedPass(way, padding_id=1)
            found = unpadded(model, lambda **given: model(**given)[0], ids, mask)
            assert torch.allclose(found[mask], torch.cat(expected), atol=1e-5)
        assert torch.equal(torch.get_rng_state(), state)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = model(ids[:1])[0][0]
        assert (rounded.float() - expected[0]).norm() < 0.02 * expected[0].norm()


def test_threads_take_turns_with_bigbird() -> None:
    """A short text, in another thread, would change the layers that a long one goes through."""
    torch.manual_seed(0)
    sparse = {"attention_type": "block_sparse", "block_size": 2, "num_random_blocks": 1}
    model = AutoModel.from_config(transformers.BigBirdConfig(**_SMALL, **sparse)).eval()
    mend(model)
    ids = torch.randint(2, 50, (1, 32))
    with torch.no_grad():
        expected = [model(ids[:, :end])[0] for end in (32, 5)]
        others = []

        def meanwhile(*_: Any) -> None:
            if not others:
                others.append(Thread(target=lambda: others.append(model(ids[:, :5])[0])))
                others[0].start()
                others[0].join(0.2)

        handle = model.encoder.layer[0].register_forward_pre_hook(meanwhile)
        assert torch.allclose(model(ids)[0], expected[0], atol=1e-6)
        others[0].join()
        handle.remove()
    assert torch.allclose(others[1], expected[1], atol=1e-6)
    assert "attention_mask" in inspect.signature(model.forward).parameters


@pytest.mark.parametrize("way", ["auto", "none"])
def test_canine_takes_texts_that_are_shorter_than_what_it_joins(way: str) -> None:
    """It joins four tokens to one; transformers takes shorter texts with padding alone."""
    torch.manual_seed(0)
    size = {"num_hash_buckets": 64, "local_transformer_stride": 8, "downsampling_rate": 4}
    model = AutoModel.from_config(transformers.CanineConfig(**_SMALL, **size)).eval()
    plain = copy.deepcopy(model)
    mend(model)
    lengths = [3, 9, 4, 2, 3]
    mask = torch.arange(9) < torch.tensor(lengths)[:, None]
    ids = torch.randint(2, 50, mask.shape).where(mask, 0)

    def run(**given: Any) -> Any:
        return model(**given)[0]

    with torch.no_grad():
        with pytest.raises(RuntimeError, match="Invalid computed output size"):
            plain(ids[:1, :3])
        given = ids, mask, torch.zeros_like(ids)
        found = UnpaddedPass(way)(model, run, *given)
        for row, length in enumerate(lengths):
            longer = slice(max(4, length))
            whole = plain(ids[row : row + 1, longer], mask[row : row + 1, longer].long())[0]
            assert torch.allclose(found[row, :length], whole[0, :length], atol=1e-6)


@pytest.mark.parametrize("seed", [None, 7])
def test_reformer_embeds_a_text_alike_each_time(seed: int | None) -> None:
    """It draws which tokens attend to each other, and does so in training as before."""
    torch.manual_seed(0)
    kinds = {"attn_layers": ["lsh", "local"], "num_buckets": 4, "axial_pos_embds": False}
    size = {"lsh_attn_chunk_length": 4, "local_attn_chunk_length": 4, "attention_head_size": 8}
    size |= {"hash_seed": seed, "feed_forward_size": 16}
    model = AutoModel.from_config(transformers.ReformerConfig(**_SMALL, **kinds, **size)).eval()
    ids = torch.randint(2, 50, (2, 32))
    with torch.no_grad():
        plain = model(ids)[0]
        assert torch.equal(model(ids)[0], plain) == (seed is not None)
        mend(model)
        before = torch.get_rng_state()
        assert torch.equal(model(ids)[0], model(ids)[0])
        assert torch.equal(torch.get_rng_state(), before)
        if seed is not None:
            assert torch.equal(model(ids)[0], plain)
            return
        model.train()
        assert not torch.equal(model(ids)[0], model(ids)[0])


def test_other_threads_do_not_change_what_reformer_draws() -> None:
    """Nor does it set back the random numbers of a thread that trains."""

    class LSHSelfAttention(torch.nn.Module):
        hash_seed = None

        def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
            other = Thread(target=torch.rand, args=(3,))
            other.start()
            other.join()
            return torch.randn(4, dtype=hidden_states.dtype)

    model = LSHSelfAttention().eval()
    mend(model)
    torch.manual_seed(1)
    found, drawn = model(torch.zeros(1)), torch.rand(1)
    torch.manual_seed(1)
    assert torch.rand(4)[3:].equal(drawn)
    torch.manual_seed(0)
    assert torch.randn(4).equal(found)


@pytest.mark.parametrize("copied", [False, True])
def test_deberta_works_under_autocast(copied: bool) -> None:
    """Padding stays hidden, and gradients are those of float32 within bfloat16's rounding."""
    torch.manual_seed(0)
    positions = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
    model = AutoModel.from_config(transformers.DebertaConfig(**_SMALL, **positions)).eval()
    mend(model)
    if copied:  # as for momentum encoders
        model = copy.deepcopy(model)
    token_ids = torch.arange(2, 34).view(2, 16)
    mask = (torch.arange(16) < torch.tensor([[16], [9]])).long()
    found = []
    for enabled in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            vectors = model(token_ids, mask).last_hidden_state[mask.bool()]
        vectors.float()[:, :8].sum().backward()
        found.append((vectors.float(), model.embeddings.word_embeddings.weight.grad))
    for exact, rounded in zip(*found, strict=True):
        assert (rounded - exact).norm() < 0.02 * exact.norm()


@pytest.mark.parametrize(
    ("kind", "frozen"),
    [("Longformer", "global"), ("Esm", "contact_head"), ("XLNet", "mask_emb"), ("Roberta", None)],
)
def test_what_embeddings_never_use_is_frozen_and_nothing_else(
    kind: str, frozen: str | None
) -> None:
    settings: dict[str, Any] = {**_SMALL, "attention_window": 8}
    if kind == "XLNet":
        settings = {"vocab_size": 50, "d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 16}
    model = AutoModel.from_config(getattr(transformers, f"{kind}Config")(**settings))
    remove_pooler(model)
    freeze_never_used(model)
    token_ids = torch.arange(2, 18)[None]
    segments = {} if kind == "Esm" else {"token_type_ids": torch.zeros_like(token_ids)}
    model(input_ids=token_ids, **segments).last_hidden_state.pow(2).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad == (parameter.grad is not None), name
        assert parameter.requires_grad == (frozen is None or frozen not in name), name
