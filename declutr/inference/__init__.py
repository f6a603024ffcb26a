"""Embed texts with trained models: open a model, cut and batch the texts, whiten the embeddings."""

from collections.abc import Iterable


class EncoderError(ValueError):
    """An error of an encoder that cannot be opened, or does not return embeddings."""


def require_one_of(known: Iterable[str], **option: str) -> None:
    """Raise `EncoderError` unless the value of an option is one of the known values.

    # Parameters

    known : the values that are accepted.
    option : exactly one keyword argument: the name of the option, and its value.
    """
    ((name, value),) = option.items()
    if value not in known:
        raise EncoderError(f"Expected {name} to be one of {', '.join(known)}, got {value!r}.")
