"""What a run will read: rows kept and skipped, their lengths, spans, steps and tokens a step."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DataLoader, DatasetReader, Vocabulary
from allennlp.data.fields import ListField, TextField

from declutr.corpus.token_store import TokenStore
from declutr.data.data_loader import DeCLUTRDataLoader
from declutr.data.row_reader import RowReader
from declutr.runs.check.batches import BatchTokens, drawn_batches
from declutr.runs.check.lengths import Lengths, lengths_of
from declutr.sampling.token_budget import UNITS

_MOST_COMPARED = 200_000  # rows that are compared with each other
# Loggers that say what is read, and how much of it is left out.
_SAYING = ("declutr.corpus.text_pairs", "declutr.data.pair_rows", "declutr.task_models")


@dataclass
class DataFigures:
    """The rows and batches that a reader and its loader make of the data at a path.

    # Parameters

    path : the data.
    rows : the number of documents, texts or pairs that were read.
    kept : the number of those that are used.
    skipped : the number of rows that are left out, by the reason.
    notes : further facts, such as how many texts are cut.
    lengths : the lengths of all rows in tokens.
    batches : the number of batches of an epoch, in each process.
    tokens : the tokens of the batches that were drawn, in each process.
    spans : the spans of a document, in words; `None` if the reader draws none.
    problem : why training would stop at these data, if it would.
    """

    path: str
    rows: int
    kept: int
    skipped: dict[str, int]
    notes: list[str]
    lengths: Lengths | None
    batches: int = 0
    tokens: list[BatchTokens] = field(default_factory=list)
    spans: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class DataRead:
    """The figures of the data of a run, as its reader gives them.

    # Parameters

    figures : the counts.
    vocabulary : the vocabulary; `None` if the data cannot be used.
    largest : the batch with the most tokens of those that were drawn.
    loader : the data loader, which gives the batches of all processes together.
    """

    figures: DataFigures
    vocabulary: Vocabulary | None
    largest: dict[str, Any]
    loader: Any


def read_data(config: Mapping[str, Any], part: str, processes: int) -> DataRead:
    """Read the data of a run as training would, and count.

    # Parameters

    config : the configuration.
    part : `"train"` or `"validation"`.
    processes : the number of processes that train together.

    # Raises

    `ConfigurationError`, `SourceError`, `OSError` : as training would, if nothing can be counted.
    """
    own = f"{part}_" if part == "validation" else ""
    reader_params = config.get(f"{own}dataset_reader") or config["dataset_reader"]
    loader_params = dict(config.get(f"{own}data_loader") or config["data_loader"])
    path = config[f"{part}_data_path"]
    vocabulary = None
    largest: dict[str, Any] = {}
    with _said() as notes:
        reader = DatasetReader.from_params(_params(reader_params))
        loader = _loader(loader_params, reader, path, processes)
        if isinstance(reader, RowReader) and isinstance(loader, DeCLUTRDataLoader):
            figures = _of_rows(reader, loader, path)
        else:
            figures = _of_instances(loader, path)
        try:
            with suppress(TypeError):  # a loader that does not know
                figures.batches = len(loader)
            if not figures.problem:
                vocabulary = Vocabulary.from_params(
                    _params(config.get("vocabulary") or {}), instances=loader.iter_instances()
                )
                loader.index_with(vocabulary)
                figures.tokens, largest = drawn_batches(loader, processes)
        except ConfigurationError as error:
            figures.problem = str(error)
    figures.notes += notes
    return DataRead(figures, vocabulary, largest, loader)


def _loader(settings: dict[str, Any], reader: DatasetReader, path: Any, processes: int) -> Any:
    """Build a data loader without workers that gives the batches of all processes together."""
    settings.pop("cuda_device", None)  # the trainer gives it its own
    if (settings.get("num_workers") or 0) > 0:
        settings["num_workers"] = 0
    for size in ("batch_size", "max_tokens"):
        if isinstance(settings.get(size), int):
            settings[size] *= processes
    return DataLoader.from_params(_params(settings), reader=reader, data_path=path)


def _of_rows(reader: RowReader, loader: DeCLUTRDataLoader, path: Any) -> DataFigures:
    lengths = np.asarray(reader.corpus(path).num_tokens)
    problem = None
    try:
        used = loader.documents
    except ConfigurationError as error:  # none of them is used
        used, problem = np.empty(0, dtype=np.int64), str(error)
    skipped = np.ones(len(lengths), dtype=bool)
    skipped[used] = False
    reasons = {}
    if loader.subset is not None and not problem:
        usable = reader.documents(path)
        skipped[usable] = False
        reasons["not in the random subset"] = len(usable) - len(used)
    blank = int(np.count_nonzero(skipped & (lengths == 0)))
    others = int(np.count_nonzero(skipped)) - blank
    if blank:
        reasons["blank"] = blank
    if others:
        reasons[_why_skipped(lengths, used, skipped, reader)] = others
    notes = []
    cut = 0 if problem else _num_cut(reader, path, lengths[used])
    if cut:
        notes.append(f"{cut:,} texts are longer than what fits, and are cut.")
    spans, shrunk = _spans_in_words(reader, lengths[used])
    if shrunk:
        notes.append(f"{shrunk:,} documents are short: their spans are shorter, too.")
    notes += _repeated(reader.corpus(path))
    figures = DataFigures(str(path), len(lengths), len(used), reasons, notes, lengths_of(lengths))
    figures.spans, figures.problem = spans, problem
    return figures


def _why_skipped(lengths: np.ndarray, used: np.ndarray, skipped: Any, reader: RowReader) -> str:
    shortest = int(lengths[used].min()) if len(used) else int(lengths.max()) + 1
    if lengths[skipped].max() < shortest:
        sampler: Any = getattr(reader, "_sampler", None)
        least = getattr(sampler, "min_document_len", 0)
        known = least and (not len(used) or least <= shortest)
        return f"shorter than {least if known else shortest:,} tokens"
    if reader.max_instances is not None:
        return "shorter than needed, or after max_instances"
    return "too short, or without a next sentence"


def _num_cut(reader: RowReader, path: Any, lengths: np.ndarray) -> int:
    """Return how many texts are cut; 0 for spans, and for pairs, whose reader says it itself."""
    limit = reader._codec.limit
    spans = getattr(reader, "_sampler", None) is not None
    if limit is None or spans or not isinstance(reader.corpus(path), TokenStore):
        return 0
    return int(np.count_nonzero(lengths > limit))


def _spans_in_words(reader: RowReader, lengths: np.ndarray) -> tuple[str | None, int]:
    """Return the spans that a document gives, and how many documents give shorter ones."""
    sampler: Any = getattr(reader, "_sampler", None)
    if sampler is None or not reader.sample_spans or not len(lengths):
        return None, 0
    mean = reader.expected_tokens().units(lengths).mean() / UNITS
    anchors, positives = sampler.num_anchors, sampler.num_anchors * sampler.num_positives
    words = (
        f"{anchors} anchor(s) and {positives} positive(s) of {sampler.min_span_len} to "
        f"{sampler.max_span_len} tokens, {mean:,.0f} tokens of a document on average"
    )
    return words, int(np.count_nonzero(lengths < sampler.min_document_len))


def _repeated(corpus: Any) -> list[str]:
    """Say how many documents are equal to an earlier one, among the first 200,000."""
    if not isinstance(corpus, TokenStore):  # of pairs, texts in several are expected
        return []
    number = min(len(corpus), _MOST_COMPARED)
    seen = {hash(corpus[row].tobytes()) for row in range(number) if corpus.num_tokens[row]}
    filled = int(np.count_nonzero(corpus.num_tokens[:number]))
    repeated = filled - len(seen)
    among = "" if number == len(corpus) else f" of the first {number:,}"
    if not repeated:
        return []
    return [f"{repeated:,} documents{among} are equal to an earlier one: false negatives."]


def _of_instances(loader: Any, path: Any) -> DataFigures:
    """Count the instances of a loader of any kind, by reading them all as training would."""
    lengths = []
    for instance in loader.iter_instances():
        fields = instance.fields.values()
        lengths.append(sum(_num_tokens(one) for one in fields))
    values = np.array(lengths, dtype=np.int64)
    return DataFigures(str(path), len(values), len(values), {}, [], lengths_of(values))


def _num_tokens(one: Any) -> int:
    if isinstance(one, ListField):
        return sum(_num_tokens(part) for part in one.field_list)
    return one.sequence_length() if isinstance(one, TextField) else 0


def _params(settings: Mapping[str, Any]) -> Params:
    return Params(copy.deepcopy(dict(settings)))


class _Kept(logging.Handler):
    """A handler that keeps the messages of some loggers."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(_SAYING):
            self.messages.append(record.getMessage())


@contextmanager
def _said() -> Iterator[list[str]]:
    """Collect what readers log on the data within this context."""
    logger, handler = logging.getLogger("declutr"), _Kept()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield handler.messages
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
