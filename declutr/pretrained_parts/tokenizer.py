"""The Tokenizer "declutr": that of a trained archive."""

from typing import Optional

from allennlp.common.checks import ConfigurationError
from allennlp.data.tokenizers import PretrainedTransformerTokenizer, Token, Tokenizer

from declutr.corpus import normalize_whitespace
from declutr.data.tokenizers import max_tokens
from declutr.pretrained_parts.opened import open_model


@Tokenizer.register("declutr", constructor="from_archive")
class TrainedTokenizer(PretrainedTransformerTokenizer):
    """Word pieces as a trained archive reads its texts: white space evened out, long ones cut.

    `declutr.inference.encoder.Encoder` does the same, so that a text has the same tokens here and
    there.
    """

    def tokenize(self, text: str) -> list[Token]:
        """The tokens of a text, special ones included; positions are in the evened-out text."""
        return super().tokenize(normalize_whitespace(text))

    @classmethod
    def from_archive(
        cls,
        archive: str,
        max_length: Optional[int] = None,
        add_special_tokens: bool = True,
        load_weights: bool = True,
    ) -> Tokenizer:
        """The tokenizer of an archive; not of this class if the archive has no transformer.

        # Parameters

        archive : a serialization folder, a `model.tar.gz` or a URL of one, or an exported folder.
        max_length : cut texts after so many tokens, special ones included; by default after as many
            as in training, and as the transformer takes. More makes sense for an embedder that
            folds texts into segments.
        add_special_tokens : False leaves them to the reader, as those for pairs of sentences want.
        load_weights : for archives, which set it on every part; a tokenizer has none.

        # Raises

        `ConfigurationError` : no archive there; settings for which its tokenizer has no use.
        """
        opened = open_model(archive)
        trained = opened.reader._tokenizer
        if not isinstance(trained, PretrainedTransformerTokenizer):
            if max_length is not None or not add_special_tokens:
                raise ConfigurationError(
                    f"The tokenizer of '{archive}' is a {type(trained).__name__}: it has neither "
                    "max_length nor special tokens. Leave max_length and add_special_tokens out."
                )
            return NormalisingTokenizer(trained)
        limits = [trained._max_length, max_tokens(trained)]
        return cls(
            trained._model_name,
            add_special_tokens=add_special_tokens,
            max_length=max_length or min((n for n in limits if n is not None), default=None),
            tokenizer_kwargs=trained._tokenizer_kwargs,
            verification_tokens=opened.config["dataset_reader"]["tokenizer"].get(
                "verification_tokens"
            ),
        )


class NormalisingTokenizer(Tokenizer):
    """Any other tokenizer, given text with white space evened out.

    # Parameters

    tokenizer : the tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def tokenize(self, text: str) -> list[Token]:
        """The tokens of a text."""
        return self._tokenizer.tokenize(normalize_whitespace(text))

    def add_special_tokens(
        self, tokens1: list[Token], tokens2: Optional[list[Token]] = None
    ) -> list[Token]:
        """As the tokenizer inside."""
        return self._tokenizer.add_special_tokens(tokens1, tokens2)

    def num_special_tokens_for_sequence(self) -> int:
        """As the tokenizer inside."""
        return self._tokenizer.num_special_tokens_for_sequence()

    def num_special_tokens_for_pair(self) -> int:
        """As the tokenizer inside."""
        return self._tokenizer.num_special_tokens_for_pair()
