"""The leading dimensions of an encoder, as an encoder of its own.

In a run and in its folder it is called `NAME@d`; sentences are embedded once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from declutr.evaluation.run import Meter, NamedEncoder, Run
from declutr.evaluation.task import BadEmbeddings

WHOLE = "leading_dimensions_of"
"""Of the description of a truncated encoder: the name of the whole one."""

_UNIT = 1e-3  # as far from 1 may lengths be, for embeddings that are scaled to it


class RememberingEncoder:
    """An encoder that keeps the leading dimensions of all it embedded, for `TruncatedEncoder`.

    # Parameters

    most : how many dimensions are kept.
    """

    def __init__(self, encoder: NamedEncoder, most: int) -> None:
        self.name, self.spec = encoder.name, encoder.spec
        self.describe, self.counts = encoder.describe, encoder.counts
        self.meter = Meter(encoder)
        """What truly went through the encoder."""
        self._most = most
        self._leading: dict[str, np.ndarray] = {}  # float32, `most` wide or all there is
        self._width = 0
        self._unit = True
        self._failure: Exception | None = None

    def __call__(self, sentences: list[str]) -> np.ndarray:
        """What the encoder gives, all dimensions of it."""
        try:
            vectors = np.asarray(self.meter(sentences))
        except BadEmbeddings:  # of these sentences; others may do
            raise
        except Exception as error:
            self._failure = error
            raise
        if vectors.ndim == 2 and vectors.shape == (len(sentences), self._width or vectors.shape[1]):
            self._keep(sentences, vectors)
        return vectors

    def leading(self, sentences: Sequence[str], dimension: int) -> np.ndarray:
        """The first `dimension` of the embeddings, `(n, dimension)`; what is new is embedded.

        If all embeddings have length 1, so have these: an encoder that scales its embeddings would
        do so after cutting them.

        # Raises

        `BadEmbeddings` : the encoder did not give `(n, d)` for some of them.
        `Exception` : what the encoder raised, also if it did so before: it is not asked again.
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
    """The leading dimensions of an encoder."""

    def __init__(self, whole: RememberingEncoder, dimension: int) -> None:
        self.name, self.spec = truncated_name(whole.name, dimension), whole.spec
        self._whole, self._dimension = whole, dimension

    def __call__(self, sentences: list[str]) -> np.ndarray:
        return self._whole.leading(sentences, self._dimension)

    def describe(self) -> dict[str, Any]:
        whole = self._whole.describe()
        return {
            **whole,
            "dimension": self._dimension,
            WHOLE: self._whole.name,
            "fingerprint": truncated_fingerprint(whole, self._dimension),
        }

    def counts(self) -> dict[str, int]:
        return self._whole.counts()


def truncated_name(encoder: str, dimension: int) -> str:
    """What the leading dimensions of an encoder are called."""
    return f"{encoder}@{dimension}"


def add_with_dimensions(
    run: Run,
    encoder: NamedEncoder,
    dimensions: Iterable[int],
    say: Callable[[str], None] = print,
) -> None:
    """Score an encoder, and then its leading dimensions; each sentence is embedded once for all.

    # Parameters

    dimensions : how many to keep. Those that are no fewer than the encoder has are left out.
    say : takes a line for the user.

    # Raises

    `ChangedResults` : as `Run.add`.
    """
    wanted = sorted(set(dimensions), reverse=True)
    if not wanted:
        run.add(encoder)
        return
    whole = RememberingEncoder(encoder, most=wanted[0])
    run.add(whole)
    width = run.folder.description(whole.name)["description"]["dimension"]
    if width is None:  # it failed before it gave anything, which the run has told
        return
    for dimension in wanted:
        if dimension < width:
            whole.meter = Meter(encoder)  # the run would take what was remembered for embedded
            run.add(TruncatedEncoder(whole, dimension), whole.meter)
    if too_many := [str(dimension) for dimension in reversed(wanted) if dimension >= width]:
        say(f"{whole.name}: left out: {', '.join(too_many)}, for it has {width} dimensions")


def truncated_fingerprint(whole: Mapping[str, Any], dimension: int) -> str:
    """The fingerprint of the leading dimensions of an encoder, by the description of that."""
    return f"{whole.get('fingerprint')}@{dimension}"
