"""Fixtures for the tests of the bridge: tiny transformers and data, and unpatched modules."""

import contextlib
import importlib
import importlib.machinery
import importlib.util
import json
import logging
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

import declutr  # noqa: F401  (puts the bridge in place before AllenNLP is imported)

TEXTS = [
    "the old house by the river was sold again last spring",
    "she plays the violin and he plays the cello in one band",
    "a b 1 2 good bad green trains run late when snow falls",
    "why do cats sleep all day and run about at night",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture(autouse=True)
def _kept_logging() -> Iterator[None]:
    """Restore logging and the hook for uncaught errors, which a training of AllenNLP redirects."""
    root, hook = logging.getLogger(), sys.excepthook
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], sys.excepthook = handlers, hook
    root.setLevel(level)


@contextlib.contextmanager
def kept_registry() -> Iterator[None]:
    """Undo registrations made within this context, so that a module can be run a second time."""
    from allennlp.common import Registrable

    kept = Registrable._registry
    Registrable._registry = defaultdict(dict)
    try:
        yield
    finally:
        Registrable._registry = kept


@pytest.fixture
def bare() -> Iterator[Callable[[str], ModuleType]]:
    """Yield a function that runs a copy of an AllenNLP module without any switch of the bridge."""
    copies: list[ModuleType] = []

    def load(name: str) -> ModuleType:
        package = importlib.import_module(name.rpartition(".")[0])
        spec = importlib.machinery.PathFinder.find_spec(name, package.__path__)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with kept_registry():
            spec.loader.exec_module(module)
        copies.append(module)
        return module

    yield load
    from allennlp.common import Registrable

    for base in list(Registrable._registry):  # a copied class that was used has names of its own
        copied = any(vars(module).get(base.__name__) is base for module in copies)
        if copied and vars(sys.modules[base.__module__]).get(base.__name__) is not base:
            del Registrable._registry[base]


def wordpiece() -> Tokenizer:
    """Return an uncased WordPiece tokenizer, like those of BERT, DistilBERT and ELECTRA."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=150, special_tokens=SPECIAL)
    tokenizer.train_from_iterator(TEXTS, trainer)
    cls, sep = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", sep), ("[CLS]", cls))
    return tokenizer


def byte_level(cls: str, sep: str, post: Callable[..., Any]) -> Tokenizer:
    """Return a byte-level BPE tokenizer, like those of RoBERTa and ModernBERT."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [cls, "<pad>", sep, "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = post(cls, sep, tokenizer)
    return tokenizer


def unigram(cls: str, sep: str, pair: str) -> Tokenizer:
    """Return a SentencePiece-like unigram tokenizer, like those of ALBERT and XLM-R."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=90,
        special_tokens=[cls, "<pad>", sep, "<unk>", "<mask>"],
        unk_token="<unk>",
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 10, trainer)
    ids = [(name, tokenizer.token_to_id(name)) for name in (cls, sep)]
    single = f"{cls} $A {sep}"
    template = {"single": single, "pair": pair, "special_tokens": ids}
    tokenizer.post_processor = processors.TemplateProcessing(**template)
    return tokenizer


def roberta_post(cls: str, sep: str, tokenizer: Tokenizer) -> Any:
    cls_id, sep_id = tokenizer.token_to_id(cls), tokenizer.token_to_id(sep)
    return processors.RobertaProcessing((sep, sep_id), (cls, cls_id), add_prefix_space=False)


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a folder with a BERT of 16 dimensions and its tokenizer."""
    import torch
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("bert")
    wordpiece().save(str(folder / "tokenizer.json"))
    names = {f"{token[1:-1].lower()}_token": token for token in SPECIAL}
    file = str(folder / "tokenizer.json")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=file, model_max_length=64, **names)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    size = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    size |= {"hidden_size": 16, "max_position_embeddings": 64}
    config = BertConfig(vocab_size=len(tokenizer), **size)
    BertModel(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a file of twelve labelled texts for AllenNLP's `text_classification_json`."""
    path = tmp_path_factory.mktemp("data") / "rows.jsonl"
    lines = [{"text": TEXTS[i % 4], "label": "ab"[i % 2]} for i in range(12)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(path)


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return `base` updated by `changes`, with nested dictionaries merged."""
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        both = isinstance(value, dict) and isinstance(old, dict) and "type" not in value
        result[key] = merged(old, value) if both else value
    return result


@pytest.fixture
def experiment(bert: str, rows: str) -> Callable[..., dict[str, Any]]:
    """Return a configuration of AllenNLP's basic classifier over the tiny BERT, with changes."""
    pretrained = {"type": "pretrained_transformer", "model_name": bert}
    base = {
        "dataset_reader": {
            "type": "text_classification_json",
            "tokenizer": pretrained,
            "token_indexers": {"tokens": pretrained},
        },
        "train_data_path": rows,
        "validation_data_path": rows,
        "model": {
            "type": "basic_classifier",
            "namespace": "tags",  # where the indexer puts the transformer's vocabulary
            "text_field_embedder": {"token_embedders": {"tokens": pretrained}},
            "seq2vec_encoder": {"type": "cls_pooler", "embedding_dim": 16},
        },
        "data_loader": {"batch_size": 4},
        "trainer": {
            "optimizer": {"type": "huggingface_adamw", "lr": 1e-3},
            "num_epochs": 1,
            "cuda_device": -1,
        },
    }
    # `Params` removes keys from the dictionaries it is given, so each gets its own copy.
    return lambda **changes: json.loads(json.dumps(merged(base, changes)))


@pytest.fixture
def train(tmp_path: Path, experiment: Callable[..., dict[str, Any]]) -> Callable[..., Any]:
    """Return a function that trains the experiment with changes into `tmp_path / "out"`."""

    def run(recover: bool = False, dry_run: bool = False, **changes: Any) -> Any:
        from allennlp.commands.train import train_model
        from allennlp.common import Params

        params = Params(experiment(**changes))
        return train_model(params, str(tmp_path / "out"), recover=recover, dry_run=dry_run)

    return run
