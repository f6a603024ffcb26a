"""Which layer the head of masked language modelling reads in a run that goes on.

Where embeddings are a mix of layers (`last_layer_only` false), the head read that mix until release
1.5, and reads the last layer since, as in the original package. A run keeps what it was begun with:
`run.json` says so since then, and one that says nothing is of an older release.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

logger = logging.getLogger(__name__)

LAST_LAYER, MIX = "last layer", "mix of layers"


def begun_with_mix(serialization_dir: str | None) -> bool:
    """Whether the run in a folder, if there is one, was begun with a head that reads the mix.

    Asked for a model that mixes layers, before `run.json` is written anew. The log tells of it, and
    of a run that cannot be told apart because it has no `run.json`.
    """
    if not serialization_dir:
        return False
    folder = Path(serialization_dir)
    try:
        record = json.loads((folder / "run.json").read_text())
    except (OSError, ValueError):
        if any(folder.glob("model_state_e*")):
            logger.warning(
                "'%s' has checkpoints but no run.json that can be read, so it is not known which "
                "layer the head of masked language modelling read. With last_layer_only false it "
                "reads the last layer from now on, as in the original package; until declutr 1.5 "
                "it read the mix of layers. Begin the run anew if it was one of those.",
                folder,
            )
        return False
    reads = (record.get("loss") or {}).get("mlm_head_reads", MIX)
    if reads == MIX:
        logger.warning(
            "The run in '%s' was begun with declutr 1.5 or before, where with last_layer_only "
            "false the head of masked language modelling read the mix of layers. It goes on so. In "
            "a run begun anew the head reads the last layer, as in the original package.",
            folder,
        )
    return reads == MIX
