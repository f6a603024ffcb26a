"""Truncated encoders: the leading dimensions of an encoder as an encoder of its own.

In a run and in its folder such an encoder has the name `NAME@d`, where d is the number of
dimensions. Each sentence is embedded once for all of them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from declutr.evaluation.metered_encoder import Meter, NamedEncoder
from declutr.evaluation.run import Run
from declutr.evaluation.task import BadEmbeddings

WHOLE = "leading_dimensions_of"
"""The entry in a truncated encoder's description that names its whole encoder."""

_UNIT = 1e-3  # how far from 1 the lengths of normalised embeddings may be


class RememberingEncoder:
    """An encoder that stores the leading dimensions of its embeddings, for `TruncatedEncoder`.

    # Parameters

    encoder : the whole encoder.
    most : the number of dimensions to store.
    meter : a meter of the whole encoder; by default a new one.
    """

    not_stored: str | None = "they are those of the whole encoder"

    def __init__(self, encoder: NamedEncoder, most: int, meter: Meter | None = None) -> None:
        self.name, self.spec = encoder.name, encoder.spec
        self.describe, self.counts = encoder.describe, encoder.counts
        self.computed_with = encoder.computed_with
        self.meter = meter or Meter(encoder)
        """The meter of the sentences that really go through the encoder."""
        self._most = most
        self._leading: dict[str, np.ndarray] = {}  # float32, at most `most` wide
        self._width = 0
        self._unit = True
        self._failure: Exception | None = None

    def __call__(self, sentences: list[str]) -> np.ndarray:
        """Return the embeddings of the whole encoder, with all dimensions."""
        try:
            vectors = np.asarray(self.meter(sentences))
        except BadEmbeddings:  # concerns these sentences only; others may succeed
            raise
        except Exception as error:
            self._failure = error
            raise
        if vectors.ndim == 2 and vectors.shape == (len(sentences), self._width or vectors.shape[1]):
            self._keep(sentences, vectors)
        return vectors

    def leading(self, sentences: Sequence[str], dimension: int) -> np.ndarray:
        """Return the first dimensions of embeddings, `(n, dimension)`; new sentences are embedded.

        If all embeddings have length 1, the result is scaled to length 1, too: an encoder that
        normalises its embeddings would do so after truncation.

        # Raises

        `BadEmbeddings` : the encoder gave embeddings of the wrong shape for some sentences.
        `Exception` : the encoder failed, now or in an earlier call; it is not called again after a
            failure.
        """
        if self._failure is not None:
            raise self._failure
        new = [text for text in dict.fromkeys(sentences) if text not in self._leading]
        if new:
            self(new)
        if lacking := sum(text not in self._leading for text in new):
            raise BadEmbeddings(
                f"{self.name} gave no embeddings of one width for {lacking} of {len(sentences)} "
                "sentences."
            )
        vectors = np.stack([self._leading[text][:dimension] for text in sentences])
        if self._unit:
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors /= np.where(lengths > 0, lengths, 1)
        return vectors

    def _keep(self, sentences: Sequence[str], vectors: np.ndarray) -> None:
        lengths = np.linalg.norm(vectors, axis=1)
        counted = lengths[np.isfinite(lengths) & (lengths > 0)]
        self._unit = self._unit and bool((np.abs(counted - 1) < _UNIT).all())
        self._width = vectors.shape[1]
        self._leading |= zip(sentences, vectors[:, : self._most].astype(np.float32), strict=True)


class TruncatedEncoder:
    """The leading dimensions of an encoder, as an encoder of its own."""

    not_stored: str | None = "they are those of the whole encoder"

    def __init__(self, whole: RememberingEncoder, dimension: int) -> None:
        self.name, self.spec = truncated_name(whole.name, dimension), whole.spec
        self._whole, self._dimension = whole, dimension
        self.computed_with = whole.computed_with

    def __call__(self, sentences: list[str]) -> np.ndarray:
        """Return the leading dimensions of embeddings, `(n, dimension)`."""
        return self._whole.leading(sentences, self._dimension)

    def describe(self) -> dict[str, Any]:
        """Describe the whole encoder, with this dimension and a fingerprint of its own."""
        whole = self._whole.describe()
        return {
            **whole,
            "dimension": self._dimension,
            WHOLE: self._whole.name,
            "fingerprint": truncated_fingerprint(whole, self._dimension),
        }

    def counts(self) -> dict[str, int]:
        """Return the counts of the whole encoder."""
        return self._whole.counts()


def truncated_name(encoder: str, dimension: int) -> str:
    """Return the name of a truncated encoder."""
    return f"{encoder}@{dimension}"


def add_with_dimensions(
    run: Run, encoder: NamedEncoder, dimensions: Iterable[int], say: Callable[[str], None] = print
) -> None:
    """Score an encoder and its truncated encoders, with each sentence embedded once for all.

    # Parameters

    run : the run that scores them.
    encoder : the whole encoder.
    dimensions : numbers of dimensions; those that the encoder does not exceed are left out.
    say : called with each line of text for the user.

    # Raises

    `ChangedResults` : see `Run.add`.
    """
    wanted = sorted(set(dimensions), reverse=True)
    if not wanted:
        run.add(encoder)
        return
    whole = RememberingEncoder(encoder, wanted[0], run.meter(encoder))
    run.add(whole, whole.meter)
    width = run.folder.description(whole.name)["description"]["dimension"]
    if width is None:  # it failed before its first output, which the run has reported
        return
    for dimension in wanted:
        if dimension < width:
            # Only new sentences count: the truncated encoder answers others from stored embeddings.
            whole.meter = run.meter(encoder)
            run.add(TruncatedEncoder(whole, dimension), whole.meter)
    if too_many := [str(dimension) for dimension in reversed(wanted) if dimension >= width]:
        say(f"{whole.name}: left out: {', '.join(too_many)}, for it has {width} dimensions")


def truncated_fingerprint(whole: Mapping[str, Any], dimension: int) -> str:
    """Return the fingerprint of a truncated encoder."""
    return f"{whole.get('fingerprint')}@{dimension}"
