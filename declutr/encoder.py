"""`Encoder`: texts in, a numpy array out."""

from __future__ import annotations

import json
import logging
import os
import tarfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from allennlp.data import Batch
from allennlp.models.archival import load_archive
from allennlp.nn.util import move_to_device
from allennlp.predictors import Predictor
from tqdm.auto import tqdm

import declutr.components  # noqa: F401 - archives name what it registers

logger = logging.getLogger(__name__)


class Encoder:
    """Embeds texts with a trained model.

        encoder = Encoder("output")  # a serialization folder, or its model.tar.gz
        embeddings = encoder(["A sentence.", "Another one."])  # (2, d)

    # Parameters

    archive : a serialization folder, an archive (`model.tar.gz`), or a URL of one. The archive may
        come from another machine.
    sphereize : subtract the mean of the embeddings of a call and scale them to length 1.
    cuda_device : the GPU to use; by default the first one if there is any, else the CPU (-1).
    kwargs : for AllenNLP's `load_archive`, such as `overrides`.

    # Raises

    `FileNotFoundError` : there is no archive at that place, or something else.
    """

    def __init__(
        self,
        archive: str | os.PathLike,
        sphereize: bool = False,
        cuda_device: int | None = None,
        **kwargs: Any,
    ) -> None:
        place = os.fspath(archive)
        if "://" not in place:
            _require_archive(Path(place))
        if cuda_device is None:
            cuda_device = 0 if torch.cuda.is_available() else -1
        loaded = load_archive(place, cuda_device=cuda_device, **kwargs)
        self._predictor = Predictor.from_archive(loaded, predictor_name="declutr")
        self._model: Any = self._predictor._model
        self._device = next(self._model.parameters()).device
        self._sphereize = sphereize

    @property
    def dimension(self) -> int:
        """The width d of the embeddings."""
        return self._model._seq2vec_encoder.get_output_dim()

    @property
    def truncated_texts(self) -> int:
        """How many texts so far were longer than the transformer takes, and lost their tail."""
        return getattr(self._predictor._dataset_reader, "truncated_texts", 0)

    def __call__(
        self,
        inputs: str | Sequence[str],
        batch_size: int | None = 32,
        show_progress: bool = False,
    ) -> np.ndarray:
        """The embeddings `(n, d)` of `inputs`, float32, in their order.

        Texts are sorted by length inside, so that a batch holds little padding; what else is in a
        batch does not change an embedding. A blank text has one too.

        # Parameters

        inputs : texts; a single string is one text.
        batch_size : texts a batch; `None` embeds all in one.
        show_progress : show a progress bar.

        # Raises

        `TypeError` : an input that is not a string, named by its position.
        `ValueError` : a batch size below 1.
        """
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, or None for all, got {batch_size}.")
        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        for position, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(
                    f"Expected strings, got {type(text).__name__} at position {position}."
                )
        embeddings = np.empty((len(texts), self.dimension), dtype=np.float32)
        if not texts:
            return embeddings
        before = self.truncated_texts
        instances = [self._predictor._json_to_instance({"text": text}) for text in texts]
        if truncated := self.truncated_texts - before:
            logger.warning(
                "%d of %d texts were too long and lost their tail.", truncated, len(texts)
            )
        order = np.argsort([len(instance["anchors"]) for instance in instances], kind="stable")
        size = batch_size or len(texts)
        # The longest first: if memory does not suffice, that shows at once.
        batches = [order[::-1][start : start + size] for start in range(0, len(order), size)]
        with tqdm(total=len(texts), unit="text", disable=not show_progress) as bar:
            for rows in batches:
                embeddings[rows] = self._embed([instances[row] for row in rows])
                bar.update(len(rows))
        return self._sphereized(embeddings) if self._sphereize else embeddings

    @torch.inference_mode()
    def _embed(self, instances: list) -> np.ndarray:
        for instance in instances:
            self._predictor._dataset_reader.apply_token_indexers(instance)
        batch = Batch(instances)
        batch.index_instances(self._model.vocab)
        tensors = move_to_device(batch.as_tensor_dict(), self._device)
        return self._model(**tensors)["embeddings"].float().cpu().numpy()

    @staticmethod
    def _sphereized(embeddings: np.ndarray) -> np.ndarray:
        if len(embeddings) < 2:
            warnings.warn(
                "sphereize needs more than one text; the embedding is returned as it is.",
                stacklevel=3,
            )
            return embeddings
        centred = embeddings - embeddings.mean(axis=0)
        return centred / np.linalg.norm(centred, axis=1, keepdims=True).clip(min=1e-12)


def _require_archive(place: Path) -> None:
    """Raise what helps if this is not a trained model."""
    expected = "Expected the folder that `allennlp train … -s FOLDER` wrote, or its model.tar.gz."
    if not place.exists():
        raise FileNotFoundError(f"No model at '{place}'. {expected}")
    if place.is_file():
        if not tarfile.is_tarfile(place):
            raise FileNotFoundError(f"'{place}' is not an archive. {expected}")
        return
    config = place / "config.json"
    if not config.exists():
        raise FileNotFoundError(f"'{place}' holds no config.json. {expected}")
    if "model_type" in json.loads(config.read_text()):
        raise FileNotFoundError(
            f"'{place}' is a transformer, not a trained model. To embed with it as it is: "
            f"TRANSFORMER_MODEL={place} allennlp train training_config/transformer_mean.jsonnet "
            "-s output, then Encoder('output')."
        )
    if not (place / "best.th").exists() and not (place / "weights.th").exists():
        raise FileNotFoundError(f"'{place}' holds no weights: its training has not finished.")
