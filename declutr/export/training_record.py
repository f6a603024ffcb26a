"""The record of how a model was trained, without private details such as paths."""

import json
import re
import tarfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from declutr.archives import ARCHIVE, CONFIG, METRICS, RUN, Kind, NoModel, kind_of
from declutr.archives.fitted_weights import digest_of_model
from declutr.export.output_place import ExportError
from declutr.system.files import json_object

_ABSOLUTE = re.compile(r"file:|[A-Za-z]:[\\/]|\\\\|[/~.]")


@dataclass
class TrainingRecord:
    """The known facts about the training of a model; fields without a source are empty.

    # Parameters

    recipe : the training configuration, with paths reduced to file names.
    run : the content of `run.json`: versions, documents, steps.
    metrics : the content of `metrics.json`.
    scores : the scores of `evaluate-embeddings` by the name of the average or task.
    scored_by : the data, versions and settings behind the scores.
    """

    recipe: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    scored_by: dict[str, Any] = field(default_factory=dict)


def training_record(place: str) -> TrainingRecord:
    """Return the training record of a model.

    The record is empty for anything but a serialization directory or an archive. For an archive,
    the files of its folder are used if the folder has the same configuration.
    """
    path = Path(place)
    try:
        kind = kind_of(path)
    except NoModel:
        return TrainingRecord()
    folder = path if kind is Kind.TRAINED else path.parent
    config = _member(path, CONFIG) if kind is Kind.ARCHIVE else json_object(folder / CONFIG)
    if kind not in (Kind.TRAINED, Kind.ARCHIVE) or "model" not in config:
        return TrainingRecord()
    if json_object(folder / CONFIG) != config:  # the folder belongs to another model
        return TrainingRecord(recipe=without_places(config))
    return TrainingRecord(
        recipe=without_places(config),
        run=without_places(json_object(folder / RUN)),
        metrics=without_places(json_object(folder / METRICS)),
    )


def add_scores(record: TrainingRecord, results: Path, place: str, described: dict) -> None:
    """Add the scores of a model to its record.

    # Parameters

    record : the record, which is changed in place.
    results : the output folder of `evaluate-embeddings`.
    place : the path of the model.
    described : `Encoder.describe()` of the model with the settings of the export.

    # Raises

    `ExportError` : if the folder has no results, or none of this model with these settings.
    """
    found = json_object(results / "results.json")
    encoders = found.get("encoders")
    if not isinstance(encoders, dict):
        raise ExportError(
            f"No results.json with encoders in '{results}'. Expected the --output folder of "
            "`declutr evaluate-embeddings`."
        )
    contents = {described["content"], *_contents_of_run(Path(place))}
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
    named = f"{place}?normalize=true" if described.get("normalize") else place
    raise ExportError(
        f"None of the encoders in '{results}' ({', '.join(encoders)}) is '{place}' as it is "
        "exported: their files, dtype, maximum length, scaling to length 1, pooling, prompt or "
        "whitening differ. Evaluate it first: `declutr evaluate-embeddings DATA "
        f"{named} -o FOLDER`."
    )


def _contents_of_run(place: Path) -> set[str]:
    """Return the fingerprints of a run and of its archive, if `place` is one of them.

    There are none if their weights differ: scores of one are not those of the other then.
    """
    from declutr.inference.trained_model import content_of

    run = place.parent if place.name == ARCHIVE else place
    archive = run / ARCHIVE
    try:
        same = kind_of(run) is Kind.TRAINED and digest_of_model(archive) == digest_of_model(run)
    except (NoModel, EOFError, OSError, tarfile.TarError, zlib.error):
        return set()  # one of them is not there, or damaged
    return {content_of(str(run)), content_of(str(archive))} if same else set()


def _embeds_alike(about: dict[str, Any], described: dict[str, Any]) -> bool:
    """Return whether an encoder that was scored has the settings of the exported model."""
    # sentence-transformers and earlier releases describe fewer settings.
    known = [name for name in ("dtype", "max_length", "normalize") if name in about]
    return (
        all(about.get(name) == described[name] for name in ("whitening", "truncate_dim"))
        and all(about[name] == described[name] for name in known if name in described)
        and about.get("prompt") is None
        and about.get("pooling") in (described["pooling"], "its own")
        and about.get("long_texts", "truncate") == "truncate"
    )


def without_places(value: Any, key: str = "") -> Any:
    """Replace the paths in a JSON value by the names of their files.

    >>> without_places({"train_data_path": "/home/me/wiki.txt", "lr": 5e-05})
    {'train_data_path': 'wiki.txt', 'lr': 5e-05}

    # Parameters

    value : a JSON value; it is not changed.
    key : the key of the object that holds `value`. Strings under a key that ends with `_path` are
        paths in any case.
    """
    if isinstance(value, dict):
        return {name: without_places(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [without_places(item, key) for item in value]
    if isinstance(value, str) and (key.endswith("_path") or _ABSOLUTE.match(value)):
        return _name(value)
    return value


def _name(place: str) -> str:
    """Return the last part of a path of any operating system, or of a URL."""
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


def _member(archive: Path, name: str) -> dict[str, Any]:
    """Return the JSON object in a member of an archive, or an empty dictionary."""
    try:
        with tarfile.open(archive, "r:gz") as opened:
            file = opened.extractfile(name)
            content = json.load(file) if file is not None else {}
    except (KeyError, OSError, ValueError, tarfile.TarError):
        return {}
    return content if isinstance(content, dict) else {}
