"""`Encoder` and what it does: open a model, cut and batch texts, embed and whiten them."""


class EncoderError(ValueError):
    """An encoder that cannot be opened, or does not give what it should."""
