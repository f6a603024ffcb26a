"""The matching loss of VSE++ and SCAN, and recall of images and captions in a whole collection."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from declutr.objectives.memories.lipschitz_critic import Critic
from declutr.objectives.numerics import full_precision, one_of, reduced

NEGATIVES = ("hardest", "all")
TIES = ("half", "later")
RANKS = (1, 5, 10)

_PAIRS = 2**17  # pairs of an image and a caption that the critic judges at a time


def matching_loss(
    images: Tensor,
    captions: Tensor,
    image_ids: Tensor,
    margin: float = 0.2,
    negatives: str = "hardest",
) -> Tensor:
    """Return `score_loss` of the dot products of embeddings, averaged over pairs.

    # Parameters

    images, captions : embeddings of unit length, `(n, e)`; row i of both belong together.
    image_ids, margin, negatives : see `score_loss`.

    # Returns

    A scalar.

    # Raises

    `ValueError` : unknown `negatives`.
    """
    return score_loss(products(images, captions), image_ids, margin, negatives)


@full_precision
def products(images: Tensor, captions: Tensor) -> Tensor:
    """Return the dot products `(n, m)` of `(n, e)` and `(m, e)`, in float32 at least."""
    return images @ captions.T


@full_precision
def score_loss(
    scores: Tensor,
    image_ids: Tensor,
    margin: float = 0.2,
    negatives: str = "hardest",
    reduction: str = "mean",
) -> Tensor:
    """Return the hinge loss of matching pairs against negatives in the batch.

    The loss of a pair is `max_c' [a + s(i, c') - s(i, c)]+  +  max_i' [a + s(i', c) - s(i, c)]+`
    (VSE++, Faghri et al., 2018, equation 6; SCAN, Lee et al., 2018, equation 11). The codes of
    both papers sum over pairs. Other captions of the same image are not negatives here; there they
    are. Without negatives the loss is 0.

    # Parameters

    scores : the similarities s of images and captions `(n, n)`, of pairs on the diagonal.
    image_ids : `(n,)`; equal numbers mean the same image.
    margin : the margin a.
    negatives : `"hardest"` takes the hardest negative, `"all"` sums over all (equations 5 and 10).
    reduction : `"mean"` or `"sum"` over the n pairs.

    # Returns

    A scalar.

    # Raises

    `ValueError` : unknown `negatives` or reduction.
    """
    one_of("negatives", negatives, NEGATIVES, ValueError)
    own = scores.diagonal()
    same = image_ids.unsqueeze(1) == image_ids
    wrong_captions = (margin + scores - own.unsqueeze(1)).clamp_min(0).masked_fill(same, 0)
    wrong_images = (margin + scores - own).clamp_min(0).masked_fill(same, 0)
    if negatives == "hardest":
        losses = wrong_captions.amax(dim=1) + wrong_images.amax(dim=0)
    else:
        losses = wrong_captions.sum(dim=1) + wrong_images.sum(dim=0)
    return reduced(losses, reduction, scores)


@torch.no_grad()
def critic_scores(critic: Critic, images: Tensor, captions: Tensor) -> Tensor:
    """Return the logits T(u, v) `(n, m)` of RECLAIM's critic for all pairs, in bounded memory.

    # Parameters

    critic : the critic.
    images : the features v of n images, `(n, d_v)`.
    captions : the features u of m captions, `(m, d_u)`.
    """
    parts = []
    for some in captions.split(max(1, _PAIRS // max(1, len(images)))):
        of_pairs = images[:1].expand(len(some), -1)  # their logits are not used
        no_captions = some.new_empty(1, 0, some.size(1))
        parts.append(critic.against(some, of_pairs, images.unsqueeze(0), no_captions)[1])
    return torch.cat(parts).T


class Ranks(NamedTuple):
    """The numbers of wrong answers before the best right one."""

    captions: Tensor
    """Wrong captions before the best right one of each image, `(n,)`."""
    images: Tensor
    """Wrong images before the right one of each caption, `(m,)`."""


@torch.no_grad()
def retrieval_ranks(
    images: Tensor, captions: Tensor, image_of: Tensor, block: int = 512, ties: str = "half"
) -> Ranks:
    """Return the rank of the right caption for each image, and of the right image for each caption.

    # Parameters

    images, captions : embeddings of unit length, `(n, e)` and `(m, e)`.
    image_of : the row of the image of each caption, `(m,)`; every image has at least one caption.
    block : the number of captions to compare with all images at a time. The scores need memory for
        `block * n` numbers.
    ties : see `score_ranks`.
    """
    return score_ranks(
        lambda: (images @ some.T for some in captions.split(block)), image_of, len(images), ties
    )


@torch.no_grad()
def score_ranks(
    blocks: Callable[[], Iterable[Tensor]], image_of: Tensor, images: int, ties: str = "half"
) -> Ranks:
    """Return ranks by the scores of all images with all captions, one block of captions at a time.

    A score that is not a number counts as a wrong answer before the right one.

    # Parameters

    blocks : returns the scores `(n, b)` of all images with the first b captions, with the next ones
        and so on. It is called twice, and must return the same scores.
    image_of : the row of the image of each caption, `(m,)`; every image has at least one caption.
    images : n, the number of images.
    ties : `"half"` counts half of the wrong answers whose score is equal to that of the right one.
        `"later"` counts those of them that come later in the collection, as the codes of VSE++ and
        SCAN do, which reverse an ascending order.

    # Raises

    `ValueError` : unknown `ties`.
    """
    one_of("ties", ties, TIES, ValueError)
    rows = torch.arange(images, device=image_of.device).unsqueeze(1)
    best = torch.full((images, 1), -torch.inf, device=image_of.device)
    last = torch.zeros_like(rows)  # the last caption with the best right score
    of_captions, of_images = [], torch.zeros(images, device=image_of.device)
    for scores, places, theirs in _placed(blocks(), image_of):
        right = scores.gather(0, theirs)
        of_captions.append(_before(scores, right, rows != theirs, rows > theirs, ties).sum(dim=0))
        found = scores.masked_fill(rows != theirs, -torch.inf)
        highest = found.amax(dim=1, keepdim=True)
        last = torch.where(
            highest >= best,
            (places * (found == highest)).amax(dim=1, keepdim=True),
            last,
        )
        best = torch.maximum(best.to(highest.dtype), highest)
    for scores, places, theirs in _placed(blocks(), image_of):
        of_images += _before(scores, best, rows != theirs, places > last, ties).sum(dim=1)
    return Ranks(of_images, torch.cat(of_captions))


def _placed(blocks: Iterable[Tensor], image_of: Tensor) -> Iterable[tuple[Tensor, Tensor, Tensor]]:
    """Yield the scores of each block, and the places `(1, b)` and the images of its captions."""
    start = 0
    for scores in blocks:
        end = start + scores.size(1)
        places = torch.arange(start, end, device=scores.device).unsqueeze(0)
        yield scores, places, image_of[start:end].unsqueeze(0)
        start = end


def _before(scores: Tensor, right: Tensor, wrong: Tensor, later: Tensor, ties: str) -> Tensor:
    """Return how much each answer counts that is wrong and stands before the right one."""
    above = ~(scores <= right) & wrong  # also if one of them is not a number
    tied = (scores == right) & wrong
    if ties == "later":
        return (above | tied & later).float()
    return above.float() + 0.5 * tied.float()


def recalls(ranks: Ranks) -> dict[str, float]:
    """Return recall@1, 5 and 10 in per cent, from images to texts and back, and their sum `rsum`.

    # Parameters

    ranks : the rank of the right text of each image, and of the right image of each text, from 0.

    # Returns

    `image_to_text_r1`, ..., `text_to_image_r10`, and the sum of all six.
    """
    found = {
        f"{name}_r{k}": 100 * float((each < k).double().mean())
        for name, each in (("image_to_text", ranks.captions), ("text_to_image", ranks.images))
        for k in RANKS
    }
    return {**found, "rsum": sum(found.values())}
