"""What the leading dimensions of embeddings are worth: an encoder scored with its first 16, 32, ...

Fewer dimensions make indexes smaller and search faster. Encoders trained for it put most into
their first ones ("Matryoshka", Kusupati et al. 2022, arXiv:2205.13147); those of whitened
embeddings stand in the order of falling variance (Su et al. 2021, arXiv:2103.15316).

They are encoders of their own, see `declutr.evaluation.report.truncated_encoders`.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from declutr.evaluation.report.comparison import Comparison, Difference
from declutr.evaluation.report.truncated_encoders import WHOLE, truncated_fingerprint


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
            now = truncated_fingerprint(_description(comparison, whole), dimension)
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

    def mean(self, name: str) -> float:
        """The mean of the main scores of the tasks, in percent."""
        return math.fsum(self.comparison.value(name, task) for task in self.tasks) / len(self.tasks)


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
            whole: {
                task
                for task in tasks
                if all(math.isfinite(comparison.value(name, task)) for name in of_one.values())
            }
            for whole, of_one in names.items()
        }
        here = {whole: names[whole] for whole, of_one in scored.items() if of_one}
        common = [task for task in tasks if here and all(task in scored[whole] for whole in here)]
        if common:
            found[group] = Curves(comparison, common, here)
    return found


def losses(comparison: Comparison) -> dict[str, dict[str, dict[str, Difference]]]:
    """Main scores less those of the whole encoder: by that, by truncated one, by task."""
    return {
        whole: {
            # With that encoder as the one that others are compared with.
            name: dataclasses.replace(comparison, encoders=[whole, name]).differences(name)
            for name in truncated.values()
        }
        for whole, truncated in families(comparison).items()
        if truncated
    }


def _description(comparison: Comparison, name: str) -> dict[str, Any]:
    return comparison.facts.get(name, {}).get("description", {})
