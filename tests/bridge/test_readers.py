"""Several processes and data workers together read every row once, and loaders know how many."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from allennlp.data import DatasetReader
from allennlp.data.dataset_readers import (
    InterleavingDatasetReader,
    ShardedDatasetReader,
    TextClassificationJsonReader,
    dataset_reader,
)
from allennlp.data.dataset_readers.dataset_reader import WorkerInfo
from allennlp.data.tokenizers import WhitespaceTokenizer

from declutr.bridge import readers
from declutr.data.instance_rows import InstanceRows

KINDS = ("plain", "sharded", "interleaving")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for shard in range(3):
        rows = [{"text": f"{shard}.{row}", "label": "x"} for row in range(8)]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{shard}.jsonl").write_text(lines)
    return tmp_path


def texts() -> TextClassificationJsonReader:
    return TextClassificationJsonReader(tokenizer=WhitespaceTokenizer())


def reader_and_path(kind: str, files: Path) -> tuple[DatasetReader, Any]:
    if kind == "sharded":
        return ShardedDatasetReader(texts()), str(files / "*.jsonl")
    if kind == "interleaving":
        named = {str(shard): str(files / f"{shard}.jsonl") for shard in range(3)}
        return InterleavingDatasetReader({name: texts() for name in named}), named
    return texts(), str(files / "0.jsonl")


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that makes this process one of two, or none of several."""

    def be(number: int | None) -> None:
        monkeypatch.setattr(dataset_reader.util, "is_distributed", lambda: number is not None)
        monkeypatch.setattr(dataset_reader.dist, "get_rank", lambda: number)
        monkeypatch.setattr(dataset_reader.dist, "get_world_size", lambda: 2)

    return be


def rows(reader: DatasetReader, path: Any) -> list[str]:
    return [instance["tokens"].tokens[0].text for instance in reader.read(path)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [None, 2])
@pytest.mark.parametrize("spawned", [False, True])
def test_every_row_is_read_once(
    kind: str, workers: int | None, spawned: bool, files: Path, rank: Any
) -> None:
    """Also by workers that are spawned, which belong to no group of processes."""
    rank(None)
    expected = Counter(rows(*reader_and_path(kind, files)))
    assert len(expected) == (8 if kind == "plain" else 24)
    found: Counter[str] = Counter()
    for process in range(2):
        for worker in range(workers or 1):
            rank(process)
            reader, path = reader_and_path(kind, files)
            if workers:
                reader._set_worker_info(WorkerInfo(workers, worker))
            if spawned:
                rank(None)
            found.update(rows(reader, path))
    assert found == expected


@pytest.mark.parametrize("kind", KINDS)
def test_the_loader_that_cuts_batches_itself_has_all_rows(
    kind: str, files: Path, rank: Any
) -> None:
    rank(1)
    reader, path = reader_and_path(kind, files)
    share = rows(reader, path)
    all_rows = 8 if kind == "plain" else 24
    assert len(InstanceRows(reader).documents(path)) == all_rows > len(share)
    assert rows(reader, path) == share  # as before


def test_a_reader_that_is_older_than_the_processes_reads_its_share(files: Path, rank: Any) -> None:
    rank(None)
    reader, path = reader_and_path("plain", files)
    rank(1)
    assert rows(reader, path) == ["0.1", "0.3", "0.5", "0.7"]
    reader.max_instances = 2
    assert rows(reader, path) == ["0.1", "0.3"]


def test_without_the_switches_rows_are_missing_or_repeated(files: Path, bare: Any) -> None:
    module = bare("allennlp.data.dataset_readers.dataset_reader")
    sharding = {"manual_distributed_sharding": True, "manual_multiprocess_sharding": True}
    plain = module.DatasetReader(**sharding)
    plain._set_distributed_info(module.DistributedInfo(2, 1))
    assert list(plain.shard_iterable("abcd")) == ["a", "b", "c", "d"]
    readers.shares_of_processes(module)
    assert list(plain.shard_iterable("abcd")) == ["b", "d"]
    with pytest.raises(ValueError, match="shard_iterable"):
        list(module.DatasetReader().shard_iterable("abcd"))
    module = bare("allennlp.data.dataset_readers.interleaving_dataset_reader")

    def worker_rows() -> list[str]:
        named = {"0": str(files / "0.jsonl")}
        reader = module.InterleavingDatasetReader({"0": texts()})
        reader._set_worker_info(WorkerInfo(2, 0))
        return rows(reader, named)

    with pytest.warns(UserWarning, match="manual_multiprocess_sharding"):
        assert worker_rows() == ["0.0", "0.4"]
    readers.shares_of_parts(module)
    assert worker_rows() == ["0.0", "0.2", "0.4", "0.6"]
