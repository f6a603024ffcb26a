"""COCO: find the caption of an image and the image of a caption (SentEval's ranking task).

Images are 2,048 features of a ResNet-101. Two linear maps into a common space are trained with a
ranking loss (SentEval's `ranking.py`); scores are recalls within 1,000 images and 5,000 captions.

The files are `downstream/COCO/{train,valid,test}.pkl`, each a dictionary: `features`, one row an
image; `image_to_caption_ids`, for each image the ids of five captions or more, of which five count;
`captions`, by id, each with its `cleaned_caption`.

Training sees 113,000 images with 30 wrong ones for each: minutes on a GPU, many hours on a CPU.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import normalize

from declutr.evaluation.safe_pickle import load_plain_pickle
from declutr.evaluation.scores import Score
from declutr.evaluation.task import BrokenData, Protocol, Task, Vectors
from declutr.evaluation.tasks.labelled_text import words

CAPTIONS = 5
"""Of each image."""
IMAGES = 1000
"""In which one is searched for; the test set is five times as large."""
PROJECTED, MARGIN, CONTRASTS, BATCH, PASSES, PATIENCE = 1000, 0.2, 30, 128, 20, 3
"""SentEval's: width of the common space, margin of the loss, wrong images and captions for each
right one, captions a step, passes over the data, and looks without an improvement *in all*."""
RANKS = (1, 5, 10)
SPLITS = ("train", "valid", "test")


def tasks(data: Path, protocol: Protocol) -> list[Task]:
    """COCO."""
    return [CaptionRetrieval(data / "downstream" / "COCO", protocol)]


@dataclass(frozen=True)
class Captioned:
    """Images and their captions: `captions[5 * i : 5 * i + 5]` are those of `images[i]`."""

    images: np.ndarray
    captions: list[str]


class CaptionRetrieval(Task):
    """# Parameters

    folder : where the three files are.
    protocol : its seed and device are used; SentEval's other settings are fixed for this task.
    """

    def __init__(self, folder: Path, protocol: Protocol) -> None:
        super().__init__("COCO", "downstream", "mean_recall")
        self._folder, self._protocol = folder, protocol
        self._data: dict[str, Captioned] = {}

    def sentences(self) -> list[str]:
        return [caption for part in self.data.values() for caption in part.captions]

    def scores(self, vectors: Vectors) -> list[Score]:
        train, valid, test = (
            (torch.from_numpy(part.images), torch.from_numpy(vectors(part.captions)))
            for part in self.data.values()
        )
        found, on_valid = trained_ranks(train, valid, test, self._protocol)
        mean = recall_scores(on_valid)[0]
        return [*recall_scores(found), Score("dev_mean_recall", mean.statistic, mean.items)]

    def notes(self) -> list[str]:
        images = len(self.data["test"].images)
        if images == 5 * IMAGES:
            return []
        return [f"{images:,} test images where the published data has 5,000: compare with care"]

    @property
    def data(self) -> dict[str, Captioned]:
        if not self._data:
            data = {split: read_captions(self._folder / f"{split}.pkl") for split in SPLITS}
            widths = {split: part.images.shape[1] for split, part in data.items()}
            if len(set(widths.values())) > 1:
                raise BrokenData(
                    f"{self._folder}: expected image features of one width, got {widths}."
                )
            if len(data["train"].captions) <= BATCH:
                raise BrokenData(
                    f"{self._folder / 'train.pkl'} has {len(data['train'].captions)} captions, "
                    f"expected more than the {BATCH} of one batch: wrong ones are drawn outside it."
                )
            self._data = data
        return self._data


@dataclass(frozen=True)
class Ranks:
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
        self._image = nn.utils.skip_init(nn.Linear, image_width, PROJECTED)
        self._sentence = nn.utils.skip_init(nn.Linear, sentence_width, PROJECTED)
        for part in (self._image, self._sentence):
            bound = part.in_features**-0.5
            for parameter in part.parameters():
                nn.init.uniform_(parameter, -bound, bound, generator=generator)

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
    return Ranks(
        np.concatenate([each.captions for each in found]),
        np.concatenate([each.images for each in found]),
    )


def read_captions(path: Path) -> Captioned:
    """One of the three files.

    # Raises

    `MissingData` : there is no such file.
    `BrokenData` : it does not hold what it should.
    """
    held = load_plain_pickle(path)
    keys = ("features", "image_to_caption_ids", "captions")
    if not isinstance(held, dict) or not set(keys) <= set(held):
        got = sorted(map(str, held)) if isinstance(held, dict) else type(held).__name__
        raise BrokenData(f"{path}: expected a dictionary with {list(keys)}, got {got}.")
    features, of_image, texts = (held[key] for key in keys)
    try:
        images = np.asarray(features, dtype=np.float32)
    except ValueError as error:
        raise BrokenData(f"{path}: image features are not of one width: {error}.") from error
    if images.ndim != 2 or not len(images):
        raise BrokenData(f"{path}: expected image features (n, width), got {images.shape}.")
    captions = []
    for image in range(len(images)):
        try:
            ids = list(of_image[image])[:CAPTIONS]
            # SentEval puts the full stop that captions lack.
            captions += [words(f"{texts[number]['cleaned_caption']} .") for number in ids]
        except (KeyError, IndexError, TypeError) as error:
            raise BrokenData(f"{path}, image {image}: no caption {error!r}.") from error
        if len(ids) < CAPTIONS:
            raise BrokenData(
                f"{path}, image {image}: expected {CAPTIONS} captions or more, got {len(ids)}."
            )
    return Captioned(images, captions)
