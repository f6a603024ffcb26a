"""Averages over tasks, under the names of the papers and programs that report them.

* SentEval: STS12-16 with `mean` or `wmean` over their subsets.
* SimCSE and SCD: `all Spearman` of STS12-16 with cosine Spearman of the test splits of STS-B and
  SICK-R (without those two in SCD's table 3); and accuracy on seven classification tasks
  ("transfer").
* DeCLUTR (appendix C.2; `compute_aggregate_scores` of its `run_senteval.py`): STS12-16 with `mean`
  over subsets, for which its script takes Spearman; STS-B and SICK-R with the trained regressor,
  Pearson on dev and Spearman on test; MRPC on test with the mean of accuracy and F1; caption
  retrieval with the mean of its six recalls; others with accuracy. A task without a dev part has
  the same score in both averages. The paper (ACL 2021, table 2) leaves out SNLI. There are two
  averages of downstream and probing tasks together. `DeCLUTR all` weighs all tasks equally, as the
  script has done since 18 June 2020. `DeCLUTR v1 Avg.` is the mean of the downstream average, with
  SNLI, and the probing average, as the first version of the paper prints it (arXiv, June 2020,
  tables 1, S1 and S5) and the script computed it before. For the paper's DeCLUTR-base they are
  76.60 and 75.98.
* MTEB: `MTEB Spearman` of the seven tasks that exist here. MTEB's own average of similarity has
  three more (BIOSSES, STS17, STS22), so it is a different number.

An average is given only if it has all of its members; otherwise the missing ones are named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan, nan
from typing import Any

from declutr.evaluation.tasks.probing import FILES as PROBING
from declutr.evaluation.tasks.scored_pairs import STS_SUBSETS

SUBSET_STS = tuple(STS_SUBSETS)
"""Similarity tasks that have subsets."""
TRAINED_STS = ("STS-B", "SICK-R")
"""Similarity tasks that can train a regressor."""
TRANSFER = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")
"""The classification tasks of SimCSE's average."""
_ACCURACY = ("accuracy", "dev_accuracy")
DECLUTR = {
    **dict.fromkeys(("CR", "MR", "MPQA", "SUBJ", "SST2", "SST5", "TREC"), _ACCURACY),
    "MRPC": ("accuracy_and_f1", "dev_accuracy"),
    "SNLI": _ACCURACY,
    "SICK-E": _ACCURACY,
    **dict.fromkeys(TRAINED_STS, ("trained Spearman", "trained Pearson dev")),
    "COCO": ("mean_recall", "dev_mean_recall"),
    **dict.fromkeys(SUBSET_STS, ("mean Spearman", "mean Spearman")),
}
"""DeCLUTR's downstream tasks, with the scores that it averages on test and on dev."""
V1_AVERAGE = "DeCLUTR v1 Avg., half downstream with SNLI, half probing"
"""The name of the average in the first version of DeCLUTR's paper."""


@dataclass(frozen=True)
class Definition:
    """The definition of an average: the mean of one score of each task, or a mean of such means.

    # Parameters

    name : the name of the average.
    groups : for each group of tasks, names of scores by name of the task. Groups have equal weight,
        whatever their sizes.
    """

    name: str
    groups: tuple[Mapping[str, str], ...]

    @property
    def members(self) -> dict[str, str]:
        """The names of scores by name of the task, for all groups together."""
        return {task: score for group in self.groups for task, score in group.items()}

    def of(self, scores: Mapping[str, Mapping[str, float]]) -> Average:
        """Compute the average from the scores of tasks.

        # Parameters

        scores : values by name of the task, then by name of the score; one that is not a number
            counts as missing.
        """
        found = {t: scores.get(t, {}).get(score, nan) for t, score in self.members.items()}
        missing = [task for task, value in found.items() if isnan(value)]
        if missing:
            return Average(self.name, None, missing)
        return Average(self.name, self.mean(found), [])

    def mean(self, values: Mapping[str, Any]) -> Any:
        """Return the mean of values by task, which are numbers or arrays of one shape."""
        means = [sum(values[task] for task in group) / len(group) for group in self.groups]
        return sum(means) / len(means)


@dataclass(frozen=True)
class Average:
    """The value of an average over tasks, or the names of the tasks that it lacks."""

    name: str
    value: float | None
    """The value; None if a member is missing."""
    missing: list[str]
    """The names of tasks that lack the score which the average needs."""


def _declutr_definitions() -> list[Definition]:
    found = []
    for column, ending in enumerate(("", ", dev")):
        everything = {task: scores[column] for task, scores in DECLUTR.items()}
        without = {task: score for task, score in everything.items() if task != "SNLI"}
        probing = dict.fromkeys(PROBING, _ACCURACY[column])
        found += [
            Definition(f"DeCLUTR downstream{ending}", (without,)),
            Definition(f"DeCLUTR downstream with SNLI{ending}", (everything,)),
            Definition(f"DeCLUTR probing{ending}", (probing,)),
            Definition(f"DeCLUTR all{ending}", (without | probing,)),
            Definition(f"DeCLUTR all with SNLI{ending}", (everything | probing,)),
            Definition(f"{V1_AVERAGE}{ending}", (everything, probing)),
        ]
    return found


_MTEB = dict.fromkeys(SUBSET_STS + TRAINED_STS, "MTEB Spearman")
_SIMCSE = dict.fromkeys(SUBSET_STS, "all Spearman")
_SIMCSE |= dict.fromkeys(TRAINED_STS, "cosine Spearman")
_READINGS = ("mean Pearson", "wmean Pearson", "mean Spearman", "wmean Spearman", "all Spearman")
DEFINITIONS = (
    Definition("SimCSE STS", (_SIMCSE,)),
    Definition("MTEB STS, 7 of its 10 tasks", (_MTEB,)),
    *(Definition(f"STS12-16 {name}", (dict.fromkeys(SUBSET_STS, name),)) for name in _READINGS),
    Definition("SimCSE transfer", (dict.fromkeys(TRANSFER, "accuracy"),)),
    *_declutr_definitions(),
)
"""The definitions of all averages, in the order of the report."""


def averages(scores: Mapping[str, Mapping[str, float]]) -> list[Average]:
    """Compute all averages, in the order of the report.

    # Parameters

    scores : values in percent by name of the task, then by name of the score.
    """
    return [definition.of(scores) for definition in DEFINITIONS]
