"""The DatasetReader "label_and_text": a label, a tab and a text on each line."""

from collections.abc import Iterable
from typing import Any, Optional

from allennlp.common.checks import ConfigurationError
from allennlp.common.file_utils import cached_path
from allennlp.data import DatasetReader, Field, Instance, TokenIndexer, Tokenizer
from allennlp.data.fields import LabelField, TextField


@DatasetReader.register("label_and_text")
class TabSeparatedReader(DatasetReader):
    """Reads lines such as `sport<TAB>Two goals in the last minute.`; blank lines are left out.

    Fields: `tokens`, the text, and `label`, as `basic_classifier` expects them. Nothing here knows
    declutr: tokenizer and token indexers come from the recipe.

    # Parameters

    tokenizer : makes tokens of a text.
    token_indexers : make ids of tokens, by name.

    # Raises

    `ConfigurationError` : a line without a tab, named by its number.
    """

    def __init__(
        self, tokenizer: Tokenizer, token_indexers: dict[str, TokenIndexer], **kwargs: Any
    ) -> None:
        super().__init__(
            manual_distributed_sharding=True, manual_multiprocess_sharding=True, **kwargs
        )
        self._tokenizer = tokenizer
        self._token_indexers = token_indexers

    def _read(self, file_path: Any) -> Iterable[Instance]:
        with open(cached_path(file_path), encoding="utf-8") as lines:
            for number, line in self.shard_iterable(enumerate(lines, start=1)):
                if not line.strip():
                    continue
                label, tab, text = line.rstrip("\n").partition("\t")
                if not tab:
                    raise ConfigurationError(
                        f"{file_path}, line {number}: expected a label, a tab and a text, got "
                        f"{line[:60]!r}."
                    )
                yield self.text_to_instance(text, label)

    def text_to_instance(  # type: ignore[override]
        self, text: str, label: Optional[str] = None
    ) -> Instance:
        """The instance of a text, and of its label if that is known."""
        fields: dict[str, Field] = {"tokens": TextField(self._tokenizer.tokenize(text))}
        if label is not None:
            fields["label"] = LabelField(label)
        return Instance(fields)

    def apply_token_indexers(self, instance: Instance) -> None:
        """Sets the indexers of a text that was read in another process."""
        instance["tokens"].token_indexers = self._token_indexers  # type: ignore[attr-defined]
