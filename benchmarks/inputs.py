"""What is measured on: transformers of well-known shapes with random weights, and batches of spans.

Speed and memory do not depend on what the weights are, nor on which words a document has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from declutr.sampling.masking import mask_tokens
from declutr.sampling.row_draws import document_rng
from declutr.sampling.spans import SpanSampler

BEGIN, PADDING, END, UNKNOWN, MASK = range(5)
"""The special tokens of all shapes, RoBERTa's; `declutr.quickstart.small_checkpoints` numbers them
alike."""

PAPER = SpanSampler(num_anchors=2, num_positives=2, min_span_len=32, max_span_len=512)

DOCUMENT_TOKENS = 2100
"""Just above the 2,048 that these spans need."""


@dataclass(frozen=True)
class Shape:
    """The size of a transformer."""

    family: str
    """A `model_type` of transformers."""
    layers: int
    hidden_size: int
    heads: int
    intermediate_size: int
    vocab_size: int
    max_length: int = 512
    """Longest input in tokens, special ones included."""


SHAPES = {
    "tiny": Shape("roberta", 2, 32, 2, 64, 300, 64),
    "check": Shape("roberta", 3, 128, 2, 512, 512, 130),
    "mini": Shape("roberta", 2, 64, 2, 256, 8192),
    "small": Shape("roberta", 4, 256, 4, 1024, 8192),
    "distilroberta": Shape("roberta", 6, 768, 12, 3072, 50265),
    "roberta_base": Shape("roberta", 12, 768, 12, 3072, 50265),
    "bert_base": Shape("bert", 12, 768, 12, 3072, 30522),
}


@dataclass(frozen=True)
class SpansBatch:
    """Spans of B documents, special tokens around each, padded to the longest of their kind."""

    anchors: torch.Tensor
    """Token ids `(B * A, L)`."""
    anchors_mask: torch.Tensor
    """True where there is no padding, `(B * A, L)`."""
    positives: torch.Tensor
    """Token ids `(B * A * P, M)`, those of the first anchor first."""
    positives_mask: torch.Tensor
    """`(B * A * P, M)`."""
    num_documents: int
    """B."""

    @property
    def num_tokens(self) -> int:
        """Tokens of all spans, without padding."""
        return int(self.anchors_mask.sum() + self.positives_mask.sum())

    @property
    def padding(self) -> float:
        """The share of positions that are padding."""
        return 1 - self.num_tokens / (self.anchors.numel() + self.positives.numel())

    def to(self, device: torch.device | str) -> SpansBatch:
        moved: dict[str, Any] = {
            field.name: value.to(device)
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), torch.Tensor)
        }
        return replace(self, **moved)

    def masked(self, vocab_size: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """The anchors after masking, and their labels, both `(B * A, L)`; seeded."""
        generator = torch.Generator(self.anchors.device).manual_seed(seed)
        special = torch.tensor([BEGIN, PADDING, END, UNKNOWN, MASK], device=self.anchors.device)
        return mask_tokens(
            self.anchors,
            self.anchors_mask & ~torch.isin(self.anchors, special),
            mask_id=MASK,
            vocab_size=vocab_size,
            generator=generator,
        )

    def text_fields(self) -> dict[str, Any]:
        """The batch as AllenNLP's tensors: `(B, A, L)` and `(B, A * P, M)`, under "tokens"."""
        return {
            "anchors": _text_field(self.anchors, self.anchors_mask, self.num_documents),
            "positives": _text_field(self.positives, self.positives_mask, self.num_documents),
        }


def spans_batch(
    documents: int | Sequence[np.ndarray],
    seed: int,
    *,
    vocab_size: int = 50265,
    max_length: int = 512,
    sampler: SpanSampler = PAPER,
) -> SpansBatch:
    """Anchors and positives of documents, drawn and padded as in training.

    Args:
        documents: token ids without special ones, each `(T,)`; or how many documents of
            random tokens to make up, of `DOCUMENT_TOKENS` each for the paper's spans.
        seed: of the spans, and of made-up tokens.
        vocab_size: of made-up tokens.
        max_length: longer spans lose their tail; special tokens included.
        sampler: where spans lie; by default those of the paper.
    """
    if isinstance(documents, int):
        documents = random_documents(documents, seed, vocab_size, sampler)
    anchors: list[np.ndarray] = []
    positives: list[np.ndarray] = []
    for number, document in enumerate(documents):
        spans = sampler.sample(len(document), document_rng(seed, 0, number))
        anchors += [document[start:end] for start, end in spans.anchors]
        positives += [document[start:end] for start, end in spans.positives.reshape(-1, 2)]
    return SpansBatch(
        *_padded(anchors, max_length), *_padded(positives, max_length), len(documents)
    )


def random_documents(
    count: int, seed: int, vocab_size: int, sampler: SpanSampler = PAPER
) -> list[np.ndarray]:
    """Documents of random ordinary tokens, each `(T,)`."""
    rng = np.random.default_rng(seed)
    length = sampler.min_document_len + DOCUMENT_TOKENS - PAPER.min_document_len
    return list(rng.integers(MASK + 1, vocab_size, (count, length), dtype=np.int64))


def build_model(
    shape: str, *, dropout: float = 0.1, seed: int = 0, attention: str | None = None
) -> Any:
    """A masked language model with random weights, in training mode, on the CPU.

    Args:
        shape: a key of `SHAPES`.
        dropout: of hidden states and attention weights; 0 makes runs comparable number by number.
        seed: of the weights. Torch's global random state is left as it was.
        attention: "eager", "sdpa", ...; by default what transformers chooses.
    """
    from transformers import AutoModelForMaskedLM

    options = {} if attention is None else {"attn_implementation": attention}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoModelForMaskedLM.from_config(_config(shape, dropout), **options).train()


def save_checkpoint(
    folder: str | Path, shape: str, texts: Sequence[str], *, dropout: float = 0.1, seed: int = 0
) -> Path:
    """`build_model` with a tokenizer trained on `texts`, as a folder that AllenNLP recipes take.

    The tokenizer may have fewer tokens than the model (few texts do not give 50,265); the model
    keeps its size, which is what costs.
    """
    from declutr.quickstart.small_checkpoints import train_tokenizer

    size = SHAPES[shape]
    tokenizer = train_tokenizer(texts, size.vocab_size, max_length=size.max_length)
    build_model(shape, dropout=dropout, seed=seed).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Path(folder)


def _config(shape: str, dropout: float) -> Any:
    from transformers import AutoConfig

    if shape not in SHAPES:
        raise ValueError(f"there is no shape {shape!r}; known: {', '.join(SHAPES)}.")
    size = SHAPES[shape]
    return AutoConfig.for_model(
        size.family,
        vocab_size=size.vocab_size,
        hidden_size=size.hidden_size,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=size.intermediate_size,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        # RoBERTa counts positions from the padding id on.
        max_position_embeddings=size.max_length + (2 if size.family == "roberta" else 0),
        type_vocab_size=1 if size.family == "roberta" else 2,
        bos_token_id=BEGIN,
        pad_token_id=PADDING,
        eos_token_id=END,
    )


def _padded(spans: list[np.ndarray], max_length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids `(n, L)` with special tokens around each span, and their mask."""
    rows = [np.concatenate([[BEGIN], span[: max_length - 2], [END]]) for span in spans]
    lengths = np.array([len(row) for row in rows])
    ids = np.full((len(rows), lengths.max()), PADDING, dtype=np.int64)
    for row, values in zip(ids, rows, strict=True):
        row[: len(values)] = values
    mask = np.arange(ids.shape[1]) < lengths[:, None]
    return torch.from_numpy(ids), torch.from_numpy(mask)


def _text_field(ids: torch.Tensor, mask: torch.Tensor, num_documents: int) -> dict[str, Any]:
    ids, mask = (tensor.view(num_documents, -1, tensor.size(1)) for tensor in (ids, mask))
    tensors = {"token_ids": ids, "mask": mask, "type_ids": torch.zeros_like(ids)}
    return {"tokens": tensors}
