"""What may go wrong before anything is compared."""


class ExportError(ValueError):
    """A model that cannot be exported, or a place where nothing can be written."""
