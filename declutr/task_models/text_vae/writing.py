"""Writing texts from latent codes, greedily or by sampling."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.modules import TextFieldEmbedder

from declutr.task_models.text_vae.layers import CodeDecoder


@dataclass(frozen=True)
class Writing:
    """How texts are written.

    # Parameters

    temperature : of the distribution that tokens are drawn from; at 0 the most probable token is
        taken.
    top_k : how many of the most probable tokens are drawn from; by default all.
    max_tokens : the largest number of tokens of a text.
    seed : of the numbers that are drawn.

    # Raises

    `ValueError` : a parameter is of another type, or out of range.
    """

    temperature: float = 0.0
    top_k: int | None = None
    max_tokens: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        if not _is_number(self.temperature) or not 0 <= self.temperature < float("inf"):
            raise ValueError(
                f"Expected a temperature of 0 (the most probable token) or more, got "
                f"{self.temperature!r}."
            )
        whole_number("max_tokens", self.max_tokens, 1)
        whole_number("seed", self.seed, 0)
        if self.top_k is None:
            return
        whole_number("top_k", self.top_k, 1)
        if not self.temperature:
            raise ValueError(
                f"top_k is {self.top_k}, but at a temperature of 0 nothing is drawn: set the "
                "temperature to 1, or remove top_k."
            )

    def chosen(self, logits: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Return the ids of the next tokens `(n,)` of texts, given logits `(n, tokens)`.

        # Parameters

        logits : minus infinity for what is never written.
        generator : of the CPU, where tokens are drawn, so that they are the same on each device.
        """
        if not self.temperature:
            return logits.argmax(dim=-1)
        scaled = logits.float().cpu() / self.temperature
        if self.top_k is not None and self.top_k < scaled.size(-1):
            least = scaled.topk(self.top_k, dim=-1).values[:, -1:]
            scaled = scaled.masked_fill(scaled < least, -torch.inf)
        drawn = torch.multinomial(scaled.softmax(dim=-1), 1, generator=generator)
        return drawn.squeeze(-1).to(logits.device)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def whole_number(name: str, value: Any, least: int) -> int:
    """Return a value, or raise `ValueError` if it is no integer of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(
            f"Expected {name} to be a whole number of at least {least}, got {value!r}."
        )
    return value


def embedding_of(embedder: TextFieldEmbedder) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function from ids of words `(n, 1)` to their embeddings `(n, 1, d)`.

    # Raises

    `ConfigurationError` : the embedder has not got one token embedder of single ids.
    """
    names = list(getattr(embedder, "_token_embedders", {}))
    if len(names) != 1:
        raise ConfigurationError(
            "Texts are written word by word, with one token embedder of single ids; "
            f"{type(embedder).__name__} has {', '.join(names) or 'none'}."
        )
    return lambda ids: embedder({names[0]: {"tokens": ids}})


@torch.no_grad()
def written_ids(
    decoder: CodeDecoder,
    embed: Callable[[torch.Tensor], torch.Tensor],
    codes: torch.Tensor,
    start: int,
    end: int,
    never: Sequence[int],
    writing: Writing,
) -> list[list[int]]:
    """Return the ids of the tokens of one text for each code, without start and end.

    # Parameters

    decoder : the decoder of the codes, in evaluation mode.
    embed : returns embeddings `(n, 1, d)` of ids `(n, 1)`.
    codes : `(n, k)`.
    start, end : the ids of the tokens before and after a text.
    never : ids of tokens that are not written.
    writing : how tokens are chosen, and how many there are at most.
    """
    generator = torch.Generator().manual_seed(writing.seed)
    ids = torch.full((len(codes),), start, device=codes.device)
    over = torch.zeros_like(ids, dtype=torch.bool)
    state, steps = decoder.first_state(codes), []
    for _ in range(writing.max_tokens):
        logits, state = decoder.step(embed(ids.unsqueeze(1)), codes, state)
        logits = logits[:, -1]
        logits[:, list(never)] = -torch.inf
        ids = writing.chosen(logits, generator)
        steps.append(ids)
        over |= ids == end
        if over.all():
            break
    rows = torch.stack(steps, dim=1).tolist()
    return [row[: row.index(end)] if end in row else row for row in rows]
