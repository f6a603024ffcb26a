"""Which prompts stand before the lines of an index, and before the queries it is asked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from declutr.inference.bulk.manifest import Manifest
from declutr.search.index_files import EMBEDDINGS, IndexDescription, SearchError

if TYPE_CHECKING:  # it comes with torch, which what is embedded already needs not
    from declutr.inference.text_model import SidePrompts

logger = logging.getLogger(__name__)

Encode = Callable[[list[str]], np.ndarray]


class Embedder(Protocol):
    """What of `declutr.Encoder` is used here."""

    @property
    def dimension(self) -> int: ...

    @property
    def truncated_texts(self) -> int: ...

    def describe(self) -> dict[str, Any]: ...

    def __call__(self, inputs: list[str]) -> np.ndarray: ...


def prompts_to_build_with(encoder: Any, folder: Path, overwrite: bool) -> SidePrompts | None:
    """Those of both sides; `None` if the encoder decides for both alike.

    What the model names for either side is taken, and that is logged; a prompt that the encoder was
    made with is that of lines. An index of a release that took none goes on without.
    """
    from declutr.inference.text_model import side_prompts

    sides = side_prompts(encoder)
    if sides is None:
        return None
    before = None if overwrite else Manifest.load(folder / EMBEDDINGS)
    recorded = before is None or "prompt" in before.settings.get("encoder", {})
    if encoder.prompt is None and not recorded:
        logger.warning(
            "The index '%s' was begun by a release that did not use the prompts of its model, and "
            "goes on as it was. One made anew (--overwrite) would embed %s.",
            folder,
            sides,
        )
        return None
    logger.warning("Prompts of the model: %s.", sides)
    return sides


def encoder_of_lines(encoder: Any, sides: SidePrompts | None) -> tuple[Encode, dict[str, Any]]:
    """What embeds lines, and all that their embeddings depend on."""
    if sides is None:
        return encoder, encoder.describe()
    # Said where it is "" too: that tells such an index from those of releases without prompts.
    settings = {**encoder.describe(), "prompt": sides.document}
    return partial(encoder, prompt=sides.document), settings


def encoder_of_queries(
    encoder: Any, about: IndexDescription, prompt: str | None, prompt_name: str | None
) -> Encode:
    """What embeds queries: after the prompt that is asked for, or the one of the index.

    # Raises

    `SearchError` : the model has no such prompt, or none at all.
    """
    from declutr.inference.text_model import Prompts, SidePrompts, side_prompts

    prompts = getattr(encoder, "prompts", None)
    if prompt is not None or prompt_name is not None:
        if not isinstance(prompts, Prompts):
            raise SearchError("Got a prompt for queries; the encoder of this index takes none.")
        try:
            asked = prompts.chosen(prompt, prompt_name, about.model)
        except ValueError as error:
            raise SearchError(str(error)) from error
        return partial(encoder, prompt=asked)
    if about.prompts is not None:
        logger.info("Prompts of the index: %s.", SidePrompts(**about.prompts))
        return partial(encoder, prompt=about.prompts["query"])
    sides = side_prompts(encoder)
    if sides is not None and encoder.prompt is None:
        logger.warning(
            "This index was built by a release that did not use the prompts of its model: queries "
            "are embedded as its lines were. One made anew (`declutr index MODEL LINES -o INDEX "
            "--overwrite`) would embed %s.",
            sides,
        )
    return encoder


def without_prompt(described: Mapping[str, Any], about: IndexDescription) -> dict[str, Any]:
    """What an encoder says of itself, less a prompt that the index has a record of."""
    known = () if about.prompts is None else about.prompts.values()
    return {
        name: value
        for name, value in described.items()
        if not (name == "prompt" and value in known)
    }
