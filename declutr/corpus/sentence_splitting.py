"""Sentence splitting: documents to sentences, one per line, by spaCy's rules for a language."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm.auto import tqdm

from declutr.corpus import normalize_whitespace, without_surrogates
from declutr.corpus.compressed_files import is_compressed
from declutr.corpus.documents import SourceError, file_format, read_documents
from declutr.corpus.text_inputs import no_text, require_rows, text_blocks
from declutr.system import local_path
from declutr.system.files import write_whole
from declutr.system.worker_processes import default_workers, ordered_map

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc

_PARAGRAPHS = re.compile(r"\n\s*\n")
# A batch for one call of the splitter is full at either limit.
_BATCH_DOCUMENTS = 256
_BATCH_CHARACTERS = 1 << 18


class SentenceSplitter:
    """A splitter of texts into sentences, each with single spaces and none at its ends.

    It uses spaCy's tokenizer for the language, which knows its abbreviations, and the rule-based
    `sentencizer`, so no model is needed. A sentence ends with a full stop or the like, and with its
    paragraph. Brackets and quotes that open after the full stop begin the next sentence.

    # Parameters

    language : spaCy's code, such as `en`, `de`, or `xx` for any language.
    min_words : sentences of fewer words (separated by spaces) are left out.

    # Raises

    `ValueError` : if spaCy is not installed, does not know the language or needs a package for it,
        or if `min_words` is below 1.
    """

    def __init__(self, language: str = "en", min_words: int = 1) -> None:
        if min_words < 1:
            raise ValueError(f"Sentences have at least 1 word, got a minimum of {min_words}.")
        self._nlp = _pipeline(language)
        self._min_words = min_words

    def __call__(self, text: str) -> list[str]:
        """Return the sentences of one text."""
        return self.split([text])[0][0]

    def split(self, texts: Iterable[str]) -> tuple[list[list[str]], int]:
        """Return the sentences of each text, and the number of sentences left out as too short.

        # Raises

        `TypeError` : if `texts` is a single string, or one of them is not a string.
        """
        require_rows(texts)
        kept: list[list[str]] = []
        short = 0
        with self._nlp.memory_zone():  # Otherwise, spaCy keeps every word it has seen in memory.
            for text in texts:
                if not isinstance(text, str):
                    raise no_text(text, len(kept))
                paragraphs = map(normalize_whitespace, _PARAGRAPHS.split(without_surrogates(text)))
                sentences = [
                    sentence
                    for paragraph in paragraphs
                    if paragraph  # spaCy raises for the sentences of an empty text.
                    for sentence in _sentences(self._nlp(paragraph))
                ]
                kept.append([one for one in sentences if len(one.split()) >= self._min_words])
                short += len(sentences) - len(kept[-1])
        return kept, short


@dataclass
class SplitCounts:
    """Counts of the documents and sentences of a corpus that was split."""

    documents: int = 0
    """Documents with at least one sentence."""
    without: int = 0
    """Documents without sentences: blank ones, and those with short sentences only."""
    sentences: int = 0
    """Sentences written."""
    short: int = 0
    """Sentences left out because they have too few words."""


def split_files(
    files: Sequence[Path],
    output: Path,
    splitter: SentenceSplitter,
    *,
    text_key: str = "text",
    encoding_errors: str = "strict",
    progress: bool = True,
    overwrite: bool = True,
) -> SplitCounts:
    """Write the sentences of documents to a text file, one per line.

    A blank line follows each document; a document without sentences leaves nothing. All cores are
    used (`DECLUTR_WORKERS` sets another number of processes), and memory does not grow with the
    corpus. The file appears whole or not at all.

    # Parameters

    files : from `declutr.corpus.source_files.source_files`, of any format.
    output : the text file to write.
    splitter : splits each document.
    text_key, encoding_errors : as in `declutr.corpus.documents.read_documents`.
    progress : whether to show a progress bar, on a terminal.
    overwrite : whether the output may be there; it is replaced.

    # Returns

    The counts of documents and sentences.

    # Raises

    `SourceError` : if the corpus cannot be read or has no sentence.
    `ValueError` : if `output` is one of the files, may not be replaced, or its name stands for
        another format.
    """
    output = local_path(output)
    _check_output(output, files, overwrite)
    workers = default_workers()
    counts = SplitCounts()
    texts = read_documents(files, text_key, encoding_errors)
    # With `disable=None`, tqdm shows a bar on terminals only, so that logs hold none.
    bar = tqdm(unit=" documents", unit_scale=True, disable=None if progress else True)
    with bar, closing(_split(texts, splitter, workers)) as batches:
        write_whole(output, lambda file: file.writelines(_lines(batches, counts, bar, files)))
    return counts


_Split = tuple[list[list[str]], int]
"""The sentences of each document of a batch, and the number of sentences left out."""


def _split(
    texts: Iterable[str], splitter: SentenceSplitter, workers: int
) -> Generator[_Split, None, None]:
    batches = text_blocks(texts, _BATCH_DOCUMENTS, _BATCH_CHARACTERS)
    first = list(islice(batches, 2))
    if workers == 1 or len(first) < 2:
        yield from map(splitter.split, chain(first, batches))
    else:
        yield from ordered_map(splitter.split, chain(first, batches), workers)


def _lines(
    batches: Iterable[_Split], counts: SplitCounts, bar: tqdm, files: Sequence[Path]
) -> Iterator[bytes]:
    for documents, short in batches:
        counts.short += short
        for sentences in documents:
            if not sentences:
                counts.without += 1
                continue
            counts.documents += 1
            counts.sentences += len(sentences)
            yield ("\n".join(sentences) + "\n\n").encode("utf-8")
        bar.update(len(documents))
    if not counts.sentences:
        names = ", ".join(str(file) for file in files[:3])
        raise SourceError(
            f"{counts.without} document(s) in {names} gave no sentence ({counts.short} were too "
            "short). Expected at least one; lower the minimum of words, or name other files."
        )


def _check_output(output: Path, files: Sequence[Path], overwrite: bool) -> None:
    if file_format(output) != "text" or is_compressed(output):
        raise ValueError(
            f"Sentences are written as plain text, but '{output.name}' stands for another format. "
            "Expected a name such as sentences.txt."
        )
    if output.is_dir():
        raise ValueError(f"'{output}' is a folder, expected the name of a file.")
    if output.resolve() in {file.resolve() for file in files}:
        raise ValueError(f"'{output}' is one of the documents. Expected another file.")
    if output.exists() and not overwrite:
        raise ValueError(
            f"'{output}' is there. Expected another file; --overwrite replaces what it holds."
        )
    output.parent.mkdir(parents=True, exist_ok=True)


def _pipeline(language: str) -> Language:
    try:
        import spacy
    except ImportError as error:
        raise ValueError(
            "Splitting sentences needs spaCy, which is not installed: pip install 'declutr[spacy]'."
        ) from error
    try:
        pipeline = spacy.blank(language)
    except ImportError as error:  # Also raised if a language needs a package.
        raise ValueError(
            f"spaCy cannot split the language '{language}' ({error}). Expected a code such as en, "
            "de or fr, or xx for any language."
        ) from error
    pipeline.add_pipe("sentencizer")
    pipeline.max_length = 1 << 62  # Characters. The limit protects parsers, which need more memory.
    return pipeline


def _sentences(doc: Doc) -> Iterator[str]:
    starts = [_with_opening(doc, sentence.start) for sentence in doc.sents]
    for start, end in zip(starts, [*starts[1:], len(doc)], strict=True):
        yield doc[start:end].text.strip()


def _with_opening(doc: Doc, start: int) -> int:
    """Return the token where a sentence begins, with the brackets and quotes that open it.

    The sentencizer leaves all punctuation after a full stop to the sentence before. Punctuation
    with a space before it and none after it belongs to the sentence that follows.
    """
    first = start
    while first > 0 and doc[first - 1].is_punct and not doc[first - 1].whitespace_:
        first -= 1
        if first and doc[first - 1].whitespace_:
            return first
    return start
