"""The common space of images and captions: its training with a ranking loss, and ranks in it."""

import copy
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import comb
from torch import nn
from torch.nn.functional import normalize

from declutr.evaluation.classifiers.networks import seeded_linear
from declutr.evaluation.scores import Score
from declutr.evaluation.task import Protocol

CAPTIONS = 5
"""The number of captions of each image."""
IMAGES = 1000
"""The number of images to search among; the test set is divided into parts of this size."""
PROJECTED, MARGIN, CONTRASTS, BATCH, PASSES, PATIENCE = 1000, 0.2, 30, 128, 20, 3
"""SentEval's settings, in this order.

* The width of the common space and the margin of the loss.
* The number of wrong images and of wrong captions for each right one.
* The number of captions in a batch and the maximum number of epochs.
* The number of evaluations without improvement that are allowed, in total and not in a row.
"""
RANKS = (1, 5, 10)
"""The numbers k of the recalls at k."""


class Places(NamedTuple):
    """The places of the first right answers to n questions, `(n,)` each.

    Equal captions tie. SentEval leaves their order to numpy's unstable sorting; here, every order
    is equally likely.
    """

    before: np.ndarray
    """The number of wrong answers before the best right one."""
    tied: np.ndarray
    """The number of wrong answers that tie with it."""
    right: np.ndarray
    """The number of right answers that tie with it, itself included."""

    def among(self, k: int) -> np.ndarray:
        """Return the probability that a right answer is among the first k, `(n,)`."""
        left = np.clip(k - self.before, 0, self.tied + 1)
        return 1 - comb(self.tied, left) / comb(self.tied + self.right, left)


class Ranks(NamedTuple):
    """The places of right answers in both directions."""

    captions: Places
    """The places of captions for each of n images."""
    images: Places
    """The places of images for each of 5n captions."""


def ranks(images: torch.Tensor, captions: torch.Tensor) -> Ranks:
    """Rank captions for each image and images for each caption by cosine.

    # Parameters

    images, captions : vectors of length 1, `(n, d)` and `(5n, d)`.
    """
    number = torch.arange(len(images), device=images.device)
    likeness = (images @ captions.t()).unflatten(1, (len(images), CAPTIONS))  # (n, n, 5)
    own = likeness[number, number]  # (n, 5)
    likeness[number, number] = -torch.inf
    best = own.max(dim=1).values
    of_image = _places(likeness.flatten(1), best, (own == best[:, None]).sum(dim=1))
    likeness = likeness.permute(1, 2, 0).flatten(0, 1)  # (5n, n)
    return Ranks(of_image, _places(likeness, own.flatten(), torch.ones(own.numel())))


def _places(wrong: torch.Tensor, best: torch.Tensor, right: torch.Tensor) -> Places:
    """Compare scores `(n, m)` of wrong answers with those of the best right ones, `(n,)`."""
    counts = (wrong > best[:, None]).sum(dim=1), (wrong == best[:, None]).sum(dim=1), right
    return Places(*(count.cpu().numpy() for count in counts))


def recall_scores(found: Ranks) -> list[Score]:
    """Return the mean of the six recalls and then the recalls themselves, as scores.

    The items of the mean are images, so that its bootstrap draws an image with all its captions.
    """
    captions = {k: found.captions.among(k) for k in RANKS}  # (n,)
    images = {k: found.images.among(k) for k in RANKS}  # (5n,)
    of_image = [hits.reshape(-1, CAPTIONS).mean(axis=1) for hits in images.values()]
    both = [*captions.values(), *of_image]
    return [
        Score("mean_recall", "mean", {"value": np.mean(both, axis=0)}),
        *(Score(f"image_to_text_r{k}", "mean", {"value": hits}) for k, hits in captions.items()),
        *(Score(f"text_to_image_r{k}", "mean", {"value": hits}) for k, hits in images.items()),
    ]


class CommonSpace(nn.Module):
    """A linear map of images and a linear map of sentences into a common space."""

    def __init__(self, image_width: int, sentence_width: int, generator: torch.Generator) -> None:
        super().__init__()
        self._image = seeded_linear(image_width, PROJECTED, generator)
        self._sentence = seeded_linear(sentence_width, PROJECTED, generator)

    def image(self, features: torch.Tensor) -> torch.Tensor:
        """Map features of images to vectors of length 1, `(..., 1000)`."""
        return normalize(self._image(features), dim=-1)

    def sentence(self, features: torch.Tensor) -> torch.Tensor:
        """Map embeddings of sentences to vectors of length 1, `(..., 1000)`."""
        return normalize(self._sentence(features), dim=-1)


def ranking_loss(
    images: torch.Tensor,
    captions: torch.Tensor,
    wrong_images: torch.Tensor,
    wrong_captions: torch.Tensor,
) -> torch.Tensor:
    """Return the sum of hinge losses between the right answers and the wrong ones.

    A wrong answer adds to the loss if its cosine is higher than that of the right one minus the
    margin.

    # Parameters

    images, captions : vectors of images and of their captions, of length 1, `(B, d)`.
    wrong_images, wrong_captions : vectors of m wrong answers for each, `(B, m, d)`.
    """
    right = (images * captions).sum(dim=1, keepdim=True)  # (B, 1)
    to_captions = torch.einsum("bd,bmd->bm", images, wrong_captions)
    to_images = torch.einsum("bd,bmd->bm", captions, wrong_images)
    wrong = torch.cat([to_captions, to_images], dim=1)  # (B, 2m)
    return (MARGIN - right + wrong).clamp(min=0).sum()


Pair = tuple[torch.Tensor, torch.Tensor]
"""Features of images `(n, i)` and embeddings of their captions `(5n, s)`."""


def trained_ranks(train: Pair, valid: Pair, test: Pair, protocol: Protocol) -> tuple[Ranks, Ranks]:
    """Train the common space and return ranks of `test` and of `valid` in the best one.

    The best one has the highest mean recall on `valid` among the evaluations after each epoch.
    """
    train, valid, test = (
        (images.to(protocol.trained_on), captions.to(protocol.trained_on))
        for images, captions in (train, valid, test)
    )
    generator = torch.Generator().manual_seed(protocol.seed)
    space = CommonSpace(train[0].shape[1], train[1].shape[1], generator).to(protocol.trained_on)
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
    space: CommonSpace, optimizer: torch.optim.Optimizer, train: Pair, draw: np.random.RandomState
) -> None:
    images, captions = train
    order = draw.permutation(len(captions))
    for start in range(0, len(order), BATCH):
        right = torch.from_numpy(order[start : start + BATCH]).to(images.device)
        draws = (torch.from_numpy(contrasts(order, start, draw)) for _ in range(2))
        for_captions, for_images = (drawn.to(images.device) for drawn in draws)
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
    """Draw captions from all but those of the batch that starts at `start`, `(B, 30)`.

    The draws are equal to those of `draw.choice` on a list of these captions, but the list is not
    made.

    # Parameters

    order : the captions in the order of this epoch.
    start : the index of the first caption of the batch.
    draw : the source of the draws.
    """
    batch = len(order[start : start + BATCH])
    places = draw.randint(0, len(order) - batch, (batch, CONTRASTS))
    return order[places + batch * (places >= start)]


def _ranked(space: CommonSpace, pair: Pair) -> Ranks:
    """Return ranks within every 1,000 images."""
    images, captions = pair
    with torch.no_grad():
        pairs = zip(images.split(IMAGES), captions.split(CAPTIONS * IMAGES), strict=True)
        found = [ranks(space.image(some), space.sentence(theirs)) for some, theirs in pairs]
    both = zip(*found, strict=True)
    return Ranks(*(Places(*map(np.concatenate, zip(*of, strict=True))) for of in both))
