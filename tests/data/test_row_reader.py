"""Tests of what the readers have in common; each reader has its own tests as well."""

import copy
import inspect
from pathlib import Path

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.common.from_params import infer_params
from allennlp.data import DatasetReader
from allennlp.data.dataset_readers.dataset_reader import WorkerInfo

from declutr.components import registered_name
from declutr.data.augmented_reader import AugmentedReader
from declutr.data.pair_reader import TextPairReader
from declutr.data.row_reader import EpochCounts, RowReader
from declutr.data.sentence_reader import SentenceReader
from declutr.data.span_reader import DeCLUTRDatasetReader

READERS = [DeCLUTRDatasetReader, SentenceReader, AugmentedReader, TextPairReader]


@pytest.mark.parametrize("reader", READERS)
class TestEveryReader:
    def test_inherits_row_reader_alone_and_overrides_nothing_of_it(self, reader):
        assert reader.__bases__ == (RowReader,)
        shared = {name for name in vars(RowReader) if not name.startswith("__")}
        assert not shared & set(vars(reader))

    def test_takes_the_parameters_of_every_reader(self, reader):
        known = infer_params(reader)
        for name, parameter in inspect.signature(RowReader).parameters.items():
            assert (known[name].annotation, known[name].default) == (
                parameter.annotation,
                parameter.default,
            )

    def test_refuses_unknown_parameters(self, reader):
        config = {"type": registered_name(DatasetReader, reader), "nonsense": 1}
        if reader is AugmentedReader:
            config["augmentation"] = {"type": "eda"}
        with pytest.raises(
            ConfigurationError,
            match=rf"Extra parameters passed to {reader.__name__}: {{'nonsense': 1}}",
        ):
            DatasetReader.from_params(Params(config))


def test_sampling_without_num_anchors_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a b\n")
    reader = DeCLUTRDatasetReader()
    assert not reader.sample_spans and not reader.draws_anew
    reader.sample_spans = True
    with pytest.raises(ConfigurationError, match="has no num_anchors: it cannot sample spans"):
        list(reader.read(tmp_path / "a.txt"))


class TestEpochCounts:
    def test_each_worker_of_each_number_of_workers_has_its_own_count(self):
        counts = EpochCounts()
        workers = [None, *(WorkerInfo(n, i) for n in (1, 2, 3, 256) for i in range(n))]
        for epoch in range(2):
            assert {counts.begin(worker) for worker in workers} == {epoch}
        assert {counts.read(worker) for worker in workers} == {0}

    def test_reading_inside_unchanged_does_not_count(self):
        counts = EpochCounts()
        counts.begin(None), counts.read(None)
        with counts.unchanged():
            assert counts.begin(None) == counts.read(None) == 1
            counts.begin(WorkerInfo(2, 1))
        assert counts.begin(None) == counts.read(None) == 1
        assert counts.begin(WorkerInfo(2, 1)) == 0

    def test_copies_in_other_processes_count_together(self):
        counts = EpochCounts()
        assert all(
            isinstance(value, torch.Tensor) and value.is_shared() for value in vars(counts).values()
        )
        assert copy.deepcopy(counts).begin(None) == 0
