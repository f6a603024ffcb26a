"""Trained archives that are opened once for all parts that are taken from them."""

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

import declutr.models.declutr  # noqa: F401 - archives use its registered name
from declutr import archives
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
from declutr.bridge.own_names import of_archive
from declutr.bridge.registry import own_name
from declutr.data.row_reader import RowReader
from declutr.modules.embedders import PretrainedTransformerEmbedderMLM
from declutr.system import raised_as
from declutr.system.files import Appearance, appearance


def open_model(archive: str) -> "OpenedModel":
    """Open a trained archive, or return the opened one if its files have not changed since.

    # Parameters

    archive : a serialization directory, a `model.tar.gz` or a URL of one, or an exported folder.

    # Raises

    `ConfigurationError` : there is no trained model of declutr at that place.
    `declutr.archives.safety.UnsafeArchive` : the archive is not safe to open.
    """
    place = archives.local_place(archive)
    with raised_as(ConfigurationError, archives.NoModel):
        archives.require_model(place, archive)
    place = place.resolve()
    return _opened(str(place), _stamp(place))


@lru_cache(maxsize=4)
def _opened(place: str, stamp: tuple[Appearance, ...]) -> "OpenedModel":
    return OpenedModel(place)


def _stamp(place: Path) -> tuple[Appearance, ...]:
    """Return the appearance of the files of an archive, which changes when the archive does."""
    files = [place]
    if place.is_dir():
        files = [place / name for name in (archives.CONFIG, *archives.WEIGHTS, "model.safetensors")]
    return tuple(appearance(file) for file in files if file.exists())


class OpenedModel:
    """An opened trained archive, from which parts of its model are taken.

    `take` gives each module to one caller only. The embedder and the pooler of an archive come from
    one loaded model, and no two callers ever share parameters.

    # Parameters

    place : a local serialization directory, `model.tar.gz` or exported folder.

    # Raises

    `ConfigurationError` : there is no trained model of declutr at that place.
    `declutr.archives.safety.BrokenArchive`, `declutr.archives.safety.UnsafeArchive` : the content
        of the archive is broken, or not safe to open.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        # Extracted files are kept as long as this object: parts are built when they are taken.
        temporary = ExitStack()
        weakref.finalize(self, _close, temporary, os.getpid())
        self.folder = _checked_folder(Path(place), temporary)
        with registered_names_only():
            self.config = of_archive(trained_configuration(self.folder), str(self.folder))
        model = self.config.get("model")
        kind = model.get("type") if isinstance(model, dict) else None
        if own_name("Model", kind) != "declutr":
            raise ConfigurationError(
                f"'{place}' holds a model of type '{kind}', expected 'declutr'. Name the archive "
                "that `allennlp train` made with one of declutr's recipes."
            )
        # The modules of the model that was built last which nobody has taken yet, and whether that
        # model was built with its weights.
        self._left: dict[str, torch.nn.Module] = {}
        self._left_loaded = False

    @cached_property
    def reader(self) -> RowReader:
        """The dataset reader of the archive, with its tokenizer and token indexers."""
        # The reader also opens the transformer, to find out how long a text may be.
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
        """The vocabulary of the archive, without the word pieces of a transformer's tokenizer."""
        folder = self.folder / archives.VOCABULARY
        if not folder.is_dir():
            return Vocabulary.empty()
        settings = self.config.get("vocabulary") or {}
        with registered_names_only():
            cls, _ = Vocabulary.resolve_class_name(settings.get("type", "from_instances"))
        return cls.from_files(str(folder), settings.get("padding_token"), settings.get("oov_token"))

    def known_words(self) -> dict[str, dict[str, int]]:
        """Return the ids of all tokens, as a dictionary namespace -> token -> id."""
        known = {
            namespace: self.vocabulary.get_token_to_index_vocabulary(namespace)
            for namespace in self.vocabulary.get_namespaces()
        }
        for indexer in self.reader._token_indexers.values():
            if isinstance(indexer, PretrainedTransformerIndexer):
                known[indexer._namespace] = indexer._tokenizer.get_vocab()
        return known

    def take(self, name: str, *, load_weights: bool = True, **embedder_changes: Any) -> Any:
        """Return a module of the trained model that no other caller gets.

        # Parameters

        name : `"embedder"`, the text field embedder without any language modelling head, or
            `"pooler"`.
        load_weights : False leaves the weights as they are initialized.
        embedder_changes : configuration keys of the only token embedder, with values that differ
            from training.

        # Raises

        `ConfigurationError` : there are no weights to load, the model has two encoders, or there is
            no single token embedder to change.
        """
        if embedder_changes or name not in self._left or self._left_loaded != load_weights:
            model = self._build(load_weights, embedder_changes)
            if len(model.embedders) > 1:
                raise ConfigurationError(
                    f"'{self.place}' embeds by two encoders and concatenates what they give; its "
                    "parts cannot be taken one by one. Use declutr.Encoder, or a model of one."
                )
            self._left = {"embedder": model._text_field_embedder, "pooler": model._seq2vec_encoder}
            self._left_loaded = load_weights
            _make_independent(self._left["embedder"])
        return self._left.pop(name)

    def _build(self, load_weights: bool, embedder_changes: dict[str, Any]) -> Any:
        # The weights of an exported folder are loaded with its transformer.
        separate = load_weights and not archives.is_transformer(self.folder)
        weights = archives.weights_of(self.folder) if separate else None
        if separate and weights is None:
            raise ConfigurationError(
                f"'{self.place}' holds no weights: its training has not finished."
            )
        params = self._usable("model", embedder_changes)
        remove_keys_from_params(params)  # of initializers and of files with pretrained vectors
        with self._safely():
            model = Model.from_params(vocab=self.vocabulary, params=params)
        if weights is not None:
            model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
        return model

    @contextmanager
    def _safely(self) -> Iterator[None]:
        """Let AllenNLP build registered classes only, of a size in proportion to the weights."""
        own = archives.weights_of(self.folder)
        if own is not None:
            size = own.stat().st_size
        else:
            size = max(weights_bytes(place) for place in (self.folder, *self.folder.glob("0_*")))
        with registered_names_only(), parameters_in_proportion(size):
            yield

    def _usable(self, section: str, embedder_changes: dict[str, Any]) -> Params:
        """Return a section of the configuration that uses the transformers in the archive."""
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
    """Return the folder with the content of an archive, extracted if need be, after a check."""
    with raised_as(ConfigurationError, BrokenArchive, archives.NoModel):
        folder = place if place.is_dir() else temporary.enter_context(extracted(place))
        archives.require_model(folder, str(place))
    try:
        check_content(folder, everything=folder != place)
    except (BrokenArchive, UnsafeArchive) as error:
        raise type(error)(f"{place}: {error}") from None
    return folder


def _make_independent(embedder: torch.nn.Module) -> None:
    """Remove the parts of an embedder that only the model it was trained in can use."""
    for module in embedder.modules():
        if isinstance(module, PretrainedTransformerEmbedderMLM):
            module.transformer_model = module.encoder  # without the language modelling head
            module.masked_language_modeling = False
        if isinstance(module, Embedding):
            module._vocab_namespace = None  # else AllenNLP extends it to the vocabulary


def _close(extracted: ExitStack, process: int) -> None:
    if os.getpid() == process:  # a forked worker must not remove the files of its parent
        extracted.close()
