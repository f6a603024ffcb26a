"""What embeds a batch of tokenised texts, wherever it comes from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch

from declutr.inference.prompts import Prompts
from declutr.inference.whitening import Whitening
from declutr.transformer.linear_layers import choose_products, prepare_linear_layers

_TRIED_WITH = ["a", "b c", "Some words, and 3 more."]


class TextModel(ABC):
    """Texts to vectors in two steps: tokens of whole texts, then vectors of what fits.

    In between, who uses it cuts, sorts and batches. Vectors are neither whitened nor scaled.
    """

    device: torch.device

    max_length: int | None = None
    """Tokens that it takes at once, special ones included; `None` if there is no limit."""

    special_tokens: int = 0
    """How many it adds to each text."""

    keeps_end = False
    """Whether it was made for the ends of longer texts (a tokenizer whose `truncation_side` is
    left), and not for their beginnings."""

    normalizes = False
    """Whether vectors of length 1 are part of what it is."""

    whitening: Whitening | None = None
    """What is stored with it."""

    prompts = Prompts()
    """What it wants put before texts: who tokenises asks for it."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """The width d of its vectors."""

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
    def cuts_texts(self) -> bool:
        """Whether it cuts texts itself, so that whole ones are not to be had."""
        return False

    @property
    def texts_cut(self) -> int:
        """How many it cut itself, so far."""
        return 0

    @property
    @abstractmethod
    def linear_part(self) -> torch.nn.Module:
        """What computes token vectors: its linear layers are those that `prepare` replaces."""

    def choose_products(self, dtype: str) -> None:
        """Find out by which products `prepare` would compute, and leave everything as it is."""
        choose_products(self.linear_part, dtype)

    def prepare(self, dtype: str) -> None:
        """Compute in float32, bfloat16 or int8 from now on, by the quickest products of this CPU.

        Weights are put in an order of their own: the model cannot be trained or saved afterwards.
        """
        # Whether texts can be packed is found out here too, in float32.
        prepare_linear_layers(
            self.linear_part, lambda: self.embed(self.tokenize(_TRIED_WITH)), dtype
        )
