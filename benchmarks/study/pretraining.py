"""A small transformer as a start: made here, and pre-trained on texts by `mlm_only`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.study.commands import run_command
from declutr.static_vectors.tokenizers import Texts

_TOKENIZER_TEXTS = 20_000  # the first documents, which the tokenizer is trained on
_DEVIATION = 0.04  # of the numbers in a first word vector; those of other tokens have 0.02
_DROPOUT = 0.1  # of what comes out, for the objectives that need it


def pretrain(spec: Mapping[str, Any], texts: Texts, train: Path, folder: Path, name: str) -> None:
    """Write a pre-trained transformer to `folder`.

    Its token embeddings begin as the singular vectors of the texts' PPMI, and it is trained without
    dropout, in phases, the first one of short spans: with random vectors, with dropout or with long
    spans at once, so small a budget ends before it looks at a word's neighbours. Training that was
    stopped goes on at its last checkpoint.

    Args:
        spec: `layers`, `hidden_size`, `heads` and `vocabulary`, and `phases`: keys of the recipe.
        texts: returns the documents in `train`.
        train: the file of documents; what is not finished lies beside it.
        folder: which is made.
        name: of the unfinished parts.
    """
    begun = train.with_name(f"{name}-begun")
    if not (begun / "config.json").exists():
        _begin(spec, texts, begun)
    phases = [{**spec["keys"], **keys} for keys in spec["phases"]]
    for number, keys in enumerate(phases):
        run = train.with_name(f"{name}-run-{number}")
        begun = _trained(begun, keys, train, run)
    begun.rename(folder)
    config = folder / "config.json"
    settings = json.loads(config.read_text())
    settings.update(hidden_dropout_prob=_DROPOUT, attention_probs_dropout_prob=_DROPOUT)
    config.write_text(json.dumps(settings, indent=2))


def _trained(begun: Path, keys: Mapping[str, Any], train: Path, run: Path) -> Path:
    """Go through a phase, and return the folder of the transformer that comes out."""
    import declutr

    trained = run.with_name(f"{run.name}-exported")
    if not trained.exists():
        keys = {"data_loader.num_workers": 0, **keys}
        declutr.train(str(train), model=begun, recipe="mlm_only", output=run, **keys)
        run_command("export", str(run), str(trained))
    return trained


def _begin(spec: Mapping[str, Any], texts: Texts, folder: Path) -> None:
    """Write the transformer that pre-training begins with."""
    from declutr.quickstart.small_checkpoints import make_checkpoint, train_tokenizer

    longest = max(keys["max_span_len"] for keys in spec["phases"]) + 2  # with both special tokens
    lowered = (text.lower() for text in islice(texts(), _TOKENIZER_TEXTS))
    tokenizer: Any = train_tokenizer(lowered, spec["vocabulary"], max_length=longest)
    _lowercase(tokenizer)
    partial = folder.with_name(f"{folder.name}.partial")
    sizes = {size: spec[size] for size in ("layers", "hidden_size", "heads")}
    model = make_checkpoint(partial, tokenizer, max_length=longest, dropout=0.0, **sizes)
    _set_word_vectors(model, (partial / "tokenizer.json").read_text(encoding="utf-8"), texts)
    model.save_pretrained(partial)
    partial.rename(folder)


def _set_word_vectors(model: Any, tokenizer: str, texts: Texts) -> None:
    """Put the singular vectors of the texts' PPMI in the place of random token embeddings."""
    import torch

    from declutr.quickstart.small_checkpoints import SPECIAL_TOKENS
    from declutr.static_vectors.first_tables import vectors_of_texts

    weight = model.get_input_embeddings().weight
    width = weight.shape[1]
    vectors, _ = vectors_of_texts(tokenizer, texts(), width)
    vectors *= _DEVIATION * width**0.5 / np.linalg.norm(vectors, axis=1).mean()
    with torch.no_grad():
        weight[len(SPECIAL_TOKENS) :] = torch.tensor(vectors[len(SPECIAL_TOKENS) :])


def _lowercase(tokenizer: Any) -> None:
    from tokenizers.normalizers import Lowercase

    tokenizer.backend_tokenizer.normalizer = Lowercase()
