"""Storage of results in a folder: each is written as soon as it is known, and found on resuming.

    FOLDER/encoders/NAME/encoder.json        what the encoder is, and what embedding took
    FOLDER/encoders/NAME/tasks/TASK.json     scores, their intervals, the key of the result
    FOLDER/encoders/NAME/tasks/TASK.npz      what each test item contributed

Every file is written whole or not at all. An array of items that several scores share is stored
once.
"""

import dataclasses
import hashlib
import io
import json
import logging
import math
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from declutr.evaluation.bootstrap import RESAMPLES, Interval, intervals
from declutr.evaluation.result_keys import Key
from declutr.evaluation.scores import Score
from declutr.evaluation.suite import TaskResult
from declutr.system.files import json_checksum, json_object, write_whole

logger = logging.getLogger(__name__)

FORMAT = 1
"""The version of the layout of a result file."""


@dataclass
class Record:
    """A stored result: the scores of a task, their intervals and the key of the result."""

    result: TaskResult
    key: Key
    intervals: dict[str, Interval] = field(default_factory=dict)
    """Confidence intervals by name of the score; only some scores have one, see `record`."""
    resamples: int = RESAMPLES
    """The number of bootstrap samples of each interval; without any, there are no intervals."""
    interval_seconds: float = 0.0
    """The time spent on intervals."""

    @property
    def main(self) -> Score | None:
        """The score that stands for the task; None if the task could not be scored."""
        return next((s for s in self.result.scores if s.name == self.result.main), None)


def record(
    result: TaskResult,
    key: Key,
    every: Iterable[str] = ("sts", "geometry"),
    resamples: int = RESAMPLES,
) -> Record:
    """Compute confidence intervals for a result and return both as a `Record`.

    A score that is not a number (a correlation of constant similarities) has no interval.

    # Parameters

    result : the scores of a task.
    key : what the result depends on.
    every : groups of tasks in which every score gets an interval; in others only the main score
        does.
    resamples : the number of bootstrap samples; 0 for no intervals.
    """
    start = time.perf_counter()
    every = set(every)
    bounded = [
        score
        for score in (result.scores if resamples else ())
        if (score.name == result.main or result.group in every) and math.isfinite(score.value)
    ]
    found = intervals(bounded, resamples=resamples) if bounded else []
    finite = {
        score.name: bounds
        for score, bounds in zip(bounded, found, strict=True)
        if math.isfinite(sum(bounds))
    }
    return Record(result, key, finite, resamples, time.perf_counter() - start)


class ResultFolder:
    """The results of this run and of earlier ones, in one folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def encoders(self) -> list[str]:
        """Return the names of all encoders that have results, sorted."""
        files = self.folder.glob("encoders/*/encoder.json")
        return sorted(name for path in files if (name := json_object(path).get("name")))

    def description(self, encoder: str) -> dict[str, Any]:
        """Return the facts that `describe` stored about an encoder; empty if there are none."""
        return json_object(self._of(encoder) / "encoder.json")

    def describe(self, encoder: str, **facts: Any) -> None:
        """Store facts about an encoder; they replace earlier ones of the same name."""
        known = self.description(encoder) | {"name": encoder} | facts
        self._of(encoder).mkdir(parents=True, exist_ok=True)
        _write_json(self._of(encoder) / "encoder.json", known)

    def save(self, encoder: str, record: Record) -> None:
        """Store the result of a task in place of an older one.

        # Raises

        `TypeError` : an array of items contains Python objects.
        """
        path = self._task(encoder, record.result.task)
        arrays, scores = _stored_items(record)
        path.parent.mkdir(parents=True, exist_ok=True)
        # The old scores would not fit the new items, should writing stop between the two files.
        path.unlink(missing_ok=True)
        path.with_suffix(".npz").unlink(missing_ok=True)
        if arrays:
            packed = io.BytesIO()
            np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
            write_whole(path.with_suffix(".npz"), packed.getvalue(), shared=True)
        fields = dataclasses.asdict(dataclasses.replace(record.result, scores=[]))
        content = {"format": FORMAT, **fields, "key": record.key, "scores": scores}
        content |= {name: getattr(record, name) for name in ("resamples", "interval_seconds")}
        _write_json(path, content | {"checksum": json_checksum(content)})

    def load(self, encoder: str, task: str) -> Record | None:
        """Return the stored result of a task, or None if there is none.

        Files that are damaged count as absent; a warning names them.
        """
        path = self._task(encoder, task)
        if not path.exists():
            return None
        try:
            return _loaded(path)
        except (OSError, EOFError, ValueError, LookupError, TypeError, BadZipFile) as error:
            logger.warning("%s is damaged and not used (%s).", path, error)
            return None

    def records(self, encoder: str) -> dict[str, Record]:
        """Return all results of an encoder, by name of the task."""
        files = sorted((self._of(encoder) / "tasks").glob("*.json"))
        names = [name for path in files if isinstance(name := json_object(path).get("task"), str)]
        loaded = {name: self.load(encoder, name) for name in names}
        return {name: record for name, record in loaded.items() if record is not None}

    def _of(self, encoder: str) -> Path:
        return self.folder / "encoders" / _slug(encoder)

    def _task(self, encoder: str, task: str) -> Path:
        return self._of(encoder) / "tasks" / f"{_slug(task)}.json"


def _slug(name: str) -> str:
    """Turn a name into a file name; a name that had to change also gets a hash."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")[:80]
    if plain == name:
        return name
    return f"{plain or 'name'}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _stored_items(record: Record) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Return arrays by the names they have in the .npz, and scores that refer to these names."""
    arrays: dict[str, np.ndarray] = {}
    scores = []
    for score in record.result.scores:
        places = {}
        for name, values in score.items.items():
            array = np.asarray(values)
            if array.dtype.hasobject:
                raise TypeError(
                    f"{score.name} of {record.result.task}: items {name!r} are Python objects, "
                    "expected an array of numbers or of strings."
                )
            digest = hashlib.sha256(f"{array.dtype}{array.shape}".encode() + array.tobytes())
            places[name] = digest.hexdigest()[:16]
            arrays[places[name]] = array
        bounds = record.intervals.get(score.name)
        scores.append(
            {
                "name": score.name,
                "statistic": score.statistic,
                "value": score.value if math.isfinite(score.value) else None,
                "interval": list(bounds) if bounds else None,
                "items": places,
            }
        )
    return arrays, scores


def _loaded(path: Path) -> Record:
    stored = json.loads(path.read_text(encoding="utf-8"))
    checksum = stored.pop("checksum", None)  # version 1.5 wrote none
    if checksum not in (None, json_checksum(stored)):
        raise ValueError("its content is not what its checksum says")
    if stored["format"] != FORMAT:
        raise ValueError(f"format {stored['format']}, expected {FORMAT}")
    items: dict[str, np.ndarray] = {}
    if stored["scores"]:
        with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
            items = {name: arrays[name] for name in arrays.files}
    scores = [
        Score(row["name"], row["statistic"], {name: items[at] for name, at in row["items"].items()})
        for row in stored["scores"]
    ]
    fields = {f.name: stored[f.name] for f in dataclasses.fields(TaskResult)}
    known = (row for row in stored["scores"] if row["interval"])
    bounds = {row["name"]: Interval(*row["interval"]) for row in known}
    drawn = stored.get("resamples", RESAMPLES), stored.get("interval_seconds", 0.0)  # since 2.2
    return Record(TaskResult(**fields | {"scores": scores}), stored["key"], bounds, *drawn)


def _write_json(path: Path, content: Any) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    write_whole(path, text, shared=True)
