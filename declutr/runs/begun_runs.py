"""What a run was begun with, and how a later call differs from it."""

import filecmp
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allennlp.common import Params

from declutr.bridge.additions import differences
from declutr.bridge.own_names import as_before, spelt
from declutr.corpus.source_digests import source_digests
from declutr.runs.training_texts import NAMES
from declutr.system.files import json_object

CONFIG = "config.json"
DATA = "data.json"
"""The file of `data_digests` in the folder of a run; those of earlier releases have none."""
PATHS = ("train_data_path", "validation_data_path")
TEXTS = "texts"
"""The folder of texts that were given in memory, in the folder of the run."""

# AllenNLP compares these itself, and accepts equivalent ones (`declutr.bridge.additions`).
_COMPARED_ELSEWHERE = ("distributed", "trainer.type", "trainer.read_every")


def begun_otherwise(folder: Path, params: Params, new: Path, written: set[str]) -> list[str]:
    """Return how the run in a folder differs from one that is asked for, for a message.

    # Parameters

    folder : the folder of the run.
    params : the configuration that is asked for.
    new : the folder of the texts that are asked for.
    written : the names of the files of texts in `new`.
    """
    begun = Params(json.loads((folder / CONFIG).read_text(encoding="utf-8")))
    spelt_alike = Params(as_before(spelt(params.params), begun.params))
    before, now = begun.as_flat_dict(), spelt_alike.as_flat_dict()
    for key, name in zip(PATHS, NAMES, strict=True):
        if name in written and str(before.get(key)).endswith(f"{TEXTS}/{name}"):
            before[key] = now[key]  # its texts are compared below
    compared = [
        {k: v for k, v in one.items() if not k.startswith(_COMPARED_ELSEWHERE)}
        for one in (now, before)
    ]
    apart = differences(*compared)
    for name in sorted(written):
        old = folder / TEXTS / name
        if not apart and not (old.is_file() and filecmp.cmp(old, new / name, shallow=False)):
            row = _first_difference(old, new / name)
            apart.append(f"the texts in {name} differ from those it began with{row}")
    known = json_object(folder / DATA)
    digests = data_digests(params.params, folder) if known and not apart else {}
    for key in known.keys() & digests.keys():
        if known[key] != digests[key]:
            apart.append(f"the files of {key} are not those that it began with")
    return apart


def data_digests(config: Mapping[str, Any], folder: Path) -> dict[str, list[str]]:
    """Return the digests of the files of data, by the key of their path.

    Left out are texts that are kept in the folder of the run, URLs, and what cannot be read: the
    encoder of a finished run is opened without its data.
    """
    found = {}
    for key in PATHS:
        path = config.get(key)
        places = [path] if isinstance(path, str) else path or []
        own = (Path(place).is_relative_to(folder / TEXTS) for place in places)
        if not places or any(own):
            continue
        digests = source_digests(places)
        if digests is not None:
            found[key] = digests
    return found


def _first_difference(old: Path, new: Path) -> str:
    """Return where two files begin to differ, for a message."""
    if not old.is_file():
        return ""
    row = 0
    with old.open("rb") as before, new.open("rb") as now:
        for row, (a, b) in enumerate(zip(before, now, strict=False), start=1):
            if a != b:
                return f" (first in row {row})"
    return f" (they agree in {row} rows, and one has more)"
