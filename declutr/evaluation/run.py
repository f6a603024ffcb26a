"""Evaluation of encoders on tasks, one after the other, with results stored as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from tqdm.auto import tqdm

from declutr.embedding_store import EmbeddingStore, KeyedRows
from declutr.evaluation.bootstrap import RESAMPLES
from declutr.evaluation.metered_encoder import Meter, NamedEncoder, stored_rows
from declutr.evaluation.report.comparison import Comparison
from declutr.evaluation.result_keys import Key, data_digest, differing, key_of, settings
from declutr.evaluation.results import Record, ResultFolder, record
from declutr.evaluation.sentence_vectors import Encode
from declutr.evaluation.suite import evaluate, go_on_after
from declutr.evaluation.task import Protocol, Task


class ChangedResults(ValueError):
    """Error raised when stored results do not match the current encoder, data or settings."""


class Run:
    """A run over tasks, which continues from the results that `folder` already has.

    A stored result is kept if its encoder, its data, the protocol and the version of `declutr` are
    still the same. A task that failed, or that had no data, is scored again.

    # Parameters

    folder : where results are stored.
    tasks : the tasks to score, whose data are read at once. Reports show those without as missing.
    protocol : the settings of all tasks, which become part of the keys of results.
    version : the version of `declutr`.
    overwrite : replace stored results that do not match, instead of raising.
    progress : show progress bars.
    resamples : the number of bootstrap samples of each interval; 0 for no intervals. Those of kept
        results are computed again if they had another number.
    say : called with each line of text for the user.
    store : where embeddings are kept, so that no run embeds a sentence again; `None` for nowhere.
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
        resamples: int = RESAMPLES,
        store: EmbeddingStore | None = None,
    ) -> None:
        self.resamples, self._store = resamples, store
        self.folder, self.tasks, self.protocol = folder, list(tasks), protocol
        self._version, self._overwrite = version, overwrite
        self._progress, self._say = progress, say
        self.not_opened: dict[str, str] = {}
        """Encoders that could not be opened, by name, with the reason."""
        self._rows: dict[str, KeyedRows | None] = {}  # by encoder
        self._data: dict[str, Key] = {}  # by task; the encoder is filled in later
        for task in tqdm(tasks, desc="reading data", unit="task", disable=not progress):
            try:
                self._data[task.name] = key_of(protocol, "", version, data_digest(task))
            except Exception as error:  # `evaluate` meets the same error again, and reports it
                go_on_after(error)

    def check(self, names: Iterable[str]) -> None:
        """Raise `ChangedResults` if results of the encoders `names` are of other data or settings.

        The message names the first of the stored results. Encoders need not be opened for this.
        """
        for name, (task, key) in product(() if self._overwrite else names, self._data.items()):
            if (there := self._usable(name, task)) is not None:
                self._refuse(name, task, there.key, key | {"encoder": there.key["encoder"]})

    def add(self, encoder: NamedEncoder, meter: Meter | None = None) -> None:
        """Score an encoder on the tasks for which it has no result yet.

        # Parameters

        encoder : the encoder to evaluate.
        meter : a meter of the embedding that happens meanwhile, for an encoder that answers from
            stored embeddings; by default, calls of `encoder` are measured.

        # Raises

        `ChangedResults` : a stored result is of an encoder of this name with another fingerprint.
        """
        mark = str(encoder.describe()["fingerprint"])
        keys = {task: key | {"encoder": mark} for task, key in self._data.items()}
        kept = [task for task in keys if self._keeps(encoder.name, task, keys[task])]
        for task in kept:
            self._renew_intervals(encoder.name, task)
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
            encode = meter = self.meter(encoder)
        results = evaluate(encode, todo, progress=self._progress)
        for place, result in enumerate(results):
            if place == 0:  # all sentences are embedded by now
                self._tell_embedding(encoder, meter, todo)
            key = keys.get(result.task) or key_of(self.protocol, mark, self._version)
            self.folder.save(encoder.name, record(result, key, resamples=self.resamples))

    def meter(self, encoder: NamedEncoder) -> Meter:
        """Return a meter of an encoder, which embeds no sentence that has a stored embedding."""
        if self._store is not None and encoder.name not in self._rows:
            self._rows[encoder.name], why_not = stored_rows(encoder, self._store)
            if why_not:
                self._say(f"{encoder.name}: embeddings are not stored: {why_not}")
        return Meter(encoder, self._rows.get(encoder.name))

    def close(self) -> None:
        """Close the stored embeddings of all encoders."""
        for rows in self._rows.values():
            if rows is not None:
                rows.close()
        self._rows.clear()

    def comparison(self, first: Sequence[str], order: Sequence[str]) -> tuple[Comparison, int]:
        """Compare all results in the folder that belong together, and count those that do not.

        Left out are results of another protocol, of an encoder with another fingerprint than the
        last encoder of its name, and of other data than are read now. If the data of a task of this
        run cannot be read, all its results are left out. If a task is not part of this run, the
        first encoder with a result on it determines which data count.

        # Parameters

        first : names of encoders that come first; the others in the folder follow.
        order : names of tasks in the order of the report; others follow.
        """
        there = self.folder.encoders()
        encoders = [name for name in dict.fromkeys([*first, *there]) if name in there]
        records: dict[str, dict[str, Record]] = {}
        left_out = 0
        data = {task.name: "" for task in self.tasks}  # digests; empty for data that cannot be read
        data |= {task: key["data"] for task, key in self._data.items()}
        for encoder in encoders:
            found = self.folder.records(encoder)
            mark = self.folder.description(encoder).get("description", {}).get("fingerprint")
            kept = {name: one for name, one in found.items() if self._belongs(one, mark, data)}
            records[encoder] = kept
            left_out += len(found) - len(kept)
        encoders = [name for name in encoders if records[name]]
        tasks = dict.fromkeys([*order, *(task for of_one in records.values() for task in of_one)])
        facts = {name: self.folder.description(name) for name in encoders}
        return Comparison(encoders, list(tasks), records, facts, self.resamples), left_out

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

    def _renew_intervals(self, encoder: str, task: str) -> None:
        """Compute the intervals of a kept result again if they had another number of samples."""
        there = self._usable(encoder, task)
        if there is not None and there.resamples != self.resamples:
            self.folder.save(encoder, record(there.result, there.key, resamples=self.resamples))

    def _refuse(self, encoder: str, task: str, there: Key, now: Key) -> None:
        """Raise if the key of a stored result is not the key that it would have now."""
        if found := differing(now, there):
            raise ChangedResults(
                f"{self.folder.folder} has a result of {encoder} on {task} that was made "
                f"otherwise: {'; '.join(found)}. Choose another --output, or replace such results "
                "with --overwrite. An encoder can also be given another name: NAME=ENCODER."
            )

    def _belongs(self, there: Record, mark: str | None, data: dict[str, str]) -> bool:
        """Return whether a result is of this protocol, this encoder and these data.

        `mark` is the fingerprint of the encoder that has the name now, if known. `data` are digests
        by task; the digest of a task that is not among them is added.
        """
        key, task = there.key, there.result.task
        if key["protocol"] != settings(self.protocol) or mark not in (None, key["encoder"]):
            return False
        return not key["data"] or key["data"] == data.setdefault(task, key["data"])

    def _tell_embedding(self, encoder: NamedEncoder, meter: Meter, tasks: Sequence[Task]) -> None:
        runs = self.folder.description(encoder.name).get("runs", [])
        requested = sum(len(task.sentences()) for task in tasks if task.name in self._data)
        ours = {"requested": requested, **meter.facts()}
        counts = dict(encoder.counts())
        if counts and meter.stored:  # encoders count what they embed
            counts["stored_and_not_counted"] = meter.stored
        self._describe(encoder, counts=counts, runs=[*runs, ours])
        if (rows := self._rows.get(encoder.name)) is not None:
            self._describe(encoder, store={"folder": str(rows.folder), "bytes": rows.size})
            self._say(
                f"{encoder.name}: {meter.sentences:,} sentences embedded, {meter.stored:,} taken "
                f"from {rows.folder} ({rows.size / 1e6:,.1f} MB)"
            )

    def _describe(self, encoder: NamedEncoder, **facts: Any) -> None:
        now = encoder.describe()
        before = self.folder.description(encoder.name).get("description", {})
        if now.get("dimension") is None:  # some encoders know it only after the first call
            same = before.get("fingerprint") == now["fingerprint"]
            rows = self._rows.get(encoder.name)
            stored = rows.dimension if rows is not None else 0
            now["dimension"] = (before.get("dimension") if same else None) or stored or None
        self.folder.describe(encoder.name, spec=encoder.spec, description=now, **facts)


def failed(comparison: Comparison, names: Iterable[str], not_opened: Mapping[str, str]) -> bool:
    """Return whether an encoder could not be opened, or one of `names` failed on a task with data.

    `not_opened` maps encoders that could not be opened to the reason.
    """
    names = set(names)
    return bool(not_opened) or any(encoder in names for encoder, _, _ in comparison.failures())


def nothing_scored(comparison: Comparison, names: Iterable[str], tasks: Iterable[str]) -> bool:
    """Return whether none of these encoders has a score on any of the tasks that tables show."""
    tasks = set(tasks)
    shown = tasks & {task for group in comparison.groups().values() for task in group}
    return not any(
        (record := comparison.record(encoder, task)) and record.result.scores
        for encoder in names
        for task in shown
    )
