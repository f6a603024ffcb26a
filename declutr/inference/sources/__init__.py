"""Encoders of any kind, opened by a short text such as `words:glove.txt`.

    encode = open_encoder("hf:roberta-base?pooling=first-last")
    vectors = encode(["A sentence.", "Another one."])  # (2, d), float32

All have the same interface, so that trained models, pretrained transformers and averages of word
vectors can be compared in one table.
"""

from typing import Any

from declutr.inference.sources.python_callable import PythonCallable
from declutr.inference.sources.random_vectors import RandomSentences, RandomWords
from declutr.inference.sources.source import EncoderError, NamedEncoder
from declutr.inference.sources.spec import FORMS, EncoderSpec, parse_spec
from declutr.inference.sources.word_vectors import WordVectors

__all__ = ["FORMS", "EncoderError", "EncoderSpec", "NamedEncoder", "open_encoder", "parse_spec"]

_WITHOUT_MODEL = {
    "words": WordVectors,
    "call": PythonCallable,
    "random": RandomWords,
    "random-sentence": RandomSentences,
}


def open_encoder(
    spec: str, *, batch_size: int = 64, device: str | None = None, max_length: int | None = None
) -> NamedEncoder:
    """Open the encoder that a text names.

    # Parameters

    spec : one of `FORMS`, preceded by `LABEL=` to give it another name in tables.
    batch_size : the largest number of texts of a batch, for encoders that use batches.
    device : `cpu`, `cuda` or `cuda:N`; by default the first GPU if there is any.
    max_length : the largest number of tokens of a text, special ones included, for transformers;
        never more than they take.

    # Raises

    `EncoderError` : the text has none of the forms, there is nothing at that place or it cannot be
        read, a package is missing, or a value is out of range.
    """
    for name, value in (("batch_size", batch_size), ("max_length", max_length)):
        if value is not None and value < 1:
            raise EncoderError(f"{name} must be at least 1, got {value}.")
    parsed = parse_spec(spec)
    kind: Any = _WITHOUT_MODEL.get(parsed.kind)
    options: dict[str, Any] = dict(parsed.options)
    if kind is None:  # imported here: word vectors need not wait for transformers
        from declutr.inference.sources.trained_models import FromSentenceTransformers, OwnEncoder

        kind = FromSentenceTransformers if parsed.kind == "st" else OwnEncoder
        options |= {"batch_size": batch_size, "device": device, "max_length": max_length}
    if parsed.kind == "hf":
        options = {"kind": "transformer", "pooling": "mean", **options}
    encoder: NamedEncoder = kind(parsed.place, **options)
    encoder.name, encoder.spec = parsed.name, parsed.text
    return encoder
