"""The words of SCAN's code: the Tokenizer "nltk_words" and the Vocabulary "scan"."""

import json

from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.data.tokenizers import Token, Tokenizer

from declutr.system import local_path

_PADDING, _UNKNOWN = "<pad>", "<unk>"


@Tokenizer.register("nltk_words")
class NltkWords(Tokenizer):
    """A Tokenizer of NLTK's words (`word_tokenize`), which needs nltk and none of its data.

    Sentences are not split first: a full stop inside of a caption stays with its word, and only the
    last one is a token.

    # Raises

    `ConfigurationError` : nltk is not installed.
    """

    def __init__(self) -> None:
        try:
            from nltk.tokenize import NLTKWordTokenizer
        except ImportError as error:
            raise ConfigurationError(
                "The tokenizer 'nltk_words' needs nltk, which is not installed. Run "
                "`pip install 'declutr[nltk]'`, or take the tokenizer 'letters_digits'."
            ) from error
        self._words = NLTKWordTokenizer()

    def tokenize(self, text: str) -> list[Token]:
        return [Token(word) for word in self._words.tokenize(text)]


@Vocabulary.register("scan", constructor="from_json")
class ScanVocabulary(Vocabulary):
    """A Vocabulary of the words in a file of SCAN's code, such as `f30k_precomp_vocab.json`.

    Padding and unknown words have AllenNLP's own tokens; the other words keep their order.
    """

    @classmethod
    def from_json(cls, file: str, namespace: str = "tokens") -> "ScanVocabulary":
        """Return the vocabulary of the words in a file, in the order of their numbers.

        # Parameters

        file : JSON with numbers by word under `word2idx`.
        namespace : the namespace of the words.

        # Raises

        `ConfigurationError` : there is no such file, or it has no such words.
        """
        try:
            words = json.loads(local_path(file).read_text(encoding="utf-8"))["word2idx"]
            ordered = sorted(words, key=words.__getitem__)
        except OSError as error:
            raise ConfigurationError(f"No vocabulary at '{file}' ({error.strerror}).") from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(
                f"'{file}' is no vocabulary of SCAN: expected JSON with numbers by word under "
                "'word2idx'."
            ) from error
        kept = [word for word in ordered if word not in (_PADDING, _UNKNOWN)]
        return cls(tokens_to_add={namespace: kept})
