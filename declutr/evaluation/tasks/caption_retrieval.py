"""COCO: find the caption of an image and the image of a caption (SentEval's ranking task).

An image is a vector of 2,048 features from a ResNet-101. Two linear maps into a common space are
trained with a ranking loss (SentEval's `ranking.py`); the scores are recalls among 1,000 images and
their 5,000 captions.

The files `downstream/COCO/{train,valid,test}.pkl` are dictionaries with three entries: `features`
has a row for each image; `image_to_caption_ids` has, for each image, the ids of at least five
captions, of which the first five are used; `captions` has captions by id, each with its
`cleaned_caption`.

Training compares each caption of 113,000 images with 30 wrong images and 30 wrong captions, which
takes minutes on a GPU and many hours on a CPU.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from declutr.evaluation.safe_pickle import load_plain_pickle
from declutr.evaluation.scores import Score
from declutr.evaluation.task import BrokenData, Protocol, Task, Vectors
from declutr.evaluation.text_files import words

SPLITS = ("train", "valid", "test")
"""The names of the files, without their ending."""


def tasks(data: Path, protocol: Protocol) -> list[Task]:
    """Return the task COCO in a list."""
    return [CaptionRetrieval(data / "downstream" / "COCO", protocol)]


@dataclass(frozen=True)
class Captioned:
    """Images with five captions each."""

    images: np.ndarray
    """Features of n images, `(n, width)` float32."""
    captions: list[str]
    """The 5n captions: `captions[5 * i : 5 * i + 5]` describe `images[i]`."""


class CaptionRetrieval(Task):
    """The retrieval of captions by images and of images by captions.

    # Parameters

    folder : the folder with the three files.
    protocol : its seed and its device are used; SentEval's other settings are fixed for this task.
    """

    def __init__(self, folder: Path, protocol: Protocol) -> None:
        super().__init__("COCO", "downstream", "mean_recall")
        self._folder, self._protocol = folder, protocol
        self._data: dict[str, Captioned] = {}

    def sentences(self) -> list[str]:
        return [caption for part in self.data.values() for caption in part.captions]

    def scores(self, vectors: Vectors) -> list[Score]:
        import torch

        from declutr.evaluation.tasks.caption_space import recall_scores, trained_ranks

        train, valid, test = (
            (torch.from_numpy(part.images), torch.from_numpy(vectors(part.captions)))
            for part in self.data.values()
        )
        found, on_valid = trained_ranks(train, valid, test, self._protocol)
        mean = recall_scores(on_valid)[0]
        return [*recall_scores(found), Score("dev_mean_recall", mean.statistic, mean.items)]

    def notes(self) -> list[str]:
        from declutr.evaluation.tasks.caption_space import IMAGES

        images = len(self.data["test"].images)
        if images == 5 * IMAGES:
            return []
        return [f"{images:,} test images where the published data has 5,000: compare with care"]

    @property
    def data(self) -> dict[str, Captioned]:
        """The images and captions of each split, read on first use."""
        from declutr.evaluation.tasks.caption_space import BATCH

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


def read_captions(path: Path) -> Captioned:
    """Read one of the three files.

    # Raises

    `MissingData` : there is no such file.
    `BrokenData` : the file has wrong content.
    """
    from declutr.evaluation.tasks.caption_space import CAPTIONS

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
            # Captions lack a full stop, and SentEval adds it.
            captions += [words(f"{texts[number]['cleaned_caption']} .") for number in ids]
        except (KeyError, IndexError, TypeError) as error:
            raise BrokenData(f"{path}, image {image}: no caption {error!r}.") from error
        if len(ids) < CAPTIONS:
            raise BrokenData(
                f"{path}, image {image}: expected {CAPTIONS} captions or more, got {len(ids)}."
            )
    return Captioned(images, captions)
