"""The loader "declutr" with readers of AllenNLP."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Vocabulary
from allennlp.data.batch import Batch
from allennlp.data.fields import MetadataField
from allennlp.data.tokenizers import WhitespaceTokenizer

from declutr.data import data_loader as of_loader
from declutr.data.data_loader import DeCLUTRDataLoader

COUNT = 11


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    file = tmp_path / "rows.jsonl"
    lines = [{"text": f"word{n} " * (n + 1), "label": "ab"[n % 2]} for n in range(COUNT)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.fixture
def reader() -> DatasetReader:
    return DatasetReader.by_name("text_classification_json")(tokenizer=WhitespaceTokenizer())


def batches(loader: DeCLUTRDataLoader) -> list[Any]:
    loader.index_with(Vocabulary.from_instances(loader.iter_instances()))
    return list(loader)


def test_batches_are_those_of_allennlp(reader: DatasetReader, rows: Path) -> None:
    got = batches(DeCLUTRDataLoader(reader, str(rows), batch_size=4))
    instances = list(reader.read(str(rows)))
    vocabulary = Vocabulary.from_instances(instances)
    assert len(got) == 3
    for number, batch in enumerate(got):
        some = Batch(instances[4 * number : 4 * number + 4])
        some.index_instances(vocabulary)
        expected = some.as_tensor_dict()
        assert torch.equal(batch["label"], expected["label"])
        tokens = batch["tokens"]["tokens"]["tokens"]
        assert torch.equal(tokens, expected["tokens"]["tokens"]["tokens"])


def test_epochs_are_shuffled_anew_and_do_not_depend_on_processes(
    reader: DatasetReader, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def epochs(size: int) -> list[list[str]]:
        loader = DeCLUTRDataLoader(reader, str(rows), batch_size=size, shuffle=True, drop_last=True)
        loader.index_with(Vocabulary.from_instances(loader.iter_instances()))
        return [[str(batch["label"].tolist()) for batch in loader] for _ in range(2)]

    alone = epochs(4)
    assert alone[0] != alone[1]
    monkeypatch.setattr(of_loader, "world_size", lambda: 2)
    shares = []
    for rank in range(2):
        monkeypatch.setattr(of_loader, "process_rank", lambda rank=rank: rank)
        shares.append(epochs(2))
    joined = [
        [str(json.loads(one) + json.loads(two)) for one, two in zip(*epoch, strict=True)]
        for epoch in zip(*shares, strict=True)
    ]
    assert joined == alone


@pytest.mark.slow
def test_a_batch_that_cannot_be_sent_is_an_error(reader: Any, rows: Path, monkeypatch: Any) -> None:
    plain = type(reader).text_to_instance

    def text_to_instance(self: Any, text: str, label: Any = None) -> Any:
        instance = plain(self, text, label)
        instance.add_field("what", MetadataField((lambda: None) if "word5" in text else text))
        return instance

    monkeypatch.setattr(type(reader), "text_to_instance", text_to_instance)
    loader = DeCLUTRDataLoader(reader, str(rows), batch_size=4, num_workers=1)
    loader.index_with(Vocabulary.from_instances(loader.iter_instances()))
    with pytest.raises((AttributeError, pickle.PicklingError), match="pickle"):
        list(loader)
    assert loader._loader is not None
    loader._loader._iterator._shutdown_workers()  # The error holds them, so torch would wait.


@pytest.mark.slow
def test_workers_give_the_same_batches(reader: DatasetReader, rows: Path) -> None:
    alone = batches(DeCLUTRDataLoader(reader, str(rows), batch_size=4, shuffle=True))
    shared = batches(
        DeCLUTRDataLoader(reader, str(rows), batch_size=4, shuffle=True, num_workers=2)
    )
    for one, two in zip(alone, shared, strict=True):
        assert torch.equal(one["label"], two["label"])


def test_a_file_without_instances_is_told(reader: DatasetReader, tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").write_text("")
    loader = DeCLUTRDataLoader(reader, str(tmp_path / "none.jsonl"), batch_size=2)
    with pytest.raises(ConfigurationError, match=r"No instances were read from '.*none\.jsonl'"):
        len(loader)
