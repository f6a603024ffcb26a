"""A comparison of encoders for programs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from declutr.evaluation.report.comparison import Comparison, Difference
from declutr.evaluation.report.contents import Contents
from declutr.evaluation.report.time_spent import time_spent

FORMAT = 1


def as_json(report: Contents) -> dict[str, Any]:
    """JSON values of all that is reported, and every score; what is not a number is null."""
    c, about = report.comparison, report.about
    return {
        "format": FORMAT,
        "made": about.made,
        "command": about.command,
        "data": about.data,
        "protocol": dict(about.protocol),
        "versions": dict(about.versions),
        "encoders": {encoder: _encoder_json(report, encoder) for encoder in c.encoders},
        "differences": {
            "from": report.whole.encoders[0] if report.whole.encoders else None,
            "of": {
                encoder: _differences_json(found) for encoder, found in report.differences.items()
            },
        },
        "losses": {
            whole: {encoder: _differences_json(found) for encoder, found in of_one.items()}
            for whole, of_one in report.losses.items()
        },
        "missing": c.missing(),
        "not_opened": dict(report.not_opened),
        "pictures": [p.path.relative_to(report.folder).as_posix() for p in report.pictures],
    }


def _encoder_json(report: Contents, encoder: str) -> dict[str, Any]:
    c = report.comparison
    spent = time_spent(c, encoder)
    return {
        **c.facts.get(encoder, {}),
        "tasks": {
            task: _task_json(c, encoder, task) for task in c.tasks if c.record(encoder, task)
        },
        "averages": {
            average.name: {"value": average.value, "missing": list(average.missing)}
            for average in report.averages[encoder]
        },
        "time": {
            "embedding_seconds": spent.embedding,
            "embedded_sentences": spent.embedded,
            "requested_sentences": spent.requested,
            "scoring_seconds": spent.scoring,
            "scoring_share": spent.share,
        },
    }


def _differences_json(found: Mapping[str, Difference]) -> dict[str, Any]:
    return {
        task: {"value": _number(d.value), "interval": list(d.interval)} for task, d in found.items()
    }


def _task_json(comparison: Comparison, encoder: str, task: str) -> dict[str, Any]:
    record = comparison.record(encoder, task)
    assert record is not None
    result = record.result
    return {
        "group": result.group,
        "main": result.main,
        "scores": {
            score.name: {
                "value": _number(score.value),
                "interval": list(record.intervals[score.name])
                if score.name in record.intervals
                else None,
            }
            for score in result.scores
        },
        "error": result.error,
        "missing": result.missing,
        "notes": result.notes,
        "seconds": result.seconds,
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
