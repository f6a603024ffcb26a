"""Everything tests share: a tiny checkpoint and a corpus, made on the spot. No hub, no network."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import random
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # tests run beside each other

RECIPES = Path(__file__).parent.parent / "training_config"


def make_documents(count: int, words: int, seed: int = 0) -> list[str]:
    """Documents that differ in what they are about: each prefers 30 of 600 made-up words."""
    rng = random.Random(seed)
    syllables = ["ka", "lo", "mi", "tu", "re", "sa", "no", "ve", "pi", "du"]
    vocabulary = ["".join(rng.choices(syllables, k=rng.randint(2, 4))) for _ in range(600)]
    documents = []
    for _ in range(count):
        topic = rng.sample(vocabulary, 30)
        documents.append(
            " ".join(rng.choice(topic if rng.random() < 0.7 else vocabulary) for _ in range(words))
        )
    return documents


@pytest.fixture(scope="session", autouse=True)
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where corpora are cached: never in the user's home."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["DECLUTR_CACHE"] = str(folder)
    return folder


@pytest.fixture(scope="session")
def documents() -> list[str]:
    """24 documents of 300 words."""
    return make_documents(24, 300)


@pytest.fixture(scope="session")
def corpus_file(tmp_path_factory: pytest.TempPathFactory, documents: list[str]) -> Path:
    """`documents`, one a line."""
    file = tmp_path_factory.mktemp("corpus") / "documents.txt"
    file.write_text("\n".join(documents) + "\n")
    return file


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, documents: list[str]) -> Path:
    """A RoBERTa-shaped transformer of two layers, 32 wide, for 128 tokens, with its tokenizer."""
    from declutr.checkpoints import make_checkpoint, train_tokenizer

    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    tokenizer = train_tokenizer(documents, 400, max_length=128)
    make_checkpoint(folder, tokenizer, layers=2, hidden_size=32, heads=2, max_length=128)
    return folder
