"""Silence about texts that are longer than a model takes, where they are counted or on purpose."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager

from declutr.system.imports import loggers_at


def not_told() -> AbstractContextManager[None]:
    """Inside, `declutr.Encoder` does not say how many texts it cut; `truncated_texts` counts on."""
    return loggers_at(logging.ERROR, "declutr.inference.encoder")
