"""Checkpoints under hub names, laid out as the cache of huggingface_hub."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from transformers.models.roberta import modeling_roberta

from tests.stand_in_hub.vocabularies import byte_level, unigram, wordpiece
from tests.stand_in_hub.words import words_of

Vocabulary = Callable[[Path, Sequence[str]], Tokenizer]
Checkpoint = tuple[Vocabulary, str, dict[str, Any]]
"""A vocabulary, the model's class without "Config" in its configuration, and that one's values."""

CASED: Vocabulary = partial(wordpiece, lowercase=False)
UNCASED: Vocabulary = partial(wordpiece, lowercase=True)
_SMALL = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
_SMALL["intermediate_size"] = 48
_SHIFTED = {**_SMALL, "max_position_embeddings": 514, "pad_token_id": 1, "type_vocab_size": 1}
_SHIFTED |= {"bos_token_id": 0, "eos_token_id": 2}
_BASE = {**_SMALL, "hidden_size": 768, "num_attention_heads": 12}  # tests assert 768
_TWELVE = {**_SMALL, "hidden_size": 48, "num_hidden_layers": 12, "num_attention_heads": 12}
_GPT2 = {"n_embd": 24, "n_layer": 2, "n_head": 2, "n_positions": 512}
_T5 = {"d_model": 24, "d_kv": 12, "d_ff": 48, "num_layers": 2, "num_heads": 2}
_T5["decoder_start_token_id"] = 0
_BART: dict[str, Any] = {"d_model": 24, "max_position_embeddings": 1024}
for _side in ("encoder", "decoder"):
    _BART |= {f"{_side}_layers": 2, f"{_side}_attention_heads": 2, f"{_side}_ffn_dim": 48}
_DISTILBERT = {"dim": 24, "n_layers": 2, "n_heads": 2, "hidden_dim": 48}
_XLNET = {"d_model": 24, "n_layer": 2, "n_head": 2, "d_inner": 48}
_DUMMY = {**_SMALL, "hidden_size": 20, "num_hidden_layers": 1, "num_attention_heads": 1}

_ROBERTA = partial(byte_level, kind="RobertaTokenizer")
_GPT2_BYTES = partial(byte_level, kind="GPT2Tokenizer")
_BART_BYTES = partial(byte_level, kind="BartTokenizer")
_T5_PIECES = partial(unigram, kind="T5Tokenizer")

NAMES: dict[str, Checkpoint] = {
    "albert-base-v2": (
        partial(unigram, kind="AlbertTokenizer"),
        "AlbertForMaskedLM",
        {**_BASE, "embedding_size": 12},
    ),
    "bert-base-cased": (partial(CASED, size=28996), "BertForPreTraining", _TWELVE),
    "bert-base-uncased": (UNCASED, "BertForPreTraining", _BASE),
    "bert-large-uncased": (UNCASED, "BertForPreTraining", _SMALL),
    "distilbert-base-uncased": (UNCASED, "DistilBertForMaskedLM", _DISTILBERT),
    "distilroberta-base": (_ROBERTA, "RobertaForMaskedLM", _SHIFTED),
    "epwalsh/bert-xsmall-dummy": (partial(CASED, size=250, unused=0), "BertModel", _DUMMY),
    "facebook/bart-base": (_BART_BYTES, "BartModel", _BART),
    "facebook/bart-large": (_BART_BYTES, "BartModel", _BART),
    "google/electra-base-generator": (
        UNCASED,
        "ElectraForMaskedLM",
        {**_SMALL, "embedding_size": 12},
    ),
    "gpt2": (_GPT2_BYTES, "GPT2LMHeadModel", _GPT2),
    "patrickvonplaten/t5-tiny-random": (
        _T5_PIECES,
        "T5ForConditionalGeneration",
        {**_T5, "d_model": 64},
    ),
    "roberta-base": (_ROBERTA, "RobertaForMaskedLM", _SHIFTED),
    "roberta-large": (_ROBERTA, "RobertaForMaskedLM", _SHIFTED),
    "sshleifer/bart-tiny-random": (_BART_BYTES, "BartForConditionalGeneration", _BART),
    "sshleifer/tiny-gpt2": (_GPT2_BYTES, "GPT2LMHeadModel", _GPT2),
    "t5-base": (_T5_PIECES, "T5ForConditionalGeneration", _T5),
    "t5-small": (_T5_PIECES, "T5ForConditionalGeneration", _T5),
    "xlnet-base-cased": (partial(unigram, kind="XLNetTokenizer"), "XLNetLMHeadModel", _XLNET),
}


def make_hub(
    folder: Path, words: Sequence[str] | None = None, names: Iterable[str] = NAMES
) -> list[Path]:
    """Make checkpoints in a folder that can then be `HF_HOME`; those that are there are kept.

    # Parameters

    folder : where to make them.
    words : the words that are whole tokens (default: those of a few sentences).
    names : which of `NAMES` (default: all).

    # Returns

    The folder of each checkpoint, in the order of `names`.
    """
    words = words_of() if words is None else words
    return [_made(folder / "hub", name, words) for name in names]


def _made(hub: Path, name: str, words: Sequence[str]) -> Path:
    revision = hashlib.sha1(name.encode()).hexdigest()
    place = hub / f"models--{name.replace('/', '--')}"
    snapshot, reference = place / "snapshots" / revision, place / "refs" / "main"
    if not reference.exists():  # it is written last
        snapshot.mkdir(parents=True, exist_ok=True)
        _write_checkpoint(snapshot, *NAMES[name], words=words)
        reference.parent.mkdir(exist_ok=True)
        reference.write_text(revision)
    return snapshot


def _write_checkpoint(
    folder: Path,
    vocabulary: Vocabulary,
    architecture: str,
    settings: dict[str, Any],
    *,
    words: Sequence[str],
) -> None:
    """Write a tokenizer, a configuration, and random weights in both formats of the hub."""
    tokenizer = vocabulary(folder, words)
    kind = getattr(transformers, architecture)
    size = tokenizer.get_vocab_size()
    if architecture.startswith("GPT2"):
        settings = settings | {"bos_token_id": size - 1, "eos_token_id": size - 1}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = kind(kind.config_class(vocab_size=size, **settings))
        if architecture == "RobertaForMaskedLM":  # the real one has a pooler beside its head
            model.roberta.pooler = modeling_roberta.RobertaPooler(model.config)
    model.save_pretrained(folder)
    torch.save(dict(model.state_dict()), folder / "pytorch_model.bin")
