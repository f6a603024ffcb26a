"""The texts that `static` embeds, and the table that it embeds them with."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from benchmarks.memory import ROOT
from benchmarks.rival_texts import LONG_WORDS, SHORT_WORDS
from benchmarks.texts import lines, workspace
from declutr.archives.static_folder import StaticTable, is_static, loaded_tokenizer

_BYTES = 20_000_000  # of the corpus that texts are taken from
_MIXED_WORDS = (3, 400)


def made_table(corpus: Path, vocabulary: int, dimension: int) -> Path:
    """The folder of `declutr static-vectors` of a corpus; made once."""
    name = f"static-{corpus.stem}-{corpus.stat().st_size}-{vocabulary}-{dimension}"
    folder = workspace() / name
    if not is_static(folder):
        command = f"-m declutr static-vectors {corpus} -o {folder}".split()
        command += f"--vocabulary {vocabulary} --dimension {dimension}".split()
        subprocess.run([sys.executable, *command], cwd=ROOT, check=True)
    return folder


def passages(
    corpus: Path, table: StaticTable, counts: dict[str, int], seed: int = 0
) -> dict[str, list[str]]:
    """Draw texts that begin at any word of a corpus; the same ones for the same seed.

    Words with unknown tokens are left out: model2vec skips such tokens, others have a vector for
    them.

    Args:
        corpus: documents, one a line.
        table: of which the tokenizer says what is unknown.
        counts: how many texts of the kinds "short" (5 to 15 words), "few" (the same, others),
            "mixed" (3 to 400 words, log-uniform) and "long" (200 to 900 words).
        seed: of the draws.

    Raises:
        ValueError: of a corpus with fewer words than a long text may have.
    """
    words = _known_words(corpus, table)
    if len(words) <= LONG_WORDS[1]:
        raise ValueError(
            f"{corpus} has {len(words)} words; texts are drawn from at least {LONG_WORDS[1] + 1}."
        )
    rng = random.Random(seed)
    least, most = _MIXED_WORDS
    length = {
        "short": lambda: rng.randint(*SHORT_WORDS),
        "few": lambda: rng.randint(*SHORT_WORDS),
        "mixed": lambda: round(least * (most / least) ** rng.random()),
        "long": lambda: rng.randint(*LONG_WORDS),
    }

    def passage(count: int) -> str:
        start = rng.randrange(len(words) - count)
        return " ".join(words[start : start + count])

    return {kind: [passage(length[kind]()) for _ in range(n)] for kind, n in counts.items()}


def _known_words(corpus: Path, table: StaticTable) -> list[str]:
    words = [word for line in lines(corpus, _BYTES) for word in line.split()]
    tokenizer = loaded_tokenizer(table.tokenizer)
    unknown = tokenizer.token_to_id(getattr(tokenizer.model, "unk_token", None) or "[UNK]")
    each = sorted(set(words))
    ids = [found.ids for found in tokenizer.encode_batch(each, add_special_tokens=False)]
    known = {word for word, tokens in zip(each, ids, strict=True) if unknown not in tokens}
    return [word for word in words if word in known]
