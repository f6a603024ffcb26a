"""What may go wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from declutr.export.comparison import Comparison


class ExportError(ValueError):
    """A model that cannot be exported, or a place where nothing can be written."""


class ExportDiffers(ExportError):
    """A part of the export does not embed as the model it was made from; nothing is left of it."""

    def __init__(self, message: str, comparison: Comparison) -> None:
        super().__init__(message)
        self.comparison = comparison
