"""The classes of docs/EXPORT.md that put an `Encoder` into other libraries give its embeddings.

A library that is not installed has a stand-in: what its base class does with the class of the page.
"""

import importlib.util
import shutil
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel, ConfigDict
from sklearn.base import clone

from tests.pages_code import blocks

pytestmark = pytest.mark.slow  # it opens a trained archive for each library

PAGE = Path(__file__).parents[2] / "docs/EXPORT.md"
TEXTS = ["ka lo mi", "", "tu re sa no", "ka lo mi"]


class StandInForEmbeddings(ABC):
    """A stand-in for `langchain_core.embeddings.Embeddings`."""

    @abstractmethod
    def embed_documents(self, texts: list[str]) -> list[list[float]]: ...

    @abstractmethod
    def embed_query(self, text: str) -> list[float]: ...


class StandInForBaseEmbedding(BaseModel):
    """A stand-in for `llama_index.core.embeddings.BaseEmbedding`."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    def get_text_embedding_batch(self, texts: list[str]) -> list[list[float]]:
        return self._get_text_embeddings(texts)  # type: ignore[attr-defined]

    def get_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)  # type: ignore[attr-defined]


class StandInForBaseEmbedder:
    """A stand-in for `bertopic.backend.BaseEmbedder`; KeyBERT's is alike."""

    def __init__(self, embedding_model: Any = None, word_embedding_model: Any = None) -> None:
        self.embedding_model = embedding_model

    def embed_documents(self, document: list[str], verbose: bool = False) -> np.ndarray:
        return self.embed(document, verbose)  # type: ignore[attr-defined]


class StandInForEmbeddingFunction:
    """A stand-in for `chromadb.EmbeddingFunction`."""


class StandInForHasher:
    """A stand-in for `datasets.fingerprint.Hasher`."""

    hash = staticmethod(repr)


STAND_INS = {
    "langchain_core.embeddings": {"Embeddings": StandInForEmbeddings},
    "llama_index.core.embeddings": {"BaseEmbedding": StandInForBaseEmbedding},
    "bertopic.backend": {"BaseEmbedder": StandInForBaseEmbedder},
    "chromadb": {"EmbeddingFunction": StandInForEmbeddingFunction},
    "datasets.fingerprint": {"Hasher": StandInForHasher},
}


class StandInForDataset:
    """A stand-in for `datasets.Dataset`: `map` with batches of two rows."""

    _fingerprint = "of the rows"

    def map(
        self, function: Any, batched: bool, batch_size: int, new_fingerprint: str
    ) -> np.ndarray:
        assert batched and batch_size and new_fingerprint
        pairs = [TEXTS[start : start + 2] for start in range(0, len(TEXTS), 2)]
        return np.concatenate([function({"text": pair})["embedding"] for pair in pairs])


@pytest.fixture
def names(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the blocks of the page define."""
    shutil.copytree(trained, tmp_path / "output")
    monkeypatch.chdir(tmp_path)
    for module, members in STAND_INS.items():
        package, _, rest = module.partition(".")
        if importlib.util.find_spec(package) is None:
            for end in range(1 + rest.count(".") + bool(rest)):
                made = ModuleType(".".join(module.split(".")[: end + 1]))
                monkeypatch.setitem(sys.modules, made.__name__, made)
            made = ModuleType(module)
            vars(made).update(members)
            monkeypatch.setitem(sys.modules, module, made)
    defined: dict[str, Any] = {"dataset": StandInForDataset()}
    section = PAGE.read_text(encoding="utf-8").split("## In other libraries")[1].split("\n## ")[0]
    for block in blocks(section):
        exec(compile(block.text, f"the example at line {block.line}", "exec"), defined)
    return SimpleNamespace(**defined)


def test_each_class_gives_the_embeddings_of_its_encoder(names: SimpleNamespace) -> None:
    expected = names.encoder(TEXTS)
    langchain, llama, topics = names.embeddings, names.embed_model, names.embedding_model
    several = (
        langchain.embed_documents(TEXTS),
        llama.get_text_embedding_batch(TEXTS),
        topics.embed_documents(TEXTS),
        names.embedding_function(TEXTS),
        names.ForChroma.build_from_config(names.embedding_function.get_config())(TEXTS),
        clone(names.classifier)[:-1].transform(TEXTS),
        names.embedded,
    )
    for given in several:
        np.testing.assert_allclose(np.asarray(given), expected, atol=1e-6)
    for given in (langchain.embed_query(TEXTS[2]), llama.get_query_embedding(TEXTS[2])):
        assert {type(number) for number in given} == {float}
        np.testing.assert_allclose(given, expected[2], atol=1e-6)
    assert langchain.embed_documents([]) == []
    labels = [0, 1, 0, 0]
    assert names.classifier.fit(TEXTS, labels).predict(TEXTS).shape == (4,)
    assert clone(names.classifier)[0].func is names.embed
