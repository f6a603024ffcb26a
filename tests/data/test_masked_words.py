"""Tests of words that a masked language model replaces, against transformers' own calls."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from allennlp.common.checks import ConfigurationError
from transformers import AutoModelForMaskedLM, AutoTokenizer

from declutr.data import masked_words
from declutr.data.augmentations import Chain
from declutr.data.masked_words import MaskedWords
from declutr.data.span_edits import SpanDeletion, SpanReordering
from declutr.sampling.row_draws import document_rng


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def texts(documents: list[str]) -> list[str]:
    return [document[: 20 + 12 * number] for number, document in enumerate(documents)]


@pytest.fixture(scope="module")
def augmentation(checkpoint: Path) -> MaskedWords:
    return MaskedWords(str(checkpoint))


def test_the_most_probable_words_are_those_of_transformers(
    checkpoint: Path, texts: list[str]
) -> None:
    """With `top_k` 1 nothing is left to chance but the places."""
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = AutoModelForMaskedLM.from_pretrained(checkpoint).eval()
    for seed, text in enumerate(texts[:4]):
        words, made = text.split(), MaskedWords(str(checkpoint), 0.2, 1)(text, rng(seed)).split()
        places = [n for n, (old, new) in enumerate(zip(words, made, strict=True)) if old != new]
        assert len(places) == max(1, int(0.2 * len(words)))
        masked = [tokenizer.mask_token if n in places else w for n, w in enumerate(words)]
        encoded = tokenizer(" ".join(masked), return_tensors="pt")
        with torch.no_grad():
            logits = model(**encoded).logits[0]
        rows = (encoded["input_ids"][0] == tokenizer.mask_token_id).nonzero()[:, 0]
        for place, row in zip(places, rows.tolist(), strict=True):
            by_score = logits[row].argsort(descending=True).tolist()
            whole = (i for i in by_score if tokenizer.convert_ids_to_tokens(i).startswith("Ġ"))
            candidates = (tokenizer.decode([i]).strip() for i in whole)
            assert made[place] == next(c for c in candidates if c.isalpha() and c != words[place])


def test_words_are_drawn_by_their_probability() -> None:
    choices = masked_words.Choices(["a", "b", "c"], np.array([0.5, 0.25, 0.25], dtype=np.float32))
    assert "".join(choices.at(u) for u in (0, 0.49, 0.5, 0.74, 0.75, 0.9999999)) == "aabbcc"


def test_many_texts_are_augmented_as_each_alone(
    augmentation: MaskedWords, texts: list[str]
) -> None:
    alone = [augmentation(text, rng(seed)) for seed, text in enumerate(texts)]
    together = augmentation.of_many((text, rng(seed)) for seed, text in enumerate(texts))
    assert together == alone != texts
    sent = pickle.loads(pickle.dumps(augmentation))
    assert "_language_model" not in vars(sent)
    assert [sent(text, rng(seed)) for seed, text in enumerate(texts)] == alone


def test_what_surrounds_a_word_stays(augmentation: MaskedWords) -> None:
    """Punctuation, capitals, and a mask token that the text itself has."""
    text = '"Pipilo," (kave) <mask> tumitu!'
    for seed in range(6):
        made = augmentation(text, rng(seed))
        changed = [(a, b) for a, b in zip(text.split(), made.split(), strict=True) if a != b]
        assert len(changed) == 1
        old, new = changed[0]
        if old == "<mask>":  # its core is "mask"
            assert new[0] == "<" and new[-1] == ">"
        else:
            frame = [part for part in old if not part.isalpha()]
            assert [part for part in new if not part.isalpha()] == frame
            assert old[1].isupper() == new[1].isupper() or old[0].isalpha()


@pytest.mark.parametrize("text", ["", " ", ", . !"])
def test_texts_without_words_stay(augmentation: MaskedWords, text: str) -> None:
    assert augmentation(text, rng()) == " ".join(text.split())


def test_words_beyond_the_length_of_the_language_model_stay(
    augmentation: MaskedWords, documents: list[str]
) -> None:
    words = documents[0].split()
    made = augmentation(documents[0], rng()).split()
    changed = [n for n, (a, b) in enumerate(zip(words, made, strict=True)) if a != b]
    assert changed and max(changed) < 126


def test_training_draws_are_left_alone(checkpoint: Path) -> None:
    before = torch.random.get_rng_state()
    MaskedWords(str(checkpoint))("pipilo kave", rng())
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_transformer_that_cannot_predict_words_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: Path
) -> None:
    with pytest.raises(
        ConfigurationError, match=r"cannot use the transformer '.*nowhere'.*Expected"
    ):
        MaskedWords(str(tmp_path / "nowhere"))("a text", rng())
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    tokenizer.mask_token = None
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda name: tokenizer)
    with pytest.raises(ConfigurationError, match="its tokenizer has no mask token"):
        MaskedWords(str(checkpoint))("a text", rng())


def test_a_chain_is_its_parts_one_after_the_other(
    augmentation: MaskedWords, texts: list[str]
) -> None:
    parts = [augmentation, SpanDeletion(2, 0.1), SpanReordering(2, 0.1)]
    chain = Chain(parts)
    made = chain.of_many((text, rng(seed)) for seed, text in enumerate(texts))
    for seed, (text, found) in enumerate(zip(texts, made, strict=True)):
        own = rng(seed).integers(2**63, size=3).tolist()
        for part, number in zip(parts, own, strict=True):
            text = part(text, document_rng(number, 0, 0))
        assert found == text == chain(texts[seed], rng(seed))
