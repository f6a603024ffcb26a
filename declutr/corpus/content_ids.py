"""The ids of texts by a Hugging Face tokenizer, without special tokens and however long."""

from __future__ import annotations

from typing import Any

# Cases, accents, digits, marks, other scripts, special tokens of the common families.
_PROBE = (
    "Don't  STOP: na\u00efve cafe\u0301 co-operate 3.14 (1,000)? x_y@z.org <s> [SEP] <mask> "
    "[MASK] \u00dcber \u0420\u0443\u0441 \u6d4b\u8bd5 "
    "\u30c6\u30b9\u30c8 \U0001f642\u200d\U0001f642 \u00bd \ufb01n"
)


class ContentIds:
    """Texts to lists of ids, by the tokenizer's backend where that gives the same.

    # Parameters

    tokenizer : of transformers.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._same_as_backend: bool | None = None

    def __call__(self, texts: list[str]) -> list[list[int]]:
        return self.by_backend(texts) if self.uses_backend() else self.by_tokenizer(texts)

    def by_tokenizer(self, texts: list[str]) -> list[list[int]]:
        """As the tokenizer itself is called."""
        encoded = self._tokenizer(
            texts,
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        return encoded["input_ids"]

    def by_backend(self, texts: list[str]) -> list[list[int]]:
        """What the tokenizer itself calls, less the offsets of every token, which cost a third of
        the time."""
        # Padding and truncation are what the last call, whoever made it, left behind.
        backend = self._tokenizer.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = self._tokenizer.split_special_tokens
        return [one.ids for one in backend.encode_batch_fast(texts, add_special_tokens=False)]

    def uses_backend(self) -> bool:
        """Whether the backend gives the same: some tokenizers do more than theirs does."""
        # The same text for all processes tells, so that they agree.
        if self._same_as_backend is None:
            backend = getattr(self._tokenizer, "backend_tokenizer", None)
            self._same_as_backend = hasattr(backend, "encode_batch_fast") and (
                self.by_backend([_PROBE]) == self.by_tokenizer([_PROBE])
            )
        return self._same_as_backend
