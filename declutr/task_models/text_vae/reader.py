"""The DatasetReader "text_lines", which reads texts and adds start and end tokens."""

import logging
from collections.abc import Iterable
from typing import Any, Optional

from allennlp.common.checks import ConfigurationError
from allennlp.common.util import END_SYMBOL, START_SYMBOL
from allennlp.data import DatasetReader, Field, Instance, TokenIndexer, Tokenizer
from allennlp.data.fields import TextField
from allennlp.data.tokenizers import Token

from declutr.corpus.documents import SourceError, normalize_whitespace, read_documents
from declutr.corpus.source_files import source_files
from declutr.data.numbered_texts import NumberedTextsReader
from declutr.system import raised_as

logger = logging.getLogger(__name__)

LONGER = ("cut", "leave_out")


@DatasetReader.register("text_lines")
class TextLinesReader(NumberedTextsReader):
    """A reader of texts from text files (one per line), JSON lines, CSV, TSV or parquet.

    Files may be compressed. Blank rows are left out. The fields of an instance are `tokens` `(L,)`,
    the text between `@start@` and `@end@`, and with `with_ids`, `ids` (int64), the number of the
    row.

    The Penn Treebank of Bowman et al. (2016) has one sentence a line. Yelp and Yahoo of Yang et al.
    (2017), as in the code of He et al. (2019), have `label<TAB>text` on a line: set `labelled`. For
    unknown words of a corpus, such as `<unk>`, set `oov_token` of the vocabulary.

    # Parameters

    tokenizer, token_indexers : any tokenizer of AllenNLP with its indexers; the default is white
        space and single ids.
    max_tokens : the largest number of tokens of a text, without start and end.
    longer : what is done with a longer text of a file: `"cut"`, or `"leave_out"`, as the public
        codes do.
    labelled : whether each row is a label, a tab and the text; the label is not used.
    text_key : the field or column of the text in JSON lines, CSV, TSV and parquet.
    with_ids : whether instances have the field `ids`.
    encoding_errors : `"strict"` or `"replace"`, for text that is not UTF-8.
    max_instances, serialization_dir : as of AllenNLP's readers.

    # Raises

    `ConfigurationError` : `max_tokens` is below 1, `longer` is unknown, or data cannot be read.
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
        longer: str = "cut",
        labelled: bool = False,
    ) -> None:
        super().__init__(tokenizer, token_indexers, with_ids, max_instances, serialization_dir)
        if max_tokens is not None and max_tokens < 1:
            raise ConfigurationError(f"max_tokens must be at least 1, got {max_tokens}.")
        if longer not in LONGER:
            raise ConfigurationError(f"longer is '{longer}': expected {' or '.join(LONGER)}.")
        self._max_tokens, self._longer, self._labelled = max_tokens, longer, labelled
        self._text_key = text_key
        self._encoding_errors = encoding_errors

    def _read(self, file_path: Any) -> Iterable[Instance]:
        left_out = 0
        for number, text in self.shard_iterable(self._rows(file_path)):
            tokens = self._tokenizer.tokenize(text)
            longest = self._max_tokens if self._longer == "leave_out" else None
            if longest is not None and len(tokens) > longest:
                left_out += 1
                continue
            yield self._instance(tokens, number)
        if left_out:
            logger.info(f"{file_path}: {left_out} text(s) of over {longest} tokens left out.")

    def _rows(self, path: Any) -> Iterable[tuple[int, str]]:
        """Yield the number and text of each row that is not blank."""
        rows = used = 0
        with raised_as(ConfigurationError, SourceError):
            texts = read_documents(source_files(path), self._text_key, self._encoding_errors)
            for rows, text in enumerate(texts, start=1):
                if self._labelled and text.strip():
                    _, tab, text = text.partition("\t")
                    if not tab:
                        raise ConfigurationError(
                            f"{path}: row {rows} has no tab. With labelled, each row is a label, a "
                            "tab and a text."
                        )
                text = normalize_whitespace(text)
                if text:
                    used += 1
                    yield rows - 1, text
        if not used:
            raise ConfigurationError(f"{path}: no texts among {rows} row(s). Expected one a line.")

    def text_to_instance(self, text: str, id: Optional[int] = None) -> Instance:  # type: ignore[override]
        """Return the instance of a text; without an id it has no field `ids`."""
        return self._instance(self._tokenizer.tokenize(normalize_whitespace(text)), id)

    def _instance(self, tokens: list[Token], id: Optional[int]) -> Instance:
        whole = [Token(START_SYMBOL), *tokens[: self._max_tokens], Token(END_SYMBOL)]
        fields: dict[str, Field] = {"tokens": TextField(whole)}
        return Instance({**fields, **self.numbered(id)})
