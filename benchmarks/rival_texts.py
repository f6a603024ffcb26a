"""Short, mixed and long texts, drawn from a corpus, and how many tokens a model reads of each."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.texts import lines

_BYTES = 5_000_000  # of the corpus that texts are taken from

SHORT_WORDS = (5, 15)
LONG_WORDS = (200, 900)
MIXED_TOKENS = 3
"""Fewest tokens of a mixed text, special ones included; the most is what the model takes."""


@dataclass(frozen=True)
class Texts:
    """Texts of a kind."""

    texts: list[str]
    lengths: torch.Tensor
    """Tokens that a model reads of each, special ones included, `(n,)` int64."""


def draw_texts(
    corpus: Path, model: Path, counts: dict[str, int], seed: int = 0
) -> dict[str, Texts]:
    """Draw texts that begin at any word of a corpus; the same ones for the same seed.

    Args:
        corpus: documents, one a line.
        model: the folder of a model with its tokenizer, which cuts texts at `model_length`.
        counts: how many texts of the kinds "short" (5 to 15 words), "mixed" and "few mixed" (3
            tokens to as many as the model takes, log-uniform) and "long" (200 to 900 words).
        seed: of the draws.

    Raises:
        ValueError: of a corpus with fewer words than a long text may have.
    """
    from tokenizers import Tokenizer

    words = [word for line in lines(corpus, _BYTES) for word in line.split()]
    if len(words) <= LONG_WORDS[1]:
        raise ValueError(
            f"{corpus} has {len(words)} words; texts are drawn from at least {LONG_WORDS[1] + 1}."
        )
    max_length = model_length(model)
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length)
    rng = random.Random(seed)

    def passage(length: int) -> str:
        start = rng.randrange(len(words) - length)
        return " ".join(words[start : start + length])

    def cut_passage() -> str:
        """As many tokens as are drawn, or a few more or less where the cut is inside a word."""
        tokens = round(MIXED_TOKENS * (max_length / MIXED_TOKENS) ** rng.random())
        text = passage(max_length)
        ends = [end for _, end in tokenizer.encode(text).offsets if end]
        return text[: ends[min(tokens - 2, len(ends)) - 1]]

    draws = {
        "short": lambda: passage(rng.randint(*SHORT_WORDS)),
        "mixed": cut_passage,
        "few mixed": cut_passage,
        "long": lambda: passage(rng.randint(*LONG_WORDS)),
    }
    drawn = {kind: [draws[kind]() for _ in range(count)] for kind, count in counts.items()}
    return {
        kind: Texts(texts, torch.tensor([len(each) for each in tokenizer.encode_batch(texts)]))
        for kind, texts in drawn.items()
    }


def model_length(model: Path) -> int:
    """Tokens of a text that a model takes, as sentence-transformers finds them."""
    for name, key in (
        ("sentence_bert_config.json", "max_seq_length"),
        ("tokenizer_config.json", "model_max_length"),
    ):
        if (model / name).is_file():
            return int(json.loads((model / name).read_text(encoding="utf-8"))[key])
    raise FileNotFoundError(f"{model}: expected a folder with a model and its tokenizer.")
