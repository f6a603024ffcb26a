"""Small RoBERTa-shaped transformers with random weights, for machines without a model hub.

The result is an ordinary folder that ``AutoTokenizer``, ``AutoModel`` and ``AutoModelForMaskedLM``
load: a byte-level BPE tokenizer trained on given texts, and a randomly initialised
``RobertaForMaskedLM`` (RoBERTa, arXiv 1907.11692).
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from declutr.system.files import use_umask

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase, RobertaForMaskedLM

SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
"""The special tokens in the order of their ids, 0 to 4; RoBERTa has the first four ids, too."""

SMALLEST_VOCABULARY = 256 + len(SPECIAL_TOKENS)
"""The number of bytes and special tokens, which every vocabulary holds."""

_MAX_LENGTH = 512
_SPECIAL_IDS = ("bos_token_id", "pad_token_id", "eos_token_id")

# The files that transformers 4 or 5 write. They are removed before new ones are saved, because a
# vocabulary left from an earlier transformer would contradict the new tokenizer.json.
_FILES = (
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
)


def train_tokenizer(
    texts: Iterable[str], vocab_size: int, *, max_length: int = _MAX_LENGTH
) -> PreTrainedTokenizerBase:
    """Train a tokenizer of RoBERTa's kind: byte-level BPE, cased, with ``<s> ... </s>``.

    Args:
        texts: any iterable of strings, which is read once.
        vocab_size: upper bound of the vocabulary, special tokens included. Few texts may give
            fewer tokens.
        max_length: ``model_max_length`` of the tokenizer, in tokens, special tokens included.

    Returns:
        A fast ``RobertaTokenizer``. The same texts and size give the same tokenizer.

    Raises:
        ValueError: if `vocab_size` has no room for all bytes and special tokens, or if the texts
            are empty or too short to learn anything from.
        TypeError: if `texts` is one string.
    """
    if vocab_size < SMALLEST_VOCABULARY:
        raise ValueError(
            f"vocab_size is {vocab_size}; a byte-level tokenizer needs at least "
            f"{SMALLEST_VOCABULARY}: 256 bytes and {len(SPECIAL_TOKENS)} special tokens."
        )
    if isinstance(texts, str):
        raise TypeError("texts must be an iterable of strings, not one string; put it in a list.")
    backend = _trained_backend(texts, vocab_size)
    if backend.get_vocab_size() == SMALLEST_VOCABULARY < vocab_size:
        raise ValueError(
            "the texts are empty or too short to learn from: no pair of characters occurs twice."
        )
    return _loaded(backend, max_length)


def make_checkpoint(
    folder: str | Path,
    tokenizer: PreTrainedTokenizerBase,
    *,
    layers: int,
    hidden_size: int,
    heads: int,
    intermediate_size: int | None = None,
    max_length: int = _MAX_LENGTH,
    seed: int = 0,
    dropout: float = 0.1,
) -> RobertaForMaskedLM:
    """Save a randomly initialised ``RobertaForMaskedLM`` and its tokenizer into `folder`.

    The weights depend on the arguments alone; torch's global random state does not change.

    Args:
        folder: created if it is missing. An earlier transformer in it is replaced.
        tokenizer: has ``<s>``, ``<pad>`` and ``</s>``; it is not modified.
        layers, hidden_size, heads: size of the encoder; `heads` must divide `hidden_size`.
        intermediate_size: width of the feed-forward layers, by default 4 * `hidden_size`.
        max_length: longest input in tokens, special tokens included.
        seed: the seed of the random weights.
        dropout: dropout rate of hidden states and of attention weights.

    Returns:
        The model, on the CPU, in evaluation mode.

    Raises:
        ValueError: if a size is below 1, or `heads` does not divide `hidden_size`.
    """
    import torch
    from transformers import RobertaConfig, RobertaForMaskedLM

    _require_sizes(layers=layers, hidden_size=hidden_size, heads=heads, max_length=max_length)
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=intermediate_size or 4 * hidden_size,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        # Positions start at pad_token_id + 1 = 2.
        max_position_embeddings=max_length + tokenizer.pad_token_id + 1,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        **{name: getattr(tokenizer, name) for name in _SPECIAL_IDS},
    )
    with torch.random.fork_rng(devices=[]):  # The constructor draws weights, too.
        model = RobertaForMaskedLM(config).eval()
    _initialise(model, seed)
    saved_tokenizer = copy.deepcopy(tokenizer)
    saved_tokenizer.model_max_length = max_length
    for name in _FILES:
        Path(folder, name).unlink(missing_ok=True)
    for part in (model, saved_tokenizer):
        part.save_pretrained(folder)
    use_umask(file for file in (Path(folder, name) for name in _FILES) if file.exists())
    return model


def _trained_backend(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
    from tokenizers.trainers import BpeTrainer

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    # The mask token includes the space before it, so that "a <mask>" and "a word" have equally many
    # tokens.
    specials = [AddedToken(t, lstrip=t == "<mask>", normalized=False) for t in SPECIAL_TOKENS]
    trainer = BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    begin, end = ((token, SPECIAL_TOKENS.index(token)) for token in ("<s>", "</s>"))
    # Arguments are positional because tokenizers 0.23 renamed the second parameter.
    backend.post_processor = processors.RobertaProcessing(end, begin, True, False)
    return backend


def _loaded(backend: Tokenizer, max_length: int) -> PreTrainedTokenizerBase:
    """Return `backend` as a transformers tokenizer.

    It is saved and loaded, which works in transformers 4 and 5 alike and makes the returned
    tokenizer equal to the one that a saved folder gives.
    """
    from transformers import RobertaTokenizerFast

    config = {
        "tokenizer_class": "RobertaTokenizer",
        "model_max_length": max_length,
        "add_prefix_space": False,
        "trim_offsets": True,
    }
    with tempfile.TemporaryDirectory() as folder:
        backend.save(str(Path(folder, "tokenizer.json")))
        backend.model.save(folder)
        Path(folder, "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        tokenizer = RobertaTokenizerFast.from_pretrained(folder)
    tokenizer.name_or_path = ""  # The temporary folder no longer exists.
    return tokenizer


def _initialise(model: RobertaForMaskedLM, seed: int) -> None:
    """Draw RoBERTa's initial weights in the order of the parameters' names.

    transformers 4 and 5 draw in different orders; this way, the same seed gives the same weights in
    both. Biases are already 0, and scales of layer norms 1.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    for _, weight in sorted(model.named_parameters()):
        if weight.dim() == 2:
            torch.nn.init.normal_(weight, 0.0, model.config.initializer_range, generator)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, torch.nn.Embedding) and module.padding_idx is not None:
                module.weight[module.padding_idx].zero_()


def _require_sizes(**sizes: int) -> None:
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}.")
    if sizes["hidden_size"] % sizes["heads"]:
        raise ValueError(
            f"hidden_size {sizes['hidden_size']} is not a multiple of heads {sizes['heads']}; "
            "every head gets hidden_size / heads features."
        )
