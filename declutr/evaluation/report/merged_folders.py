"""Results of several folders as one comparison, without those that were made otherwise."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from declutr.evaluation.bootstrap import RESAMPLES
from declutr.evaluation.report.averages import DEFINITIONS
from declutr.evaluation.report.comparison import Comparison
from declutr.evaluation.report.truncated_encoders import WHOLE
from declutr.evaluation.result_keys import differing
from declutr.evaluation.results import Record, ResultFolder


class NothingToCompare(ValueError):
    """Error raised when a folder has no results."""


class Merged(NamedTuple):
    """The results of several folders."""

    comparison: Comparison
    left_out: list[tuple[str, str, str, str]]
    """Folder, encoder, tasks and reason of results that are not comparable."""
    protocol: dict[str, Any]
    """The settings that all results were made with."""
    versions: list[str]
    """The releases of `declutr` that made them."""


def merged(folders: Sequence[str | Path], resamples: int = RESAMPLES) -> Merged:
    """Put results of several folders together; nothing is evaluated.

    The first folder tells the protocol, the one that most of its results have. The first result of
    each task tells its data. Results of another protocol, of other data, or of an encoder that has
    changed since are left out, with the reason. Encoders of the same name that are not the same get
    the names of their folders.

    # Parameters

    folders : folders that `declutr evaluate-embeddings` wrote.
    resamples : the number of bootstrap samples of differences; 0 for none.

    # Raises

    `NothingToCompare` : a folder has no results.
    """
    found = [(Path(folder), _results(Path(folder))) for folder in folders]
    keys = [r.key for of_one in found[0][1].values() for r in of_one.records.values()]
    protocol = Counter(key["protocol"] for key in keys).most_common(1)[0][0]
    data: dict[str, tuple[str, Path]] = {}
    records: dict[str, dict[str, Record]] = {}
    facts: dict[str, Mapping[str, Any]] = {}
    left: dict[tuple[str, str, str], list[str]] = {}
    for folder, encoders in found:
        names = _names(folder, encoders, facts)
        for encoder, of_one in encoders.items():
            facts.setdefault(names[encoder], _renamed(of_one.facts, names))
            kept = records.setdefault(names[encoder], {})
            for task, record in of_one.records.items():
                if why := _why_not(record, of_one.mark, protocol, data):
                    left.setdefault((str(folder), encoder, why), []).append(task)
                    continue
                if record.key["data"]:
                    data.setdefault(task, (record.key["data"], folder))
                if task not in kept or kept[task].result.error is not None:
                    kept[task] = record
    encoders_left = [name for name, of_one in records.items() if of_one]
    known = dict.fromkeys(task for definition in DEFINITIONS for task in definition.members)
    there = dict.fromkeys(task for of_one in records.values() for task in of_one)
    tasks = [*(task for task in known if task in there), *(t for t in there if t not in known)]
    comparison = Comparison(encoders_left, tasks, records, facts, resamples)
    kept_keys = [record.key for of_one in records.values() for record in of_one.values()]
    versions = sorted({key["declutr"] for key in kept_keys})
    rows = [(f, encoder, ", ".join(those), why) for (f, encoder, why), those in left.items()]
    return Merged(comparison, rows, json.loads(protocol), versions)


class _Results(NamedTuple):
    """The results of an encoder in a folder."""

    facts: Mapping[str, Any]
    records: Mapping[str, Record]

    @property
    def mark(self) -> str | None:
        """The fingerprint of the encoder that has the name now."""
        return self.facts.get("description", {}).get("fingerprint")


def _results(folder: Path) -> dict[str, _Results]:
    stored = ResultFolder(folder)
    found = {
        encoder: _Results(stored.description(encoder), records)
        for encoder in stored.encoders()
        if (records := stored.records(encoder))
    }
    if not found:
        raise NothingToCompare(
            f"'{folder}' has no results, expected a folder that `declutr evaluate-embeddings` "
            "wrote with --output."
        )
    return found


def _names(
    folder: Path, encoders: Mapping[str, _Results], facts: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """Return the names that the encoders of a folder get among those that are there already."""
    names = {}
    for encoder, of_one in encoders.items():
        for name in (encoder, f"{encoder} ({folder.name})", f"{encoder} ({folder})"):
            there = facts.get(name, {}).get("description", {}).get("fingerprint")
            if name not in facts or there == of_one.mark:
                names[encoder] = name
                break
        else:  # the same folder, twice under different paths, would have the same fingerprint
            names[encoder] = f"{encoder} ({folder}, {len(facts)})"
    return names


def _renamed(facts: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the facts about an encoder, with the new name of the one it is truncated from."""
    described = dict(facts.get("description", {}))
    if WHOLE in described:
        described[WHOLE] = names.get(described[WHOLE], described[WHOLE])
    return {**facts, "description": described}


def _why_not(
    record: Record, mark: str | None, protocol: str, data: Mapping[str, tuple[str, Path]]
) -> str:
    """Say why a result cannot be compared; empty if it can."""
    key = record.key
    if mark is not None and key["encoder"] != mark:
        return "the encoder of that name has changed since"
    reasons = differing({**key, "protocol": protocol}, key)
    digest, folder = data.get(record.result.task, ("", Path()))
    if digest and key["data"] and digest != key["data"]:
        reasons.append(f"other data than in {folder}")
    return "; ".join(reasons)
