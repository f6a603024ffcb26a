"""What a model wants put before texts: prompts by name, one of which may be its default."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from declutr.inference.errors import EncoderError

_QUERY = ("query",)
_DOCUMENT = ("document", "passage", "corpus")
"""Names that sentence-transformers' `encode_query` and `encode_document` look for, in order."""


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

    @property
    def sides(self) -> SidePrompts | None:
        """The prompts of documents and of queries; `None` if the model names neither.

        A side without one has none, whatever the default is: that was meant for the other.
        """
        document, query = self._first(_DOCUMENT), self._first(_QUERY)
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

    def _first(self, names: tuple[str, ...]) -> str:
        # sentence-transformers writes "" under names that a model does not use.
        return next((self.named[name] for name in names if self.named.get(name)), "")


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
