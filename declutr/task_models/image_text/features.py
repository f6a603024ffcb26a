"""Features of images and of captions: named tensors whose first dimension is the same."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import torch
from torch import Tensor

from declutr.task_models.image_text.matching import Ranks, recalls, score_ranks

Features = dict[str, Tensor]
Scores = Callable[[Features, Features], Tensor]
"""A function of the features of n images and of m captions that returns scores `(n, m)`."""

HELD = 2**28
"""The most scores (1 GB) that are kept between the two passes of ranking; others are computed
twice."""


def each(features: Features, operation: Callable[[Tensor], Tensor]) -> Features:
    """Return features with an operation applied to each of their tensors."""
    return {name: operation(tensor) for name, tensor in features.items()}


def joined(parts: list[Features]) -> Features:
    """Concatenate features, whose tensors differ in their first dimension alone."""
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


class Collection:
    """The images and captions of a whole set, as the batches of a validation bring them.

    Features are on the host. Images are kept once, captions in the batches that they came in, so
    that they need no more padding than those.
    """

    def __init__(self) -> None:
        self.images: list[Features] = []
        self.image_ids: list[int] = []
        self.captions: list[Features] = []
        self.caption_ids: list[Tensor] = []
        """The ids of the images of each batch of captions."""
        self._known: set[int] = set()

    def add(self, images: Features, captions: Features, ids: Tensor) -> None:
        """Add the pairs of a batch.

        # Parameters

        images, captions : row i of both belong together.
        ids : `(n,)`; equal numbers mean the same image.
        """
        self.add_images(images, ids)
        self.captions.append(each(captions, _stored))
        self.caption_ids.append(_stored(ids))

    def add_images(self, images: Features, ids: Tensor) -> None:
        """Add images; those that are there already are left out."""
        new = []
        for place, id in enumerate(ids.tolist()):
            if id not in self._known:
                self._known.add(id)
                self.image_ids.append(id)
                new.append(place)
        if new:
            rows = torch.tensor(new, device=ids.device)
            self.images.append(each(images, lambda tensor: _stored(tensor[rows])))

    def extend(self, other: "Collection") -> None:
        """Add the pairs of another collection, such as another process has."""
        if other.images:
            self.add_images(joined(other.images), torch.tensor(other.image_ids))
        self.captions += other.captions
        self.caption_ids += other.caption_ids

    def recalls(
        self, score: Scores, device: torch.device, ties: str, fold_size: int | None = None
    ) -> dict[str, float]:
        """Return the recalls by a score in the whole collection, and their means over folds.

        # Parameters

        score : the score, which is computed on `device`.
        ties : see `score_ranks`.
        fold_size : the number of images in a fold. Folds are of consecutive images, by their ids,
            with all their captions; images that do not make a whole fold are in none. With 1,000
            of the 5,000 images of COCO, the means are those of its "1k" protocol.

        # Returns

        See `recalls`; and with more images than `fold_size`, the same names after `folds_`.
        """
        order = torch.tensor(self.image_ids).argsort()
        ids = torch.tensor(self.image_ids)[order]
        images = each(joined(self.images), lambda tensor: tensor[order].to(device))
        image_of = torch.searchsorted(ids, torch.cat(self.caption_ids))
        blocks = partial(self._scores, score, images, device)
        if len(ids) * len(image_of) <= HELD:
            held = list(blocks())
            blocks = lambda: iter(held)  # type: ignore[assignment]  # noqa: E731
        found = recalls(score_ranks(blocks, image_of, len(ids), ties))
        if fold_size is None or len(ids) <= fold_size:
            return found
        means = dict.fromkeys(found, 0.0)
        folds = len(ids) // fold_size
        for fold in range(folds):
            for name, value in recalls(_of_fold(blocks, image_of, fold, fold_size, ties)).items():
                means[name] += value / folds
        return {**found, **{f"folds_{name}": value for name, value in means.items()}}

    def _scores(self, score: Scores, images: Features, device: torch.device) -> Iterator[Tensor]:
        """Yield the scores of all images with each batch of captions, on the host."""
        for captions in self.captions:
            yield _stored(score(images, each(captions, lambda tensor: tensor.to(device))))


def _of_fold(
    blocks: Callable[[], Iterable[Tensor]], image_of: Tensor, fold: int, size: int, ties: str
) -> Ranks:
    """Return the ranks among the images `fold * size` to `(fold + 1) * size` and their captions."""
    first, end = fold * size, (fold + 1) * size

    def kept() -> Iterator[Tensor]:
        start = 0
        for scores in blocks():
            theirs = image_of[start : start + scores.size(1)]
            start += scores.size(1)
            inside = (theirs >= first) & (theirs < end)
            if inside.any():
                yield scores[first:end, inside]

    inside = (image_of >= first) & (image_of < end)
    return score_ranks(kept, image_of[inside] - first, size, ties)


def _stored(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu()
