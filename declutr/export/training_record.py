"""What is known of how a model was trained, as far as others may read it."""

from __future__ import annotations

import json
import re
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from declutr.archives import ARCHIVE, CONFIG, METRICS, RUN, Kind, NoModel, kind_of
from declutr.export.exportable import ExportError
from declutr.inference.fingerprints import files_fingerprint

_ABSOLUTE = re.compile(r"file:|[A-Za-z]:[\\/]|\\\\|[/~.]")


@dataclass
class TrainingRecord:
    """What the files beside a model say; empty where there are none.

    # Parameters

    recipe : the training configuration, files by their names alone.
    run : of `run.json`: versions, documents, steps.
    metrics : of `metrics.json`: the numbers.
    scores : of `evaluate-embeddings`: averages and tasks by name.
    scored_by : what those were made with.
    """

    recipe: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    scored_by: dict[str, Any] = field(default_factory=dict)


def training_record(place: str) -> TrainingRecord:
    """Return the record of a serialization folder, or of an archive and the folder it lies in."""
    path = Path(place)
    try:
        kind = kind_of(path)
    except NoModel:
        return TrainingRecord()
    folder = path if kind is Kind.TRAINED else path.parent
    config = _member(path, CONFIG) if kind is Kind.ARCHIVE else _json(folder / CONFIG)
    if kind not in (Kind.TRAINED, Kind.ARCHIVE) or "model" not in config:
        return TrainingRecord()
    if _json(folder / CONFIG) != config:  # the folder is of another model
        return TrainingRecord(recipe=without_places(config))
    return TrainingRecord(
        recipe=without_places(config),
        run=without_places(_json(folder / RUN)),
        metrics=without_places(_json(folder / METRICS)),
    )


def add_scores(record: TrainingRecord, results: Path, place: str, described: dict) -> None:
    """Put the scores of this very model into `record`.

    # Parameters

    results : the folder that `evaluate-embeddings` wrote.
    described : `Encoder.describe()` of the model.

    # Raises

    `ExportError` : no results there, or none of this model as it is exported.
    """
    found = _json(results / "results.json")
    encoders = found.get("encoders")
    if not isinstance(encoders, dict):
        raise ExportError(
            f"No results.json with encoders in '{results}'. Expected the --output folder of "
            "`declutr evaluate-embeddings`."
        )
    contents = {described["content"]}
    archive = Path(place) / ARCHIVE
    if archive.is_file():
        contents.add(files_fingerprint([archive]))
    for encoder in encoders.values():
        about = encoder.get("description", {})
        if about.get("content") in contents and _embeds_alike(about, described):
            record.scores = _scores(encoder)
            record.scored_by = {
                "data": _name(str(found.get("data", ""))),
                "versions": found.get("versions", {}),
                "protocol": found.get("protocol", {}),
                "normalize": about.get("normalize"),
            }
            return
    raise ExportError(
        f"None of the encoders in '{results}' ({', '.join(encoders)}) is '{place}' as it is "
        "exported: their files, pooling, prompt or whitening differ. Evaluate it first: `declutr "
        f"evaluate-embeddings DATA {place} -o FOLDER`."
    )


def _embeds_alike(about: dict[str, Any], described: dict[str, Any]) -> bool:
    """Whether an encoder that was scored embeds as a model does by itself."""
    return (
        all(about.get(name) == described[name] for name in ("whitening", "truncate_dim"))
        and about.get("prompt") is None
        and about.get("pooling") in (described["pooling"], "its own")
        and about.get("long_texts", "truncate") == "truncate"
    )


def without_places(value: Any, key: str = "") -> Any:
    """JSON with paths of the training machine replaced by the name of what is there."""
    if isinstance(value, dict):
        return {name: without_places(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [without_places(item, key) for item in value]
    if isinstance(value, str) and (key.endswith("_path") or _ABSOLUTE.match(value)):
        return _name(value)
    return value


def _name(place: str) -> str:
    """The last part of a path of any system, or of a URL."""
    return re.split(r"[\\/]", place.rstrip("/\\"))[-1]


def _scores(encoder: dict[str, Any]) -> dict[str, float]:
    scores = {
        name: average["value"]
        for name, average in encoder.get("averages", {}).items()
        if average.get("value") is not None
    }
    for name, task in encoder.get("tasks", {}).items():
        value = task.get("scores", {}).get(task.get("main"), {}).get("value")
        if value is not None:
            scores.setdefault(name, value)
    return scores


def _json(file: Path) -> dict[str, Any]:
    """Return a JSON object, or an empty one if there is none."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _member(archive: Path, name: str) -> dict[str, Any]:
    """A JSON object in an archive, read where it is."""
    try:
        with tarfile.open(archive, "r:gz") as opened:
            file = opened.extractfile(name)
            content = json.load(file) if file is not None else {}
    except (KeyError, OSError, ValueError, tarfile.TarError):
        return {}
    return content if isinstance(content, dict) else {}
