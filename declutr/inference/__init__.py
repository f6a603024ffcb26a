"""`Encoder` and what it does: open a model, cut and batch texts, embed and whiten them."""

from collections.abc import Iterable


class EncoderError(ValueError):
    """An encoder that cannot be opened, or does not give what it should."""


def require_one_of(known: Iterable[str], **option: str) -> None:
    """Raise `EncoderError` if an option, given by its name, has none of the known values."""
    ((name, value),) = option.items()
    if value not in known:
        raise EncoderError(f"Expected {name} to be one of {', '.join(known)}, got {value!r}.")
