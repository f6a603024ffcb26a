"""The interface of models that embed batches of tokenised texts, and the prompts of a model."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from declutr.inference import EncoderError
from declutr.system import raised_as

if TYPE_CHECKING:  # encoders without a model, such as word vectors, need not wait for torch
    import numpy as np
    import torch

    from declutr.inference.fitted_map import FittedMap

_DOCUMENT = ("document", "passage", "corpus")
"""The names of prompts that sentence-transformers' `encode_document` looks for, in order."""
_HOOKED = "_output_capturing_hooks_installed"
"""An attribute of models that transformers 5 has hooked functions into, to get all of their layers.
"""
_TRIED_WITH = ["a", "b c", "Some words, and 3 more."]


class SidePrompts(NamedTuple):
    """The prompts for the documents and for the queries of a search; `""` stands for no prompt."""

    document: str
    query: str

    def __str__(self) -> str:
        shown = (f"after {text!r}" if text else "without a prompt" for text in self)
        return "lines {}, queries {}".format(*shown)


@dataclass(frozen=True)
class Prompts:
    """The prompts of a model, as a folder of sentence-transformers stores them.

    # Parameters

    named : the text of each prompt by its name. A prompt is put directly before a text, so a blank
        between them must be part of the prompt.
    default_name : the name of the prompt that is used if none is asked for; `None` uses none.
    """

    named: dict[str, str] = field(default_factory=dict)
    default_name: str | None = None

    @property
    def default(self) -> str:
        """The prompt that is used if none is asked for; `""` stands for no prompt."""
        return self.named.get(self.default_name or "", "")

    def first_of(self, *prompts: str | None) -> str:
        """Return the first prompt that is not `None`; the default if all are."""
        return next((prompt for prompt in prompts if prompt is not None), self.default)

    @property
    def sides(self) -> SidePrompts | None:
        """The prompts for documents and for queries; `None` if the model names neither.

        If the model names only one of them, the other is `""` even if there is a default prompt:
        the default is then meant for the side that has a prompt.
        """
        # sentence-transformers writes "" under names that a model does not use.
        document = next((self.named[name] for name in _DOCUMENT if self.named.get(name)), "")
        query = self.named.get("query", "")
        return SidePrompts(document, query) if document or query else None

    def chosen(self, prompt: str | None, prompt_name: str | None, place: str) -> str | None:
        """Return the prompt that is asked for by its text or by its name; `None` if none is.

        # Raises

        `EncoderError` : both are given, or the model has no prompt of that name.
        `TypeError` : the prompt or the name is not a string.
        """
        for name, value in (("prompt", prompt), ("prompt_name", prompt_name)):
            if value is not None and not isinstance(value, str):
                raise TypeError(f"Expected {name} to be a string, got {type(value).__name__}.")
        if prompt_name is None:
            return prompt
        if prompt is not None:
            raise EncoderError("Got prompt and prompt_name; give one of them.")
        if prompt_name not in self.named:
            known = ", ".join(map(repr, self.named)) or "none"
            raise EncoderError(
                f"'{place}' has no prompt named {prompt_name!r}; it has {known}. Give the text "
                "itself as prompt."
            )
        return self.named[prompt_name]


def side_prompts(encoder: Any) -> SidePrompts | None:
    """Return the prompts of an encoder for documents and queries; `None` if it names neither.

    If the encoder was made with a prompt, that is its prompt for documents.

    # Parameters

    encoder : a `declutr.Encoder`, or any object; without an attribute `prompts` of type `Prompts`,
        the result is `None`.
    """
    prompts = getattr(encoder, "prompts", None)
    if not isinstance(prompts, Prompts):
        return None
    sides = prompts.sides
    if encoder.prompt is None:
        return sides
    return SidePrompts(encoder.prompt, sides.query if sides else prompts.default)


class TextModel(ABC):
    """A model that tokenises whole texts, and embeds batches of token sequences that fit.

    Between these two steps, the caller cuts, sorts and batches the token sequences. The embeddings
    are neither whitened nor scaled to length 1.
    """

    device_type: str
    """`"cpu"`, `"cuda"`, ...: where it computes, which may be the CPU although another was asked
    for."""

    dimension: int
    """The width d of the embeddings."""

    linear_part: torch.nn.Module
    """The module that computes token embeddings, whose linear layers `prepare` replaces."""

    max_length: int | None = None
    """The largest number of tokens of a text, special ones included; `None` for no limit."""

    special_tokens: int = 0
    """The number of special tokens that `embed` adds to each text."""

    embeds_in_threads = False
    """Whether several threads may call `embed` at once (`declutr.inference.embedding_threads`)."""

    only_float32 = False
    """Whether it looks vectors up and computes no products that another dtype would speed up."""

    keeps_end = False
    """Whether truncation keeps the end of a text (its tokenizer has `truncation_side` left)."""

    cuts_texts = False
    """Whether `tokenize` cuts long texts itself, which rules out `max_length` and chunks."""

    normalizes = False
    """Whether embeddings are scaled to length 1 by default, as by a normalisation module."""

    truncate_dim: int | None = None
    """The number of leading dimensions that are kept by default; `None` for all."""

    whitening: FittedMap | None = None
    """The whitening or flow that is stored with the model; `None` if there is none."""

    embed_texts: Callable[[list[str], str], np.ndarray] | None = None
    """A method of models that embed whole texts of any length at once: of texts and a prompt."""

    prompts = Prompts()
    """The prompts of the model. `tokenize` adds the prompt that its caller chose from them."""

    def keep_leading(self, kept: int | None) -> None:
        """Keep so many leading dimensions by default, if there are more."""
        self.truncate_dim = kept if kept is not None and kept < self.dimension else None

    def __getstate__(self) -> dict[str, Any]:
        state = vars(self)
        transformer = state.get("linear_part")
        if transformer is None or not any(_HOOKED in vars(part) for part in transformer.modules()):
            return state
        # Hooked functions cannot be pickled. A copy is without them, and gets them when it is used.
        # It has the same tensors: others would be gone before a started process reads them.
        own = [
            {**part._parameters, **part._buffers, "product": getattr(part, "_product", None)}
            for part in transformer.modules()
        ]
        state = copy.deepcopy(state, {id(each): each for some in own for each in some.values()})
        for part in state["linear_part"].modules():
            vars(part).pop(_HOOKED, None)
            for number, hook in list(part._forward_hooks.items()):
                if getattr(hook, "__module__", "") == "transformers.utils.output_capturing":
                    del part._forward_hooks[number]
        return state

    @abstractmethod
    def tokenize(self, texts: list[str], prompt: str = "") -> list[Any]:
        """Return the tokens of each text, uncut and without special tokens.

        The tokens of a text are of any type with a length and slices, such as an array of ids.

        # Parameters

        texts : the texts.
        prompt : the prompt, which is put directly before each text.
        """

    @abstractmethod
    def embed(self, pieces: Sequence[Any]) -> torch.Tensor:
        """Return the embeddings `(n, d)`, float32, of n sequences of tokens.

        # Parameters

        pieces : tokens as `tokenize` returns them, or slices of them; with special tokens, none may
            be longer than `max_length`.
        """

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return `kind`, `pooling`, `content` and all else embeddings depend on, as JSON values."""

    @property
    def num_parameters(self) -> int:
        """The number of parameters that token embeddings are computed with, without any heads."""
        return sum(parameter.numel() for parameter in self.linear_part.parameters())

    @property
    def texts_cut(self) -> int:
        """The number of texts that `tokenize` has cut so far; see `cuts_texts`."""
        return 0

    def prepare(self, dtype: str) -> str:
        """Prepare linear layers for float32, bfloat16 or int8, by the fastest products of this CPU.

        It returns the dtype in use, which is float32, with a warning, for models that cannot
        compute in int8. Weights are stored in a layout of the chosen product, so the model cannot
        be trained or saved afterwards.
        """
        if not self.embeds_in_threads:
            return self._prepared(dtype)
        from declutr.inference.embedding_threads import computed_in_threads

        # Each product is the fastest one for the threads that will compute it.
        (prepared,) = computed_in_threads(self._prepared, [dtype], threads=1)
        return prepared

    def _prepared(self, dtype: str) -> str:
        from declutr.transformer.linear_layers import prepare_linear_layers
        from declutr.transformer.prepared_linear import PreparedLinear

        # The first call also finds out whether texts can be packed, while it is in float32.
        def embed() -> torch.Tensor:
            return self.embed(self.tokenize(_TRIED_WITH))

        with raised_as(EncoderError, ValueError):
            can = prepare_linear_layers(self.linear_part, embed, dtype)
        replaced = any(isinstance(part, PreparedLinear) for part in self.linear_part.modules())
        if self.embeds_in_threads and not replaced:
            # It may not have been called, and threads would find out at the same time. Their texts
            # may be right for a model that these are not right for.
            with suppress(Exception):
                embed()
        return dtype if can else "float32"
