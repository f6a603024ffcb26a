"""Encoders from anywhere: a short text says which, and what comes back takes sentences.

    encode = open_encoder("hf:roberta-base?pooling=first-last")
    vectors = encode(["A sentence.", "Another one."])  # (2, d), float32

So a trained model, a checkpoint of somebody else's and a bag of words are rows of one table.
"""

from __future__ import annotations

from typing import Any

from declutr.inference.sources.source import EncoderError, EncoderSource, NamedEncoder
from declutr.inference.sources.spec import FORMS, EncoderSpec, parse_spec

__all__ = ["FORMS", "EncoderError", "EncoderSpec", "NamedEncoder", "open_encoder", "parse_spec"]


def open_encoder(
    spec: str,
    *,
    batch_size: int = 64,
    device: str | None = None,
    max_length: int | None = None,
) -> NamedEncoder:
    """The encoder that `spec` names, loaded.

    # Parameters

    spec : one of `FORMS`, with `LABEL=` before it if it is to have another name in tables.
    batch_size : texts a batch, where there are batches.
    device : `cpu`, `cuda` or `cuda:N`; by default the first GPU if there is any.
    max_length : tokens a text, special ones included, for transformers; never more than they take.

    # Raises

    `EncoderError` : the text is none of the forms, there is nothing at that place, what is there
        cannot be read, or a package is missing for it.
    """
    for name, value in (("batch_size", batch_size), ("max_length", max_length)):
        if value is not None and value < 1:
            raise EncoderError(f"{name} must be at least 1, got {value}.")
    parsed = parse_spec(spec)
    source = _opened(parsed, batch_size=batch_size, device=device, max_length=max_length)
    return NamedEncoder(parsed.name, parsed.text, source)


def _opened(
    spec: EncoderSpec, *, batch_size: int, device: str | None, max_length: int | None
) -> EncoderSource:
    # Here and not above: who averages word vectors need not wait for transformers.
    options: dict[str, Any] = dict(spec.options)
    if spec.kind in ("archive", "hf", "st"):
        settings: dict[str, Any] = {
            "batch_size": batch_size,
            "device": device,
            "max_length": max_length,
        }
        if spec.kind in ("archive", "hf"):
            from declutr.inference.sources.own_encoder import OwnEncoder

            if spec.kind == "hf":
                options = {"kind": "transformer", "pooling": "mean", **options}
            return OwnEncoder(spec.place, **settings, **options)
        from declutr.inference.sources.from_sentence_transformers import FromSentenceTransformers

        return FromSentenceTransformers(spec.place, **settings, **options)
    if spec.kind == "words":
        from declutr.inference.sources.word_vectors import WordVectors

        return WordVectors(spec.place, **options)
    if spec.kind == "call":
        from declutr.inference.sources.python_callable import PythonCallable

        return PythonCallable(spec.place)
    from declutr.inference.sources.random_vectors import RandomSentences, RandomWords

    return (RandomWords if spec.kind == "random" else RandomSentences)(spec.place, **options)
