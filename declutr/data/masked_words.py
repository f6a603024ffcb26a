"""Words replaced by what a masked language model predicts in their place.

This is contextual augmentation (Kobayashi, 2018) with a masked language model in the place of a
bidirectional LSTM, as in "Conditional BERT Contextual Augmentation" (Wu et al., 2019) without its
condition on a label.
"""

import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from allennlp.common.checks import ConfigurationError

from declutr.data.augmentations import Augmentation
from declutr.data.word_edits import number_of_edits, taken_apart
from declutr.system.processors import torch_threads
from declutr.transformer.architectures import masked_lm_logits

_PIECE_MARKS = ("Ġ", "▁")
"""What a token begins with where a word begins, of byte-level BPE and of SentencePiece."""
_CONTINUES = "##"
"""What a token of WordPiece begins with where none does."""
_WORD = re.compile(r"[^\W\d_]+")
_UNLIMITED = 512  # the length where a tokenizer reports none


@Augmentation.register("masked_lm")
class MaskedWords(Augmentation):
    """An augmentation that replaces words by other words that fit between those around them.

    Of the l words of a text `max(1, floor(share * l))` are drawn and masked, all at once. For each,
    the language model gives the `top_k` most probable other words of a single token, of which one
    is drawn by its probability. Punctuation around a word and its initial capital are kept. White
    space between words becomes a single space. Words beyond the length of the language model stay.

    Each worker of a loader loads the language model on its first text, and computes on one thread
    of the CPU: docs/OBJECTIVES.md says what that costs. The texts of a batch are computed together,
    so that other batches may change a probability by rounding.

    # Parameters

    transformer : the masked language model: a name on the Hugging Face hub, or a folder. It need
        not be the one that is trained.
    share : the share of words to replace, in (0, 1).
    top_k : the number of most probable words to draw from, at least 1.
    batch_size : the number of texts in one pass of the language model.

    # Raises

    `ConfigurationError` : if a number is out of range. When the first text comes: if the
        transformer cannot be loaded, or is no masked language model.
    """

    def __init__(
        self, transformer: str, share: float = 0.15, top_k: int = 10, batch_size: int = 32
    ) -> None:
        if not 0 < share < 1:
            raise ConfigurationError(f"share must be above 0 and below 1, got {share}.")
        if top_k < 1 or batch_size < 1:
            raise ConfigurationError(
                f"top_k and batch_size must be at least 1, got {top_k} and {batch_size}."
            )
        self._name, self._share, self._top_k = transformer, share, top_k
        self._batch_size = batch_size

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_language_model"}

    @cached_property
    def _language_model(self) -> "LanguageModel":
        return LanguageModel(self._name)

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        return self.of_many([(text, rng)])[0]

    def of_many(self, texts: Iterable[tuple[str, np.random.Generator]]) -> list[str]:
        drawn = [self._drawn(text.split(), rng) for text, rng in texts]
        # Texts of like lengths go together, as padding is computed on.
        order = sorted((one for one in drawn if one.places), key=lambda one: len(one.words))
        for begin in range(0, len(order), self._batch_size):
            self._replace(order[begin : begin + self._batch_size])
        return [" ".join(one.words) for one in drawn]

    def _drawn(self, words: list[str], rng: np.random.Generator) -> "Drawn":
        """Draw the words to replace, and where each is between the probabilities 0 and 1."""
        candidates = [place for place, word in enumerate(words) if taken_apart(word)[1]]
        chosen = rng.permutation(candidates)[: number_of_edits(self._share, len(words))]
        return Drawn(words, sorted(chosen.astype(int).tolist()), rng.random(len(chosen)).tolist())

    def _replace(self, some: list["Drawn"]) -> None:
        """Replace the drawn words of some texts, in place."""
        masked, own = [], []
        for one in some:
            apart = [taken_apart(one.words[place]) for place in one.places]
            words = list(one.words)
            for place, (before, _, after) in zip(one.places, apart, strict=True):
                words[place] = before + self._language_model.mask + after
            masked.append((words, set(one.places)))
            own.append([core for _, core, _ in apart])
        found = self._language_model.words_for(masked, own, self._top_k)
        for one, cores, choices in zip(some, own, found, strict=True):
            for place, core, u, choice in zip(
                one.places, cores, one.between, choices, strict=False
            ):
                word = choice.at(u)
                if core[0].isupper():
                    word = word[0].upper() + word[1:]
                one.words[place] = one.words[place].replace(core, word, 1)


class Drawn(NamedTuple):
    """The words of a text, and what was drawn for it."""

    words: list[str]
    places: list[int]
    """The places of the words to replace, in order."""
    between: list[float]
    """For each of them, the point in [0, 1) of the cumulated probabilities where its word is."""


class Choices(NamedTuple):
    """The most probable words for a place, and their probabilities `(k,)`."""

    words: list[str]
    probabilities: np.ndarray

    def at(self, u: float) -> str:
        """Return the word at a point in [0, 1) of the cumulated probabilities."""
        ends = np.cumsum(self.probabilities)
        return self.words[min(int(np.searchsorted(ends, u * ends[-1], "right")), len(ends) - 1)]


class LanguageModel:
    """A masked language model on the CPU, and which of its tokens are whole words.

    # Parameters

    name : a name on the Hugging Face hub, or a folder.

    # Raises

    `ConfigurationError` : if it cannot be loaded, or is no masked language model.
    """

    def __init__(self, name: str) -> None:
        from transformers import AutoTokenizer

        from declutr.modules.transformer_embedder import load_transformer

        try:
            # Weights that a checkpoint lacks are drawn, and training draws by the same generator.
            with torch.random.fork_rng(devices=[]):
                self._tokenizer: Any = AutoTokenizer.from_pretrained(name)
                self._model: Any = load_transformer(name, True, True, {}).eval()
        except (OSError, ValueError, ConfigurationError) as error:
            raise ConfigurationError(
                f"The augmentation 'masked_lm' cannot use the transformer '{name}': {error} "
                "Expected a masked language model, such as 'distilroberta-base', or its folder."
            ) from error
        self.mask: str = self._tokenizer.mask_token
        if self.mask is None:
            raise ConfigurationError(
                f"The augmentation 'masked_lm' cannot use the transformer '{name}': its tokenizer "
                "has no mask token. Expected a masked language model, such as 'distilroberta-base'."
            )
        self._tokenizer.truncation_side = self._tokenizer.padding_side = "right"
        self._words = self._whole_words()
        if len(self._words) < 2:
            raise ConfigurationError(
                f"The augmentation 'masked_lm' cannot use the transformer '{name}': "
                f"{len(self._words)} of its tokens are whole words. Expected one that splits texts "
                "into words and parts of words."
            )
        self._ids: dict[str, list[int]] = {}
        for number, word in self._words.items():
            self._ids.setdefault(word.lower(), []).append(number)
        self._limit = min(int(self._tokenizer.model_max_length), _UNLIMITED)

    def _whole_words(self) -> dict[int, str]:
        """Return the tokens that are a word of letters, by their ids."""
        tokens = self._tokenizer.convert_ids_to_tokens(range(len(self._tokenizer)))
        marks = any(token.startswith(_PIECE_MARKS) for token in tokens)
        words = {}
        for number, token in enumerate(tokens):
            if token.startswith(_CONTINUES) or (marks and not token.startswith(_PIECE_MARKS)):
                continue
            word = self._tokenizer.decode([number]).strip()
            if _WORD.fullmatch(word):
                words[number] = word
        return words

    def words_for(
        self, texts: list[tuple[list[str], set[int]]], owns: list[list[str]], top_k: int
    ) -> list[list[Choices]]:
        """Return the most probable words for each masked word of some texts.

        # Parameters

        texts : the words of each text, and the places of those that hold a mask token.
        owns : the word at each of these places, which is not returned.
        top_k : the number of words.

        # Returns

        A list for each text, shorter than its own words where the text is cut.
        """
        joined = [" ".join(words) for words, _ in texts]
        cut = {"padding": True, "truncation": True, "max_length": self._limit}
        batch = self._tokenizer(joined, **cut, return_tensors="pt")
        masks = batch["input_ids"] == self._tokenizer.mask_token_id  # (N, L)
        # One thread gives every process the same numbers.
        with torch.inference_mode(), torch_threads(1):
            hidden = self._model.base_model(**batch).last_hidden_state[masks]  # (M, d)
            logits = masked_lm_logits(self._model, hidden)  # (M, V)
        allowed = torch.zeros(logits.size(-1), dtype=torch.bool)
        allowed[list(self._words)] = True
        found: list[list[Choices]] = []
        for of_text, (words, places), own in zip(
            logits.split(masks.sum(1).tolist()), texts, owns, strict=True
        ):
            # A text may hold mask tokens of its own, between those that stand for its words.
            counts = [word.count(self.mask) for word in words]
            ours = np.repeat([place in places for place in range(len(words))], counts)
            pairs = zip(of_text[ours[: len(of_text)]], own, strict=False)
            found.append([self._most(scores, allowed, word, top_k) for scores, word in pairs])
        return found

    def _most(self, logits: torch.Tensor, allowed: torch.Tensor, word: str, top_k: int) -> Choices:
        scores = logits.float().masked_fill(~allowed, -torch.inf)
        scores[self._ids.get(word.lower(), [])] = -torch.inf
        best, ids = scores.topk(min(top_k, len(self._words) - 1))
        return Choices([self._words[number] for number in ids.tolist()], best.softmax(0).numpy())
