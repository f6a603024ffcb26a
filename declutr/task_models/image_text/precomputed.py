"""The layout of the published features of Flickr30k and COCO (SCAN; Lee et al., 2018).

A folder has `train_caps.txt` with one caption a line, five consecutive ones for each image,
`train_ims.npy` with features `(images, regions, 2048)`, and `train_ids.txt` with a line for each
image; the same for `dev` and `test`. Some files have the features of an image once for each of its
captions.
"""

from pathlib import Path
from typing import Any

from declutr.corpus.documents import SourceError
from declutr.corpus.text_files import read_lines
from declutr.task_models.image_text.stored_images import StoredImages

_CAPTIONS, _IMAGES, _IDS = "_caps.txt", "_ims.npy", "_ids.txt"


def features_of(captions: Path) -> Path | None:
    """Return the file of features beside `..._caps.txt`; `None` for files of another name."""
    return _beside(captions, _IMAGES)


def _beside(captions: Path, ending: str) -> Path | None:
    if not captions.name.endswith(_CAPTIONS):
        return None
    return captions.with_name(captions.name.removesuffix(_CAPTIONS) + ending)


def images_of(
    captions_file: Any, captions: int, images: StoredImages, each: int
) -> list[tuple[int, str | None]]:
    """Return the row and the name of the image of each caption; names are in `..._ids.txt`.

    # Parameters

    captions_file : the file of captions, for messages and for the names beside it.
    captions : the number of lines.
    images : the features, with a row for each image or for each caption.
    each : the number of captions of an image.

    # Raises

    `SourceError` : these numbers do not fit, or the number of names does not.
    """
    if captions == len(images) * each:
        step = 1
    elif captions == len(images) and captions % each == 0:
        step = each
        if not images.repeat(0, each):
            raise SourceError(
                f"'{images.path}' has a row for each of the {captions} captions, but its first "
                f"{each} rows differ. Expected {each} equal rows (captions_per_image) for each "
                f"image, or {captions // each} rows."
            )
    else:
        raise SourceError(
            f"{captions_file} has {captions} line(s), expected {len(images) * each}: "
            f"{each} (captions_per_image) for each of the {len(images)} rows of "
            f"'{images.path}'; or {len(images)}, if it has {each} equal rows for each image."
        )
    names = _names(captions_file, captions, captions // each)
    return [(line // each * step, names[line // each]) for line in range(captions)]


def _names(captions_file: Any, captions: int, images: int) -> list[str] | list[None]:
    """Return the name of each image, of which `..._ids.txt` has one or as many as captions."""
    file = _beside(Path(captions_file), _IDS) if isinstance(captions_file, (str, Path)) else None
    if file is None or not file.exists():
        return [None] * images
    names = list(read_lines(file))
    if len(names) not in (images, captions):
        raise SourceError(
            f"'{file}' has {len(names)} line(s), expected {images}, one for each image, or "
            f"{captions}, one for each caption."
        )
    return names[:: len(names) // images]
