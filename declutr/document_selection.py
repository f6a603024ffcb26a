"""Which documents are long enough to draw spans from, and what happens to the others."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from allennlp.common.checks import ConfigurationError

from declutr.sampling import SpanSampler

logger = logging.getLogger(__name__)

POLICIES = ("shrink", "skip", "error")


@dataclass(frozen=True)
class DocumentSelection:
    """A policy for documents of fewer than 2 * A * max_span_len tokens.

    # Parameters

    short_documents : `"shrink"` keeps them (their spans are shortened), `"skip"` leaves them out,
        `"error"` raises.
    min_document_len : documents of fewer tokens are left out whatever the policy, and so are those
        of fewer than 2 * A, from which no spans can be drawn at all.

    # Raises

    `ConfigurationError` : an unknown policy.
    """

    short_documents: str = "shrink"
    min_document_len: int = 0

    def __post_init__(self) -> None:
        if self.short_documents not in POLICIES:
            raise ConfigurationError(
                f"Unknown short_documents '{self.short_documents}': expected one of "
                f"{', '.join(POLICIES)}."
            )

    def rows(self, lengths: np.ndarray, sampler: SpanSampler, source: str) -> np.ndarray:
        """The rows, in order, of documents of these `lengths` (in tokens) that are used.

        `source` names the corpus in the log, which counts what is left out, and in errors.

        # Raises

        `ConfigurationError` : a short document with the policy `"error"`, or none long enough.
        """
        needed = sampler.min_document_len
        least = max(self.min_document_len, 2 * sampler.num_anchors)
        left_out = lengths < least
        short = (lengths < needed) & ~left_out
        if self.short_documents == "error" and short.any():
            row = int(np.argmax(short))
            raise ConfigurationError(
                f"{source}: row {row + 1} has {lengths[row]} tokens, and {int(short.sum())} of "
                f"{len(lengths)} documents have fewer than 2 * num_anchors * max_span_len = "
                f"{needed}. Set short_documents to 'shrink' or 'skip', or lower max_span_len."
            )
        if self.short_documents == "skip":
            least = max(least, needed)
        kept = np.flatnonzero(lengths >= least)
        logger.info(
            "%s: %d documents; %d used, of which %d with shrunken spans; %d skipped (%d blank).",
            source,
            len(lengths),
            len(kept),
            int(short[kept].sum()),
            len(lengths) - len(kept),
            int((lengths == 0).sum()),
        )
        if not len(kept):
            raise ConfigurationError(
                f"{source}: none of the {len(lengths)} documents is long enough. The longest has "
                f"{int(lengths.max())} tokens, and at least {least} are needed (short_documents is "
                f"'{self.short_documents}', min_document_len is {self.min_document_len}). Lower "
                "max_span_len, num_anchors or min_document_len, or set short_documents to 'shrink'."
            )
        return kept
