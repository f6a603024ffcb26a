"""The DatasetReader "text_lines", which reads texts and adds start and end tokens."""

from collections.abc import Iterable
from typing import Any, Optional

from allennlp.common.checks import ConfigurationError
from allennlp.common.util import END_SYMBOL, START_SYMBOL
from allennlp.data import DatasetReader, Field, Instance, TokenIndexer, Tokenizer
from allennlp.data.fields import TextField
from allennlp.data.tokenizers import Token

from declutr.corpus.documents import SourceError, normalize_whitespace, read_documents, source_files
from declutr.data.numbered_texts import NumberedTextsReader
from declutr.system import raised_as


@DatasetReader.register("text_lines")
class TextLinesReader(NumberedTextsReader):
    """A reader of texts from text files (one per line), JSON lines, CSV, TSV or parquet.

    Files may be compressed. Blank rows are left out. The fields of an instance are `tokens` `(L,)`,
    the text between `@start@` and `@end@`, and with `with_ids`, `ids` (int64), the number of the
    row.

    # Parameters

    tokenizer, token_indexers : any tokenizer of AllenNLP with its indexers; the default is white
        space and single ids.
    max_tokens : the largest number of tokens of a text, without start and end; the rest is cut.
    text_key : the field or column of the text in JSON lines, CSV, TSV and parquet.
    with_ids : whether instances have the field `ids`.
    encoding_errors : `"strict"` or `"replace"`, for text that is not UTF-8.
    max_instances, serialization_dir : as of AllenNLP's readers.

    # Raises

    `ConfigurationError` : `max_tokens` is below 1, or data cannot be read.
    """

    def __init__(
        self,
        tokenizer: Optional[Tokenizer] = None,
        token_indexers: Optional[dict[str, TokenIndexer]] = None,
        max_tokens: Optional[int] = None,
        text_key: str = "text",
        with_ids: bool = False,
        encoding_errors: str = "strict",
        max_instances: Optional[int] = None,
        serialization_dir: Optional[str] = None,
    ) -> None:
        super().__init__(tokenizer, token_indexers, with_ids, max_instances, serialization_dir)
        if max_tokens is not None and max_tokens < 1:
            raise ConfigurationError(f"max_tokens must be at least 1, got {max_tokens}.")
        self._max_tokens = max_tokens
        self._text_key = text_key
        self._encoding_errors = encoding_errors

    def _read(self, file_path: Any) -> Iterable[Instance]:
        for number, text in self.shard_iterable(self._rows(file_path)):
            yield self.text_to_instance(text, number)

    def _rows(self, path: Any) -> Iterable[tuple[int, str]]:
        """Yield the number and text of each row that is not blank."""
        rows = used = 0
        with raised_as(ConfigurationError, SourceError):
            texts = read_documents(source_files(path), self._text_key, self._encoding_errors)
            for rows, text in enumerate(texts, start=1):
                text = normalize_whitespace(text)
                if text:
                    used += 1
                    yield rows - 1, text
        if not used:
            raise ConfigurationError(f"{path}: no texts among {rows} row(s). Expected one a line.")

    def text_to_instance(self, text: str, id: Optional[int] = None) -> Instance:  # type: ignore[override]
        """Return the instance of a text; without an id it has no field `ids`."""
        tokens = self._tokenizer.tokenize(normalize_whitespace(text))[: self._max_tokens]
        whole = [Token(START_SYMBOL), *tokens, Token(END_SYMBOL)]
        fields: dict[str, Field] = {"tokens": TextField(whole)}
        return Instance({**fields, **self.numbered(id)})
