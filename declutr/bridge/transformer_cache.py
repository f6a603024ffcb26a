"""Repair of AllenNLP's cache of pretrained transformers and tokenizers."""

import importlib
import inspect
import os
from types import ModuleType
from typing import Any

from declutr.bridge.repairs import replaces

FILES = "declutr.system.files"  # of a later room


def cached_as_asked(module: ModuleType) -> None:
    """Let the cache give a transformer or tokenizer as it was asked for, or as its files are now.

    AllenNLP looks up a transformer by its name alone, whatever `transformer_kwargs` there are, and
    both by a name of a folder whose files may have changed. One without pretrained weights was
    kept, and given to callers that ask for them; one with `reinit_modules` was given to all, with
    the numbers drawn for the first. These two are not cached.

    What was read from a folder that is gone is dropped: each opening of an archive extracts its
    transformer to a new folder, and left a tokenizer behind for good.

    To be applied before `tokenizer_arguments`, so that it sees the arguments that AllenNLP looks up
    tokenizers by. Can be removed when AllenNLP looks up both by all arguments, and by the state of
    their files, and caches only what it read.
    """
    read_as: dict[Any, Any] = {}
    on_disk: set[Any] = set()  # the keys of what was read from a path

    def forget_other(cache: dict[Any, Any], key: Any, asked: Any) -> None:
        if read_as.get(key, asked) != asked:
            cache.pop(key, None)
        read_as[key] = asked
        for gone in [one for one in on_disk.intersection(cache) if not os.path.exists(one[0])]:
            for known in (cache, read_as):
                known.pop(gone, None)
            on_disk.discard(gone)
        if os.path.exists(key[0]):
            on_disk.add(key)

    @replaces(module)
    def get(original: Any, model_name: str, make_copy: bool, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(original).bind(model_name, make_copy, *args, **kwargs)
        bound.apply_defaults()
        asked = bound.arguments
        if not asked["load_weights"] or asked["reinit_modules"] is not None:
            kept = module._model_cache
            module._model_cache = {}  # type: ignore[attr-defined]
            try:
                return original(model_name, False, *args, **kwargs)
            finally:
                module._model_cache = kept  # type: ignore[attr-defined]
        key = module.TransformerSpec(*(asked[name] for name in module.TransformerSpec._fields))
        files = _files(model_name), _files(asked["override_weights_file"])
        forget_other(module._model_cache, key, (repr(asked["kwargs"]), files))
        return original(model_name, make_copy, *args, **kwargs)

    @replaces(module)
    def get_tokenizer(original: Any, model_name: str, **kwargs: Any) -> Any:
        from allennlp.common.util import hash_object

        forget_other(module._tokenizer_cache, (model_name, hash_object(kwargs)), _files(model_name))
        return original(model_name, **kwargs)


def _files(path: Any) -> list[tuple[str, tuple[int, ...]]]:
    """Return name and appearance of a file, or of those of a folder; none for a name of the hub."""
    if path is None or not os.path.exists(path):
        return []
    folder = os.path.isdir(path)
    paths = [os.path.join(path, name) for name in sorted(os.listdir(path))] if folder else [path]
    appearance = importlib.import_module(FILES).appearance
    return [(each, appearance(each)) for each in paths if os.path.exists(each)]  # no broken links
