"""Settings of a configuration that change nothing beside the others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from declutr.bridge.component_names import short
from declutr.runs.check.findings import Setting

_SPANS = "num_positives max_span_len min_span_len sampling_strategy placement short_documents"
_RULES: tuple[tuple[str, str, str, tuple[Any, ...]], ...] = (
    ("declutr", f"{_SPANS} anchor_beta positive_beta with_ids", "num_anchors", (None,)),
    ("declutr", "start_method", "num_workers", (0,)),
    ("text_pairs", "max_score", "labels", (None, "class", "nli")),
    ("glue", "fraction_seed", "label_fraction", (None,)),
    ("align_uniform", "alpha", "align_weight", (0,)),
    ("align_uniform", "t", "uniform_weight", (0,)),
    ("mochi", "only_filled", "queue_size", (0,)),
    ("pair_softmax", "activation", "hidden_dims", (None,)),
    ("reclaim", "folder", "storage", ("memory",)),
    ("reclaim", "approximate_from rebuild_every", "search", ("exact",)),
    ("consistency", "num_views", "views", (None,)),
    ("text_vae", "initial_kl_weight cycle_steps", "annealing_steps", (0,)),
    ("pretrained_transformer_mlm", "gradient_checkpointing", "train_parameters", (False,)),
    ("evaluate_embeddings", "select_start", "select_by", (None,)),
)
"""A registered name, keys of it that change nothing, and the values of another key for that."""
_MISSING = object()


def idle_settings(settings: list[Setting], validated: bool) -> Iterator[str]:
    """Yield a warning for each setting that is given and changes nothing.

    # Parameters

    settings : all effective settings.
    validated : whether there are validation data.
    """
    found = {one.path: one.value for one in settings}
    for one in settings:
        parent, _, key = one.path.rpartition(".")
        if one.default_of is not None or one.value is None:
            continue
        for name, keys, other, values in _RULES:
            beside = found.get(f"{parent}.{other}", _MISSING)
            of_rule = short(found.get(f"{parent}.type")) == name and key in keys.split()
            if of_rule and beside in values:
                yield f"{one.path} changes nothing, as {other} is {json.dumps(beside)}."
    if found.get("evaluate_on_test") and not found.get("test_data_path"):
        yield "evaluate_on_test changes nothing, as there is no test_data_path."
    # Scores of the callback "evaluate_embeddings" have a slash in their names.
    by_scores = "/" in str(found.get("trainer.validation_metric"))
    if found.get("trainer.patience") and not validated and not by_scores:
        yield "trainer.patience changes nothing, as there is no validation data."
