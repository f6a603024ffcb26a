"""From text to batches as the original does it: spans become text, and the text tokens once more.

The published code splits documents at white space, draws spans of *words*, joins each span to a
string and lets AllenNLP tokenise, index and pad it; in every epoch anew. Readers here do just that.
With `units="word_pieces"` spans are drawn on word pieces, as the paper describes and as we do: the
document is tokenised, and every span decoded and tokenised again.

`ReferenceReader` uses AllenNLP's tokenizer, fields and loader, as the published code does;
`PlainSpans` uses the transformers tokenizer directly and torch's loader, which is as fast as this
can be done.
"""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from allennlp.data import DatasetReader, Instance
from allennlp.data.fields import ListField, TextField
from allennlp.data.token_indexers import PretrainedTransformerIndexer
from allennlp.data.tokenizers import PretrainedTransformerTokenizer
from torch.utils.data import Dataset

from benchmarks.inputs import PAPER
from declutr.sampling.spans import SpanSampler

UNITS = ("words", "word_pieces")


def span_texts(
    text: str, sampler: SpanSampler, rng: np.random.Generator, units: str, tokenizer: Any
) -> tuple[list[str], list[str]]:
    """The texts of A anchors and of A * P positives of a document.

    Args:
        text: of the document.
        sampler: where spans lie.
        rng: of the draw.
        units: what a span is counted in, one of `UNITS`.
        tokenizer: of transformers; only for word pieces.
    """
    if units not in UNITS:
        raise ValueError(f"there are no units {units!r}; known: {', '.join(UNITS)}.")
    if units == "words":
        words = text.split()
        spans = sampler.sample(len(words), rng)
        joined = [
            " ".join(words[start:end])
            for start, end in [*spans.anchors, *spans.positives.reshape(-1, 2)]
        ]
    else:
        ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        spans = sampler.sample(len(ids), rng)
        joined = [
            tokenizer.decode(ids[start:end])
            for start, end in [*spans.anchors, *spans.positives.reshape(-1, 2)]
        ]
    return joined[: len(spans.anchors)], joined[len(spans.anchors) :]


class ReferenceReader(DatasetReader):
    """The original reader on AllenNLP's own parts, for AllenNLP's own loader."""

    def __init__(
        self,
        model_name: str,
        units: str = "words",
        sampler: SpanSampler = PAPER,
        max_length: int = 512,
    ) -> None:
        # It was not sharded by worker originally: each worker made every instance, and dropped
        # those of the others.
        super().__init__(manual_distributed_sharding=True, manual_multiprocess_sharding=True)
        self._tokenizer = PretrainedTransformerTokenizer(model_name, max_length=max_length)
        self._indexers = {"tokens": PretrainedTransformerIndexer(model_name)}
        self._units, self._sampler = units, sampler
        self._rng = np.random.default_rng(0)

    def _read(self, file_path: Any) -> Iterable[Instance]:
        with open(file_path, encoding="utf-8") as file:
            texts = list(file)
        random.Random(0).shuffle(texts)  # alike in all workers
        for text in self.shard_iterable(texts):
            yield self.text_to_instance(text)

    def text_to_instance(self, text: str) -> Instance:  # type: ignore[override]
        anchors, positives = span_texts(
            " ".join(text.split()),
            self._sampler,
            self._rng,
            self._units,
            self._tokenizer.tokenizer,
        )
        return Instance({"anchors": self._field(anchors), "positives": self._field(positives)})

    def _field(self, texts: list[str]) -> ListField:
        return ListField([TextField(self._tokenizer.tokenize(text)) for text in texts])

    def apply_token_indexers(self, instance: Instance) -> None:
        for field in instance.fields.values():
            for text in field.field_list:  # type: ignore[attr-defined]
                text.token_indexers = self._indexers


class PlainSpans(Dataset):
    """The same without AllenNLP: texts of spans by row; `collate` makes padded tensors of them."""

    def __init__(
        self,
        file: Path,
        tokenizer: Any,
        units: str = "word_pieces",
        sampler: SpanSampler = PAPER,
        max_length: int = 512,
    ) -> None:
        self._texts = file.read_text(encoding="utf-8").splitlines()
        self._tokenizer = tokenizer
        self._units, self._sampler, self._max_length = units, sampler, max_length
        self._rng = np.random.default_rng(0)

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, row: int) -> tuple[list[str], list[str]]:
        text = self._texts[row]
        return span_texts(text, self._sampler, self._rng, self._units, self._tokenizer)

    def collate(self, rows: list[tuple[list[str], list[str]]]) -> dict[str, torch.Tensor]:
        """Token ids and masks, `(B * A, L)` and `(B * A * P, M)`."""
        batch: dict[str, torch.Tensor] = {}
        for name, texts in zip(("anchors", "positives"), zip(*rows, strict=True), strict=True):
            encoded = self._tokenizer(
                [text for group in texts for text in group],
                truncation=True,
                max_length=self._max_length,
                padding=True,
                return_tensors="pt",
            )
            batch[name] = encoded["input_ids"]
            batch[f"{name}_mask"] = encoded["attention_mask"].bool()
        return batch
