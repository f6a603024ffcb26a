"""Cutoff: the draws, and embeddings of cut texts against Hugging Face's models."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors
from allennlp.modules.seq2vec_encoders import BagOfEmbeddingsEncoder
from allennlp.nn.util import get_text_field_mask
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from declutr.models.cutoff import KINDS, cut_counts, cut_features, cut_span, cut_texts, cut_tokens
from declutr.modules.embedders import MLMTextFieldEmbedder, PretrainedTransformerEmbedderMLM
from declutr.modules.text_batches import part
from tests.families import FAMILIES, TEXTS, build, build_gpt2

GOLDEN = json.loads((Path(__file__).parents[1] / "fixtures" / "golden_cutoff.json").read_text())
BATCH = [*TEXTS, TEXTS[0][:24], "a"]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ------------------------------------------------------------------------------------ the draws

masks = st.lists(st.integers(0, 40), min_size=1, max_size=5).map(
    lambda lengths: torch.arange(42) < torch.tensor(lengths)[:, None]
)
rates = st.floats(0.01, 0.99)


def test_golden_counts() -> None:
    """0.29 * 100 is 28.999999999999996 in floating point, for which counts allow."""
    golden = GOLDEN["cutoff_counts"]
    lengths, rate = golden["inputs"]["length"], golden["inputs"]["ratio"]
    assert cut_counts(torch.tensor(lengths), rate).tolist() == golden["values"]["tokens_cut_floor"]
    columns = cut_features(3, 768, rate, seeded()).sum(dim=1)
    assert columns.tolist() == [golden["values"]["feature_dims_cut_768"]] * 3
    assert cut_counts(torch.tensor([100]), 0.29).item() == 29


def test_short_texts_lose_one_token() -> None:
    """One token is cut if three or more may be; special tokens count for the length."""
    lengths = torch.tensor([2, 3, 4, 5, 12, 19, 20, 32])
    mask = torch.arange(32) < lengths[:, None]
    maskable = mask & (torch.arange(32) > 0) & (torch.arange(32) < lengths[:, None] - 1)
    for draw in (cut_tokens, cut_span):
        assert draw(mask, maskable, 0.1).sum(dim=1).tolist() == [0, 0, 0, 1, 1, 1, 2, 3]


@pytest.mark.parametrize("draw", [cut_tokens, cut_span])
@given(mask=masks, rate=rates, seed=st.integers(0, 2**30), data=st.data())
def test_the_right_number_of_maskable_tokens_is_cut(
    draw: Callable[..., Tensor], mask: Tensor, rate: float, seed: int, data: st.DataObject
) -> None:
    """Only maskable tokens are cut, in the exact number, and at least one of them remains."""
    special = torch.tensor(data.draw(st.lists(st.booleans(), min_size=42, max_size=42)))
    maskable = mask & ~special
    cut = draw(mask, maskable, rate, seeded(seed))
    assert cut.dtype == torch.bool and cut.shape == mask.shape
    assert not (cut & ~maskable).any()
    content = maskable.sum(dim=1).tolist()
    lengths, numbers = mask.sum(dim=1).tolist(), cut.sum(dim=1).tolist()
    for length, may, number in zip(lengths, content, numbers, strict=True):
        assert number == (min(max(1, int(rate * length + 1e-9)), may - 1) if may >= 3 else 0)
    assert torch.equal(cut, draw(mask, maskable, rate, seeded(seed)))
    if draw is cut_span:  # a span of the maskable tokens, without gaps
        for row, able in zip(cut, maskable, strict=True):
            places = row[able].nonzero().flatten().tolist()
            assert not places or places == list(range(places[0], places[-1] + 1))


@pytest.mark.parametrize(("draw", "at_ends"), [(cut_tokens, 0.2), (cut_span, 1 / 9)])
def test_every_place_is_equally_likely(draw: Callable[..., Tensor], at_ends: float) -> None:
    """All tokens are equally likely; a span of 2 of 10 tokens has nine places."""
    mask = torch.ones(20_000, 10, dtype=torch.bool)
    shares = draw(mask, mask, 0.2, seeded()).double().mean(dim=0)  # (10,)
    assert torch.allclose(shares[[0, -1]], torch.full((2,), at_ends).double(), atol=0.01)
    inner = torch.full((8,), 0.2 if draw is cut_tokens else 2 / 9).double()
    assert torch.allclose(shares[1:-1], inner, atol=0.015)


@given(st.integers(1, 6), st.integers(1, 40), rates, st.integers(0, 2**30))
def test_the_right_number_of_features_is_cut(
    texts: int, width: int, rate: float, seed: int
) -> None:
    cut = cut_features(texts, width, rate, seeded(seed))
    assert cut.shape == (texts, width) and cut.dtype == torch.bool
    assert cut.sum(dim=1).tolist() == [int(rate * width + 1e-9)] * texts
    drawn = cut_features(8, 100, 0.1, seeded(seed))  # anew for each text
    assert len({tuple(row.tolist()) for row in drawn}) == 8


@pytest.mark.parametrize("rate", [0, 1, -0.1, 1.5])
def test_rates_out_of_range_are_refused(rate: float) -> None:
    mask = torch.ones(1, 5, dtype=torch.bool)
    with pytest.raises(ValueError, match=f"above 0 and below 1, got {rate}"):
        cut_tokens(mask, mask, rate)
    with pytest.raises(ValueError, match=f"above 0 and below 1, got {rate}"):
        cut_features(2, 8, rate)
    with pytest.raises(ValueError, match=r"must both be \(N, T\), got \(1, 5\) and \(1, 4\)"):
        cut_span(torch.ones(1, 5).bool(), torch.ones(1, 4).bool())


# ------------------------------------------------------------------------ embeddings of cut texts


class Cutting:
    """An embedder of one architecture, a batch for it, and the same transformer without it."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        encoded = AutoTokenizer.from_pretrained(folder)(BATCH, padding=True, return_tensors="pt")
        self.ids, self.mask = encoded["input_ids"], encoded["attention_mask"].bool()
        self.texts: TextFieldTensors = {"tokens": {"token_ids": self.ids, "mask": self.mask}}
        self.plain = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()

    def embedder(self, **options: Any) -> PretrainedTransformerEmbedderMLM:
        return PretrainedTransformerEmbedderMLM(self.folder, **options).eval()

    def expected(self, mask: Tensor, zeroed: Tensor | None = None) -> Tensor:
        """Return the transformer's token embeddings with a mask and zeroed input embeddings."""
        erase = torch.zeros(*mask.shape, 1).bool() if zeroed is None else zeroed
        hook = self.plain.embeddings.register_forward_hook(
            lambda layer, inputs, vectors: vectors * ~erase
        )
        with hook:
            return self.plain(input_ids=self.ids, attention_mask=mask.long()).last_hidden_state


@pytest.fixture(scope="module", params=FAMILIES)
def cutting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cutting:
    return Cutting(build(request.param, tmp_path_factory.mktemp(request.param)))


@pytest.fixture(scope="module")
def roberta(tmp_path_factory: pytest.TempPathFactory) -> Cutting:
    return Cutting(build("roberta", tmp_path_factory.mktemp("roberta")))


@pytest.mark.parametrize("kind", ["token", "span"])
@torch.no_grad()
def test_tokens_are_out_of_attention(cutting: Cutting, kind: str) -> None:
    """The other tokens have the same embeddings, whether those of cut tokens are zero or not."""
    embedder = cutting.embedder()
    texts = cut_texts(cutting.texts, embedder, kind, 0.2, seeded())
    kept = texts["tokens"]["mask"]
    cut = cutting.mask & ~kept
    assert cut[:, 1:-1].any() and not cut[-1].any()  # the last text has too few tokens
    vectors = embedder(**texts["tokens"])
    masked = cutting.expected(kept)
    zeroed = cutting.expected(kept, cut[..., None])
    assert torch.allclose(masked[kept], zeroed[kept], atol=1e-6)
    assert torch.allclose(vectors[kept], zeroed[kept], atol=1e-5)
    assert not torch.allclose(vectors[kept], cutting.expected(cutting.mask)[kept], atol=1e-3)


@torch.no_grad()
def test_tokens_are_out_of_pooling(roberta: Cutting) -> None:
    field_embedder = MLMTextFieldEmbedder({"tokens": roberta.embedder()})
    texts = cut_texts(roberta.texts, field_embedder.token_embedder, "span", 0.3, seeded())
    mask = get_text_field_mask(texts)
    pooled = BagOfEmbeddingsEncoder(16, averaged=True)(field_embedder(texts), mask)
    vectors = roberta.expected(mask)
    for row, embedding in enumerate(pooled):
        assert torch.allclose(embedding, vectors[row, mask[row]].mean(dim=0), atol=1e-5)


@pytest.mark.parametrize("unpadding", ["auto", "grouped", "none"])
def test_features_are_zero_in_every_token(cutting: Cutting, unpadding: str) -> None:
    """Values and gradients of the embedding layer are the same with every way of unpadding."""
    embedder = cutting.embedder(unpadding=unpadding)
    texts = cut_texts(cutting.texts, embedder, "feature", 0.3, seeded())
    cut = texts["tokens"]["cut_features"]  # (N, d)
    assert cut.any(dim=1).all() and torch.equal(texts["tokens"]["mask"], cutting.mask)
    vectors = embedder(**texts["tokens"])[cutting.mask]
    expected = cutting.expected(cutting.mask, cut[:, None])[cutting.mask]
    assert torch.allclose(vectors, expected, atol=1e-5)
    without = cutting.expected(cutting.mask)[cutting.mask]
    assert not torch.allclose(vectors, without, atol=1e-3)
    weights = torch.linspace(-1, 1, vectors.numel()).view_as(vectors)
    gradients = []
    for model, output in ((embedder.encoder, vectors), (cutting.plain, expected)):
        (output * weights).sum().backward()
        gradients.append(model.get_input_embeddings().weight.grad)
        model.zero_grad()
    assert torch.allclose(*gradients, atol=1e-4)


@torch.no_grad()
def test_cutting_leaves_the_given_texts_and_the_embedder_unchanged(roberta: Cutting) -> None:
    embedder = roberta.embedder()
    before = {key: tensor.clone() for key, tensor in roberta.texts["tokens"].items()}
    first = embedder(**roberta.texts["tokens"])
    for kind in KINDS:
        embedder(**cut_texts(roberta.texts, embedder, kind)["tokens"])
    assert roberta.texts["tokens"].keys() == before.keys()
    assert all(torch.equal(roberta.texts["tokens"][key], before[key]) for key in before)
    assert torch.equal(embedder(**roberta.texts["tokens"]), first)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_chunks_of_cut_texts_have_the_same_cut(roberta: Cutting, kind: str) -> None:
    """Gradient caching encodes chunks of a batch, and encodes each twice."""
    embedder = roberta.embedder()
    texts, same, other = (
        cut_texts(roberta.texts, embedder, kind, 0.3, seeded(seed)) for seed in (0, 0, 2)
    )
    changed = "cut_features" if kind == "feature" else "mask"
    assert torch.equal(texts["tokens"][changed], same["tokens"][changed])
    assert not torch.equal(texts["tokens"][changed], other["tokens"][changed])
    mask = texts["tokens"]["mask"]
    whole = embedder(**texts["tokens"])[mask]
    chunks = [
        embedder(**some["tokens"])[some["tokens"]["mask"]]
        for some in (part(texts, slice(0, 2)), part(texts, slice(2, 6)))
    ]
    assert torch.allclose(torch.cat(chunks), whole, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_cut_tokens_are_out_of_the_mask_of_segments(roberta: Cutting, kind: str) -> None:
    """With max_length, attention uses the mask of segments."""
    tensors = {**roberta.texts["tokens"], "segment_concat_mask": roberta.mask}
    texts = cut_texts({"tokens": tensors}, roberta.embedder(), kind, 0.3, seeded())
    plain = cut_texts(roberta.texts, roberta.embedder(), kind, 0.3, seeded())
    kept = texts["tokens"]["mask"]
    vectors = roberta.embedder(max_length=60)(**texts["tokens"])
    expected = roberta.embedder()(**plain["tokens"])
    assert torch.allclose(vectors[kept], expected[kept], atol=1e-6)


def folded(cutting: Cutting) -> TextFieldTensors:
    """Return two texts of 14 tokens in segments of 8, `<s> 6 </s> <s> 6 </s>`, as indexed."""
    ids = torch.randint(5, 50, (2, 16), generator=seeded())
    ids[:, [0, 8]], ids[:, [7, 15]] = cutting.ids[0, 0], cutting.ids[0].max()
    whole = torch.ones(2, 16, dtype=torch.bool)
    tensors = {"token_ids": ids, "mask": whole[:, :14], "segment_concat_mask": whole}
    return {"tokens": tensors}


@torch.no_grad()
def test_all_segments_of_a_text_lose_the_same_features(roberta: Cutting) -> None:
    embedder = roberta.embedder(max_length=8)
    texts = cut_texts(folded(roberta), embedder, "feature", 0.3, seeded())["tokens"]
    vectors = embedder(**texts)
    halves = {"token_ids": texts["token_ids"][:, :8], "mask": texts["mask"][:, :8]}
    first = roberta.embedder()(**halves, cut_features=texts["cut_features"])
    assert torch.allclose(vectors[:, :7], first[:, :7], atol=1e-5)


@torch.no_grad()
def test_segments_are_unfolded_on_the_host_as_allennlp_does(roberta: Cutting) -> None:
    """On a GPU, segments are joined by row numbers that are computed on the host."""
    embedder = roberta.embedder(max_length=8)
    mask = torch.arange(24) < torch.tensor([[24], [18], [5], [8]])
    vectors = torch.randn(12, 8, 3)
    expected = embedder._unfold_long_sequences(vectors, mask.view(12, 8), 4, 24)
    places = embedder._unfolded_places(mask.view(12, 8), mask.shape)
    assert torch.equal(torch.cat([torch.zeros(1, 3), vectors.flatten(0, 1)])[places], expected)


def test_tokens_of_texts_in_segments_are_not_cut(roberta: Cutting) -> None:
    with pytest.raises(ConfigurationError, match=r"got 16 tokens of texts of 14\. Raise"):
        cut_texts(folded(roberta), roberta.embedder(max_length=8), "token")


@pytest.mark.slow
@torch.no_grad()
def test_a_compiled_transformer_zeroes_the_features_of_each_batch(roberta: Cutting) -> None:
    """Compiled code could miss the hook that zeroes features, or reuse an earlier one."""
    embedder = roberta.embedder(compile={"backend": "eager"}, unpadding="none")
    embedder(**roberta.texts["tokens"])
    for seed in (0, 1):
        texts = cut_texts(roberta.texts, embedder, "feature", 0.3, seeded(seed))["tokens"]
        expected = roberta.expected(roberta.mask, texts["cut_features"][:, None])
        assert torch.allclose(embedder(**texts), expected, atol=1e-5)
    vectors = embedder(**roberta.texts["tokens"])
    assert torch.allclose(vectors, roberta.expected(roberta.mask), atol=1e-5)


# -------------------------------------------------------------------------------------- errors


def test_unknown_kinds_and_rates_out_of_range_are_refused(roberta: Cutting) -> None:
    with pytest.raises(ConfigurationError, match="'row': expected one of token, span, feature"):
        cut_texts(roberta.texts, roberta.embedder(), "row")
    for kind in KINDS:
        with pytest.raises(ConfigurationError, match=r"above 0 and below 1, got 1\.5"):
            cut_texts(roberta.texts, roberta.embedder(), kind, 1.5)


def test_other_tokens_than_word_pieces_are_refused(roberta: Cutting) -> None:
    words: TextFieldTensors = {"words": {"tokens": torch.ones(2, 3)}}
    spans: TextFieldTensors = {
        "tokens": {key: tensor[None] for key, tensor in roberta.texts["tokens"].items()}
    }
    two = {**roberta.texts, "words": roberta.texts["tokens"]}
    for texts in (words, spans, two):
        with pytest.raises(ConfigurationError, match=r"one indexer of type 'pretrained_transf"):
            cut_texts(texts, roberta.embedder())


def test_features_need_an_embedding_layer(tmp_path: Path, roberta: Cutting) -> None:
    folder = str(build_gpt2(tmp_path))
    embedder = PretrainedTransformerEmbedderMLM(folder, masked_language_modeling=False)
    with pytest.raises(ConfigurationError, match=r"GPT2Model has no part 'embeddings'.*Cut token"):
        cut_texts(roberta.texts, embedder, "feature")
