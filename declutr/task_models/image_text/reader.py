"""The DatasetReader "image_text", which reads captions and the features of their images."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union

import numpy as np
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Field, Instance, TokenIndexer, Tokenizer
from allennlp.data.fields import TensorField, TextField
from allennlp.data.tokenizers import Token

from declutr.corpus.documents import SourceError, normalize_whitespace, read_documents
from declutr.corpus.source_files import source_files
from declutr.corpus.tables import Column, Row, read_rows
from declutr.data.collation import number_field
from declutr.data.numbered_texts import NumberedTextsReader
from declutr.system import raised_as
from declutr.task_models.image_text import precomputed
from declutr.task_models.image_text.stored_images import ImageField, StoredImages, stored_images

logger = logging.getLogger(__name__)

START, END = "<start>", "<end>"
"""The tokens around captions in SCAN's code and vocabularies."""


class Caption(NamedTuple):
    """A caption with the row of its image, its own number in the data, and the image's name."""

    text: str
    image: int
    id: int
    name: Optional[str] = None


@DatasetReader.register("image_text")
class ImageTextReader(NumberedTextsReader):
    """A reader of captions with the features of their images; an image may have several captions.

    The data path is a file of captions, or `{"captions": ..., "images": ...}`, which also names the
    .npy file of features, `(n, d)` or `(n, regions, d)`. Captions are rows of TSV, CSV, JSON lines
    or parquet that contain the row number of their image. With `captions_per_image`, they are lines
    in the order of the images, in the layout of the published features of Flickr30k and COCO (see
    `declutr.task_models.image_text.precomputed`). Features stay on disk until a batch needs them.
    Blank captions are left out, and their number is logged.

    The fields of an instance are `tokens` `(L,)`; `image`, `(d,)` or `(regions, d)`; `image_ids`
    (int64), the row of the image; and with `with_ids`, `ids` (int64), the number of the caption in
    its file.

    # Parameters

    tokenizer, token_indexers : any tokenizer of AllenNLP with its indexers; the default is white
        space and single ids.
    images : the file of features, if the data path does not name it. By default it is beside the
        captions: `train.npy` for `train.jsonl`, `train_ims.npy` for `train_caps.txt`.
    caption, image : columns of the text and of the row of its image, by name or number from 0.
    header : whether the first line of TSV and CSV files names the columns.
    captions_per_image : the number of consecutive lines for each image, in files without columns:
        5 in the published files.
    start_end : whether `tokens` begin with `<start>` and end with `<end>`, as in SCAN's code.
    with_ids : whether instances have the field `ids`.
    encoding_errors : `"strict"` or `"replace"`, for text that is not UTF-8.
    max_instances, serialization_dir : as of AllenNLP's readers.

    # Raises

    `ConfigurationError` : settings are out of range, or data cannot be read. The message then names
        the file and the line.
    """

    def __init__(
        self,
        tokenizer: Optional[Tokenizer] = None,
        token_indexers: Optional[dict[str, TokenIndexer]] = None,
        images: Optional[str] = None,
        caption: Union[str, int] = "caption",
        image: Union[str, int] = "image",
        header: bool = True,
        captions_per_image: Optional[int] = None,
        start_end: bool = False,
        with_ids: bool = False,
        encoding_errors: str = "strict",
        max_instances: Optional[int] = None,
        serialization_dir: Optional[str] = None,
    ) -> None:
        super().__init__(tokenizer, token_indexers, with_ids, max_instances, serialization_dir)
        if captions_per_image is not None and captions_per_image < 1:
            raise ConfigurationError(
                f"captions_per_image must be at least 1, got {captions_per_image}."
            )
        self._images = images
        self._caption: Column = caption
        self._image: Column = image
        self._header = header
        self._captions_per_image = captions_per_image
        self._start_end = start_end
        self._encoding_errors = encoding_errors

    def captions(self, path: Any) -> tuple[StoredImages, list[Caption]]:
        """Return the images of a data path, and all captions that are not blank.

        # Raises

        `ConfigurationError` : the data cannot be read.
        """
        texts, features = self._places(path)
        with raised_as(ConfigurationError, SourceError):
            images = stored_images(features)
            found = list(self._numbered(texts, images))
        captions = [caption for caption in found if caption.text]
        logger.info(
            f"{texts}: {len(captions)} captions of {len({caption.image for caption in captions})} "
            f"images; {len(found) - len(captions)} blank ones are left out. The features are "
            f"{features}."
        )
        if not captions:
            raise ConfigurationError(
                f"{texts}: no captions among {len(found)} row(s). Expected rows with a text."
            )
        return images, captions

    def _places(self, path: Any) -> tuple[Any, str]:
        """Return the files of captions, and the file of features."""
        if isinstance(path, Mapping):
            if not {"captions"} <= set(path) <= {"captions", "images"}:
                raise ConfigurationError(
                    f"Got a data path of {sorted(path)}, expected 'captions' and 'images'."
                )
            texts, features = path["captions"], path.get("images", self._images)
        else:
            texts, features = path, self._images
        if features is not None:
            return texts, str(features)
        if not isinstance(texts, (str, Path)):
            raise ConfigurationError(
                f"Got captions in {texts}, and no file of image features. Set 'images' of the "
                "dataset reader, or of the data path."
            )
        return texts, str(precomputed.features_of(Path(texts)) or Path(texts).with_suffix(".npy"))

    def _numbered(self, texts: Any, images: StoredImages) -> Iterator[Caption]:
        files = source_files(texts)
        if self._captions_per_image is None:
            for id, row in enumerate(read_rows(files, self._header, self._encoding_errors)):
                number = _image_row(row, self._image, len(images), images.path)
                yield Caption(row.text(self._caption), number, id)
            return
        rows = list(read_documents(files, str(self._caption), self._encoding_errors))
        of_images = precomputed.images_of(texts, len(rows), images, self._captions_per_image)
        for id, (text, (image, name)) in enumerate(zip(rows, of_images, strict=True)):
            yield Caption(normalize_whitespace(text), image, id, name)

    def _read(self, file_path: Any) -> Iterable[Instance]:
        images, captions = self.captions(file_path)
        for caption in self.shard_iterable(captions):
            image = ImageField(images, caption.image)
            yield self.text_to_instance(caption.text, image, caption.image, caption.id)

    def text_to_instance(  # type: ignore[override]
        self,
        caption: Optional[str] = None,
        image: Optional[Any] = None,
        image_id: Optional[int] = None,
        id: Optional[int] = None,
    ) -> Instance:
        """Return the instance of a caption, an image, or both.

        # Parameters

        caption : the text.
        image : features `(d,)` or `(regions, d)`, or a field that contains them.
        image_id : the value of the field `image_ids`.
        id : the value of the field `ids`.
        """
        fields: dict[str, Field] = {}
        if caption is not None:
            tokens = self._tokenizer.tokenize(normalize_whitespace(caption))
            if self._start_end:
                tokens = [Token(START), *tokens, Token(END)]
            fields["tokens"] = TextField(tokens)
        if image is not None:
            if not isinstance(image, Field):
                image = TensorField(np.asarray(image, dtype=np.float32))
            fields["image"] = image
        if image_id is not None:
            fields["image_ids"] = number_field(image_id)
        return Instance({**fields, **self.numbered(id)})


def _image_row(row: Row, column: Column, images: int, features: str) -> int:
    value = row.value(column)
    number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < images:
        raise SourceError(
            f"{row.place}: the image is {value!r}, expected a row of '{features}', 0 to "
            f"{images - 1}."
        )
    return number
