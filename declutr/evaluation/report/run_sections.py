"""The sections of a report that tell how it came about."""

from __future__ import annotations

from declutr.evaluation.report.contents import Contents
from declutr.evaluation.report.score_sections import alarms
from declutr.evaluation.report.tables import seconds, table, text
from declutr.evaluation.report.time_spent import time_spent
from declutr.evaluation.report.truncated_encoders import WHOLE


def heading(report: Contents) -> str:
    c, count = report.whole, len(report.whole.encoders)
    tasks = sum(map(len, c.groups().values()))
    missing = f" ({len(c.missing())} more have no data)" if c.missing() else ""
    lines = [
        "# Sentence embeddings",
        f"{count} encoder{'s' * (count != 1)} on {tasks} task{'s' * (tasks != 1)}{missing}, "
        f"protocol `{report.about.protocol.get('name', '?')}`, {report.about.made[:10]}.",
        *(f"> {hint}" for hint in report.about.hints),
    ]
    for encoder, task, note in alarms(report):
        lines.append(f"> **{text(encoder)}**, {text(task)}: {text(note)}")
    return "\n\n".join(lines)


def failures(report: Contents) -> str:
    rows = [(encoder, "all", error) for encoder, error in report.not_opened.items()]
    rows += report.comparison.failures()
    if not rows:
        return ""
    header = ["encoder", "task", "what happened"]
    return f"## Failed\n\n{table(header, [list(map(text, row)) for row in rows])}"


def missing(report: Contents) -> str:
    missing = report.comparison.missing()
    if not missing:
        return ""
    lines = [f"* {text(task)}: {text(reason)}" for task, reason in missing.items()]
    about = "These tasks have no score, and no average that needs them is given."
    return f"## Missing data\n\n{about}\n\n" + "\n".join(lines)


def notes(report: Contents) -> str:
    c = report.comparison
    lines = []
    for task, notes in c.notes().items():
        for note, encoders in notes.items():
            whose = "" if len(encoders) == len(c.encoders) else f" ({', '.join(encoders)})"
            lines.append(f"* {text(task)}: {text(note + whose)}")
    return "## Notes on tasks\n\n" + "\n".join(lines) if lines else ""


def time(report: Contents) -> str:
    rows = []
    for encoder in report.comparison.encoders:
        spent = time_spent(report.comparison, encoder)
        share = f"{100 * spent.share:.0f} %" if spent.share is not None else "–"
        timed = spent.embedded and spent.embedding
        rate = f"{spent.embedded / spent.embedding:,.0f}" if timed else "–"
        longest = ", ".join(f"{text(t)} {seconds(s)}" for t, s in spent.longest)
        rows.append(
            [
                text(encoder),
                seconds(spent.embedding),
                f"{spent.embedded:,}",
                f"{spent.requested:,}",
                rate,
                seconds(spent.scoring),
                share,
                longest,
            ]
        )
    header = ["encoder", "embedding", "sentences embedded", "asked for by tasks", "a second"]
    header += ["scoring", "share of scoring", "longest"]
    about = (
        "Each different sentence is embedded once a run, and leading dimensions are cut from "
        "that. Scoring is mostly the training of classifiers."
    )
    return f"## Time\n\n{about}\n\n{table(header, rows)}"


def encoders(report: Contents) -> str:
    rows = []
    for encoder in report.comparison.encoders:
        facts = report.comparison.facts.get(encoder, {})
        described = dict(facts.get("description", {}))
        dimension, mark = described.pop("dimension", None), described.pop("fingerprint", "")
        mark, cut, kept = mark.partition("@")
        counts = facts.get("counts") or {}
        if WHOLE in described:  # the rest is said of that
            described, counts = {WHOLE: described[WHOLE]}, {}
        known = [(k.replace("_", " "), v) for k, v in {**described, **counts}.items()]
        told = ", ".join(
            f"{k} {v:,}" if type(v) is int else f"{k} {v}" for k, v in known if v is not None
        )
        rows.append(
            [
                text(encoder),
                f"`{text(str(facts.get('spec', '')))}`",
                str(dimension or "–"),
                text(told),
                f"`{mark[:12]}{cut}{kept}`",
            ]
        )
    header = ["encoder", "given as", "dimension", "what it is", "fingerprint"]
    return "## Encoders\n\n" + table(header, rows)


def method(report: Contents) -> str:
    about = report.about
    settings = ", ".join(f"{k} {v}" for k, v in about.protocol.items())
    versions = ", ".join(f"{name} {version}" for name, version in about.versions.items())
    return "\n".join(
        [
            "## How this was made",
            "",
            f"* Command: `{about.command}`",
            f"* Data: `{about.data}`",
            f"* Protocol: {settings}",
            f"* Versions: {versions}",
            f"* Made: {about.made}",
            "* Intervals: 95 %, percentiles of 1,000 bootstrap samples of test items (Efron, "
            "1979), drawn within subsets where a test set has some. Scores on folds of "
            "cross-validation count every item once. They hold for these embeddings and these "
            "classifiers; other seeds of training may differ by more.",
        ]
    )
