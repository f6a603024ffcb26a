"""Training and prediction of several tasks: rows, order, lengths."""

import json
import random
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.data import (
    Batch,
    DatasetReader,
    Instance,
    TextFieldTensors,
    Token,
    Vocabulary,
)
from allennlp.data.data_loaders.multitask_epoch_sampler import WeightedSampler
from allennlp.data.data_loaders.multitask_scheduler import (
    HomogeneousRoundRobinScheduler,
    RoundRobinScheduler,
)
from allennlp.data.dataset_readers import MultiTaskDatasetReader, TextClassificationJsonReader
from allennlp.data.fields import MetadataField, TensorField, TextField
from allennlp.data.token_indexers import SingleIdTokenIndexer
from allennlp.data.tokenizers import WhitespaceTokenizer
from allennlp.models.heads import Head
from allennlp.models.multitask import MultiTaskModel
from allennlp.modules.backbones import Backbone

from declutr.bridge import multitask


def texts() -> TextClassificationJsonReader:
    return TextClassificationJsonReader(tokenizer=WhitespaceTokenizer())


def written(path: Path, rows: int) -> str:
    """Write a file of labelled texts, whose words are their numbers; return its path."""
    lines = (json.dumps({"text": str(row), "label": "x"}) + "\n" for row in range(rows))
    path.write_text("".join(lines))
    return str(path)


@pytest.mark.parametrize("scheduler", [RoundRobinScheduler, HomogeneousRoundRobinScheduler])
def test_the_length_of_several_tasks_is_that_of_an_epoch(
    scheduler: Any, tmp_path: Path, bare: Any
) -> None:
    module = bare("allennlp.data.data_loaders.multitask_data_loader")
    paths = {str(task): written(tmp_path / f"{task}.jsonl", 8) for task in range(3)}

    def lengths(**options: Any) -> tuple[int, int]:
        reader = MultiTaskDatasetReader({task: texts() for task in paths})
        loader = module.MultiTaskDataLoader(reader, paths, scheduler(3), **options)
        loader.index_with(Vocabulary.from_instances(loader.iter_instances()))
        return len(loader), sum(1 for _ in loader)

    weights = {"0": 1, "1": 2, "2": 3}
    given = {"sampler": WeightedSampler(weights), "instances_per_epoch": 13}
    length, batches = lengths(**given)
    assert length > batches
    multitask.batches_of_tasks(module)
    length, batches = lengths(**given)
    assert length == batches
    length, batches = lengths()
    assert length == batches


@pytest.mark.parametrize("in_memory", [None, 2000, 500])
def test_a_task_is_shuffled_as_a_whole(in_memory: int | None, tmp_path: Path, bare: Any) -> None:
    """Batches of 100 of 3,000 rows: the first of AllenNLP's are of the first 1,100 or so."""
    random.seed(0)
    module = bare("allennlp.data.data_loaders.multitask_data_loader")
    reader = MultiTaskDatasetReader({"task": texts()})
    limits = {} if in_memory is None else {"max_instances_in_memory": {"task": in_memory}}
    paths = {"task": written(tmp_path / "rows.jsonl", 3000)}

    def batches(shuffle: bool = True) -> list[list[int]]:
        scheduler = RoundRobinScheduler(100)
        loader = module.MultiTaskDataLoader(reader, paths, scheduler, shuffle=shuffle, **limits)
        epoch = loader.scheduler.batch_instances(loader._get_instances_for_epoch())
        return [[int(row["tokens"].tokens[0].text) for row in batch] for batch in epoch]

    plain = batches()
    assert max(plain[0]) < 1124 and sorted(chain(*plain)) == list(range(3000))
    multitask.shuffled_tasks(module)
    first, *others = batches()
    assert sorted(chain(first, *others)) == list(range(3000))
    pool = {None: 3000, 2000: 2000, 500: 1024}[in_memory]
    assert pool * 0.9 < max(first) < pool + 100
    assert list(chain(*batches(shuffle=False))) == list(range(3000))


class Numbers(Backbone):
    def __init__(self) -> None:
        super().__init__()
        self.unused = torch.nn.Parameter(torch.ones(1))  # the predictor asks for its device

    def forward(self, number: torch.Tensor) -> dict[str, torch.Tensor]:  # type: ignore[override]
        return {"same": number}


class Doubled(Head):
    def forward(self, same: torch.Tensor) -> dict[str, torch.Tensor]:  # type: ignore[override]
        return {"twice": 2 * same}


class OneNumber(DatasetReader):
    def text_to_instance(self, task: str, number: float) -> Instance:  # type: ignore[override]
        fields = {"task": MetadataField(task), "number": TensorField(torch.tensor(number))}
        return Instance(fields)


def test_predictions_of_several_tasks_have_the_order_of_instances(bare: Any) -> None:
    vocab, reader = Vocabulary(), OneNumber()
    model = MultiTaskModel(vocab, Numbers(), {"a": Doubled(vocab), "b": Doubled(vocab)})
    instances = [reader.text_to_instance(task, n) for n, task in enumerate("abbaab")]
    module = bare("allennlp.predictors.multitask")

    def predictions() -> list[float]:
        readers = MultiTaskDatasetReader({"a": OneNumber(), "b": OneNumber()})
        found = module.MultiTaskPredictor(model, readers).predict_batch_instance(instances)
        return [row.get("a_twice", row.get("b_twice")) for row in found]

    assert predictions() == [0, 6, 8, 2, 4, 10]
    multitask.order_of_instances(module)
    assert predictions() == [0, 2, 4, 6, 8, 10]
    instances = []
    assert predictions() == []


class Words(Backbone):
    """The token ids of a text, which heads can also take from the text itself."""

    def forward(self, tokens: TextFieldTensors) -> dict[str, torch.Tensor]:  # type: ignore[override]
        return {"ids": tokens["tokens"]["tokens"]}


class Compared(Head):
    def forward(  # type: ignore[override]
        self, tokens: TextFieldTensors, ids: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        return {"text": tokens["tokens"]["tokens"], "backbone": ids}


def test_each_head_gets_the_texts_of_its_task(bare: Any) -> None:
    """The text of an instance and what the backbone made of it belong to the same rows."""
    fields = [
        {
            "tokens": TextField([Token(f"w{row}")], {"tokens": SingleIdTokenIndexer()}),
            "task": MetadataField(task),
        }
        for row, task in enumerate("bbabab")
    ]
    batch = Batch([Instance(each) for each in fields])
    vocab = Vocabulary.from_instances(batch.instances)
    batch.index_instances(vocab)
    module = bare("allennlp.models.multitask")
    model = module.MultiTaskModel(vocab, Words(), {"a": Compared(vocab), "b": Compared(vocab)})
    with pytest.raises((IndexError, RuntimeError), match="out of range"):
        model(**batch.as_tensor_dict())
    multitask.inputs_of_heads(module)
    inputs = batch.as_tensor_dict()
    found = model(**inputs)
    for task in "ab":
        assert torch.equal(found[f"{task}_text"], found[f"{task}_backbone"])
    assert len(found["a_text"]) == 2 and len(inputs["tokens"]["tokens"]["tokens"]) == 6
