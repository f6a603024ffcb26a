"""A small transformer as a start: made here, and pre-trained on the corpus by `mlm_only`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

_TOKENIZER_TEXTS = 20_000  # the first documents, which the tokenizer is trained on


def pretrain(
    spec: Mapping[str, Any], texts: Iterable[str], train: Path, folder: Path, name: str
) -> None:
    """Write a pre-trained transformer to `folder`.

    Training that was stopped goes on at its last checkpoint.

    Args:
        spec: `layers`, `hidden_size`, `heads` and `vocabulary`, and `keys` of the recipe.
        texts: the documents in `train`.
        train: the file of documents; what is not finished lies beside it.
        folder: which is made.
        name: of the unfinished parts.
    """
    import declutr
    from declutr.quickstart.small_checkpoints import make_checkpoint, train_tokenizer

    random = train.with_name(f"{name}-random")
    if not (random / "config.json").exists():
        longest = spec["keys"]["max_span_len"] + 2  # with both special tokens
        lowered = (text.lower() for text in islice(texts, _TOKENIZER_TEXTS))
        tokenizer: Any = train_tokenizer(lowered, spec["vocabulary"], max_length=longest)
        _lowercase(tokenizer)
        sizes = {size: spec[size] for size in ("layers", "hidden_size", "heads")}
        make_checkpoint(random, tokenizer, max_length=longest, **sizes)
    run = train.with_name(f"{name}-run")
    keys = {"data_loader.num_workers": 0, **spec["keys"]}
    declutr.train(str(train), model=random, recipe="mlm_only", output=run, **keys)
    command = [sys.executable, "-m", "declutr", "export", str(run), str(folder)]
    subprocess.run(command, check=True, capture_output=True)


def _lowercase(tokenizer: Any) -> None:
    from tokenizers.normalizers import Lowercase

    tokenizer.backend_tokenizer.normalizer = Lowercase()
