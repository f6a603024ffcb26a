"""What opening and using a model raises."""


class EncoderError(ValueError):
    """An encoder that cannot be opened, or does not give what it should."""
