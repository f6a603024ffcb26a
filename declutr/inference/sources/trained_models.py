"""Named encoders of trained models and transformers, by `Encoder` or sentence-transformers."""

import math
import os
import sys
import tarfile
from pathlib import Path
from typing import Any, cast

import numpy as np

from declutr.archives.static_folder import is_static
from declutr.inference import EncoderError, require_one_of
from declutr.inference.encoder import Encoder
from declutr.inference.fingerprints import code_fingerprint, model_fingerprint
from declutr.inference.open_text_model import chosen_device
from declutr.inference.sources.source import NamedEncoder
from declutr.inference.text_model import Prompts
from declutr.system import installed_versions, raised_as
from declutr.system.processors import processor_name

PRECISIONS = {"float32": "float32", "bf16": "bfloat16", "int8": "int8"}
_FLAGS = {"true": True, "false": False}
_DECIDING = (
    *("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE", "NVIDIA_TF32_OVERRIDE"),
    "DECLUTR_KERNELS",
)
"""The variables of the environment by which products of float32 are computed otherwise."""


class OwnEncoder(NamedEncoder):
    """An `Encoder` as a named encoder, in float32 by default so that scores can be compared.

    # Parameters

    place : as for `Encoder`.
    precision : a key of `PRECISIONS`.
    normalize, whiten : `true` or `false`, as for `Encoder`.
    dim : the number of leading dimensions that are kept, as text.
    batch_size : as for `open_encoder`.
    settings : other arguments of `Encoder`.

    # Raises

    `EncoderError` : the model cannot be opened, or does not have one of the settings.
    """

    def __init__(
        self,
        place: str,
        *,
        precision: str = "float32",
        normalize: str | None = None,
        whiten: str | None = None,
        dim: str | None = None,
        batch_size: int = 64,
        **settings: Any,
    ) -> None:
        require_one_of(PRECISIONS, precision=precision)
        if dim is not None and not dim.isdecimal():
            raise EncoderError(f"Expected dim to be a whole number, got {dim!r}.")
        self._batch_size, self._precision = batch_size, precision
        if is_static(Path(place)):
            self.not_stored = "averages of words take no longer than reading them would"
        with raised_as(EncoderError, OSError, tarfile.TarError):
            self._encoder = Encoder(
                place,
                dtype=PRECISIONS[precision],
                normalize=_flag("normalize", normalize),
                whiten=_flag("whiten", whiten),
                truncate_dim=int(dim) if dim else None,
                **settings,
            )
        self._device = self._encoder._model.device_type
        self.dimension = self._encoder.dimension
        self.parameters = self._encoder.num_parameters
        self.prompts, self.prompt = self._encoder.prompts, self._encoder.prompt

    def embed(self, sentences: list[str], prompt: str | None = None) -> np.ndarray:
        return self._encoder(sentences, batch_size=self._batch_size, prompt=prompt)

    def settings(self) -> dict[str, Any]:
        described = self._encoder.describe()
        # `Encoder` computes in float32 instead if the dtype asked for is slower on this CPU.
        if described["dtype"] != PRECISIONS[self._precision]:
            described["precision_asked_for"] = self._precision
        return described

    def counts(self) -> dict[str, int]:
        return {"truncated_texts": self._encoder.truncated_texts}

    def computed_with(self) -> dict[str, str]:
        computed = super().computed_with() | _torch_with(self._device, "allennlp")
        if self._precision != "float32":  # processors differ in how they round
            computed["processor"] = processor_name()
        return computed


class FromSentenceTransformers(NamedEncoder):
    """A named encoder that calls `SentenceTransformer.encode` of the package sentence-transformers.

    # Parameters

    place : a name on the Hugging Face hub, or a folder.
    revision : a branch, tag or commit of a name on the hub.
    prompt_name : the name of the model's prompt that is put before sentences; by default the
        model's default prompt, if any.
    batch_size, device, max_length : as for `open_encoder`.

    # Raises

    `EncoderError` : the package is missing, the model cannot be loaded, or it has no such prompt.
    """

    def __init__(
        self,
        place: str,
        *,
        revision: str | None = None,
        prompt_name: str | None = None,
        batch_size: int = 64,
        device: str | None = None,
        max_length: int | None = None,
    ) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise EncoderError(
                f"'{place}' needs the package sentence-transformers: pip install "
                "'declutr[sentence-transformers]'. Or use its transformer alone, with a pooling "
                f"of your choice: hf:{place}?pooling=mean"
            ) from error
        self._place, self._batch_size = place, batch_size
        import torch

        where = str(chosen_device(device))
        self._device = where.partition(":")[0]
        try:
            with torch.random.fork_rng(devices=[]):
                model = SentenceTransformer(place, device=where, revision=revision)
                self._model = cast(Any, model)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise EncoderError(
                f"No sentence-transformers model could be loaded from '{place}': {error}"
            ) from error
        # sentence-transformers 5 renamed this method.
        name = "get_embedding_dimension"
        ask = getattr(self._model, name, None) or self._model.get_sentence_embedding_dimension
        self.dimension = ask()
        self.parameters = sum(weight.numel() for weight in self._model.parameters())
        self.prompts = Prompts(dict(self._model.prompts or {}), self._model.default_prompt_name)
        self.prompt = self.prompts.chosen(None, prompt_name, place)
        if max_length and self._max_length:
            self._model.max_seq_length = min(max_length, self._max_length)
        self._content = model_fingerprint(place, revision)
        # The package runs the Python code of a folder without asking, so the fingerprint covers it.
        self._code = code_fingerprint(Path(place))
        self._truncated = 0

    def embed(self, sentences: list[str], prompt: str | None = None) -> np.ndarray:
        prompt = self.prompt if prompt is None else prompt
        before = self.prompts.first_of(prompt)
        self._truncated += self._too_long([before + text for text in sentences])
        return self._model.encode(
            sentences,
            **({} if prompt is None else {"prompt": prompt}),
            batch_size=self._batch_size,
            show_progress_bar=False,
            convert_to_numpy=True,
        )

    def settings(self) -> dict[str, Any]:
        return {
            "kind": "sentence-transformers",
            "place": self._place,
            "pooling": "its own",
            "max_length": self._max_length,
            "content": self._content,
            **({"code": self._code} if self._code else {}),
            **({} if self.prompt is None else {"prompt": self.prompt}),
        }

    @property
    def _max_length(self) -> int | None:
        """The largest number of tokens of a text; None for no limit, which is infinite there."""
        length = self._model.max_seq_length
        return length if length and math.isfinite(length) else None

    def counts(self) -> dict[str, int]:
        return {"truncated_texts": self._truncated}

    def computed_with(self) -> dict[str, str]:
        return super().computed_with() | _torch_with(self._device, "sentence-transformers")

    def _too_long(self, sentences: list[str]) -> int:
        """Return how many sentences, which include their prompts, the model will cut."""
        tokenizer = getattr(self._model, "tokenizer", None)
        longest = self._model.max_seq_length
        if not longest or not callable(tokenizer):  # models of words have no limit
            return 0
        ids = tokenizer(sentences, verbose=False, return_attention_mask=False)["input_ids"]
        return sum(len(tokens) > longest for tokens in ids)


def _torch_with(device: str, package: str) -> dict[str, str]:
    """Return the device, the precision of its float32 products, and the releases of libraries."""
    precision = {name: os.environ[name] for name in _DECIDING if name in os.environ}
    torch = sys.modules.get("torch")  # without it, nobody has changed what it does
    precision["float32 products"] = torch.get_float32_matmul_precision() if torch else "highest"
    releases = installed_versions("torch", "transformers", "tokenizers", package)
    return {"device": device, **precision, **releases}


def _flag(name: str, value: str | None) -> bool | None:
    if value is None:
        return None
    if value not in _FLAGS:
        raise EncoderError(f"Expected {name} to be true or false, got {value!r}.")
    return _FLAGS[value]
