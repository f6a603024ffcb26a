"""Cutoff: views of texts with a part of their input erased (Shen et al., 2020).

The paper is "A Simple but Tough-to-Beat Data Augmentation Approach for Natural Language
Understanding and Generation", section 3.2. The embedding layer gives a matrix `(T, d)` for each
text. Token cutoff erases some of its rows, span cutoff neighbouring rows, and feature cutoff some
of its columns. A token that is cut is left out of attention and pooling, so that its token
embedding has no effect; the other tokens keep their positions.
"""

from collections.abc import Callable

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors
from torch import Tensor

from declutr.modules.embedders import PretrainedTransformerEmbedderMLM
from declutr.objectives.numerics import one_of
from declutr.system import raised_as
from declutr.system.host_memory import on_host, to_device
from declutr.transformer.architectures import embedding_width

FEWEST_TOKENS = 3  # a text with fewer tokens that may be cut loses none


def cut_counts(lengths: Tensor, rate: float) -> Tensor:
    """Return `floor(rate * lengths)`, the numbers of tokens or features to cut.

    # Parameters

    lengths : integers of any shape.
    rate : the share to cut, above 0 and below 1.

    # Raises

    `ValueError` : the rate is out of range.

    # Examples

    >>> cut_counts(torch.tensor([9, 10, 29]), 0.1).tolist()
    [0, 1, 2]
    """
    if not 0 < rate < 1:
        raise ValueError(f"The rate of cutoff must be above 0 and below 1, got {rate}.")
    # 0.29 * 100 is 28.999999999999996 in floating point.
    return (lengths.double() * rate + 1e-9).floor().long()


def cut_tokens(
    mask: Tensor, maskable: Tensor, rate: float = 0.1, generator: torch.Generator | None = None
) -> Tensor:
    """Draw the tokens of each text to cut, for token cutoff.

    Of a text of `L` tokens, `floor(rate * L)` are cut, but at least one if three or more may be
    cut, and never all that may be cut. (The published code draws with replacement, does not cut
    short texts, and cuts special tokens as well.)

    # Parameters

    mask : `(N, T)` bool, False at padding.
    maskable : `(N, T)` bool, True at tokens that may be cut: no special tokens and no padding.
    rate : the share to cut, above 0 and below 1.
    generator : a generator on the device of `mask`; by default torch's global one.

    # Returns

    A mask `(N, T)`, True at the tokens to cut.

    # Raises

    `ValueError` : the rate is out of range, or the shapes differ.
    """
    counts = _counts_of_tokens(mask, maskable, rate)
    drawn = torch.rand(mask.shape, device=mask.device, generator=generator)
    order = drawn.masked_fill(~maskable, 2).argsort(dim=1)  # tokens that may be cut come first
    return order.argsort(dim=1) < counts[:, None]


def cut_span(
    mask: Tensor, maskable: Tensor, rate: float = 0.1, generator: torch.Generator | None = None
) -> Tensor:
    """Draw the tokens of each text to cut, for span cutoff: neighbouring tokens.

    The span has as many tokens as `cut_tokens` cuts, and every place is equally likely. A special
    token within the span is not cut and does not count. See `cut_tokens` for parameters, the mask
    that is returned, and errors.
    """
    counts = _counts_of_tokens(mask, maskable, rate)  # (N,)
    places = maskable.sum(dim=1) - counts + 1
    drawn = torch.rand(len(mask), device=mask.device, generator=generator)
    starts = torch.minimum((drawn * places).long(), places - 1)
    number = maskable.cumsum(dim=1) - 1  # (N, T), counts only tokens that may be cut
    after = number - starts[:, None]
    return maskable & (after >= 0) & (after < counts[:, None])


def cut_features(
    texts: int, width: int, rate: float = 0.1, generator: torch.Generator | None = None
) -> Tensor:
    """Draw the features of each text to cut, for feature cutoff.

    # Parameters

    texts : the number of texts.
    width : the width of the embedding layer.
    rate : the share to cut, above 0 and below 1.
    generator : a generator on the CPU; by default torch's global one.

    # Returns

    A mask `(texts, width)`, True at `floor(rate * width)` features of each text.

    # Raises

    `ValueError` : the rate is out of range.
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
    generator: torch.Generator | None = None,
) -> TextFieldTensors:
    """Return a copy of texts with parts cut, whose embeddings are the other view.

    `"token"` and `"span"` remove tokens from the mask, and so from attention and pooling.
    `"feature"` keeps all tokens, and adds a tensor `cut_features` `(N, d)`, by which the embedder
    sets columns of the output of its embedding layer to zero. The draw is stored with the texts, so
    that a chunk of them, or a second pass, has the same cut. It is made on the host, and so is the
    same for every device.

    # Parameters

    texts : word pieces `(N, T)` of one indexer.
    embedder : the embedder of the texts, which knows special tokens and the embedding layer.
    kind : `"token"`, `"span"` or `"feature"`.
    rate : the share to cut, above 0 and below 1.
    generator : a generator on the CPU; by default torch's global one.

    # Raises

    `ConfigurationError` : the kind is unknown, the rate is out of range, the texts are not word
        pieces, tokens are to be cut from texts in segments (`max_length`), or features in a
        transformer without an embedding layer.
    """
    one_of("cutoff", kind, KINDS)
    name, tensors = _word_pieces(texts)
    with raised_as(ConfigurationError, ValueError):
        if kind == "feature":
            width, mask = embedding_width(embedder.encoder), tensors["mask"]
            features = cut_features(len(mask), width, rate, generator)
            return {name: {**tensors, "cut_features": to_device(features, mask.device)}}
        return {name: {**tensors, **_cut_masks(tensors, embedder, kind, rate, generator)}}


def _cut_masks(
    tensors: dict[str, Tensor],
    embedder: PretrainedTransformerEmbedderMLM,
    kind: str,
    rate: float,
    generator: torch.Generator | None,
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
    """Return the name of the only indexer and its tensors, or raise."""
    if len(texts) == 1:
        ((name, tensors),) = texts.items()
        if {"token_ids", "mask"} <= set(tensors) and tensors["mask"].dim() == 2:
            return name, tensors
    got = {name: {key: tuple(t.shape) for key, t in some.items()} for name, some in texts.items()}
    raise ConfigurationError(
        "Cutoff takes texts of one indexer of type 'pretrained_transformer', token_ids and mask of "
        f"which are (N, T); got {got}. Flatten spans of documents first."
    )
