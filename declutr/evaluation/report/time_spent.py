"""What a run has taken, by encoder."""

from __future__ import annotations

from dataclasses import dataclass

from declutr.evaluation.report.comparison import Comparison


@dataclass(frozen=True)
class TimeSpent:
    """Of an encoder, over all runs: seconds, and sentences."""

    embedding: float
    embedded: int
    requested: int
    scoring: float
    longest: list[tuple[str, float]]
    """The tasks that took longest to score."""

    @property
    def share(self) -> float | None:
        """Of scoring, among all."""
        total = self.embedding + self.scoring
        return self.scoring / total if total else None


def time_spent(comparison: Comparison, encoder: str) -> TimeSpent:
    """Of an encoder, over all its runs into this folder."""
    runs = comparison.facts.get(encoder, {}).get("runs", [])
    seconds = {
        task: record.result.seconds
        for task in comparison.tasks
        if (record := comparison.record(encoder, task))
    }
    longest = sorted(seconds.items(), key=lambda item: -item[1])[:3]
    return TimeSpent(
        sum(run["seconds"] for run in runs),
        sum(run["embedded"] for run in runs),
        sum(run["requested"] for run in runs),
        sum(seconds.values()),
        [(task, spent) for task, spent in longest if spent >= 0.05],
    )
