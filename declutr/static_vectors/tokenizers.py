"""Word-piece tokenizers, trained on the texts of a corpus."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

Texts = Callable[[], Iterable[str]]
"""A function that gives the texts of a corpus anew each time it is called."""

PADDING, UNKNOWN = "[PAD]", "[UNK]"
_PREFIX = "##"  # of pieces inside a word
_MOST_CHARACTERS = 1000


def trained_word_pieces(texts: Texts, vocabulary: int = 30_000) -> str:
    """Train a word-piece tokenizer of BERT's kind: lower case, without accents.

    # Parameters

    texts : the texts, which are read twice.
    vocabulary : the largest number of tokens.

    # Returns

    The content of its `tokenizer.json`. The same texts give the same tokenizer.

    # Raises

    `ValueError` : the texts are empty, or the vocabulary is too small for their characters.
    """
    from tokenizers import Tokenizer, models
    from tokenizers.trainers import WordPieceTrainer

    if vocabulary < 100:
        raise ValueError(f"A vocabulary of {vocabulary} is too small; expected at least 100.")
    characters = _characters(texts(), min(_MOST_CHARACTERS, vocabulary // 4))
    if not characters:
        raise ValueError("The texts are empty: there is nothing to learn a vocabulary from.")
    # The trainer would number pieces in the order of a hash map, and break ties by number. Given
    # as special tokens, all single characters have their number before it begins.
    pieces = [*characters, *(f"{_PREFIX}{character}" for character in characters)]
    trained = _untrained(Tokenizer(models.WordPiece(unk_token=UNKNOWN)))
    trainer = WordPieceTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        limit_alphabet=len(characters),
        initial_alphabet=characters,
        special_tokens=[PADDING, UNKNOWN, *pieces],
        continuing_subword_prefix=_PREFIX,
        show_progress=False,
    )
    trained.train_from_iterator(texts(), trainer)
    found = Tokenizer(models.WordPiece(trained.get_vocab(), unk_token=UNKNOWN))
    found.add_special_tokens([PADDING, UNKNOWN])
    return json.dumps(json.loads(_untrained(found).to_str()), ensure_ascii=False)


def _untrained(tokenizer: Any) -> Any:
    """Give a tokenizer the normalisation and the splitting of BERT, and return it."""
    from tokenizers import decoders, pre_tokenizers

    tokenizer.normalizer = _normalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix=_PREFIX)
    return tokenizer


def _normalizer() -> Any:
    from tokenizers import normalizers

    return normalizers.BertNormalizer(lowercase=True, strip_accents=True)


def _characters(texts: Iterable[str], most: int) -> list[str]:
    """Return the most frequent characters of normalised texts, sorted; white space is none."""
    normalizer = _normalizer()
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(normalizer.normalize_str(text))
    kept = sorted((c for c in counts if not c.isspace()), key=lambda c: (-counts[c], c))
    return sorted(kept[:most])
