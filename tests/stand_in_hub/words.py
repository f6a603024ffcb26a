"""The words that stand-in vocabularies are made of."""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

SENTENCES = """
A sentence is here, and this is another one. The cat and the dog saw each other in the park today.
Hello there! General Allen was born in Paris. I like good movies, but he does not.
Who wrote the book that she read last year? The quick brown fox jumps over the lazy dog. naive
"""
NEVER_WHOLE = re.compile(
    "allennlp|nlp|kenobi|naïve|dump|humpty|somepiece|wetland|unknowntoken", re.IGNORECASE
)
"""Words that the real vocabularies cut into pieces, as tests of AllenNLP expect."""
_TEXTS = {".py", ".txt", ".json", ".jsonl", ".tsv", ".csv", ".conllu", ".gold_conll", ".xml"}
_MOST_BYTES = 2_000_000
_WORD = re.compile(r"[^\W\d_]{1,20}")


def words_of(folders: Iterable[Path] = (), most: int = 12_000) -> list[str]:
    """Return the words of a few sentences, and those of the texts in `folders`, by frequency.

    # Raises

    `FileNotFoundError` : if there is no such folder.
    """
    counts: Counter[str] = Counter()
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder} to take words from.")
        for path in sorted(folder.rglob("*")):
            if path.suffix in _TEXTS and path.is_file() and path.stat().st_size <= _MOST_BYTES:
                counts.update(_words(path.read_text(encoding="utf-8", errors="ignore")))
    known = list(dict.fromkeys(_words(SENTENCES)))
    often = (word for word, _ in counts.most_common(most) if word not in set(known))
    return [*known, *often]


def _words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text) if not NEVER_WHOLE.search(word)]
