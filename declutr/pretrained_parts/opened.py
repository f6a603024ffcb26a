"""A trained archive, opened once for all parts that are taken from it."""

import copy
import os
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.common.params import remove_keys_from_params
from allennlp.data import DatasetReader, Vocabulary
from allennlp.data.token_indexers import PretrainedTransformerIndexer
from allennlp.models import Model
from allennlp.modules.token_embedders import Embedding

import declutr.models.declutr  # noqa: F401 - archives name it
from declutr.archives import (
    CONFIG,
    VOCABULARY,
    WEIGHTS,
    NoModel,
    is_transformer,
    local_place,
    require_model,
    weights_of,
)
from declutr.archives.carried import use_archived_transformer
from declutr.archives.configuration import trained_configuration
from declutr.archives.safety import (
    BrokenArchive,
    UnsafeArchive,
    check_content,
    extracted,
    parameters_in_proportion,
    registered_names_only,
)
from declutr.archives.safety.files import weights_bytes
from declutr.data.row_reader import RowReader
from declutr.modules.embedders import PretrainedTransformerEmbedderMLM


def open_model(archive: str) -> "OpenedModel":
    """Open the trained model at a place, anew only if what lies there has changed.

    # Raises

    `ConfigurationError` : there is nothing, or something else.
    `declutr.archives.safety.UnsafeArchive` : content that is not safe to open.
    """
    place = local_place(archive)
    try:
        require_model(place, archive)
    except NoModel as error:
        raise ConfigurationError(str(error)) from error
    place = place.resolve()
    return _opened(str(place), _stamp(place))


@lru_cache(maxsize=4)
def _opened(place: str, stamp: tuple) -> "OpenedModel":
    return OpenedModel(place)


def _stamp(place: Path) -> tuple:
    """Changes when the archive does."""
    files = [place]
    if place.is_dir():
        files = [place / name for name in (CONFIG, *WEIGHTS, "model.safetensors")]
    stats = [file.stat() for file in files if file.exists()]
    return tuple((stat.st_mtime_ns, stat.st_size) for stat in stats)


class OpenedModel:
    """What a trained archive holds.

    `take` hands out modules, each to one taker only: embedder and pooler of the same archive cost
    one loading, and no two takers ever share parameters.

    # Parameters

    place : a serialization folder, a `model.tar.gz` or an exported folder, on this machine.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        # What is extracted stays as long as this object, for parts are built when asked for.
        temporary = ExitStack()
        weakref.finalize(self, _close, temporary, os.getpid())
        self.folder = _checked_folder(Path(place), temporary)
        self.config = trained_configuration(self.folder)
        model = self.config.get("model")
        kind = model.get("type") if isinstance(model, dict) else None
        if kind != "declutr":
            raise ConfigurationError(
                f"'{place}' holds a model of type '{kind}', expected 'declutr'. Name the archive "
                "that `allennlp train` made with one of declutr's recipes."
            )
        # Modules of a model that was built, which nobody has taken yet; and how it was built.
        self._left: dict[str, torch.nn.Module] = {}
        self._left_loaded = False

    @cached_property
    def reader(self) -> RowReader:
        """The reader, for its tokenizer and indexers."""
        # It looks at the transformer, too, for how long a text may be.
        with self._safely():
            reader = DatasetReader.from_params(self._usable("dataset_reader", {}))
        if not isinstance(reader, RowReader):
            raise ConfigurationError(
                f"The dataset reader of '{self.place}' is a {type(reader).__name__}, which need "
                "not have one tokenizer. Give your reader tokenizer and token indexers yourself, "
                "those that the archive was trained with."
            )
        return reader

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary; that of a transformer is its tokenizer's instead."""
        folder = self.folder / VOCABULARY
        if not folder.is_dir():
            return Vocabulary.empty()
        settings = self.config.get("vocabulary") or {}
        with registered_names_only():
            cls, _ = Vocabulary.resolve_class_name(settings.get("type", "from_instances"))
        return cls.from_files(str(folder), settings.get("padding_token"), settings.get("oov_token"))

    def known_words(self) -> dict[str, dict[str, int]]:
        """What ids mean here: namespace -> token -> id."""
        known = {
            namespace: self.vocabulary.get_token_to_index_vocabulary(namespace)
            for namespace in self.vocabulary.get_namespaces()
        }
        for indexer in self.reader._token_indexers.values():
            if isinstance(indexer, PretrainedTransformerIndexer):
                known[indexer._namespace] = indexer._tokenizer.get_vocab()
        return known

    def take(self, name: str, *, load_weights: bool = True, **embedder_changes: Any) -> Any:
        """Give a module of the trained model, to the caller alone.

        # Parameters

        name : `"embedder"`, the text field embedder without any language modelling head, or
            `"pooler"`.
        load_weights : False leaves weights as they are initialised.
        embedder_changes : keys of its only token embedder to set differently than in training.

        # Raises

        `ConfigurationError` : there are no weights to load.
        """
        if embedder_changes or name not in self._left or self._left_loaded != load_weights:
            model = self._build(load_weights, embedder_changes)
            if model.two_encoders:
                raise ConfigurationError(
                    f"'{self.place}' embeds by two encoders and concatenates what they give; its "
                    "parts cannot be taken one by one. Use declutr.Encoder, or a model of one."
                )
            self._left = {"embedder": model._text_field_embedder, "pooler": model._seq2vec_encoder}
            self._left_loaded = load_weights
            _make_independent(self._left["embedder"])
        return self._left.pop(name)

    def _build(self, load_weights: bool, embedder_changes: dict[str, Any]) -> Any:
        # An exported folder's weights come with its transformer.
        separate = load_weights and not is_transformer(self.folder)
        weights = weights_of(self.folder) if separate else None
        if separate and weights is None:
            raise ConfigurationError(
                f"'{self.place}' holds no weights: its training has not finished."
            )
        params = self._usable("model", embedder_changes)
        remove_keys_from_params(params)  # initializers, files of pretrained vectors
        with self._safely():
            model = Model.from_params(vocab=self.vocabulary, params=params)
        if weights is not None:
            model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
        return model

    @contextmanager
    def _safely(self) -> Iterator[None]:
        """Inside, AllenNLP builds nothing that is unsafe, or larger than the weights tell."""
        own = weights_of(self.folder)
        if own is not None:
            size = own.stat().st_size
        else:
            size = max(weights_bytes(place) for place in (self.folder, *self.folder.glob("0_*")))
        with registered_names_only(), parameters_in_proportion(size):
            yield

    def _usable(self, section: str, embedder_changes: dict[str, Any]) -> Params:
        """A section of the configuration, with the transformers that the archive carries."""
        config = copy.deepcopy(self.config)
        if embedder_changes:
            embedders = config["model"]["text_field_embedder"].get("token_embedders", {})
            if len(embedders) != 1:
                raise ConfigurationError(
                    f"'{self.place}' has {len(embedders)} token embedders, so there is none to "
                    f"which {', '.join(embedder_changes)} could belong. Leave that out."
                )
            next(iter(embedders.values())).update(embedder_changes)
        return use_archived_transformer(Params(config), str(self.folder)).pop(section)


def _checked_folder(place: Path, temporary: ExitStack) -> Path:
    """Where the content of an archive lies, once it has been checked."""
    try:
        folder = place if place.is_dir() else temporary.enter_context(extracted(place))
        require_model(folder, str(place))
    except (BrokenArchive, NoModel) as error:
        raise ConfigurationError(str(error)) from error
    try:
        check_content(folder, everything=folder != place)
    except (BrokenArchive, UnsafeArchive) as error:
        raise type(error)(f"{place}: {error}") from None
    return folder


def _make_independent(embedder: torch.nn.Module) -> None:
    """Leave what belongs to the model that was trained behind."""
    for module in embedder.modules():
        if isinstance(module, PretrainedTransformerEmbedderMLM):
            module.transformer_model = module.encoder  # the head has no use elsewhere
            module.masked_language_modeling = False
        if isinstance(module, Embedding):
            module._vocab_namespace = None  # or AllenNLP would fit it to another vocabulary


def _close(extracted: ExitStack, process: int) -> None:
    if os.getpid() == process:  # a forked worker does not own it
        extracted.close()
