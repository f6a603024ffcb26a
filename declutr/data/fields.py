"""AllenNLP fields made of token ids that are already known.

AllenNLP's `TextField` carries a Python object for each token and asks an indexer for its id. Here
the ids come as arrays from the tokenised corpus, and become the same `TextFieldTensors`:
`{"tokens": {"token_ids", "mask", "type_ids"}}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from allennlp.data.fields import Field
from allennlp.nn import util

TextFieldTensors = dict[str, dict[str, torch.Tensor]]


class SpansField(Field[TextFieldTensors]):
    """A field of S spans of one document, special tokens included.

    The tensors are `(S, L)` for one instance and `(B, S, L)` for a batch of B, where L is the
    length of the longest span: `token_ids` (long), `mask` (bool) and `type_ids` (long).

    # Parameters

    spans : the token ids of each span, 1-D.
    type_ids : the segment ids of each span, 1-D and as long as the span.
    padding_id : the id that fills `token_ids` up.
    name : the key of the token indexer that these tensors stand for.
    """

    __slots__ = ["name", "padding_id", "spans", "type_ids"]

    def __init__(
        self,
        spans: list[np.ndarray],
        type_ids: list[np.ndarray],
        padding_id: int = 0,
        name: str = "tokens",
    ) -> None:
        self.spans = spans
        self.type_ids = type_ids
        self.padding_id = padding_id
        self.name = name

    def get_padding_lengths(self) -> dict[str, int]:
        return {"num_spans": len(self.spans), "num_tokens": max(map(len, self.spans), default=0)}

    def as_tensor(self, padding_lengths: dict[str, int]) -> TextFieldTensors:
        shape = (padding_lengths["num_spans"], padding_lengths["num_tokens"])
        token_ids = np.full(shape, self.padding_id, dtype=np.int64)
        mask = np.zeros(shape, dtype=bool)
        type_ids = np.zeros(shape, dtype=np.int64)
        for row, (span, types) in enumerate(zip(self.spans, self.type_ids, strict=True)):
            token_ids[row, : len(span)] = span
            type_ids[row, : len(span)] = types
            mask[row, : len(span)] = True
        return {
            self.name: {
                "token_ids": torch.from_numpy(token_ids),
                "mask": torch.from_numpy(mask),
                "type_ids": torch.from_numpy(type_ids),
            }
        }

    def batch_tensors(self, tensor_list: list[TextFieldTensors]) -> TextFieldTensors:  # type: ignore[override]
        return {self.name: util.batch_tensor_dicts([t[self.name] for t in tensor_list])}

    def empty_field(self) -> SpansField:
        return type(self)([], [], self.padding_id, self.name)

    def human_readable_repr(self) -> Any:
        return [span.tolist() for span in self.spans]

    def __len__(self) -> int:
        return len(self.spans)

    def __str__(self) -> str:
        lengths = ", ".join(str(len(span)) for span in self.spans)
        return f"{type(self).__name__} with spans of {lengths} tokens"


class TokenIdsField(SpansField):
    """A field of one text as token ids.

    The tensors are `(L,)` for one instance and `(B, L)` for a batch of B.
    """

    __slots__ = []

    def __init__(
        self, token_ids: np.ndarray, type_ids: np.ndarray, padding_id: int = 0, name: str = "tokens"
    ) -> None:
        super().__init__([token_ids], [type_ids], padding_id, name)

    def as_tensor(self, padding_lengths: Mapping[str, int]) -> TextFieldTensors:  # type: ignore[override]
        tensors = super().as_tensor({**padding_lengths, "num_spans": 1})
        return {name: {k: t[0] for k, t in group.items()} for name, group in tensors.items()}

    def empty_field(self) -> TokenIdsField:
        nothing = np.empty(0, dtype=np.int64)
        return TokenIdsField(nothing, nothing, self.padding_id, self.name)

    def __len__(self) -> int:
        return len(self.spans[0])
