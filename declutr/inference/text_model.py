"""Models that embed batches of tokenised texts, and the prompts they want before texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from declutr.inference import EncoderError

if TYPE_CHECKING:  # encoders that are no models need neither
    import torch

    from declutr.inference.whitening import Whitening

_DOCUMENT = ("document", "passage", "corpus")
"""Names that sentence-transformers' `encode_document` looks for, in order."""
_TRIED_WITH = ["a", "b c", "Some words, and 3 more."]


class SidePrompts(NamedTuple):
    """What stands before the texts of either side of a search; `""` is nothing."""

    document: str
    query: str

    def __str__(self) -> str:
        shown = (f"after {text!r}" if text else "without a prompt" for text in self)
        return "lines {}, queries {}".format(*shown)


@dataclass(frozen=True)
class Prompts:
    """The prompts of a model, as folders of sentence-transformers have them.

    # Parameters

    named : their texts by name. They stand directly before a text: a blank between is theirs.
    default_name : of the one that is put before texts where none is asked for.
    """

    named: dict[str, str] = field(default_factory=dict)
    default_name: str | None = None

    @property
    def default(self) -> str:
        """What is put before texts where none is asked for; `""` is nothing."""
        return self.named.get(self.default_name or "", "")

    def first_of(self, *prompts: str | None) -> str:
        """Return the first prompt that is not `None`; the default if there is none."""
        return next((prompt for prompt in prompts if prompt is not None), self.default)

    @property
    def sides(self) -> SidePrompts | None:
        """The prompts of documents and of queries; `None` if the model names neither.

        A side without one has none, whatever the default is: that was meant for the other.
        """
        # sentence-transformers writes "" under names that a model does not use.
        document = next((self.named[name] for name in _DOCUMENT if self.named.get(name)), "")
        query = self.named.get("query", "")
        return SidePrompts(document, query) if document or query else None

    def chosen(self, prompt: str | None, prompt_name: str | None, place: str) -> str | None:
        """The text that is asked for, itself or by its name; `None` if none is.

        # Parameters

        place : of the model, for messages.

        # Raises

        `EncoderError` : both are given, or the model has no prompt of that name.
        `TypeError` : what is given is not a string.
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
    """What an encoder puts before documents and queries; `None` if its model has no say in it.

    A prompt that the encoder was made with is that of documents.

    # Parameters

    encoder : a `declutr.Encoder`, or anything with the attributes `prompts` and `prompt` of one.
    """
    prompts = getattr(encoder, "prompts", None)
    if not isinstance(prompts, Prompts):
        return None
    sides = prompts.sides
    if encoder.prompt is None:
        return sides
    return SidePrompts(encoder.prompt, sides.query if sides else prompts.default)


class TextModel(ABC):
    """Texts to vectors in two steps: tokens of whole texts, then vectors of what fits.

    In between, who uses it cuts, sorts and batches. Vectors are neither whitened nor scaled.
    """

    device: torch.device

    dimension: int
    """The width d of its vectors."""

    linear_part: torch.nn.Module
    """What computes token vectors: its linear layers are those that `prepare` replaces."""

    max_length: int | None = None
    """Tokens that it takes at once, special ones included; `None` if there is no limit."""

    special_tokens: int = 0
    """How many it adds to each text."""

    keeps_end = False
    """Whether it was made for the ends of longer texts (a tokenizer whose `truncation_side` is
    left), and not for their beginnings."""

    cuts_texts = False
    """Whether it cuts texts itself, so that whole ones are not to be had."""

    normalizes = False
    """Whether vectors of length 1 are part of what it is."""

    whitening: Whitening | None = None
    """What is stored with it."""

    prompts = Prompts()
    """What it wants put before texts: who tokenises asks for it."""

    @abstractmethod
    def tokenize(self, texts: list[str], prompt: str = "") -> list[Any]:
        """The tokens of each text without special ones, however many: what `len` and slices tell
        and take.

        # Parameters

        prompt : what stands directly before each text.
        """

    @abstractmethod
    def embed(self, pieces: Sequence[Any]) -> torch.Tensor:
        """The vectors `(n, d)` of n texts' tokens, none more than fits, float32."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """`kind`, `pooling`, `content` and whatever its vectors depend on, as JSON values."""

    @property
    def texts_cut(self) -> int:
        """How many it cut itself, so far."""
        return 0

    def choose_products(self, dtype: str) -> None:
        """Find out by which products `prepare` would compute, and leave everything as it is."""
        from declutr.transformer.linear_layers import choose_products

        choose_products(self.linear_part, dtype)

    def prepare(self, dtype: str) -> None:
        """Compute in float32, bfloat16 or int8 from now on, by the quickest products of this CPU.

        Weights are put in an order of their own: the model cannot be trained or saved afterwards.
        """
        from declutr.transformer.linear_layers import prepare_linear_layers

        # Whether texts can be packed is found out here too, in float32.
        prepare_linear_layers(
            self.linear_part, lambda: self.embed(self.tokenize(_TRIED_WITH)), dtype
        )
