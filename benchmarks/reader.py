"""From text to batches: documents a second of the original way, and of this package."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.results import Plot, record
from benchmarks.texts import (
    checkpoint,
    corpus_file,
    documents_of_tokens,
    documents_of_words,
    write_documents,
)
from benchmarks.timing import Timing, compare, ratio

BATCH = 16
OURS = "declutr"
WORDS = "original: spans of words, AllenNLP fields"
PIECES = "spans of word pieces, decoded, AllenNLP fields"
PLAIN = "spans of word pieces, decoded, no AllenNLP"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", help="text, one document a line (default: docstrings)")
    parser.add_argument(
        "--documents", type=int, help="documents an epoch (default 512; quick 64), of 2,100 tokens"
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="default 1 2")
    parser.add_argument("--rounds", type=int, help="epochs that count (default 5; quick 2)")


def run(args: argparse.Namespace) -> None:
    # One worker is to mean one core; the tokenizer would take all of them otherwise.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    count = args.documents or (64 if args.quick else 512)
    rounds = args.rounds or (2 if args.quick else 5)
    for workers in args.workers:
        if count % (BATCH * max(workers, 1)):
            raise ValueError(
                f"--documents must be a multiple of {BATCH} (the batch size) times the number of "
                f"workers, so that all of them get as much to do; got {count} with {workers}."
            )
    source = corpus_file(args.data)
    folder = checkpoint(source, "distilroberta")
    with tempfile.TemporaryDirectory() as scratch:
        pieces = write_documents(
            documents_of_tokens(source, folder, count), Path(scratch, "pieces.txt")
        )
        words = write_documents(documents_of_words(source, count), Path(scratch, "words.txt"))
        rows = [_first_epoch(folder, pieces, scratch, count)]
        for workers in args.workers:
            rows += _rows(folder, pieces, words, scratch, workers, count, rounds)
    record(
        "reader",
        "From text to batches",
        rows,
        settings={"documents": count, "rounds": rounds, "batch size": BATCH, "data": source.name},
        note="Documents of 2,100 tokens (of words in the first way), 2 anchors and 4 positives of "
        f"32 to 512 each, batches of {BATCH}, padding included. `first epoch` tokenises the corpus "
        "once and for all; the others do so in every epoch.",
        plots=[
            Plot(
                "reader",
                "Documents a second, from text to batches",
                "bars",
                "workers",
                "documents a second",
                series="reader",
                baseline=WORDS,
                logarithmic="y",
            )
        ],
    )


def _rows(
    folder: Path, pieces: Path, words: Path, scratch: str, workers: int, count: int, rounds: int
) -> list[dict[str, Any]]:
    loaders = {
        WORDS: original(folder, words, "words", workers),
        PIECES: original(folder, pieces, "word_pieces", workers),
        PLAIN: plain(folder, pieces, workers),
        OURS: ours(folder, pieces, scratch, workers),
    }
    # A round of each is to last as long, so that all see as much of what else the machine does.
    alone = compare({name: _epochs(loader, 1, count) for name, loader in loaders.items()}, 1)
    longest = max(timing.median for timing in alone)
    times = {timing.name: min(500, max(1, round(longest / timing.median))) for timing in alone}
    timings = compare(
        {name: _epochs(loader, times[name], count) for name, loader in loaders.items()},
        rounds,
        warmup=0,
    )
    a_document = {
        timing.name: Timing(timing.name, [s / (count * times[timing.name]) for s in timing.seconds])
        for timing in timings
    }
    return [
        {
            "reader": name,
            "workers": workers,
            "documents a second": 1 / timing.median,
            "times as long as declutr": str(ratio(timing, a_document[OURS])),
        }
        for name, timing in a_document.items()
    ]


def _epochs(loader: Iterable[Any], times: int, count: int) -> Callable[[], None]:
    def iterate() -> None:
        for _ in range(times):
            batches = sum(1 for _ in loader)
            if batches * BATCH != count:
                raise RuntimeError(f"expected {count // BATCH} batches, got {batches}.")

    return iterate


def original(folder: Path, documents: Path, units: str, workers: int) -> Iterable[Any]:
    """Batches of the original reader by AllenNLP's loader."""
    from allennlp.data import Vocabulary
    from allennlp.data.data_loaders import MultiProcessDataLoader

    from benchmarks.reference_reader import ReferenceReader

    loader = MultiProcessDataLoader(
        ReferenceReader(str(folder), units),
        str(documents),
        batch_size=BATCH,
        num_workers=workers,
        max_instances_in_memory=4 * BATCH,
        quiet=True,
    )
    loader.index_with(Vocabulary.empty())
    return loader


def plain(folder: Path, documents: Path, workers: int) -> Iterable[Any]:
    """The same, without AllenNLP."""
    from torch.utils.data import DataLoader
    from transformers import AutoTokenizer

    from benchmarks.reference_reader import PlainSpans

    spans = PlainSpans(documents, AutoTokenizer.from_pretrained(folder))
    return DataLoader(
        spans,
        batch_size=BATCH,
        shuffle=True,
        collate_fn=spans.collate,
        num_workers=workers,
        persistent_workers=workers > 0,
    )


def ours(folder: Path, documents: Path, cache: str, workers: int) -> Iterable[Any]:
    """Batches of this package, by its public interfaces."""
    from allennlp.common import Params
    from allennlp.data import DatasetReader, Vocabulary

    from declutr.data.data_loader import DeCLUTRDataLoader

    transformer = {"type": "pretrained_transformer", "model_name": str(folder)}
    reader = DatasetReader.from_params(
        Params(
            {
                "type": "declutr",
                "num_anchors": 2,
                "num_positives": 2,
                "max_span_len": 512,
                "min_span_len": 32,
                "tokenizer": {**transformer},
                "token_indexers": {"tokens": {**transformer}},
                "cache_dir": cache,
            }
        )
    )
    loader = DeCLUTRDataLoader(
        reader, str(documents), batch_size=BATCH, shuffle=True, num_workers=workers, drop_last=True
    )
    loader.index_with(Vocabulary.empty())
    return loader


def _first_epoch(folder: Path, documents: Path, cache: str, count: int) -> dict[str, Any]:
    loader = ours(folder, documents, cache, 0)
    start = time.perf_counter()
    _epochs(loader, 1, count)()
    seconds = time.perf_counter() - start
    return {
        "reader": f"{OURS}, first epoch",
        "workers": 0,
        "documents a second": count / seconds,
        "times as long as declutr": "",
    }
