"""The export of static encoders: a table of token vectors, as sentence-transformers has it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from declutr.archives.static_folder import StaticTable, write_static
from declutr.export.comparison import (
    Comparison,
    by_encoder,
    by_onnxruntime,
    by_sentence_transformers,
    compare_ways,
    tokenized,
)
from declutr.export.model_card import scores_section, training_section
from declutr.export.onnx_model import FILE, write_onnx
from declutr.export.output_place import ExportError
from declutr.export.training_record import TrainingRecord
from declutr.inference.static_model import StaticModel
from declutr.inference.text_model import Prompts, TextModel
from declutr.inference.transformer_model import TransformerModel
from declutr.inference.whitening import Whitening
from declutr.system.vectors import unit_rows


class StaticGraph(torch.nn.Module):
    """A module from token ids `(n, length)` to the means of their vectors, for tracing."""

    inputs = ("input_ids", "attention_mask")
    outputs = ("sentence_embedding",)

    def __init__(self, table: StaticTable) -> None:
        super().__init__()
        vectors = torch.from_numpy(table.vectors)
        self.table = torch.nn.Embedding.from_pretrained(vectors)
        self.normalizes = table.normalizes

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return embeddings `(n, d)`; that of a text without tokens is 0."""
        mask = attention_mask.unsqueeze(-1).to(self.table.weight.dtype)
        means = (self.table(input_ids) * mask).sum(1) / mask.sum(1).clamp_min(1)
        return torch.nn.functional.normalize(means, dim=1) if self.normalizes else means


def static_table(
    place: str, model: TextModel, *, normalize: bool, whiten: bool
) -> StaticTable | None:
    """Return the table by which a model embeds texts; `None` if it is no static encoder.

    # Parameters

    place : the path of the model, for messages.
    model : the model that was opened from there.
    normalize : whether to scale embeddings to length 1 even if the model does not.
    whiten : whether to apply the whitening stored with the model, if there is one. It is an affine
        map of means, and so of each vector; but a text without tokens is 0 in the export.

    # Raises

    `ExportError` : if the model does not pool by the plain mean, or has a flow.
    """
    table: StaticTable | None = None
    if isinstance(model, StaticModel):
        table = model.table
    elif not isinstance(model, TransformerModel):
        table = _trained_table(place, model)
    if table is None:
        return None
    if whiten and model.whitening is not None:
        if not isinstance(model.whitening, Whitening):
            raise ExportError(
                f"'{place}' has a flow, which no table can hold. Fit a linear whitening instead "
                "(`declutr whiten`), or export it without (--no-whitening)."
            )
        table = table.with_vectors(model.whitening.transform(table.vectors).astype(np.float32))
    return replace(table, normalizes=table.normalizes or normalize)


def _trained_table(place: str, model: Any) -> StaticTable | None:
    """Return the table of a `TrainedModel`, whose import is that of AllenNLP."""
    from declutr.modules.token_embedding_bag import MeanOfBag, TokenEmbeddingBag

    embedder = model.model._text_field_embedder
    if not isinstance(embedder, TokenEmbeddingBag):
        return None
    if len(model.model.embedders) > 1 or model.codec is None:
        raise ExportError(
            f"'{place}' has two encoders, or a reader with another tokenizer than its table; "
            "expected one token_embedding_bag and the tokenizer of its folder."
        )
    if not isinstance(model.model._seq2vec_encoder, MeanOfBag):
        raise ExportError(
            f"'{place}' pools token vectors by {type(model.model._seq2vec_encoder).__name__}, "
            "which a StaticEmbedding does not. Train without seq2vec_encoder."
        )
    vectors = embedder.folded().detach().float().cpu().numpy()
    return StaticTable(model.codec._tokenizer.backend_tokenizer.to_str(), vectors)


class StaticExport:
    """The steps of an export that are those of a table of token vectors.

    # Parameters

    table : the tokenizer and the vectors.
    whitened : whether a whitening is multiplied into the vectors.
    dtype : one of `declutr.archives.static_folder.DTYPES`, in which the vectors are stored.
    """

    plain_white_space = False

    def __init__(self, table: StaticTable, whitened: bool, dtype: str = "float32") -> None:
        self._table, self._dtype = table.rounded(dtype), dtype
        self._prompt = Prompts(table.prompts, table.default_prompt_name).default
        self._rounding = ""
        said = "A text without tokens is 0 in the export, which is not its whitening."
        self.notes = [said] if whitened else []

    def write(self, folder: Path, with_onnx: bool, say: Callable[[str], None]) -> None:
        """Write the files of sentence-transformers, and the ONNX model if it is wanted."""
        say("Writing the table of token vectors")
        write_static(self._table, folder, self._dtype)
        if with_onnx:
            write_onnx(StaticGraph(self._table), folder / FILE)

    def comparable(self, texts: list[str]) -> list[str]:
        """Return the texts that have tokens; of others, tools and a whitening do not agree."""
        encode = self._table.loaded.encode
        return [text for text in texts if encode(text, add_special_tokens=False).ids]

    def compare(
        self, folder: Path, texts: Sequence[str], expected: np.ndarray, tolerance: float
    ) -> Comparison:
        """Embed texts with the export in each tool, and compare with given embeddings."""
        # Other tools put the default prompt before texts, but a tokenizer does not.
        prompted = [self._prompt + text for text in texts]
        ways = {
            "declutr.Encoder": by_encoder,
            "sentence-transformers": by_sentence_transformers,
            "onnxruntime": lambda place, _: by_onnxruntime(place, tokenized(place, prompted, "np")),
        }
        if self._dtype != "float32":
            of_model, expected = expected, self._embedded(prompted)
            self._rounding = (
                f"Vectors are rounded to {self._dtype}, and tools are compared with the rounded "
                "ones. The cosine of an embedding with the model's is "
                f"{_lowest_cosine(of_model, expected):.4f} or more."
            )
            self.notes.append(self._rounding)
            del ways["onnxruntime"]
        if self._dtype == "int8":
            del ways["sentence-transformers"]
        return compare_ways(folder, ways, texts, expected, tolerance)

    def _embedded(self, texts: Sequence[str]) -> np.ndarray:
        """Return embeddings `(n, d)` of texts with tokens, by the rounded vectors."""
        each = self._table.loaded.encode_batch(list(texts), add_special_tokens=False)
        means = np.stack([self._table.vectors[one.ids].mean(axis=0) for one in each])
        return unit_rows(means) if self._table.normalizes else means

    def card(self, name: str, record: TrainingRecord, found: Comparison, with_onnx: bool) -> str:
        """Return the text of README.md, in Markdown with a YAML header."""
        card = static_card(name, self._table, with_onnx, self._dtype)
        sections = [*training_section(record), *scores_section(record)]
        if record.scores and self._rounding:
            sections.append("The scores are those of the model before rounding.")
        return "\n\n".join([card, *sections, *self._compared(found)]) + "\n"

    def _compared(self, found: Comparison) -> Iterator[str]:
        yield "## What was compared"
        if self._rounding:
            yield self._rounding
        of = "the rounded vectors" if self._rounding else "the model that this was exported from"
        yield (
            f"{found.texts} texts were embedded by each tool after writing. The largest "
            f"differences from {of} (allowed: {found.limit:.1e}):"
        )
        yield found.table()


def _lowest_cosine(one: np.ndarray, other: np.ndarray) -> float:
    """Return the lowest cosine of two embeddings `(n, d)` of the same text that are not both 0."""
    kept = one.any(axis=1) | other.any(axis=1)
    return float((unit_rows(one) * unit_rows(other)).sum(axis=1).min(where=kept, initial=1.0))


def static_card(name: str, table: StaticTable, onnx: bool, dtype: str) -> str:
    """Return the beginning of README.md, in Markdown with a YAML header: what it is, how to use it.

    # Parameters

    name : the name of the model, which becomes the title.
    table : the tokenizer and the vectors.
    onnx : whether there is an ONNX model.
    dtype : in what the vectors are stored.
    """
    rows, width = table.vectors.shape
    scaled = ", scaled to length 1" if table.normalizes else ""
    tags = ["sentence-transformers", "sentence-similarity", "static-embeddings"]
    listed = "\n".join(f"- {tag}" for tag in [*tags, *(["onnx"] if onnx else []), "declutr"])
    opened = (
        "Its vectors are stored in int8, which declutr reads."
        if dtype == "int8"
        else "sentence-transformers (release 3.2 or later) opens the same folder:\n"
        '`SentenceTransformer("path/to/this/folder").encode([...])`.'
    )
    return f"""---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
{listed}
---

# {name}

A static encoder, exported by declutr: the embedding of a text is the mean of the vectors of its
tokens, {width} wide{scaled}. It has {rows:,} vectors and no
transformer, so that it embeds on a CPU in a fraction of the time; word order does not count.

```python
from declutr import Encoder

encoder = Encoder("path/to/this/folder")
embeddings = encoder(["A sentence.", "Another one."])  # (2, {width})
```

{opened}"""
