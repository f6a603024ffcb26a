"""Tokenizers over given words, written as the files that real checkpoints bring."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers.trainers import BpeTrainer

PIECES = ["Ken", "na", "Hum", "du", "Wet"]
PIECES += ["##NL", "##nl", "##ob", "##ve", "##pty", "##mp", "##ty", "##land"]
CHARACTERS = [chr(code) for code in range(33, 127)] + list("ïöüé")


def wordpiece(
    folder: Path, words: Sequence[str], *, lowercase: bool, size: int = 0, unused: int = 99
) -> Tokenizer:
    """Write a WordPiece vocabulary: `[PAD]` has the id 0, `[CLS]` 101 with 99 unused tokens."""
    specials = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    cased = (word.lower() if lowercase else word for word in words)
    whole = [*CHARACTERS, *(f"##{character}" for character in CHARACTERS), *PIECES, *cased]
    vocabulary = ["[PAD]", *(f"[unused{i}]" for i in range(unused)), *specials]
    vocabulary = list(dict.fromkeys([*vocabulary, *whole]))
    if size:
        filling = (f"[unused{unused + i}]" for i in range(size))
        vocabulary = [*vocabulary, *filling][:size]
    ids = {token: id for id, token in enumerate(vocabulary)}
    backend = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    _enclosed(backend, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ("[CLS]", "[SEP]"))
    backend.add_special_tokens(["[PAD]", *specials])
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    named = dict(zip(("unk", "cls", "sep", "mask"), specials, strict=True), pad="[PAD]")
    return _written(folder, backend, "BertTokenizer", named, do_lower_case=lowercase)


def byte_level(folder: Path, words: Sequence[str], kind: str) -> Tokenizer:
    """Write byte-level BPE as `RobertaTokenizer`, `BartTokenizer` or `GPT2Tokenizer` reads it."""
    enclosed = kind != "GPT2Tokenizer"
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"] if enclosed else ["<|endoftext|>"]
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    texts = [f"{word} {word}" for word in [*words, "naïve"]] + ["LP " * 1000]
    trainer = BpeTrainer(
        vocab_size=50_000,
        special_tokens=specials,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    named = dict.fromkeys(("bos", "eos", "unk"), specials[0])
    if enclosed:
        ids = [(token, backend.token_to_id(token)) for token in ("</s>", "<s>")]
        backend.post_processor = processors.RobertaProcessing(*ids, add_prefix_space=False)
        named = {"bos": "<s>", "cls": "<s>", "eos": "</s>", "sep": "</s>", "pad": "<pad>"}
        named |= {"unk": "<unk>", "mask": "<mask>"}
        backend.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    backend.model.save(str(folder))
    return _written(folder, backend, kind, named)


def unigram(folder: Path, words: Sequence[str], kind: str) -> Tokenizer:
    """Write pieces of a unigram model as `AlbertTokenizer`, `T5Tokenizer` or `XLNetTokenizer`."""
    specials, single, pair, named = _UNIGRAM[kind]
    scores = dict.fromkeys(specials, 0.0)
    cased = (word.lower() if kind == "AlbertTokenizer" else word for word in words)
    scores |= {f"▁{word}": -5.0 for word in [*cased, *CHARACTERS]} | {"LP": -5.0}
    scores |= dict.fromkeys(["▁", *CHARACTERS], -15.0)
    backend = Tokenizer(models.Unigram(list(scores.items()), unk_id=specials.index("<unk>")))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    if kind == "AlbertTokenizer":
        backend.normalizer = normalizers.Lowercase()
    extra: dict[str, Any] = {}
    if kind == "T5Tokenizer":
        extra["extra_ids"] = 100
        backend.add_special_tokens([f"<extra_id_{i}>" for i in reversed(range(100))])
    _enclosed(backend, single, pair, [token for token in specials if token in pair])
    return _written(folder, backend, kind, named, **extra)


_UNIGRAM: dict[str, tuple[list[str], str, str, dict[str, str]]] = {
    "AlbertTokenizer": (
        ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"],
        "[CLS] $A [SEP]",
        "[CLS] $A [SEP] $B:1 [SEP]:1",
        {"pad": "<pad>", "unk": "<unk>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
    ),
    "T5Tokenizer": (
        ["<pad>", "</s>", "<unk>"],
        "$A </s>",
        "$A </s> $B </s>",
        {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"},
    ),
    "XLNetTokenizer": (
        ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>"],
        "$A <sep> <cls>:2",
        "$A <sep> $B:1 <sep>:1 <cls>:2",
        {"unk": "<unk>", "bos": "<s>", "eos": "</s>", "cls": "<cls>", "sep": "<sep>"}
        | {"pad": "<pad>", "mask": "<mask>"},
    ),
}


def _enclosed(backend: Tokenizer, single: str, pair: str, specials: Iterable[str]) -> None:
    ids = [(token, backend.token_to_id(token)) for token in specials]
    backend.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=ids
    )


def _written(
    folder: Path, backend: Tokenizer, kind: str, named: dict[str, str], **settings: Any
) -> Tokenizer:
    backend.save(str(folder / "tokenizer.json"))
    tokens = {f"{name}_token": token for name, token in named.items()}
    settings |= {"tokenizer_class": kind, "model_max_length": 512, **tokens}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))
    (folder / "special_tokens_map.json").write_text(json.dumps(tokens, indent=1))
    return backend
