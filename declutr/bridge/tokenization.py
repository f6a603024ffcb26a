"""Repairs of tokenizers and of vocabularies that are made of them.

Most restore methods that AllenNLP or programs on top of it call, and transformers 5 removed.
"""

import copy
from collections.abc import Callable
from operator import itemgetter
from types import ModuleType
from typing import Any

from declutr.bridge.repairs import replaces


def tokenizer_methods(module: ModuleType) -> bool:
    """Restore methods of tokenizers that were removed in transformers 5.

    `encode_plus` and `batch_encode_plus` are gone from all tokenizers, `prepare_for_model` and the
    methods that it calls from fast ones. AllenNLP needs `build_inputs_with_special_tokens` to fold
    long inputs; in earlier releases, fast tokenizers without a class of their own, such as
    ModernBERT's, had a version of it that adds no tokens, which is replaced as well.

    Can be removed when AllenNLP calls the tokenizer itself and knows its special tokens.
    """
    import transformers

    base, fast = transformers.PreTrainedTokenizerBase, transformers.PreTrainedTokenizerFast
    missing: list[tuple[type, Callable[..., Any]]] = [
        (base, encode_plus),
        (base, batch_encode_plus),
        (fast, prepare_for_model),
        (fast, truncate_sequences),
        (fast, create_token_type_ids_from_sequences),
    ]
    changed = False
    for cls, method in missing:
        if not hasattr(cls, method.__name__):
            setattr(cls, method.__name__, method)
            changed = True
    name = "build_inputs_with_special_tokens"
    if getattr(fast, name, None) is getattr(base, name, None):
        setattr(fast, name, build_inputs_with_special_tokens)
        changed = True
    return changed


def encode_plus(self: Any, text: Any, text_pair: Any = None, **kwargs: Any) -> Any:
    """Encode one text, or one pair of texts; any options are those of the tokenizer's call."""
    return self(text, text_pair, **kwargs)


def batch_encode_plus(
    self: Any, batch_text_or_text_pairs: Any, add_special_tokens: bool = True, **kwargs: Any
) -> Any:
    """Encode a list of texts, or a list of pairs of texts.

    # Parameters

    batch_text_or_text_pairs : the texts, each a string, or a list of words if `is_split_into_words`
        is given; or the pairs of two of them, as tuples or lists.
    add_special_tokens : whether to add them.
    kwargs : any options of the tokenizer's call.
    """
    batch = list(batch_text_or_text_pairs)
    parts = (list, tuple) if kwargs.get("is_split_into_words") else str
    pairs = [
        isinstance(item, (list, tuple))
        and len(item) == 2
        and all(isinstance(i, parts) for i in item)
        for item in batch
    ]
    if batch and all(pairs):
        first, second = ([item[part] for item in batch] for part in (0, 1))
        return self(first, second, add_special_tokens=add_special_tokens, **kwargs)
    return self(batch, add_special_tokens=add_special_tokens, **kwargs)


def prepare_for_model(
    self: Any, ids: list[int], pair_ids: list[int] | None = None, *args: Any, **kwargs: Any
) -> Any:
    """Make the input of a model from token ids: special tokens, truncation, padding, masks.

    # Parameters

    ids : token ids of a text, without special tokens.
    pair_ids : token ids of the second text of a pair.
    args, kwargs : as for slow tokenizers, whose method this is.
    """
    import transformers

    slow = transformers.PreTrainedTokenizer.prepare_for_model
    prepared = slow(self, ids, pair_ids, *args, **kwargs)
    if kwargs.get("return_overflowing_tokens") and kwargs.get("max_length"):
        # transformers 5 leaves both out if nothing was cut off.
        added = self.num_special_tokens_to_add(pair=pair_ids is not None)
        length = len(ids) + len(pair_ids or ()) + added * kwargs.get("add_special_tokens", True)
        prepared.data.setdefault("overflowing_tokens", [])
        prepared.data.setdefault("num_truncated_tokens", length - kwargs["max_length"])
    return prepared


def truncate_sequences(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Cut tokens off one text or a pair of texts, as slow tokenizers do."""
    import transformers

    return transformers.PreTrainedTokenizer.truncate_sequences(self, *args, **kwargs)


def create_token_type_ids_from_sequences(
    self: Any, token_ids_0: list[int], token_ids_1: list[int] | None = None
) -> list[int]:
    """Return the type of each token of one text or a pair of texts, special tokens included.

    # Parameters

    token_ids_0 : ids of the first sequence, without special tokens.
    token_ids_1 : ids of the second sequence of a pair.
    """
    return [kind for _, kind in _laid_out(self, token_ids_0, token_ids_1)]


def build_inputs_with_special_tokens(
    self: Any, token_ids_0: list[int], token_ids_1: list[int] | None = None
) -> list[int]:
    """Add the special tokens of one sequence, or of a pair, to token ids.

    # Parameters

    token_ids_0 : ids of the first sequence, without special tokens.
    token_ids_1 : ids of the second sequence of a pair.

    # Returns

    The ids of both sequences with the special tokens before, between and after them.

    # Raises

    `NotImplementedError` : the tokenizer puts no special token between the sequences of a pair.
    """
    return [token for token, _ in _laid_out(self, token_ids_0, token_ids_1)]


def _laid_out(tokenizer: Any, first: list[int], second: list[int] | None) -> list[tuple[int, int]]:
    """Return the id and the type of each token that a model gets for these sequences.

    The special tokens are taken from an encoded example, in which the tokenizer marks them.
    """
    example = ("a",) if second is None else ("a", "b")
    options = {"return_special_tokens_mask": True, "return_token_type_ids": True}
    encoded = tokenizer(*example, **options)
    built: list[tuple[int, int]] = []
    sequences = [first] if second is None else [first, second]
    inside = False
    columns = (encoded[key] for key in ("input_ids", "token_type_ids", "special_tokens_mask"))
    for token, kind, is_special in zip(*columns, strict=True):
        if is_special:
            built.append((token, kind))
        elif not inside:
            built.extend((each, kind) for each in sequences.pop(0))
        inside = not is_special
    if sequences:
        raise NotImplementedError(
            f"{type(tokenizer).__name__} puts no special token between the sequences of a pair, "
            "so the places of its special tokens cannot be told from an example."
        )
    return built


def own_pipelines(module: ModuleType) -> None:
    """Give every `SpacyTokenizer` a pipeline of its own, which shares the loaded model.

    With `split_on_spaces`, AllenNLP replaces the tokenizer in the pipeline that all of them share,
    so that the others split at spaces too. Can be removed when it replaces that of a copy.
    """

    @replaces(module)
    def get_spacy_model(original: Any, *args: Any, **kwargs: Any) -> Any:
        return copy.copy(original(*args, **kwargs))


def numbered_as_by_the_tokenizer(module: ModuleType) -> None:
    """Let a vocabulary hold the tokens of a transformer in the order of their ids.

    `from_pretrained_transformer_and_instances` numbers tokens in that order. The order of a fast
    tokenizer's vocabulary is another in every process, so the numbers were as well. Can be removed
    when AllenNLP sorts the vocabulary.
    """

    @replaces(module.Vocabulary)
    def add_transformer_vocab(
        original: Any, self: Any, tokenizer: Any, namespace: str = "tokens"
    ) -> None:
        original(self, tokenizer, namespace)
        for tables, position_of_id in ((self._token_to_index, 1), (self._index_to_token, 0)):
            table = tables[namespace]
            items = sorted(table.items(), key=itemgetter(position_of_id))
            table.clear()
            table.update(items)
