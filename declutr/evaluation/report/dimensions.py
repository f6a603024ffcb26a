"""What the leading dimensions of embeddings are worth: an encoder scored with its first 16, 32, ...

Fewer dimensions make indexes smaller and search faster. Encoders trained for it put most into
their first ones ("Matryoshka", Kusupati et al. 2022, arXiv:2205.13147); those of whitened
embeddings stand in the order of falling variance (Su et al. 2021, arXiv:2103.15316).

The leading d dimensions of an encoder are an encoder of its own in a run and in its folder, called
`NAME@d`; sentences are embedded once for all of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from declutr.evaluation.report.comparison import Comparison, Difference
from declutr.evaluation.run import Meter, NamedEncoder, Run
from declutr.evaluation.task import BadEmbeddings

WHOLE = "leading_dimensions_of"
"""Of the description of a truncated encoder: the name of the whole one."""

_UNIT = 1e-3  # as far from 1 may lengths be, for embeddings that are scaled to it


# ------------------------------------------------------------------------------------- encoders


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
        self._row: dict[str, int] = {}
        self._blocks: list[np.ndarray] = []  # rows of float32, `most` wide or all there is
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
        new = [text for text in dict.fromkeys(sentences) if text not in self._row]
        if new:
            self(new)
        lacking = sum(text not in self._row for text in new)
        if lacking:
            raise BadEmbeddings(
                f"{self.name} gave no embeddings of one width for {lacking} of {len(sentences)} "
                "sentences."
            )
        if len(self._blocks) > 1:
            self._blocks = [np.concatenate(self._blocks)]
        rows = np.fromiter((self._row[text] for text in sentences), np.int64, len(sentences))
        vectors = self._blocks[0][:, :dimension][rows]
        if self._unit:
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors /= np.where(lengths > 0, lengths, 1)
        return vectors

    def _keep(self, sentences: Sequence[str], vectors: np.ndarray) -> None:
        lengths = np.linalg.norm(vectors, axis=1)
        counted = lengths[np.isfinite(lengths) & (lengths > 0)]
        self._unit = self._unit and bool((np.abs(counted - 1) < _UNIT).all())
        self._width = vectors.shape[1]
        start = sum(map(len, self._blocks))
        self._blocks.append(vectors[:, : self._most].astype(np.float32))
        self._row.update((text, start + number) for number, text in enumerate(sentences))


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
            "fingerprint": _fingerprint(whole, self._dimension),
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
            _add_truncated(run, whole, dimension)
    if too_many := [str(dimension) for dimension in reversed(wanted) if dimension >= width]:
        say(f"{whole.name}: left out: {', '.join(too_many)}, for it has {width} dimensions")


def _add_truncated(run: Run, whole: RememberingEncoder, dimension: int) -> None:
    truncated = TruncatedEncoder(whole, dimension)
    runs = run.folder.description(truncated.name).get("runs", [])
    sentences, seconds = whole.meter.sentences, whole.meter.seconds
    run.add(truncated)
    found = run.folder.description(truncated.name).get("runs", [])
    if len(found) > len(runs):  # the run takes what was remembered for embedded
        found[-1]["embedded"] = whole.meter.sentences - sentences
        found[-1]["seconds"] = whole.meter.seconds - seconds
        run.folder.describe(truncated.name, runs=found)


def _fingerprint(whole: Mapping[str, Any], dimension: int) -> str:
    return f"{whole.get('fingerprint')}@{dimension}"


# -------------------------------------------------------------------------------------- results


def families(comparison: Comparison) -> dict[str, dict[int, str]]:
    """By encoder, the names of its truncated ones by dimension, falling; all whole encoders.

    Truncated ones of an encoder that is not there, or has changed since, are of no family.
    """
    found: dict[str, dict[int, str]] = {
        name: {} for name in comparison.encoders if WHOLE not in _description(comparison, name)
    }
    for name in comparison.encoders:
        about = _description(comparison, name)
        whole, dimension = about.get(WHOLE), about.get("dimension", 0)
        if whole in found:
            now = _fingerprint(_description(comparison, whole), dimension)
            if about.get("fingerprint") == now:
                found[whole][dimension] = name
    return {whole: dict(sorted(of_one.items(), reverse=True)) for whole, of_one in found.items()}


def by_family(comparison: Comparison) -> tuple[Comparison, int]:
    """Each encoder with its truncated ones behind it; and how many results are of no family.

    Those are left out.
    """
    order = [
        name for whole, of_one in families(comparison).items() for name in (whole, *of_one.values())
    ]
    others = set(comparison.encoders) - set(order)
    left_out = sum(len(comparison.records.get(name, {})) for name in others)
    return dataclasses.replace(comparison, encoders=order), left_out


def whole_encoders(comparison: Comparison) -> Comparison:
    """The same without those that are truncated."""
    return dataclasses.replace(comparison, encoders=list(families(comparison)))


@dataclass(frozen=True)
class Curves:
    """How scores of a group of tasks depend on the dimension.

    # Parameters

    tasks : those that every encoder here has a main score of, at each dimension.
    names : by encoder, by dimension (falling, from all of them), the name in the comparison.
    """

    comparison: Comparison
    tasks: list[str]
    names: dict[str, dict[int, str]]

    def score(self, name: str, task: str) -> float:
        """The main score, in percent."""
        cell = self.comparison.cell(name, task)
        return math.nan if cell is None else cell.value

    def mean(self, name: str) -> float:
        """The mean of the main scores of the tasks, in percent."""
        return math.fsum(self.score(name, task) for task in self.tasks) / len(self.tasks)


def curves(comparison: Comparison) -> dict[str, Curves]:
    """By group of tasks, curves of the encoders with truncated ones; groups that have some.

    An encoder without scores in a group is not in it. Geometry has none: less is better there, or
    more, or neither.
    """
    names = {}
    for whole, truncated in families(comparison).items():
        width = _description(comparison, whole).get("dimension")
        if truncated and width:
            names[whole] = {width: whole, **truncated}
    found = {}
    for group, tasks in comparison.groups().items():
        if group == "geometry":
            continue
        scored = {
            whole: {task for task in tasks if _is_scored(comparison, of_one.values(), task)}
            for whole, of_one in names.items()
        }
        here = {whole: names[whole] for whole, of_one in scored.items() if of_one}
        common = [task for task in tasks if here and all(task in scored[whole] for whole in here)]
        if common:
            found[group] = Curves(comparison, common, here)
    return found


def losses(comparison: Comparison) -> dict[str, dict[str, dict[str, Difference]]]:
    """Main scores less those of the whole encoder: by that, by truncated one, by task."""
    tasks = [task for of_group in comparison.groups().values() for task in of_group]
    return {
        whole: {
            name: {
                task: difference
                for task in tasks
                if (difference := _beside(comparison, whole).difference(name, task)) is not None
            }
            for name in truncated.values()
        }
        for whole, truncated in families(comparison).items()
        if truncated
    }


def _beside(comparison: Comparison, whole: str) -> Comparison:
    """With that encoder as the one that others are compared with."""
    return dataclasses.replace(comparison, encoders=[whole])


def _description(comparison: Comparison, name: str) -> dict[str, Any]:
    return comparison.facts.get(name, {}).get("description", {})


def _is_scored(comparison: Comparison, names: Iterable[str], task: str) -> bool:
    cells = [comparison.cell(name, task) for name in names]
    return all(cell is not None and math.isfinite(cell.value) for cell in cells)
