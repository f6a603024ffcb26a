"""Models that were trained with declutr, as text models."""

import logging
from collections.abc import Sequence
from typing import Any, cast

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import Batch, Instance
from allennlp.models.archival import load_archive
from allennlp.nn.util import move_to_device
from allennlp.predictors import Predictor
from torch.overrides import TorchFunctionMode

import declutr.components  # noqa: F401 - archives use the names that it registers
from declutr.archives import CONFIG, TRANSFORMERS, VOCABULARY, WHITENING, local_place, weights_of
from declutr.archives.safety import UnsafeArchive, opened_archive
from declutr.corpus import normalize_whitespace
from declutr.data.codecs import WordPieceCodec
from declutr.inference import EncoderError
from declutr.inference.embedding_threads import may_embed_in_threads
from declutr.inference.fingerprints import files_fingerprint
from declutr.inference.text_model import TextModel
from declutr.models.declutr import DeCLUTR
from declutr.modules.embedders import MLMTextFieldEmbedder
from declutr.modules.token_embedding_bag import TokenEmbeddingBag
from declutr.system import loggers_at
from declutr.system.host_memory import to_device


class TrainedModel(TextModel):
    """A trained model with its dataset reader, from a serialization directory or an archive.

    The word pieces of a dataset reader of type "declutr" are handled as arrays of ids; the tokens
    of any other reader go through AllenNLP's instances.

    # Parameters

    place : a serialization directory, an archive (`model.tar.gz`), or a URL of one.
    device : the device of the model.
    overrides : changes to the archive's configuration, as for AllenNLP's `load_archive`.
    trust : accept an archive that names classes outside of AllenNLP's registries or brings code;
        see `declutr.archives.safety`.

    # Raises

    `FileNotFoundError` : there is no archive at that place, or it holds no weights.
    `EncoderError`, `declutr.archives.safety.BrokenArchive` : it cannot be read, or built.
    `declutr.archives.safety.UnsafeArchive` : it would run code, or touch other files.
    """

    def __init__(
        self,
        place: str,
        *,
        device: torch.device,
        overrides: dict[str, Any] | str | None = None,
        trust: bool = False,
    ) -> None:
        self.device, self.device_type = device, device.type
        number = (device.index or 0) if device.type == "cuda" else -1
        # Below this level, AllenNLP logs a line for each parameter that no initializer sets.
        quiet = loggers_at(logging.WARNING, "allennlp", "transformers")
        with opened_archive(place, trust, overrides=overrides) as folder, quiet:
            if weights_of(folder) is None:
                raise FileNotFoundError(
                    f"'{place}' holds no weights (weights.th, best.th): its training has not "
                    "finished, or they were left out."
                )
            try:
                with _Undrawn():
                    archive = load_archive(folder, cuda_device=number, overrides=overrides or {})
            # These errors say what is wrong; broken content can raise nearly any other.
            except (UnsafeArchive, ConfigurationError, OSError, MemoryError):
                raise
            except Exception as error:
                raise EncoderError(
                    f"No model could be built from '{place}': {type(error).__name__}: {error}. Its "
                    "content may be broken, or made by another release."
                ) from error
            if (folder / WHITENING).is_file():
                from declutr.inference.fitted_map import load_map
                from declutr.inference.flow import Flow
                from declutr.inference.whitening import Whitening

                self.whitening = load_map(folder, (Whitening, Flow))
        self._predictor = Predictor.from_archive(archive, predictor_name="declutr-declutr")
        self.model = cast(Any, self._predictor._model)
        if not hasattr(self.model, "embedding_dim"):
            raise EncoderError(
                f"'{place}' holds a {type(self.model).__name__}, which gives no embeddings. "
                "Expected a model of type 'declutr'. `declutr predict` gives the outputs of others."
            )
        self.reader: Any = self._predictor._dataset_reader
        codec = getattr(self.reader, "_whole_codec", None)
        self.codec = codec if isinstance(codec, WordPieceCodec) else None
        if self.codec is not None:
            self.special_tokens = self.codec.num_special_tokens
            self.keeps_end = self.codec.keeps_end
            if self.codec.limit is not None:
                self.max_length = self.codec.limit + self.special_tokens
        self.cuts_texts = self.codec is None
        self.dimension = self.model.embedding_dim
        parts = [
            embedder.token_embedder.encoder  # without the language modelling head
            if isinstance(embedder, MLMTextFieldEmbedder)
            else embedder
            for embedder in self.model.embedders
        ]
        self.only_float32 = all(isinstance(part, TokenEmbeddingBag) for part in parts)
        self.linear_part = parts[0] if len(parts) == 1 else torch.nn.ModuleList(parts)
        self.embeds_in_threads = (
            device.type == "cpu"
            and self.codec is not None
            and not self.only_float32
            and type(self.model) is DeCLUTR
            and may_embed_in_threads(
                encoder[part]
                for encoder in self.model._encoders.embedding
                for part in ("embedder", "pooler")
            )
        )
        self._content = content_of(place)

    @property
    def texts_cut(self) -> int:
        return getattr(self.reader, "truncated_texts", 0) if self.cuts_texts else 0

    def tokenize(self, texts: list[str], prompt: str = "") -> list[Any]:
        texts = [prompt + text for text in texts]
        if self.codec is not None:
            arrays, _ = self.codec.encode([normalize_whitespace(text) for text in texts])
            return arrays
        return [_Text(self._predictor._json_to_instance({"text": text})) for text in texts]

    @torch.inference_mode()
    def embed(self, pieces: Sequence[Any]) -> torch.Tensor:
        if self.codec is not None:
            texts = self.codec.pack(pieces, (len(pieces),)).tensors()
            tensors: Any = {
                "anchors": {
                    name: {key: to_device(tensor, self.device) for key, tensor in indexed.items()}
                    for name, indexed in texts.items()
                }
            }
        else:
            instances = [piece.instance for piece in pieces]
            for instance in instances:
                self.reader.apply_token_indexers(instance)
            batch = Batch(instances)
            batch.index_instances(self.model.vocab)
            tensors = batch.as_tensor_dict()
        output = self.model(**move_to_device(tensors, self.device))
        return output["embeddings"].float()

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "trained archive",
            "pooling": type(self.model._seq2vec_encoder).__name__,
            "content": self._content,
        }


class _Undrawn(TorchFunctionMode):
    """A context in which random initialization gives zeros and draws no random numbers.

    Parameters that are loaded afterwards need no initialization, which takes long for large ones.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        # Methods of tensors, and those functions of `torch.nn.init` that can be overridden.
        if getattr(func, "__name__", "") in ("normal_", "uniform_", "kaiming_uniform_"):
            tensor = args[0] if args else kwargs["tensor"]
            tensor.detach().zero_()
            return tensor
        return func(*args, **kwargs)


class _Text:
    """An instance whose length is the number of tokens of its text."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    def __len__(self) -> int:
        return len(self.instance["anchors"])  # type: ignore[arg-type]


def content_of(place: str) -> str:
    """Return a fingerprint of the files that are loaded from a place."""
    path = local_place(place)
    if path.is_file():
        return files_fingerprint([path])
    weights = weights_of(path) or path / "weights.th"
    inside = [
        file
        for folder in (VOCABULARY, TRANSFORMERS)
        for file in sorted((path / folder).rglob("*"))
        if file.is_file() and not file.name.startswith(".")
    ]
    if (path / WHITENING).exists():
        inside.append(path / WHITENING)
    return files_fingerprint([path / CONFIG, weights, *inside], path)
