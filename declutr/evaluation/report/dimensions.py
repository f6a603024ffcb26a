"""Truncated encoders in a comparison: the scores of the leading 16, 32, ... dimensions.

Fewer dimensions make indexes smaller and search faster. Some encoders are trained to put most
information into their first dimensions ("Matryoshka", Kusupati et al. 2022, arXiv:2205.13147), and
whitened embeddings have dimensions of falling variance (Su et al. 2021, arXiv:2103.15316).

A truncated encoder is an encoder of its own, see `declutr.evaluation.report.truncated_encoders`.
The encoder that it is made from is called its whole encoder.
"""

import dataclasses
import math
from dataclasses import dataclass
from statistics import fmean

from declutr.evaluation.report.comparison import Comparison, Difference
from declutr.evaluation.report.truncated_encoders import WHOLE, truncated_fingerprint


def families(comparison: Comparison) -> dict[str, dict[int, str]]:
    """Return the names of truncated encoders by whole encoder, then by falling dimension.

    Every whole encoder is in the result. A truncated encoder is left out if its whole encoder is
    absent or has changed since.
    """
    found: dict[str, dict[int, str]] = {
        name: {} for name in comparison.encoders if WHOLE not in comparison.description(name)
    }
    for name in comparison.encoders:
        about = comparison.description(name)
        whole, dimension = about.get(WHOLE), about.get("dimension", 0)
        if whole in found:
            now = truncated_fingerprint(comparison.description(whole), dimension)
            if about.get("fingerprint") == now:
                found[whole][dimension] = name
    return {whole: dict(sorted(of_one.items(), reverse=True)) for whole, of_one in found.items()}


def by_family(comparison: Comparison) -> tuple[Comparison, int]:
    """Put truncated encoders behind their whole encoder, and leave out those without one.

    # Returns

    The comparison in that order, and the number of results that are left out.
    """
    pairs = families(comparison).items()
    order = [name for whole, of_one in pairs for name in (whole, *of_one.values())]
    others = set(comparison.encoders) - set(order)
    left_out = sum(len(comparison.records.get(name, {})) for name in others)
    return dataclasses.replace(comparison, encoders=order), left_out


def whole_encoders(comparison: Comparison) -> Comparison:
    """Return the comparison without truncated encoders."""
    return dataclasses.replace(comparison, encoders=list(families(comparison)))


@dataclass(frozen=True)
class Curves:
    """The scores of a group of tasks as a function of the dimension.

    # Parameters

    comparison : the results.
    tasks : tasks on which all encoders here have a finite main score at every dimension.
    names : names in the comparison, by whole encoder, then by dimension, from all dimensions down.
    """

    comparison: Comparison
    tasks: list[str]
    names: dict[str, dict[int, str]]

    def mean(self, name: str) -> float:
        """Return the mean of an encoder's main scores over the tasks, in percent."""
        return fmean(self.comparison.value(name, task) for task in self.tasks)


def curves(comparison: Comparison) -> dict[str, Curves]:
    """Return curves of the encoders that have truncated ones, by group of tasks.

    An encoder without scores in a group is not in its curves, and a group without any curve is left
    out. Geometry has none, because its scores are better if higher, if lower, or neither.
    """
    names = {}
    for whole, truncated in families(comparison).items():
        width = comparison.description(whole).get("dimension")
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
    """Return differences of truncated encoders from their whole encoder in the main scores.

    # Returns

    Differences by whole encoder, then by truncated encoder, then by task.
    """
    return {
        whole: {
            # The first encoder of a comparison is the reference for differences.
            name: dataclasses.replace(comparison, encoders=[whole, name]).differences(name)
            for name in truncated.values()
        }
        for whole, truncated in families(comparison).items()
        if truncated
    }
