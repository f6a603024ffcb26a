"""`Encoder`: texts in, a numpy array out."""

from __future__ import annotations

import functools
import logging
import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from declutr.corpus.text_inputs import NamedFiles, as_texts
from declutr.inference import EncoderError, require_one_of
from declutr.inference.devices import chosen_devices, chosen_dtype
from declutr.inference.open_text_model import open_text_model
from declutr.inference.text_embedding import LONG_TEXTS, TextEmbedding, without_surrogates
from declutr.system.processors import keep_to_quota

logger = logging.getLogger(__name__)

_TOGETHER = 1 << 15  # texts that are tokenised and sorted together


class Encoder:
    """Embeds texts with a trained model, or with a transformer.

        encoder = Encoder("output")  # a serialization folder, or its model.tar.gz
        embeddings = encoder(["A sentence.", "Another one."])  # (2, d)

    What else is in a call does not change an embedding (float32: by 1e-5 at most).

    # Parameters

    place : a serialization folder, an archive (`model.tar.gz`) or a URL of one, a folder that
        `declutr export`, sentence-transformers or Hugging Face wrote, or a name on the hub.
    normalize : scale embeddings to length 1. By default what the model says: archives do not,
        folders with a normalisation do.
    truncate_dim : keep so many leading dimensions, before scaling, of models made for it.
    pooling : for transformers, one of `declutr.transformer.pooling.POOLINGS`.
    whiten : apply the whitening that is stored with the model; by default if there is one.
    prompt_name : of the model's prompt (`encoder.prompts.named`) that is put before every text,
        such as `"query"`; by default the one that the model has for its default, if any.
    prompt : the text itself of a prompt.
    max_length : tokens of a text, with special ones and prompt; never more than the model takes.
    long_texts : what becomes of longer texts. `"truncate"` cuts their tails (their beginnings, if
        the `truncation_side` of the model's tokenizer is left), with a count; `"chunk"` embeds
        them in parts of equal length and takes the mean, weighted by tokens.
    dtype : `"float32"`, `"bfloat16"`, `"int8"` (CPU), or `"auto"`: bfloat16 where the device
        computes in it, else float32. A CPU that is not faster in what was asked for than in
        float32 computes in that, with a warning; `describe` says in what.
    device : `"cpu"`, `"cuda"`, `"cuda:1"`; by default the first GPU if there is any. A list of them
        starts a process for each, and they share the work: `["cuda:0", "cuda:1"]`, `["cpu"] * 4`.
    batch_tokens : tokens a batch; by default what suits the device.
    trust : open models that would be refused as unsafe (`declutr.archives.safety`), and run the
        code that they bring. Only for those you made yourself.
    revision : branch, tag or commit of a name on the hub.
    overrides : changes to an archive's configuration, as for `allennlp predict`.
    sphereize : subtract the mean of the embeddings of a call and scale them to length 1.
    kind : `"archive"` or `"transformer"`, where what lies at the place does not tell.
    cuda_device : the GPU by its number, -1 for the CPU; `device` is more general.

    # Raises

    `FileNotFoundError` : there is no model at that place.
    `EncoderError` (a `ValueError`) : a setting out of range, or one that this model does not have.
    `declutr.archives.safety.UnsafeArchive` : the archive would run code, or touch other files.
    """

    def __init__(
        self,
        place: str | os.PathLike,
        sphereize: bool = False,
        cuda_device: int | None = None,
        *,
        normalize: bool | None = None,
        truncate_dim: int | None = None,
        pooling: str | None = None,
        whiten: bool | None = None,
        max_length: int | None = None,
        long_texts: str = "truncate",
        dtype: str = "auto",
        device: str | Sequence[str] | None = None,
        batch_tokens: int | None = None,
        trust: bool = False,
        revision: str | None = None,
        overrides: dict[str, Any] | str | None = None,
        kind: str | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> None:
        keep_to_quota()
        self._place = os.fspath(place)
        self._sphereize = sphereize
        self._overrides = overrides
        require_one_of(LONG_TEXTS, long_texts=long_texts)
        for name, value in (("max_length", max_length), ("batch_tokens", batch_tokens)):
            if value is not None and value < 1:
                raise EncoderError(f"{name} must be at least 1, got {value}.")
        devices = chosen_devices(device, cuda_device)
        opening: dict[str, Any] = {
            "kind": kind, "pooling": pooling, "revision": revision, "overrides": overrides,
            "trust": trust,
        }  # fmt: skip
        embedding: dict[str, Any] = {
            "dtype": chosen_dtype(dtype, devices[0]), "max_length": max_length,
            "long_texts": long_texts, "batch_tokens": batch_tokens, "whiten": whiten,
            "truncate_dim": truncate_dim, "normalize": normalize,
        }  # fmt: skip
        # Processes of their own compute; this one only has to know what they will give.
        here = torch.device("cpu") if len(devices) > 1 else devices[0]
        self._model = open_text_model(self._place, device=here, **opening)
        self.prompts = self._model.prompts
        """The prompts of the model: their texts by name, and the name of its default."""
        self.prompt = self.prompts.chosen(prompt, prompt_name, self._place)
        """What it was made to put before texts; `None` leaves that to the model's default."""
        self._named_files = NamedFiles("encoder(pathlib.Path(...))")
        self._embedded = TextEmbedding(self._model, self._place, **embedding)
        self._told = False  # that texts are cut
        self._processes = None
        if len(devices) > 1:
            from declutr.inference.encoder_processes import EncoderProcesses

            self._processes = EncoderProcesses(
                functools.partial(Encoder, self._place, **opening, **embedding),
                [str(one) for one in devices],
                lambda: self._model.choose_products(embedding["dtype"]),
            )
        elif here.type == "cpu":
            self._model.prepare(embedding["dtype"])

    @property
    def dimension(self) -> int:
        """The width d of the embeddings."""
        return self._embedded.dimension

    @property
    def max_length(self) -> int | None:
        """Tokens of a text, special ones included; `None` if there is no limit."""
        return self._embedded.max_length

    @property
    def truncated_texts(self) -> int:
        """How many texts so far were longer than `max_length`, and were cut."""
        elsewhere = self._processes.truncated_texts if self._processes else 0
        return self._embedded.truncated_texts + self._model.texts_cut + elsewhere

    def describe(self) -> dict[str, Any]:
        """What embeddings depend on, as JSON values: `place`, `kind`, `content`, the settings."""
        return {
            "place": self._place,
            **self._model.describe(),
            "overrides": self._overrides or None,
            **self._embedded.describe(),
            "sphereize": self._sphereize,
            # The default is part of the content.
            **({} if self.prompt is None else {"prompt": self.prompt}),
        }

    def __call__(
        self,
        inputs: str | Sequence[str] | os.PathLike,
        batch_size: int | None = None,
        show_progress: bool = False,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> np.ndarray:
        """The embeddings `(n, d)` of `inputs`, float32, in their order.

        Texts are sorted by length inside and go through the model a number of tokens at a time. A
        blank text has an embedding too.

        # Parameters

        inputs : texts in a list, tuple, Series, array or generator; a single string is one text,
            even if it names a file. A path (`pathlib.Path`) is read as `declutr embed` reads it: a
            text a line, the key `text` of JSON lines and parquet, or that column of CSV and TSV.
        batch_size : texts a batch at most; `batch_tokens` alone decides by default.
        show_progress : show a progress bar.
        prompt_name, prompt : as for the encoder, for this call; `prompt=""` leaves out the default.

        # Raises

        `TypeError` : an input that is not a string, named by its position; or what is no sequence
            of texts, such as a DataFrame, a dict or a set.
        `ValueError` : a batch size below 1; a prompt that the model does not have; a path that
            cannot be read.
        """
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, or None, got {batch_size}.")
        asked = self.prompts.chosen(prompt, prompt_name, self._place)
        before_each = self.prompts.first_of(asked, self.prompt)
        texts = [without_surrogates(text) for text in as_texts(self._named_files.texts(inputs))]
        embeddings = np.empty((len(texts), self.dimension), dtype=np.float32)
        if not texts:
            return embeddings
        before = self.truncated_texts
        with tqdm(total=len(texts), unit="text", disable=not show_progress) as bar:
            if self._processes is not None:
                for rows, vectors in self._processes.embed(texts, batch_size, before_each):
                    embeddings[rows] = vectors
                    bar.update(len(rows))
            else:
                for start in range(0, len(texts), _TOGETHER):
                    part = texts[start : start + _TOGETHER]
                    vectors = self._embedded(part, before_each, batch_size, bar.update)
                    embeddings[start : start + len(part)] = vectors
        self._tell_of_truncation(self.truncated_texts - before, len(texts))
        if not self._sphereize:
            return embeddings
        if len(embeddings) < 2:
            warnings.warn(
                "sphereize needs more than one text; the embedding is returned as it is.",
                stacklevel=2,
            )
            return embeddings
        from declutr.system.vectors import unit_rows

        return unit_rows(embeddings - embeddings.mean(axis=0))

    def close(self) -> None:
        """End the processes of several devices; they end with this object in any case."""
        if self._processes is not None:
            self._processes.close()

    def __enter__(self) -> Encoder:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def _tell_of_truncation(self, truncated: int, texts: int) -> None:
        """Say once that texts were cut."""
        if truncated and not self._told:
            self._told = True
            logger.warning(
                "%d of %d texts were too long and lost their %s; truncated_texts counts on, "
                'long_texts="chunk" embeds all of them.',
                truncated,
                texts,
                "beginning" if self._model.keeps_end else "tail",
            )
