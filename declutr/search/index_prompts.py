"""Selection of the prompts for the lines of an index and for queries."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from declutr.inference.bulk.manifest import Manifest
from declutr.search.index_files import EMBEDDINGS, IndexDescription, SearchError
from declutr.system import raised_as

if TYPE_CHECKING:  # Its import brings torch, which a search for given embeddings does not need.
    from declutr.inference.text_model import SidePrompts

logger = logging.getLogger(__name__)

Encode = Callable[[list[str]], np.ndarray]
"""A function from n texts to embeddings `(n, d)`."""


class Embedder(Protocol):
    """The interface of `declutr.Encoder` that an index uses."""

    @property
    def dimension(self) -> int:
        """The dimension d of embeddings."""
        ...

    @property
    def truncated_texts(self) -> int:
        """The number of texts that were truncated so far."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return everything that the embeddings depend on, as JSON values."""
        ...

    def __call__(self, inputs: list[str]) -> np.ndarray:
        """Return the embeddings `(n, d)` of n texts."""
        ...


def prompts_to_build_with(encoder: Any, folder: Path, overwrite: bool) -> SidePrompts | None:
    """Return the prompts for lines and queries with which to build an index.

    The prompts that the model names for documents and queries are used and logged. A prompt that
    the encoder was made with replaces the one for lines. An unfinished index of an early release,
    which did not use the prompts of models, is continued without them.

    # Parameters

    encoder : a `declutr.Encoder`.
    folder : the folder of the index.
    overwrite : whether an index in the folder is replaced, so that its prompts do not matter.

    # Returns

    The prompts of both sides, or `None` if neither the model names some for a side nor was the
    encoder made with one: lines and queries are then embedded as the encoder embeds any text.
    """
    from declutr.inference.text_model import side_prompts

    sides = side_prompts(encoder)
    if sides is None:
        return None
    before = None if overwrite else Manifest.load(folder / EMBEDDINGS)
    recorded = before is None or "prompt" in before.settings.get("encoder", {})
    if encoder.prompt is None and not recorded:
        logger.warning(
            f"The index '{folder}' was begun by a release that did not use the prompts of its "
            f"model, and goes on as it was. One made anew (--overwrite) would embed {sides}."
        )
        return None
    logger.warning("Prompts of the model: %s.", sides)
    return sides


def encoder_of_lines(encoder: Any, sides: SidePrompts | None) -> tuple[Encode, dict[str, Any]]:
    """Return a function that embeds lines, and a description of what their embeddings depend on.

    # Parameters

    encoder : a `declutr.Encoder`.
    sides : the prompts for lines and queries, or `None` if the encoder itself decides.
    """
    if sides is None:
        return encoder, encoder.describe()
    # The key is there even for the prompt "", because early releases without prompts lack it.
    settings = {**encoder.describe(), "prompt": sides.document}
    return partial(encoder, prompt=sides.document), settings


def encoder_of_queries(
    encoder: Any, about: IndexDescription, prompt: str | None, prompt_name: str | None
) -> Encode:
    """Return a function that embeds queries.

    # Parameters

    encoder : a `declutr.Encoder`, or another callable if it needs no prompts.
    about : the description of the index, whose prompt for queries is the default.
    prompt : the text of another prompt, or `None`.
    prompt_name : the name of another prompt, or `None`.

    # Raises

    `SearchError` : if the model has no such prompt, or takes no prompts at all.
    """
    from declutr.inference.text_model import Prompts, SidePrompts, side_prompts

    prompts = getattr(encoder, "prompts", None)
    if prompt is not None or prompt_name is not None:
        if not isinstance(prompts, Prompts):
            raise SearchError("Got a prompt for queries; the encoder of this index takes none.")
        with raised_as(SearchError, ValueError):
            asked = prompts.chosen(prompt, prompt_name, about.model)
        return partial(encoder, prompt=asked)
    if about.prompts is not None:
        logger.info("Prompts of the index: %s.", SidePrompts(**about.prompts))
        return partial(encoder, prompt=about.prompts["query"])
    sides = side_prompts(encoder)
    if sides is not None and encoder.prompt is None:
        logger.warning(
            "This index was built by a release that did not use the prompts of its model: queries "
            "are embedded as its lines were. One made anew (`declutr index MODEL LINES -o INDEX "
            f"--overwrite`) would embed {sides}."
        )
    return encoder


def without_prompt(described: Mapping[str, Any], about: IndexDescription) -> dict[str, Any]:
    """Return the description of an encoder without a prompt that the index has recorded."""
    known = () if about.prompts is None else about.prompts.values()
    return {
        name: value
        for name, value in described.items()
        if not (name == "prompt" and value in known)
    }
