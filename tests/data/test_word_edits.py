"""Tests of the four edits of EDA: how many words they change, and which they leave."""

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from hypothesis import given
from hypothesis import strategies as st

from declutr.data.augmentations import Augmentation
from declutr.data.synonyms import NoSynonyms
from declutr.data.word_edits import (
    EasyDataAugmentation,
    delete_words,
    insert_synonyms,
    number_of_edits,
    replace_synonyms,
    swap_words,
)
from declutr.sampling.row_draws import document_rng

SYNONYMS = {"old": ("aged", "ancient"), "house": ("home",), "sold": ("bought",), "the": ("that",)}
TEXT = 'The old "House," by the river, was sold.'
WORDS = ["the", "old", "house", "by", "a", "river", "was", "sold"]
words_of_texts = st.lists(st.sampled_from(WORDS), max_size=30)
seeds = st.integers(0, 2**30)


def synonyms(word: str) -> tuple[str, ...]:
    return SYNONYMS.get(word, ())


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture
def synonyms_file(tmp_path: Path) -> str:
    file = tmp_path / "synonyms.tsv"
    file.write_text("".join(f"{word}\t{' '.join(of)}\n" for word, of in SYNONYMS.items()))
    return str(file)


def test_number_of_edits() -> None:
    numbers = [number_of_edits(0.1, words) for words in (1, 9, 10, 19, 20, 100)]
    assert numbers == [1, 1, 1, 1, 2, 10]
    assert number_of_edits(0.29, 100) == 29


# --------------------------------------------------------------------------- the four edits


@given(words_of_texts, st.integers(1, 40), seeds)
def test_replacement_changes_the_given_number_of_words(
    words: list[str], edits: int, seed: int
) -> None:
    """No word moves, stop words and words without synonyms stay, and none is replaced twice."""
    edited = replace_synonyms(words, edits, synonyms, rng(seed))
    changed = [(old, new) for old, new in zip(words, edited, strict=True) if old != new]
    assert all(old != "the" and new in SYNONYMS[old] for old, new in changed)
    assert len(changed) == min(edits, sum(word in ("old", "house", "sold") for word in words))


def test_replacement_keeps_what_surrounds_a_word() -> None:
    edited = replace_synonyms(TEXT.split(), 9, synonyms, rng())
    assert " ".join(edited) in (
        'The aged "Home," by the river, was bought.',
        'The ancient "Home," by the river, was bought.',
    )


def test_words_and_synonyms_are_drawn_uniformly() -> None:
    drawn = Counter(
        " ".join(replace_synonyms(["old", "house"], 1, synonyms, rng(seed))) for seed in range(400)
    )
    assert drawn.keys() == {"aged house", "ancient house", "old home"}
    assert drawn["old home"] / 400 == pytest.approx(0.5, abs=0.1)
    assert drawn["aged house"] / 400 == pytest.approx(0.25, abs=0.1)


@given(words_of_texts, st.integers(1, 10), seeds)
def test_insertion_adds_the_given_number_of_words(words: list[str], edits: int, seed: int) -> None:
    """Synonyms of words of the text are inserted between the words, whose order stays."""
    edited = insert_synonyms(words, edits, synonyms, rng(seed))
    meant = [word for word in words if word in ("old", "house", "sold")]
    added = Counter(edited) - Counter(words)
    assert added.total() == (edits if meant else 0)
    assert set(added) <= {synonym for word in meant for synonym in SYNONYMS[word]}
    assert [word for word in edited if word not in added] == words


def test_insertion_reaches_both_ends() -> None:
    found = {" ".join(insert_synonyms(["a", "house"], 1, synonyms, rng(s))) for s in range(60)}
    assert found == {"home a house", "a home house", "a house home"}


@given(words_of_texts, st.integers(1, 10), seeds)
def test_swaps_keep_the_words(words: list[str], edits: int, seed: int) -> None:
    assert Counter(swap_words(words, edits, rng(seed))) == Counter(words)


def test_a_swap_exchanges_two_different_places() -> None:
    found = Counter(tuple(swap_words(["a", "b", "c"], 1, rng(seed))) for seed in range(300))
    assert found.keys() == {("b", "a", "c"), ("c", "b", "a"), ("a", "c", "b")}
    assert min(found.values()) > 60
    assert swap_words(["a"], 3, rng()) == ["a"]


@given(words_of_texts, st.floats(0, 1), seeds)
def test_deletion_leaves_one_word(words: list[str], probability: float, seed: int) -> None:
    edited = delete_words(words, probability, rng(seed))
    rest = iter(words)
    assert all(word in rest for word in edited)  # The order is kept.
    assert bool(edited) == bool(words)


def test_deletion_removes_words_with_the_given_probability() -> None:
    assert len(delete_words(["word"] * 20_000, 0.3, rng())) / 20_000 == pytest.approx(0.7, abs=0.02)
    only = {delete_words(["a", "b", "c"], 1, rng(seed))[0] for seed in range(40)}
    assert only == {"a", "b", "c"}


# ------------------------------------------------------------------ the augmentation "eda"


def eda(**options: Any) -> Augmentation:
    return Augmentation.from_params(Params({"type": "eda", **options}))


def only(edit: str, alpha: float = 0.1) -> dict[str, float]:
    return dict.fromkeys(("replacement", "insertion", "swap", "deletion"), 0.0) | {edit: alpha}


def test_each_text_gets_one_edit(synonyms_file: str) -> None:
    """Each of the four edits is drawn about equally often, and never with another."""
    augmentation = eda(synonyms=synonyms_file, deletion=0.5)
    counts: Counter[str] = Counter()
    for seed in range(400):
        edited = augmentation(TEXT, rng(seed)).split()
        new = Counter(edited) - Counter(TEXT.split())
        if len(edited) > 8:
            counts["insertion"] += 1
        elif len(edited) < 8:
            counts["deletion"] += 1
        else:
            counts["replacement" if new else "swap"] += 1
    assert min(counts.values()) > 60 and len(counts) == 4


@pytest.mark.parametrize(("edit", "length"), [("insertion", 66), ("swap", 60), ("replacement", 60)])
def test_strength_is_the_share_of_edited_words(synonyms_file: str, edit: str, length: int) -> None:
    """A strength of 0.1 edits 6 of 60 words."""
    text = " ".join(["old", "by"] * 30)
    edited = eda(synonyms=synonyms_file, **only(edit))(text, rng()).split()
    assert len(edited) == length
    if edit == "replacement":
        assert sum(word in SYNONYMS["old"] for word in edited) == 6


def test_an_epoch_edits_a_text_alike_in_every_process(synonyms_file: str) -> None:
    """Seed, epoch and row alone decide the edit."""
    augmentation = eda(synonyms=synonyms_file)
    epochs = [[augmentation(TEXT, document_rng(1, e, row)) for row in range(20)] for e in (0, 1)]
    sent = pickle.loads(pickle.dumps(augmentation))
    assert [sent(TEXT, document_rng(1, 0, row)) for row in range(20)] == epochs[0] != epochs[1]


@pytest.mark.parametrize("text", ["", "  \n", "word", "the", "--", "日本語"])
def test_texts_without_words_to_edit_stay(synonyms_file: str, text: str) -> None:
    augmentation = eda(synonyms=synonyms_file)
    assert {augmentation(text, rng(seed)) for seed in range(20)} == {text}


def test_given_stop_words_stay(synonyms_file: str) -> None:
    options = {"synonyms": synonyms_file, **only("replacement", 0.9)}
    assert eda(stop_words=["Old", "house", "SOLD"], **options)("The old house", rng()) == (
        "That old house"
    )
    assert eda(stop_words=[], **options)("the by", rng()) == "that by"


def test_synonyms_are_read_when_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An augmentation can be built without its synonyms; swaps and deletions need none."""

    def absent() -> None:
        raise NoSynonyms("nltk has no WordNet on this machine.")

    monkeypatch.setattr("declutr.data.word_edits.from_wordnet", absent)
    swaps = eda(**only("swap"))
    assert swaps("a b", rng()) == "b a"
    with pytest.raises(ConfigurationError, match=r"no WordNet.*set replacement and insertion to 0"):
        eda(**only("replacement"))(TEXT, rng())
    nowhere = eda(synonyms=str(tmp_path / "nowhere"), **only("insertion"))
    with pytest.raises(ConfigurationError, match="Cannot read synonyms from"):
        nowhere(TEXT, rng())


@pytest.mark.parametrize("alpha", [-0.1, 1, 2])
def test_strengths_out_of_range_are_refused(alpha: float) -> None:
    with pytest.raises(
        ConfigurationError, match=f"swap must be at least 0 and below 1, got {alpha}"
    ):
        EasyDataAugmentation(swap=alpha)


def test_strengths_of_0_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"are 0, which edits nothing\. Set one"):
        eda(**only("swap", 0))
