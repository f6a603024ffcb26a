"""Encoders on tasks, one after the other, with results kept in a folder as they come."""

from __future__ import annotations

import time
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from declutr.evaluation.report.comparison import Comparison
from declutr.evaluation.result_keys import Key, data_digest, differing, key_of, settings
from declutr.evaluation.results import Record, ResultFolder, record
from declutr.evaluation.sentence_vectors import Encode
from declutr.evaluation.suite import evaluate, go_on_after
from declutr.evaluation.task import Protocol, Task


class NamedEncoder(typing.Protocol):
    """What `declutr.inference.sources.open_encoder` gives; anything like it will do."""

    name: str
    spec: str

    def __call__(self, sentences: list[str], /) -> np.ndarray:
        """The embeddings `(n, d)`."""

    def describe(self) -> dict[str, Any]:
        """With a `fingerprint` that changes if embeddings may."""

    def counts(self) -> dict[str, int]:
        """What was cut or not known."""


class ChangedResults(ValueError):
    """A folder has results that were made otherwise than they would be now."""


class Run:
    """A run, resumed if `folder` has results.

    A result that is there is kept if its encoder, its data, the protocol and the version of this
    package are the same; one of a task that failed, or that had no data, is made anew.

    # Parameters

    tasks : whose data are read at once. One without data is in the report, as missing.
    version : of this package.
    overwrite : make changed results anew, instead of refusing to.
    say : takes a line for the user.
    """

    def __init__(
        self,
        folder: ResultFolder,
        tasks: Sequence[Task],
        protocol: Protocol,
        version: str,
        overwrite: bool = False,
        progress: bool = False,
        say: Callable[[str], None] = print,
    ) -> None:
        self.folder, self.tasks, self.protocol = folder, list(tasks), protocol
        self._version, self._overwrite = version, overwrite
        self._progress, self._say = progress, say
        self.not_opened: dict[str, str] = {}
        """Encoders that could not be used at all, and why."""
        self._data: dict[str, Key] = {}  # by task, what does not depend on the encoder
        for task in tqdm(tasks, desc="reading data", unit="task", disable=not progress):
            try:
                self._data[task.name] = key_of(protocol, "", version, data_digest(task))
            except Exception as error:  # it comes again, and is told, in `evaluate`
                go_on_after(error)

    def check(self, names: Iterable[str]) -> None:
        """See, before any encoder is opened, that results of these can be kept.

        # Raises

        `ChangedResults` : some were made with other data or settings; it names them.
        """
        if self._overwrite:
            return
        for name in names:
            for task, key in self._data.items():
                there = self._usable(name, task)
                if there is not None:
                    self._refuse(name, task, there.key, key | {"encoder": there.key["encoder"]})

    def add(self, encoder: NamedEncoder, meter: Meter | None = None) -> None:
        """Score an encoder on the tasks of which it has no result.

        # Parameters

        meter : of what is embedded meanwhile, if that is not what the encoder is asked for.

        # Raises

        `ChangedResults` : it has results, but was another encoder then.
        """
        mark = str(encoder.describe()["fingerprint"])
        keys = {task: key | {"encoder": mark} for task, key in self._data.items()}
        kept = [task for task in keys if self._keeps(encoder.name, task, keys[task])]
        todo = [task for task in self.tasks if task.name not in kept]
        self._describe(encoder)
        self._say(
            f"{encoder.name}: {len(todo)} task{'s' * (len(todo) != 1)} to do"
            + (f", {len(kept)} kept from before in {self.folder.folder}" if kept else "")
        )
        if not todo:
            return
        encode: Encode = encoder
        if meter is None:
            encode = meter = Meter(encoder)
        results = evaluate(encode, todo, progress=self._progress)
        for place, result in enumerate(results):
            if place == 0:  # all sentences are embedded by now
                self._tell_embedding(encoder, meter, todo)
            key = keys.get(result.task) or key_of(self.protocol, mark, self._version)
            self.folder.save(encoder.name, record(result, key))

    def comparison(self, first: Sequence[str], order: Sequence[str]) -> tuple[Comparison, int]:
        """All results in the folder that belong together, and how many do not.

        Those made with another protocol do not, nor those of an encoder that had another
        fingerprint than the last of its name. Nor do those on other data than are read now (on any,
        if a task was asked for and its data cannot be read); of a task that was not asked for, the
        data of the first encoder that has a result count.

        # Parameters

        first : encoders that come first; the others in the folder follow.
        order : of tasks; others follow.
        """
        there = self.folder.encoders()
        encoders = [name for name in dict.fromkeys([*first, *there]) if name in there]
        records: dict[str, dict[str, Record]] = {}
        left_out = 0
        data = {task.name: "" for task in self.tasks}  # digests, none of what cannot be read
        data |= {task: key["data"] for task, key in self._data.items()}
        for encoder in encoders:
            found = self.folder.records(encoder)
            described = self.folder.description(encoder).get("description", {})
            mark = described.get("fingerprint")
            records[encoder] = {
                task: of_task
                for task, of_task in found.items()
                if self._belongs(of_task, mark, data)
            }
            left_out += len(found) - len(records[encoder])
        encoders = [name for name in encoders if records[name]]
        tasks = dict.fromkeys([*order, *(task for of_one in records.values() for task in of_one)])
        facts = {name: self.folder.description(name) for name in encoders}
        return Comparison(encoders, list(tasks), records, facts), left_out

    def _usable(self, encoder: str, task: str) -> Record | None:
        there = self.folder.load(encoder, task)
        return there if there is not None and there.result.error is None else None

    def _keeps(self, encoder: str, task: str, key: Key) -> bool:
        there = self._usable(encoder, task)
        if there is None:
            return False
        if not self._overwrite:
            self._refuse(encoder, task, there.key, key)
        return there.key == key

    def _refuse(self, encoder: str, task: str, there: Key, now: Key) -> None:
        """Unless the two are the same."""
        if found := differing(now, there):
            raise ChangedResults(
                f"{self.folder.folder} has a result of {encoder} on {task} that was made "
                f"otherwise: {'; '.join(found)}. Choose another --output, or replace such results "
                "with --overwrite. An encoder can also be given another name: NAME=ENCODER."
            )

    def _belongs(self, there: Record, mark: str | None, data: dict[str, str]) -> bool:
        """Whether a result is of this protocol, this encoder and these data.

        # Parameters

        mark : the fingerprint of the encoder that now has the name, if it is known.
        data : digests by task; that of a task that is not among them is added.
        """
        key, task = there.key, there.result.task
        if key["protocol"] != settings(self.protocol) or mark not in (None, key["encoder"]):
            return False
        return not key["data"] or key["data"] == data.setdefault(task, key["data"])

    def _tell_embedding(self, encoder: NamedEncoder, meter: Meter, tasks: Sequence[Task]) -> None:
        runs = self.folder.description(encoder.name).get("runs", [])
        requested = sum(len(task.sentences()) for task in tasks if task.name in self._data)
        ours = {"requested": requested, "embedded": meter.sentences, "seconds": meter.seconds}
        self._describe(encoder, counts=dict(encoder.counts()), runs=[*runs, ours])

    def _describe(self, encoder: NamedEncoder, **facts: Any) -> None:
        now = encoder.describe()
        before = self.folder.description(encoder.name).get("description", {})
        if now.get("dimension") is None and before.get("fingerprint") == now["fingerprint"]:
            now["dimension"] = before.get("dimension")  # an encoder may not know it when opened
        self.folder.describe(encoder.name, spec=encoder.spec, description=now, **facts)


class Meter:
    """An encoder that counts sentences and time."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self.sentences, self.seconds = 0, 0.0

    def __call__(self, sentences: list[str]) -> np.ndarray:
        start = time.perf_counter()
        vectors = self._encode(sentences)
        self.seconds += time.perf_counter() - start
        self.sentences += len(sentences)
        return vectors


def failed(comparison: Comparison, names: Iterable[str], not_opened: Mapping[str, str]) -> bool:
    """Whether one of these encoders, or a task of theirs that has data, went wrong."""
    names = set(names)
    return bool(not_opened) or any(encoder in names for encoder, _, _ in comparison.failures())


def nothing_scored(comparison: Comparison, names: Iterable[str], tasks: Iterable[str]) -> bool:
    """Whether none of these encoders has a score of any of these tasks that is shown in tables."""
    tasks = set(tasks)
    shown = tasks & {task for group in comparison.groups().values() for task in group}
    return not any(
        (record := comparison.record(encoder, task)) and record.result.scores
        for encoder in names
        for task in shown
    )
