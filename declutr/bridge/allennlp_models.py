"""Switches of allennlp-models 2.10.1, the collection of models that AllenNLP loads as a plugin.

Its names are lent to it by context managers; its repairs take a module right after its body ran,
test whether the repair is needed, and return whether they changed anything.
"""

import contextlib
import functools
import importlib.resources
import os
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from declutr.bridge.lending import stand_in
from declutr.bridge.repairs import replaces


def pkg_resources() -> contextlib.AbstractContextManager[None]:
    """Stand in for `pkg_resources`, removed in setuptools 82, within py-rouge.

    py-rouge asks it for the path of its own files. Without it no part of allennlp-models could be
    loaded. Can be removed when py-rouge uses `importlib.resources`.
    """
    given = {"resource_filename": _resource_filename}
    return stand_in("pkg_resources", {"": tuple(given)}, given=given)


def _resource_filename(module_name: str, resource: str) -> str:
    package = module_name.rpartition(".")[0] or module_name
    return str(importlib.resources.files(package).joinpath(resource))


def wordpieces(module: ModuleType) -> bool:
    """Restore `wordpiece_tokenizer` of BERT's tokenizer, removed in transformers 5, for "srl_bert".

    The tokenizer of "srl" also asks for the whole vocabulary at every wordpiece, which transformers
    5 builds anew each time; it is kept. Can be removed when the reader uses a fast tokenizer.
    """
    import transformers

    if not issubclass(module.BertTokenizer, transformers.PreTrainedTokenizerFast):
        return False

    @replaces(module.SrlReader)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if self.bert_tokenizer is not None:
            self.bert_tokenizer = Wordpieces(self.bert_tokenizer)

    return True


class Wordpieces:
    """A fast BERT tokenizer with the parts of a slow one that read single words.

    # Parameters

    tokenizer : the fast tokenizer; other attributes than those here are its own.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._fast = tokenizer

    def __getattr__(self, name: str) -> Any:
        if name == "_fast":  # not there yet while a copy is made
            raise AttributeError(name)
        return getattr(self._fast, name)

    @functools.cached_property
    def vocab(self) -> dict[str, int]:
        """The ids of all tokens."""
        return self._fast.get_vocab()

    @property
    def wordpiece_tokenizer(self) -> "Wordpieces":
        """The object itself; `tokenize` splits words, but not at their punctuation first."""
        return self

    def tokenize(self, text: str) -> list[str]:
        """Split words, which are separated by white space, into the longest pieces known."""
        model = self._fast.backend_tokenizer.model
        return [piece.value for word in text.split() for piece in model.tokenize(word)]


def decoder_caches(module: ModuleType) -> bool:
    """Let "bart" keep the keys and values of its decoder in the tensors of its beam search.

    transformers 5 no longer takes and gives tuples of tensors, but objects of the class `Cache`.
    Can be removed when the model does.
    """
    import transformers

    if hasattr(transformers.EncoderDecoderCache, "from_legacy_cache"):
        return False

    @staticmethod  # type: ignore[misc]
    def _decoder_cache_to_dict(decoder_cache: Any) -> dict[str, Any]:
        tensors = {}
        for half, cache in enumerate(_halves(decoder_cache)):
            for number, layer in enumerate(cache.layers):
                tensors[f"decoder_cache_{number}_{2 * half}"] = layer.keys
                tensors[f"decoder_cache_{number}_{2 * half + 1}"] = layer.values
        return tensors

    def _dict_to_decoder_cache(self: Any, cache_dict: dict[str, Any]) -> Any:
        halves = [transformers.DynamicCache(), transformers.DynamicCache()]
        for half, cache in enumerate(halves):
            for number in range(len(self.bart.model.decoder.layers)):
                key, value = (f"decoder_cache_{number}_{2 * half + part}" for part in (0, 1))
                cache.update(cache_dict[key], cache_dict[value], number)
        return transformers.EncoderDecoderCache(*halves)

    module.Bart._decoder_cache_to_dict = _decoder_cache_to_dict
    module.Bart._dict_to_decoder_cache = _dict_to_decoder_cache
    return True


def _halves(cache: Any) -> tuple[Any, Any]:
    return cache.self_attention_cache, cache.cross_attention_cache


def named_treebanks(module: ModuleType) -> None:
    """Let the reader "ptb_trees" read the file that it is given.

    nltk refuses all files outside its own data folders since 3.10. The folder of the file is one of
    them while the file is read. Can be removed when the reader parses the file itself.
    """

    @replaces(module.PennTreeBankConstituencySpanDatasetReader)
    def _read(original: Any, self: Any, file_path: Any) -> Iterator[Any]:
        path = os.path.realpath(module.cached_path(file_path))
        with _allowed_by_nltk(os.path.dirname(path)):
            yield from original(self, path)


@contextlib.contextmanager
def _allowed_by_nltk(folder: str) -> Iterator[None]:
    import nltk.data

    nltk.data.path.append(folder)
    try:
        yield
    finally:
        nltk.data.path.remove(folder)
