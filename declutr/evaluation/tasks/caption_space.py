"""A common space of images and captions, trained with a ranking loss, and the ranks in it."""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.functional import normalize

from declutr.evaluation.classifiers.networks import seeded_linear
from declutr.evaluation.scores import Score
from declutr.evaluation.task import Protocol

CAPTIONS = 5
"""Of each image."""
IMAGES = 1000
"""In which one is searched for; the test set is five times as large."""
PROJECTED, MARGIN, CONTRASTS, BATCH, PASSES, PATIENCE = 1000, 0.2, 30, 128, 20, 3
"""SentEval's: width of the common space, margin of the loss, wrong images and captions for each
right one, captions a step, passes over the data, and looks without an improvement *in all*."""
RANKS = (1, 5, 10)


class Ranks(NamedTuple):
    """How many wrong answers come before the first right one; ties count half."""

    captions: np.ndarray
    """Of an image's best caption, `(n,)`."""
    images: np.ndarray
    """Of each caption's image, `(n, 5)`."""


def ranks(images: torch.Tensor, captions: torch.Tensor) -> Ranks:
    """# Parameters

    images, captions : embeddings of unit length, `(n, d)` and `(5n, d)`.
    """
    number = torch.arange(len(images), device=images.device)
    likeness = (images @ captions.t()).unflatten(1, (len(images), CAPTIONS))  # (n, n, 5)
    own = likeness[number, number]  # (n, 5)
    others = likeness.clone()
    others[number, number] = -torch.inf
    best = own.max(dim=1).values[:, None, None]
    before_captions = _before(others, best).sum(dim=(1, 2))  # (n,)
    before_images = _before(others, own[None]).sum(dim=0)  # (n, 5)
    return Ranks(before_captions.cpu().numpy(), before_images.cpu().numpy())


def _before(others: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return (others > right).float() + 0.5 * (others == right).float()


def recall_scores(found: Ranks) -> list[Score]:
    """Six recalls, and their mean, which is taken image by image."""
    captions = {k: (found.captions < k).astype(np.float64) for k in RANKS}  # (n,)
    images = {k: (found.images < k).astype(np.float64) for k in RANKS}  # (n, 5)
    both = [*captions.values(), *(hits.mean(axis=1) for hits in images.values())]
    return [
        Score("mean_recall", "mean", {"value": np.mean(both, axis=0)}),
        *(Score(f"image_to_text_r{k}", "mean", {"value": hits}) for k, hits in captions.items()),
        *(
            Score(f"text_to_image_r{k}", "mean", {"value": hits.reshape(-1)})
            for k, hits in images.items()
        ),
    ]


class CommonSpace(nn.Module):
    """A linear map of images and one of sentences.

    # Parameters

    image_width, sentence_width : of their features.
    generator : of the initial weights, which are those of `torch.nn.Linear`.
    """

    def __init__(self, image_width: int, sentence_width: int, generator: torch.Generator) -> None:
        super().__init__()
        self._image = seeded_linear(image_width, PROJECTED, generator)
        self._sentence = seeded_linear(sentence_width, PROJECTED, generator)

    def image(self, features: torch.Tensor) -> torch.Tensor:
        """Of unit length, `(..., 1000)`."""
        return normalize(self._image(features), dim=-1)

    def sentence(self, features: torch.Tensor) -> torch.Tensor:
        """Of unit length, `(..., 1000)`."""
        return normalize(self._sentence(features), dim=-1)


def ranking_loss(
    images: torch.Tensor,
    captions: torch.Tensor,
    wrong_images: torch.Tensor,
    wrong_captions: torch.Tensor,
) -> torch.Tensor:
    """The sum of hinge losses by which a wrong one comes within the margin of the right one.

    # Parameters

    images, captions : the right ones, of unit length, `(B, d)`.
    wrong_images, wrong_captions : `(B, m, d)`.
    """
    right = (images * captions).sum(dim=1, keepdim=True)  # (B, 1)
    to_captions = torch.einsum("bd,bmd->bm", images, wrong_captions)
    to_images = torch.einsum("bd,bmd->bm", captions, wrong_images)
    wrong = torch.cat([to_captions, to_images], dim=1)  # (B, 2m)
    return (MARGIN - right + wrong).clamp(min=0).sum()


Pair = tuple[torch.Tensor, torch.Tensor]
"""Features of images `(n, i)` and of captions `(5n, s)`."""


def trained_ranks(train: Pair, valid: Pair, test: Pair, protocol: Protocol) -> tuple[Ranks, Ranks]:
    """Train the common space, and keep the one that is best on `valid`: ranks of `test` in it, and
    of `valid`."""
    train, valid, test = (
        (images.to(protocol.device), captions.to(protocol.device))
        for images, captions in (train, valid, test)
    )
    generator = torch.Generator().manual_seed(protocol.seed)
    space = CommonSpace(train[0].shape[1], train[1].shape[1], generator).to(protocol.device)
    optimizer = torch.optim.Adam(space.parameters())
    draw = np.random.RandomState(protocol.seed)
    best, kept, misses, passes = -1.0, copy.deepcopy(space.state_dict()), 0, 0
    while misses <= PATIENCE and passes <= PASSES:
        _pass(space, optimizer, train, draw)
        passes += 1
        recall = recall_scores(_ranked(space, valid))[0].value
        if recall > best:
            best, kept = recall, copy.deepcopy(space.state_dict())
        else:
            misses += 1
    space.load_state_dict(kept)
    return _ranked(space, test), _ranked(space, valid)


def _pass(
    space: CommonSpace,
    optimizer: torch.optim.Optimizer,
    train: Pair,
    draw: np.random.RandomState,
) -> None:
    images, captions = train
    order = draw.permutation(len(captions))
    for start in range(0, len(order), BATCH):
        right = torch.from_numpy(order[start : start + BATCH]).to(images.device)
        for_captions, for_images = (
            torch.from_numpy(contrasts(order, start, draw)).to(images.device) for _ in range(2)
        )
        loss = ranking_loss(
            space.image(images[right // CAPTIONS]),
            space.sentence(captions[right]),
            space.image(images[for_captions // CAPTIONS]),
            space.sentence(captions[for_images]),
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def contrasts(order: np.ndarray, start: int, draw: np.random.RandomState) -> np.ndarray:
    """Captions drawn from all but those of the batch that starts at `start`, `(B, 30)`.

    The draws are those of `draw.choice` on the list of the others, without making the list.
    """
    batch = len(order[start : start + BATCH])
    places = draw.randint(0, len(order) - batch, (batch, CONTRASTS))
    return order[places + batch * (places >= start)]


def _ranked(space: CommonSpace, pair: Pair) -> Ranks:
    """Ranks within each 1,000 images."""
    images, captions = pair
    with torch.no_grad():
        found = [
            ranks(space.image(some), space.sentence(theirs))
            for some, theirs in zip(
                images.split(IMAGES), captions.split(CAPTIONS * IMAGES), strict=True
            )
        ]
    return Ranks(*map(np.concatenate, zip(*found, strict=True)))
