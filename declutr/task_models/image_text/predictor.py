"""The Predictor "image_text", which finds captions for images and images for captions."""

from collections.abc import Iterator, Sequence
from typing import Any, Optional

import numpy as np
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import JsonDict
from allennlp.data import Batch, DatasetReader, Instance
from allennlp.models import Model
from allennlp.nn.util import move_to_device
from allennlp.predictors import Predictor
from tqdm import tqdm

from declutr.objectives.numerics import one_of
from declutr.task_models.image_text.features import Features, joined
from declutr.task_models.image_text.reader import ImageTextReader
from declutr.task_models.image_text.retrieval_model import SCORES

_BATCH = 128  # of the collection


@Predictor.register("image_text")
class ImageTextPredictor(Predictor):
    """A Predictor that finds the images of a collection for a caption, and captions for an image.

    The input is JSON lines. For `{"caption": "..."}` the output has `images`, the best ones first,
    each with its row, its name if there are names, and its score. For `{"image": 3}`, a row of the
    collection's features, or `{"image": [[...], ...]}`, features of another image, it has
    `captions`, each with its text, its number, the row of its image, and its score. With
    `--use-dataset-reader`, the output is that of the model: the embeddings of a caption and its
    image.

    # Parameters

    model, dataset_reader, frozen : as of AllenNLP's predictors. The reader is an "image_text".
    collection : the data path of what is searched, as of the reader. The command takes it as
        `--predictor-args '{"collection": "test_caps.txt"}'`.
    top : how many are returned.
    score : `"similarity"` of the model, or `"critic"`, the logit of RECLAIM's critic. By default
        the critic for a model whose similarity has no loss, and otherwise the similarity.

    # Raises

    `ConfigurationError` : a parameter is out of range, the reader is another one, the model has no
        critic, or a row of the input is wrong.
    """

    def __init__(
        self,
        model: Model,
        dataset_reader: DatasetReader,
        frozen: bool = True,
        collection: Optional[Any] = None,
        top: int = 10,
        score: Optional[str] = None,
    ) -> None:
        super().__init__(model, dataset_reader, frozen)
        if top < 1:
            raise ConfigurationError(f"top must be at least 1, got {top}.")
        known: Any = model  # a RetrievalModel, or "reclaim" around one
        if score is not None and one_of("score", score, SCORES) not in known.score_names():
            raise ConfigurationError(
                "This model has no critic to score by. Open an archive of the model 'reclaim' "
                'without "model.bare", whose u and v are the model\'s own, or set score to '
                "'similarity'."
            )
        self._score = score or known.score_names()[0]
        self._path, self._top = collection, top
        self._loaded: Optional[_Searched] = None

    def predict_json(self, inputs: JsonDict) -> JsonDict:
        return self.predict_batch_json([inputs])[0]

    def predict_batch_json(self, inputs: list[JsonDict]) -> list[JsonDict]:
        if self._loaded is None:
            self._loaded = self._load()
        found: list[JsonDict] = [{}] * len(inputs)
        kinds = [_kind(row) for row in inputs]
        for kind, answer in (("caption", self._images_for), ("image", self._captions_for)):
            places = [place for place, its in enumerate(kinds) if its == kind]
            given = [inputs[place][kind] for place in places]
            for place, output in zip(places, answer(given) if given else [], strict=True):
                found[place] = {kind: inputs[place][kind], **output}
        return found

    def _load(self) -> "_Searched":
        reader = self._dataset_reader
        if self._path is None or not isinstance(reader, ImageTextReader):
            raise ConfigurationError(
                "There is nothing to search in. Name captions and images that the reader "
                "'image_text' reads: --predictor-args '{\"collection\": \"test_caps.txt\"}'."
            )
        images, captions = reader.captions(self._path)
        names = {caption.image: caption.name for caption in captions}
        rows = sorted(names)
        stored = ({"image": images.row(row).numpy()} for row in rows)
        texts = ({"caption": caption.text} for caption in captions)
        return _Searched(
            images,
            [{"row": row, **({"name": names[row]} if names[row] else {})} for row in rows],
            [{"caption": c.text, "number": c.id, "image": c.image} for c in captions],
            joined(list(self._batches(stored, len(rows), "images"))),
            list(self._batches(texts, len(captions), "captions")),
        )

    def _batches(self, given: Iterator[JsonDict], count: int, what: str) -> Iterator[Features]:
        batch: list[JsonDict] = []
        for row in tqdm(given, f"embedding {what}", count, unit=f" {what}", disable=None):
            batch.append(row)
            if len(batch) == _BATCH:
                yield self._features(batch)
                batch = []
        if batch:
            yield self._features(batch)

    @torch.no_grad()
    def _features(self, rows: Sequence[JsonDict]) -> Features:
        """Return the features of images, or of captions."""
        instances: list[Instance] = [self._dataset_reader.text_to_instance(**row) for row in rows]
        for instance in instances:
            self._dataset_reader.apply_token_indexers(instance)
        model: Any = self._model
        batch = Batch(instances)
        batch.index_instances(model.vocab)
        tensors = move_to_device(batch.as_tensor_dict(), self.cuda_device)
        if "image" in tensors:
            return model.features_of_images(model.checked(tensors["image"]))
        return model.caption_features(tensors["tokens"])

    @torch.no_grad()
    def _scores(self, images: Features, captions: Features) -> torch.Tensor:
        model: Any = self._model
        return (model.by_critic if self._score == "critic" else model.similarity)(images, captions)

    def _images_for(self, captions: list[Any]) -> list[JsonDict]:
        assert self._loaded is not None
        for text in captions:
            if not isinstance(text, str) or not text.strip():
                raise ConfigurationError(f'Expected a text under "caption", got {text!r}.')
        features = self._features([{"caption": text} for text in captions])
        scores = self._scores(self._loaded.images, features).T
        return [{"images": best} for best in self._best(scores, self._loaded.image_rows)]

    def _captions_for(self, images: list[Any]) -> list[JsonDict]:
        assert self._loaded is not None
        features = self._features([{"image": self._loaded.features_of(each)} for each in images])
        scores = torch.cat([self._scores(features, some) for some in self._loaded.captions], dim=1)
        return [{"captions": best} for best in self._best(scores, self._loaded.caption_rows)]

    def _best(self, scores: torch.Tensor, rows: list[JsonDict]) -> list[list[JsonDict]]:
        values, places = scores.topk(min(self._top, scores.size(1)), dim=1)
        return [
            [{**rows[place], "score": value} for value, place in zip(*both, strict=True)]
            for both in zip(values.tolist(), places.tolist(), strict=True)
        ]


class _Searched:
    """A collection that is searched: images and captions, their features, and what they say."""

    def __init__(
        self,
        stored: Any,
        image_rows: list[JsonDict],
        caption_rows: list[JsonDict],
        images: Features,
        captions: list[Features],
    ) -> None:
        self._stored = stored
        self.image_rows, self.caption_rows = image_rows, caption_rows
        self.images, self.captions = images, captions

    def features_of(self, image: Any) -> np.ndarray:
        """Return the features of a row of the collection, or those that are given."""
        if isinstance(image, int) and not isinstance(image, bool):
            if 0 <= image < len(self._stored):
                return self._stored.row(image).numpy()
            raise ConfigurationError(
                f"The image is {image}, expected a row of '{self._stored.path}', 0 to "
                f"{len(self._stored) - 1}."
            )
        try:
            return np.asarray(image, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                'Expected a row or features (d,) or (regions, d) under "image", got '
                f"{str(image)[:60]!r}."
            ) from error


def _kind(row: JsonDict) -> str:
    """Return `"caption"` or `"image"`, of which a row of the input has one."""
    kinds = [kind for kind in ("caption", "image") if kind in row]
    if len(kinds) != 1:
        raise ConfigurationError(
            f'Expected "caption" or "image", got {sorted(row) or "neither"}: '
            '{"caption": "..."}, or {"image": 3}.'
        )
    return kinds[0]
