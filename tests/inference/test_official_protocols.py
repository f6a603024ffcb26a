"""Tests of the adapters with the real mteb on a local task, and with SentEval's convention."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from declutr.inference.encoder import Encoder
from declutr.inference.official_protocols import MtebEncoder, senteval_functions
from declutr.inference.sources import EncoderError, NamedEncoder, open_encoder

PAIRS = [
    ("ka lo mi tu", "ka lo mi tu", 5.0),
    ("ka lo mi tu", "ka lo mi re", 4.0),
    ("sa no ve", "ve sa pi", 3.0),
    ("du pi", "pi ka lo", 2.5),
    ("re re sa", "no tu mi ka lo", 1.0),
    ("", "du no", 0.0),
]


def cosines(encode: Callable[[list[str]], np.ndarray], of_zeros: float = 0.0) -> np.ndarray:
    first, second = (encode([pair[side] for pair in PAIRS]).astype(float) for side in (0, 1))
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.where(norms > 0, (first * second).sum(axis=1) / norms.clip(min=1e-12), of_zeros)


@pytest.fixture(scope="module")
def mteb() -> Any:
    return pytest.importorskip("mteb", minversion="2", reason="the extra mteb is not installed")


@pytest.fixture
def sts_task(mteb: Any) -> Any:
    """Return `PAIRS` as a task of MTEB that downloads nothing."""
    from datasets import Dataset, DatasetDict
    from mteb.abstasks.sts import AbsTaskSTS

    class Local(AbsTaskSTS):
        metadata = _metadata(mteb, "STS", "cosine_spearman")
        min_score, max_score = 0, 5

        def load_data(self, **kwargs: Any) -> None:
            columns = zip(*PAIRS, strict=True)
            names = ("sentence1", "sentence2", "score")
            data = {name: list(column) for name, column in zip(names, columns, strict=True)}
            self.dataset = DatasetDict({"test": Dataset.from_dict(data)})
            self.data_loaded = True

    return Local()


def _metadata(mteb: Any, kind: str, main_score: str) -> Any:
    said = {"description": "Made up.", "reference": None, "license": "mit", "bibtex_citation": ""}
    said |= {"dataset": {"path": "local/none", "revision": "1"}, "category": "t2t"}
    said |= {"modalities": ["text"], "eval_splits": ["test"], "eval_langs": ["eng-Latn"]}
    said |= {"date": ("2020-01-01", "2020-01-02"), "domains": ["Written"], "task_subtypes": []}
    said |= {"annotations_creators": "derived", "dialect": [], "sample_creation": "created"}
    return mteb.TaskMetadata(name=f"Local{kind}", type=kind, main_score=main_score, **said)


class TestMteb:
    """Tests with the real mteb."""

    def scores(self, mteb: Any, model: Any, task: Any, **kwargs: Any) -> dict[str, float]:
        result = mteb.evaluate(model, task, cache=None, show_progress_bar=False, **kwargs)
        return result.task_results[0].scores["test"][0]

    # The embedding of a blank text by a bag of words is zeros.
    @pytest.mark.parametrize("batch_size, spec", [(2, "hf"), (32, "hf"), (32, "random:16")])
    def test_sts(
        self, mteb: Any, sts_task: Any, checkpoint: Path, batch_size: int, spec: str
    ) -> None:
        encoder = open_encoder(f"hf:{checkpoint}" if spec == "hf" else spec, device="cpu")
        sizes = {"batch_size": batch_size}
        scores = self.scores(mteb, MtebEncoder(encoder), sts_task, encode_kwargs=sizes)
        gold = [pair[2] for pair in PAIRS]
        # Of scikit-learn's distances of unit vectors: 1 - |u - v|^2 / 2, for zeros 1 / 2.
        expected = spearmanr(cosines(encoder, of_zeros=0.5), gold).statistic
        assert scores["main_score"] == pytest.approx(expected, abs=1e-5)
        expected = spearmanr(cosines(encoder), gold).statistic
        assert scores["spearman"] == pytest.approx(expected, abs=1e-6)  # by our own similarity

    def test_retrieval(self, mteb: Any) -> None:
        from datasets import Dataset
        from mteb.abstasks.retrieval import AbsTaskRetrieval

        words = ["ka", "lo", "mi", "tu", "re", "sa"]

        class Local(AbsTaskRetrieval):
            metadata = _metadata(mteb, "Retrieval", "ndcg_at_10")

            def load_data(self, **kwargs: Any) -> None:
                documents = [{"id": f"d{w}", "text": f"{w} {w} du", "title": ""} for w in words]
                queries = [{"id": f"q{w}", "text": w} for w in words]
                split = {
                    "corpus": Dataset.from_list(documents),
                    "queries": Dataset.from_list(queries),
                    "relevant_docs": {f"q{w}": {f"d{w}": 1} for w in words},
                    "top_ranked": None,
                }
                self.dataset = {"default": {"test": split}}
                self.data_loaded = True

        scores = self.scores(mteb, MtebEncoder(open_encoder("random:64")), Local())
        assert scores["ndcg_at_10"] == pytest.approx(1)

    def test_the_encoder_implements_the_protocol_of_mteb(self, mteb: Any) -> None:
        from mteb.models import EncoderProtocol

        encoder = open_encoder("my name!=random:8")
        model = MtebEncoder(encoder)
        assert isinstance(model, EncoderProtocol)
        meta = model.mteb_model_meta
        assert meta.name == "declutr/my_name"
        assert meta.revision == encoder.describe()["fingerprint"]
        assert meta.embed_dim == 8

    def test_cached_results_of_another_revision_are_not_used(
        self, mteb: Any, sts_task: Any, tmp_path: Path
    ) -> None:
        cache = mteb.ResultCache(tmp_path)
        calls = []

        def embed(texts: list[str]) -> np.ndarray:
            calls.append(len(texts))
            return np.array([[len(text), 1, text.count("a")] for text in texts])

        for revision, expected in (("one", 2), ("one", 2), ("two", 4), (None, 6), (None, 8)):
            model = MtebEncoder(embed, revision=revision)
            mteb.evaluate(model, sts_task, cache=cache, show_progress_bar=False)
            assert len(calls) == expected


def test_names() -> None:
    def mine(texts: list[str]) -> np.ndarray:
        return np.ones((len(texts), 2))

    assert MtebEncoder(mine).name == "declutr/mine"
    assert MtebEncoder(mine, name="org/model").name == "org/model"
    assert MtebEncoder(open_encoder("random:3?seed=2")).name == "declutr/random_3_seed_2"
    assert MtebEncoder(mine).revision != MtebEncoder(mine).revision
    assert MtebEncoder(mine, revision="3").revision == "3"


def test_encode_takes_batches_and_lists() -> None:
    encoder = open_encoder("random:4")
    texts = ["a b", "c", "", "a"]
    batches = [{"text": texts[:3]}, {"text": texts[3:], "title": ["x"]}]
    keywords = {"task_metadata": None, "hf_split": "test", "hf_subset": "default"}
    model = MtebEncoder(encoder)
    expected = encoder(texts)
    assert np.array_equal(model.encode(iter(batches), batch_size=2, **keywords), expected)
    assert np.array_equal(model.encode(texts, task_name="T", prompt_type=None), expected)
    with pytest.raises(ValueError, match=r"Expected batches with 'text', got \['image'\]"):
        model.encode([{"image": [0]}])
    with pytest.raises(ValueError, match="Expected precision float32, got 'int8'"):
        model.encode(texts, precision="int8")


@pytest.mark.parametrize("kind", ["archive", "st"])
def test_queries_and_documents_have_their_prompts(prompted: Path, kind: str) -> None:
    if kind == "st":
        pytest.importorskip("sentence_transformers")
    encoder, texts = open_encoder(f"{kind}:{prompted}", device="cpu"), ["tu re", "sa"]
    model = MtebEncoder(encoder)
    plain = Encoder(prompted, device="cpu", dtype="float32")
    expected = {None: "", "query": "ka lo: ", "document": "mi: ", "passage": "mi: "}
    for side, prompt in expected.items():
        for given in (side, SimpleNamespace(value=side)):
            found = model.encode(texts, prompt_type=given)
            assert np.abs(found - plain(texts, prompt=prompt)).max() < 1e-5
    # MTEB must not take results that it cached for releases without prompts.
    assert model.revision == f"{encoder.describe()['fingerprint']}-prompts"
    chosen = open_encoder(f"{kind}:{prompted}?prompt_name=passage", device="cpu")
    model = MtebEncoder(chosen)
    found = model.encode(texts, prompt_type="query")
    assert np.abs(found - plain(texts, prompt="mi: ")).max() < 1e-5
    assert model.revision == chosen.describe()["fingerprint"]
    assert encoder.describe()["fingerprint"] != chosen.describe()["fingerprint"]
    with pytest.raises(EncoderError, match=r"no prompt named 'none'; it has .*'query'"):
        open_encoder(f"{kind}:{prompted}?prompt_name=none", device="cpu")


def test_similarity() -> None:
    model = MtebEncoder(open_encoder("random:3"))
    one = np.array([[3.0, 4.0], [0.0, 0.0]], dtype=np.float32)
    other = torch.tensor([[1.0, 0.0], [6.0, 8.0], [0.0, 2.0]])
    expected = torch.tensor([[0.6, 1.0, 0.8], [0.0, 0.0, 0.0]])
    assert torch.allclose(model.similarity(one, other), expected)
    assert torch.allclose(model.similarity_pairwise(one, other[:2]), torch.tensor([0.6, 0.0]))
    assert model.similarity(one[0], other[1]).item() == pytest.approx(1)


def senteval(encode: NamedEncoder, batch_size: int) -> float:
    """Return the correlation of cosines, as SentEval's STS tasks compute it.

    They call `prepare` with all samples, and `batcher` with batches of each side, sorted by length.
    """
    prepare, batcher = senteval_functions(encode)
    params = SimpleNamespace(batch_size=batch_size, seed=1111)
    split = [(a.split(), b.split(), score) for a, b, score in PAIRS]
    data = sorted(split, key=lambda row: (len(row[0]), len(row[1]), row[2]))
    samples = [row[0] for row in data] + [row[1] for row in data]
    assert prepare(params, samples) is None
    scores = []
    for start in range(0, len(data), batch_size):
        rows = data[start : start + batch_size]
        one, other = (batcher(params, [row[side] for row in rows]) for side in (0, 1))
        assert one.shape == (len(rows), encode.dimension)
        for a, b in zip(one, other, strict=True):
            scores.append(np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b))
    return float(spearmanr(scores, [row[2] for row in data]).statistic)


@pytest.mark.parametrize("batch_size", [1, 4, 64])
def test_senteval(checkpoint: Path, batch_size: int) -> None:
    encoder = open_encoder(f"hf:{checkpoint}", device="cpu")
    dotted = [(a or ".", b, score) for a, b, score in PAIRS]  # a blank sentence becomes a full stop
    first, second = (encoder([pair[side] for pair in dotted]) for side in (0, 1))
    expected = torch.nn.functional.cosine_similarity(torch.tensor(first), torch.tensor(second))
    gold = [pair[2] for pair in PAIRS]
    assert senteval(encoder, batch_size) == pytest.approx(spearmanr(expected, gold).statistic)


def test_senteval_tokens() -> None:
    seen: list[str] = []

    def encode(texts: list[str]) -> np.ndarray:
        seen.extend(texts)
        return np.ones((len(texts), 2))

    _, batcher = senteval_functions(encode)
    rows = batcher({}, [["a", "b"], [], np.array(["c", "d"]), [b"caf\xc3\xa9", b"e"]])
    assert seen == ["a b", ".", "c d", "caf\u00e9 e"]
    assert rows.dtype == np.float32 and rows.shape == (4, 2)


class TestNoTexts:
    """Tests of inputs that could be mistaken for sequences of keys or characters."""

    @staticmethod
    def lengths(texts: list[str]) -> np.ndarray:
        return np.array([[len(text)] for text in texts])

    def test_mteb_inputs_that_are_not_texts_are_refused(self) -> None:
        encoder = MtebEncoder(self.lengths, "lengths", "1")
        assert encoder.encode([{"text": "a cat"}]).tolist() == [[5]]  # a single text
        for inputs in ("a cat", {"text": ["a cat"]}):
            with pytest.raises(TypeError, match=r"Expected texts: .*; got"):
                encoder.encode(inputs)
        with pytest.raises(TypeError, match="got NoneType at position 0"):
            encoder.encode([{"text": [None]}])

    def test_senteval_strings_stay_whole(self) -> None:
        _, batcher = senteval_functions(self.lengths)
        assert batcher(None, ["a cat", ["a", "cat"], "", []]).tolist() == [[5], [5], [1], [1]]
