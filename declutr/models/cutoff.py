"""Cutoff: a view of a text of which a part is erased (Shen et al., 2020).

"A Simple but Tough-to-Beat Data Augmentation Approach for Natural Language Understanding and
Generation", section 3.2. What the embedding layer gives is a matrix `(T, d)` for each text; token
cutoff erases some of its rows, span cutoff neighbouring rows, feature cutoff some of its columns.
A token is erased from attention and pooling too, with which its vector no longer matters; all
others keep their positions.
"""

from collections.abc import Callable
from typing import Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors
from torch import Tensor

from declutr.modules.embedders import PretrainedTransformerEmbedderMLM
from declutr.objectives.checks import one_of
from declutr.system.host_memory import on_host, to_device
from declutr.transformer.architectures import embedding_width

FEWEST_TOKENS = 3  # that may be cut, for a text to lose one


def cut_counts(lengths: Tensor, rate: float) -> Tensor:
    """`floor(rate * L)` of each `L` in `lengths` (integers, any shape): how many of them are cut.

    # Raises

    `ValueError` : a rate that is not above 0 and below 1.
    """
    if not 0 < rate < 1:
        raise ValueError(f"The rate of cutoff must be above 0 and below 1, got {rate}.")
    # 0.29 * 100 is 28.999999999999996 in floating point.
    return (lengths.double() * rate + 1e-9).floor().long()


def cut_tokens(
    mask: Tensor, maskable: Tensor, rate: float = 0.1, generator: Optional[torch.Generator] = None
) -> Tensor:
    """Token cutoff: `(N, T)`, true at tokens drawn at random, none twice.

    Of a text of `L` tokens, `floor(rate * L)` are cut; at least one if three or more may be, and
    never all that may be (the public code draws with replacement and lets short texts be).

    # Parameters

    mask : `(N, T)` bool, the tokens of each text: their number is `L`.
    maskable : `(N, T)` bool, those that may be cut: neither special tokens nor padding.
    rate : the share to cut, above 0 and below 1.
    generator : on the device of `mask`; torch's global one by default.

    # Raises

    `ValueError` : a rate out of range; shapes that differ.
    """
    counts = _counts_of_tokens(mask, maskable, rate)
    drawn = torch.rand(mask.shape, device=mask.device, generator=generator)
    order = drawn.masked_fill(~maskable, 2).argsort(dim=1)  # those that may be cut come first
    return order.argsort(dim=1) < counts[:, None]


def cut_span(
    mask: Tensor, maskable: Tensor, rate: float = 0.1, generator: Optional[torch.Generator] = None
) -> Tensor:
    """Span cutoff: `(N, T)`, true at neighbouring tokens, as many as with `cut_tokens`.

    All places are equally likely, the last one included. A special token within the span is left
    out and does not count. Parameters and errors are those of `cut_tokens`.
    """
    counts = _counts_of_tokens(mask, maskable, rate)  # (N,)
    places = maskable.sum(dim=1) - counts + 1
    drawn = torch.rand(len(mask), device=mask.device, generator=generator)
    starts = torch.minimum((drawn * places).long(), places - 1)
    number = maskable.cumsum(dim=1) - 1  # (N, T): of each among those that may be cut
    after = number - starts[:, None]
    return maskable & (after >= 0) & (after < counts[:, None])


def cut_features(
    texts: int, width: int, rate: float = 0.1, generator: Optional[torch.Generator] = None
) -> Tensor:
    """Feature cutoff: `(texts, width)`, true at `floor(rate * width)` columns of each text.

    # Raises

    `ValueError` : a rate out of range.
    """
    count = cut_counts(torch.tensor(width), rate).item()
    drawn = torch.rand(texts, width, generator=generator)
    return drawn.argsort(dim=1).argsort(dim=1) < count


def _counts_of_tokens(mask: Tensor, maskable: Tensor, rate: float) -> Tensor:
    if mask.shape != maskable.shape or mask.dim() != 2:
        raise ValueError(
            "The mask and the tokens that may be cut must both be (N, T), got "
            f"{tuple(mask.shape)} and {tuple(maskable.shape)}."
        )
    most = maskable.sum(dim=1)  # (N,)
    counts = cut_counts(mask.sum(dim=1), rate).clamp_min(1).minimum(most - 1)
    return counts.where(most >= FEWEST_TOKENS, 0)


_TOKENS: dict[str, Callable[..., Tensor]] = {"token": cut_tokens, "span": cut_span}
KINDS = (*_TOKENS, "feature")


def cut_texts(
    texts: TextFieldTensors,
    embedder: PretrainedTransformerEmbedderMLM,
    kind: str = "token",
    rate: float = 0.1,
    generator: Optional[torch.Generator] = None,
) -> TextFieldTensors:
    """The same texts, cut: what `embedder` and a pooler make of them is the other view.

    `"token"` and `"span"` take tokens out of the mask, and so out of attention and of pooling
    alike. `"feature"` adds `cut_features` `(N, d)`, which has the embedder zero these columns of
    the vectors that come out of its embedding layer; all tokens stay. The draw travels with the
    texts, so that passes over some of them, or a second pass, see the same cut. It is drawn on the
    host, the same for every device. `texts` themselves stay as they are.

    # Parameters

    texts : word pieces `(N, T)` of one indexer, the embedder's.
    embedder : tells which tokens are special, and how wide its embedding layer is.
    kind : `"token"`, `"span"` or `"feature"`.
    rate : the share to cut, above 0 and below 1.
    generator : on the CPU; torch's global one by default.

    # Raises

    `ConfigurationError` : an unknown kind; a rate out of range; other tokens than word pieces;
        tokens to be cut out of texts in segments (`max_length`); features to be cut in a
        transformer without an embedding layer.
    """
    one_of("cutoff", kind, KINDS)
    name, tensors = _word_pieces(texts)
    try:
        if kind == "feature":
            width, mask = embedding_width(embedder.encoder), tensors["mask"]
            features = cut_features(len(mask), width, rate, generator)
            return {name: {**tensors, "cut_features": to_device(features, mask.device)}}
        return {name: {**tensors, **_cut_masks(tensors, embedder, kind, rate, generator)}}
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def _cut_masks(
    tensors: dict[str, Tensor],
    embedder: PretrainedTransformerEmbedderMLM,
    kind: str,
    rate: float,
    generator: Optional[torch.Generator],
) -> dict[str, Tensor]:
    device = tensors["mask"].device
    token_ids, mask = on_host(tensors["token_ids"]), on_host(tensors["mask"])
    if token_ids.shape != mask.shape:
        raise ConfigurationError(
            f"Cutoff '{kind}' takes texts that go through the transformer in one piece, got "
            f"{token_ids.size(1)} tokens of texts of {mask.size(1)}. Raise or remove max_length of "
            "the indexer, or cut features."
        )
    cut = _TOKENS[kind](mask, embedder.maskable(token_ids, mask), rate, generator)
    return {
        key: to_device(on_host(tensors[key]) & ~cut, device)
        for key in ("mask", "segment_concat_mask")
        if key in tensors
    }


def _word_pieces(texts: TextFieldTensors) -> tuple[str, dict[str, Tensor]]:
    """The indexer's name and its tensors."""
    if len(texts) == 1:
        ((name, tensors),) = texts.items()
        if {"token_ids", "mask"} <= set(tensors) and tensors["mask"].dim() == 2:
            return name, tensors
    got = {name: {key: tuple(t.shape) for key, t in some.items()} for name, some in texts.items()}
    raise ConfigurationError(
        "Cutoff takes texts of one indexer of type 'pretrained_transformer', token_ids and mask of "
        f"which are (N, T); got {got}. Flatten spans of documents first."
    )
