"""The sections of a report on how it was made: data, time, encoders and settings, in Markdown."""

from collections.abc import Mapping

from declutr.evaluation.report.contents import Contents
from declutr.evaluation.report.score_tables import not_shown
from declutr.evaluation.report.tables import seconds, section, table, text
from declutr.evaluation.report.truncated_encoders import WHOLE


def left_out(report: Contents) -> str:
    """Return the section on results of other folders that cannot be compared; empty without."""
    if not report.left_out:
        return ""
    about = (
        "These results stand in no table: they were made otherwise than those of the first folder."
    )
    header = ["folder", "encoder", "tasks", "why"]
    return section("Not comparable", about, table(header, report.left_out))


def missing(report: Contents) -> str:
    """Return the section on tasks without data; empty if all have data."""
    missing = report.comparison.missing()
    if not missing:
        return ""
    lines = [f"* {text(task)}: {text(reason)}" for task, reason in missing.items()]
    about = "These tasks have no score, and no average that needs them is given."
    return section("Missing data", about, "\n".join(lines))


def notes(report: Contents) -> str:
    """Return the section with notes on tasks; empty without notes."""
    c = report.comparison
    lines = []
    for task, notes in c.notes().items():
        for note, encoders in notes.items():
            whose = "" if len(encoders) == len(c.encoders) else f" ({', '.join(encoders)})"
            lines.append(f"* {text(task)}: {text(note + whose)}")
    return section("Notes on tasks", "\n".join(lines)) if lines else ""


def time(report: Contents) -> str:
    """Return the section on the time that embedding and scoring took."""
    rows = []
    for encoder in report.comparison.encoders:
        spent = report.time_spent(encoder)
        timed = spent.embedded and spent.embedding
        parts = (spent.embedding, spent.scoring, spent.intervals)
        longest = sorted(spent.tasks.items(), key=lambda item: -item[1])[:2]
        rows.append(
            [
                encoder,
                seconds(spent.total),
                *(_with_share(part, spent.total) for part in parts),
                f"{spent.embedded:,}",
                f"{spent.requested:,}",
                f"{spent.stored:,}",
                f"{spent.embedded / spent.embedding:,.0f}" if timed else "–",
                ", ".join(f"{task} {seconds(took)}" for task, took in longest if took >= 0.05),
            ]
        )
    header = ["encoder", "in all", "embedding", "scoring", "intervals", "sentences embedded"]
    header += ["asked for by tasks", "stored before", "embedded a second", "longest to score"]
    about = (
        "Each different sentence is embedded once, and leading dimensions are cut from that. Those "
        "that were stored before are not embedded again. Scoring is mostly the training of "
        "classifiers; intervals are those of scores. What is left to 100 % was spent on the store."
    )
    if len(rows) > 1:
        about += f" Tests between encoders took {seconds(report.comparing_seconds)} more."
    return section("Time", about, table(header, rows))


def _with_share(spent: float, total: float) -> str:
    return f"{seconds(spent)} ({100 * spent / total:.0f} %)" if total else seconds(spent)


def encoders(report: Contents) -> str:
    """Return the section that describes the encoders."""
    rows = []
    for encoder in report.comparison.encoders:
        facts = report.comparison.facts.get(encoder, {})
        described = dict(facts.get("description", {}))
        dimension, mark = described.pop("dimension", None), described.pop("fingerprint", "")
        parameters = described.pop("parameters", None)
        mark, cut, kept = mark.partition("@")
        known = described | (facts.get("counts") or {})
        if WHOLE in described:  # the row of the whole encoder has the rest
            known = {WHOLE: described[WHOLE]}
        told = ", ".join(
            f"{name.replace('_', ' ')} {f'{value:,}' if type(value) is int else value}"
            for name, value in known.items()
            if value is not None
        )
        given, short = str(facts.get("spec", "")).strip(), f"{mark[:12]}{cut}{kept}"
        sizes = [f"{size:,}" if size else "–" for size in (parameters, dimension)]
        rows.append([encoder, f"`{given}`", *sizes, told, f"`{short}`"])
    absent = not_shown(report)
    for one in (row for row in report.quoted if row.table not in absent):
        sizes = [one.parameters or "–", str(one.dimension or "–")]
        rows.append([one.label, "quoted", *sizes, one.source, "–"])
    header = ["encoder", "given as", "parameters", "dimension", "what it is", "fingerprint"]
    return section("Encoders", table(header, rows))


_INTERVALS = (
    "95 %, percentiles of {:,} bootstrap samples of test items (Efron, 1979), drawn within subsets "
    "where a test set has some. Scores on folds of cross-validation count every item once. They "
    "hold for these embeddings and these classifiers; other seeds of training may differ by more."
)


def method(report: Contents) -> str:
    """Return the section on how the report was made."""
    about, drawn = report.about, report.comparison.resamples
    lines = [
        f"* Command: `{about.command}`",
        f"* Data: `{about.data}`",
        f"* Protocol: {_listed(about.protocol)}",
        f"* Versions: {_listed(about.versions)}",
        f"* Made: {about.made}",
        f"* Intervals: {_INTERVALS.format(drawn)}"
        if drawn
        else "* Intervals: none were asked for.",
    ]
    return section("How this was made", "\n".join(lines))


def _listed(facts: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())
