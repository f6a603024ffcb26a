"""The class `Encoder`, which embeds texts as a numpy array."""

from __future__ import annotations

import functools
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from declutr.corpus import without_surrogates
from declutr.corpus.text_inputs import NamedFiles, as_texts
from declutr.inference import EncoderError, require_one_of
from declutr.inference.open_text_model import DTYPES, chosen_dtype, device_names, open_text_model
from declutr.inference.text_embedding import LONG_TEXTS, TextEmbedding

logger = logging.getLogger(__name__)

_TOGETHER = 1 << 15  # texts that are tokenised and sorted together


class Encoder:
    """An encoder that embeds texts with a trained model or a pretrained transformer.

        encoder = Encoder("output")  # a serialization directory, or its model.tar.gz
        embeddings = encoder(["A sentence.", "Another one."])  # (2, d)

    The embedding of a text does not depend on the other texts of a call (up to 1e-5 in float32).

    # Parameters

    place : a serialization directory, an archive (`model.tar.gz`) or a URL of one, a folder that
        `declutr export`, sentence-transformers or Hugging Face wrote, or a name on the hub.
    sphereize : subtract the mean of all embeddings of a call, and scale them to length 1.
    cuda_device : the number of a GPU, or -1 for the CPU; `device` is more general.
    normalize : scale embeddings to length 1. By default, folders with a normalisation module do and
        archives do not.
    truncate_dim : the number of leading dimensions to keep, before scaling; for models that were
        trained for it. By default, as many as a folder of sentence-transformers says.
    pooling : for transformers, one of `declutr.transformer.pooling.POOLINGS`.
    whiten : apply the whitening or flow that is stored with the model; by default, if there is one.
    max_length : the largest number of tokens of a text, special tokens and prompt included; never
        more than the model takes.
    long_texts : how longer texts are embedded. `"truncate"` cuts off their ends (their beginnings,
        if the `truncation_side` of the model's tokenizer is left), and counts them; `"chunk"`
        embeds chunks of equal length, and takes their mean weighted by tokens.
    dtype : `"float32"`, `"bfloat16"`, `"int8"` (CPU only), or `"auto"`: bfloat16 if the device has
        instructions for it, else float32. A CPU that is not faster in the dtype asked for than in
        float32 computes in float32, with a warning; `describe` returns the dtype in use.
    device : `"cpu"`, `"cuda"`, `"cuda:1"`; by default the first GPU if there is any. A list starts
        a process for each device, which share the work: `["cuda:0", "cuda:1"]`, `["cpu"] * 4`.
    batch_tokens : the largest number of tokens of a batch; the default depends on the device. On a
        CPU, where threads embed a batch each, of all their batches together.
    trust : open models that would be refused as unsafe (`declutr.archives.safety`), and run the
        code that they bring. Only for models that you made yourself.
    revision : a branch, tag or commit of a name on the hub.
    overrides : changes to an archive's configuration, as for `allennlp predict`.
    kind : `"archive"` or `"transformer"`; by default it is recognised from what lies at the place.
    prompt_name : the name of the model's prompt (a key of `encoder.prompts.named`) that is put
        before every text, such as `"query"`; by default the model's default prompt, if any.
    prompt : the text of a prompt, instead of a name.

    # Raises

    `FileNotFoundError` : there is no model at that place.
    `EncoderError` (a `ValueError`) : a value is out of range, or this model does not have one of
        the settings.
    `declutr.archives.safety.UnsafeArchive` : the model would run code, or touch other files.
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
        self._place = os.path.expanduser(os.fspath(place))
        self._sphereize = sphereize
        self._overrides = overrides
        require_one_of(LONG_TEXTS, long_texts=long_texts)
        require_one_of(DTYPES, dtype=dtype)
        for name, value in (("max_length", max_length), ("batch_tokens", batch_tokens)):
            if value is not None and value < 1:
                raise EncoderError(f"{name} must be at least 1, got {value}.")
        devices = device_names(device, cuda_device)
        opening: dict[str, Any] = {
            "kind": kind, "pooling": pooling, "revision": revision, "overrides": overrides,
            "trust": trust,
        }  # fmt: skip
        embedding: dict[str, Any] = {
            "max_length": max_length, "long_texts": long_texts, "batch_tokens": batch_tokens,
            "whiten": whiten, "truncate_dim": truncate_dim, "normalize": normalize,
        }  # fmt: skip
        # With several devices, other processes compute: this one opens the model for its dimension,
        # limits and prompts only, which needs no GPU.
        here = "cpu" if len(devices) > 1 else devices[0]
        self._model = open_text_model(self._place, device=here, **opening)
        only_float32 = self._model.only_float32
        embedding["dtype"] = "float32" if only_float32 else chosen_dtype(dtype, devices[0])
        self.num_parameters = self._model.num_parameters
        """The number of parameters that token embeddings are computed with, without any heads."""
        self.prompts = self._model.prompts
        """The prompts of the model: their texts by name, and the name of the default prompt."""
        self.prompt = self.prompts.chosen(prompt, prompt_name, self._place)
        """The prompt that this encoder was made with; `None` leaves it to the model's default."""
        self._named_files = NamedFiles("encoder(pathlib.Path(...))")
        self._embedded = TextEmbedding(self._model, self._place, **embedding)
        self._told = False  # whether the warning about cut texts was logged
        self._processes = None
        if len(devices) > 1:
            from declutr.inference.encoder_processes import EncoderProcesses

            self._processes = EncoderProcesses(
                functools.partial(Encoder, self._place, **opening, **embedding),
                [str(name) for name in devices],
                self._prepare,
            )
        elif self._model.device_type == "cpu":
            self._prepare()

    def __getstate__(self) -> dict[str, Any]:
        # Hashes of pickles (the cache of `datasets.map`) should not follow from earlier calls.
        return {**vars(self), "_told": False}

    def _prepare(self) -> None:
        self._embedded.dtype = self._model.prepare(self._embedded.dtype)

    @property
    def dimension(self) -> int:
        """The width d of the embeddings."""
        return self._embedded.dimension

    @property
    def max_length(self) -> int | None:
        """The largest number of tokens of a text, special ones included; `None` for no limit."""
        return self._embedded.max_length

    @property
    def truncated_texts(self) -> int:
        """The number of texts so far that were longer than `max_length` and were cut."""
        elsewhere = self._processes.truncated_texts if self._processes else 0
        return self._embedded.truncated_texts + self._model.texts_cut + elsewhere

    def describe(self) -> dict[str, Any]:
        """Return what embeddings depend on as JSON values: place, kind, content and settings."""
        return {
            "place": self._place,
            **self._model.describe(),
            "overrides": self._overrides or None,
            **self._embedded.describe(),
            "sphereize": self._sphereize,
            # The model's default prompt is covered by `content`, the fingerprint of its files.
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
        """Return the embeddings `(n, d)`, float32, of n texts in their order.

        Inside, texts are sorted by length and batched by their number of tokens. A blank text has
        an embedding too.

        # Parameters

        inputs : texts in a list, tuple, Series, array or generator; a single string is one text,
            even if it names a file. A path (`pathlib.Path`) is read as by `declutr embed`: a text
            a line, the key `text` of JSON lines and parquet, or that column of CSV and TSV.
        batch_size : the largest number of texts of a batch; by default only `batch_tokens` limits
            a batch.
        show_progress : show a progress bar.
        prompt_name, prompt : as for `Encoder`, for this call only; `prompt=""` uses no prompt.

        # Raises

        `TypeError` : an input is not a string (the message gives its position), or the inputs are
            no sequence of texts, such as a DataFrame, a dict or a set.
        `ValueError` : the batch size is below 1, the model does not have the prompt, or the path
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
        with _shown(len(texts)) if show_progress else nullcontext(_nothing) as done:
            if self._processes is not None:
                for rows, vectors in self._processes.embed(texts, batch_size, before_each):
                    embeddings[rows] = vectors
                    done(len(rows))
            else:
                for start in range(0, len(texts), _TOGETHER):
                    part = texts[start : start + _TOGETHER]
                    vectors = self._embedded(part, before_each, batch_size, done)
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
        """End the processes that several devices use; they also end with this object."""
        if self._processes is not None:
            self._processes.close()

    def __enter__(self) -> Encoder:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def _tell_of_truncation(self, truncated: int, texts: int) -> None:
        """Log a warning the first time that texts were cut."""
        if truncated and not self._told:
            self._told = True
            logger.warning(
                "%d of %d texts were too long and lost their %s; truncated_texts counts on, "
                'long_texts="chunk" embeds all of them.',
                truncated,
                texts,
                "beginning" if self._model.keeps_end else "tail",
            )


@contextmanager
def _shown(texts: int) -> Iterator[Callable[[int], Any]]:
    """Show a progress bar over so many texts, and yield what to call with a number of them."""
    from tqdm.auto import tqdm  # with its lock, it would take as long as to embed a short text

    with tqdm(total=texts, unit="text") as bar:
        yield bar.update


def _nothing(texts: int) -> None:
    """Ignore the number of texts that are embedded, where no progress is shown."""
