"""What a run is scored by: the package's own tasks, and BM25 where they are of retrieval."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.study.lines import packed
from declutr.system.files import write_whole

_STS_B = "STS-B 2012"
_PROBING = {
    "length": ("sentence_length", 30),
    "bigram shift": ("bigram_shift", 30),
    "tense": ("past_present", 2),
}
"""Surrogates of SentEval's probing tasks by name: the file, and n of "every nth sentence"."""
RESAMPLES = 200
"""The bootstrap samples of test items that each line keeps, for intervals of differences."""


def tasks_of(names: Sequence[str], data: Path, held_out: Path, work: Path) -> list[Any]:
    """Return the tasks with these names; classifiers are scikit-learn's, in few folds.

    "STS-B 2012" has the pairs of all files of `STSBenchmark-2012subset`, whose test file alone is
    too small; those of `_PROBING` are cut to every nth sentence. Nothing is chosen by any of them.
    """
    from declutr.evaluation.suite import all_tasks, chosen
    from declutr.evaluation.task import PROTOTYPING

    protocol = replace(PROTOTYPING, classifier="sklearn", regressor=False)
    patterns = [str(_written(name, data, work)) if name in _WRITERS else name for name in names]
    return chosen(all_tasks(data, protocol, held_out), patterns, protocol)


@cache
def _written(name: str, data: Path, work: Path) -> Path:
    """Write a task that is not the evaluator's own, once a process, and return its folder."""
    folder = work / "tasks" / name
    folder.mkdir(parents=True, exist_ok=True)
    _WRITERS[name](data, folder)
    return folder


def _write_sts_b(data: Path, folder: Path) -> None:
    """Write the pairs of all files as one task of the evaluator."""
    lines = ["score\tsentence1\tsentence2"]
    for name in ("train", "dev", "test"):
        file = data / "downstream" / "STS" / "STSBenchmark-2012subset" / f"sts-{name}.csv"
        for line in file.read_text(encoding="utf-8").split("\n"):
            if line.strip():
                lines.append("\t".join(line.rstrip("\r").split("\t")[4:7]))
    write_whole(folder / "pairs.tsv", "\n".join(lines) + "\n")
    write_whole(folder / "task.json", json.dumps({"type": "sts", "file": "pairs.tsv"}))


def _write_probing(data: Path, folder: Path) -> None:
    """Write every nth sentence of a probing file as one task of the evaluator."""
    name, every = _PROBING[folder.name]
    text = (data / "probing_surrogate" / f"{name}.txt").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.split("\n") if line.strip()]
    task = {"type": "classification"}
    for part, mark in (("train", "tr"), ("dev", "va"), ("test", "te")):
        lines = [f"{label}\t{text}" for of, label, text in rows if of == mark][::every]
        write_whole(folder / f"{part}.tsv", "\n".join(["label\ttext", *lines]) + "\n")
        task[part] = f"{part}.tsv"
    write_whole(folder / "task.json", json.dumps(task))


_WRITERS = dict.fromkeys(_PROBING, _write_probing) | {_STS_B: _write_sts_b}


def scored(spec: str, tasks: Sequence[Any], store: Path | None) -> dict[str, Any]:
    """Score an encoder.

    Args:
        spec: the encoder, as `declutr evaluate-embeddings` takes it.
        tasks: of `tasks_of`.
        store: keeps the embeddings, if they are wanted for other tasks too.

    Returns:
        `scores` by task and name, and `samples`, the main score on bootstrap samples of the items.

    Raises:
        RuntimeError: a task could not be scored.
    """
    from declutr.embedding_store import EmbeddingStore
    from declutr.evaluation.metered_encoder import Meter, stored_rows
    from declutr.evaluation.suite import evaluate
    from declutr.inference.sources import open_encoder

    encoder = open_encoder(spec)
    rows = None if store is None else stored_rows(encoder, EmbeddingStore(store))[0]
    found: dict[str, Any] = {"scores": {}, "samples": {}}
    for result in evaluate(Meter(encoder, rows), tasks):
        if result.error:
            raise RuntimeError(f"{result.task}: {result.error}")
        _add(found, result.task, result.main, result.scores)
    if rows is not None:
        rows.close()
    return found


def scored_by_bm25(tasks: Sequence[Any], data: Path) -> dict[str, Any]:
    """Score BM25 on Cranfield and held-out spans; words are not stemmed, and none is left out."""
    from declutr.evaluation.scores import Score
    from declutr.evaluation.tasks.relevance_sets import read_trec
    from declutr.evaluation.tasks.retrieval import gains, ndcg

    found: dict[str, Any] = {"scores": {}, "samples": {}}
    for task in tasks:
        if task.name == "Cranfield":
            of_task = read_trec(data / "extra" / "cranfield")
            ranked = _ranked_by_bm25(of_task.queries, of_task.documents, 10)
            values = ndcg(gains(ranked, of_task.relevant), of_task.relevant, 10)
        elif task.name == "span retrieval":
            texts = task.sentences()
            half = len(texts) // 2  # queries, then the target of each
            ranked = _ranked_by_bm25(texts[:half], texts[half:], 1)
            values = (ranked[:, 0] == np.arange(half)).astype(float)
        else:
            continue
        _add(found, task.name, task.main, [Score(task.main, "mean", {"value": values})])
    return found


def _ranked_by_bm25(queries: Sequence[str], documents: Sequence[str], depth: int) -> np.ndarray:
    """Return the numbers of the documents found, `(q, depth)`; -1 where there are no more."""
    from declutr.corpus import normalize_whitespace
    from declutr.search.candidates import BM25Candidates

    rows: dict[str, int] = {}
    for row, text in enumerate(documents):
        rows.setdefault(normalize_whitespace(text), row)
    ranked = np.full((len(queries), depth), -1)
    for row, each in enumerate(BM25Candidates(documents).find(queries, None, depth)):
        ranked[row, : len(each.texts)] = [rows[text] for text in each.texts]
    return ranked


def _add(found: dict[str, Any], task: str, main: str, scores: Sequence[Any]) -> None:
    from declutr.evaluation.bootstrap import resampled

    values: Mapping[str, float] = {score.name: round(score.value, 3) for score in scores}
    found["scores"][task] = {main: values[main], **values}  # the main one first
    of_main = [score for score in scores if score.name == main]
    # Equal samples for each encoder, so that differences are of the same items.
    drawn = resampled(of_main, RESAMPLES, zlib.crc32(task.encode()))
    found["samples"][task] = packed(drawn[0])
