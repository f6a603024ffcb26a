"""What tests of readers and loaders do with batches: make, flatten and compare them."""

import torch
from allennlp.data import Batch, Instance, Vocabulary
from allennlp.data.data_loaders import MultiProcessDataLoader

from declutr.data.data_loader import DeCLUTRDataLoader


def as_tensors(instances: list[Instance], vocab: Vocabulary | None = None) -> dict:
    """Return the batch of these instances as AllenNLP collates it."""
    batch = Batch(instances)
    batch.index_instances(vocab or Vocabulary.empty())
    return batch.as_tensor_dict()


def collated(reader, path, rows, epoch: int = 0) -> dict:
    instances = [reader.instance(path, int(row), epoch) for row in rows]
    for instance in instances:
        reader.apply_token_indexers(instance)
    return as_tensors(instances)


def assert_same(got, expected) -> None:
    """Assert that batches or lists of them are equal: keys in order, shapes, dtypes and values."""
    if isinstance(expected, dict):
        assert list(got) == list(expected)
        got, expected = got.values(), expected.values()
    if isinstance(expected, torch.Tensor):
        assert got.is_contiguous()
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
    else:
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)


def texts(batches) -> list[str]:
    """Return each row of the batches, texts without their padding."""
    found = []
    for batch in batches:
        for row in range(len(batch["anchors"]["tokens"]["token_ids"])):
            one = {}
            for name, field in batch.items():
                if isinstance(field, dict):
                    parts = (field["tokens"][key][row] for key in ("token_ids", "mask"))
                    spans = zip(*(part.reshape(-1, part.shape[-1]) for part in parts), strict=True)
                    one[name] = [ids[mask].tolist() for ids, mask in spans]
                else:
                    one[name] = field[row].item()
            found.append(str(one))
    return found


def num_tokens(batch) -> int:
    return sum(int(one["tokens"]["mask"].sum()) for one in batch.values() if isinstance(one, dict))


def loader_of(reader, path, **changes) -> DeCLUTRDataLoader:
    """Return a loader of shuffled batches of 5 rows, unless told otherwise."""
    options = {"batch_size": 5, "shuffle": True, **changes}
    loader = DeCLUTRDataLoader(reader, str(path), **options)
    loader.index_with(Vocabulary.empty())
    return loader


def allennlp_loader(reader, path, workers: int = 0, **changes) -> MultiProcessDataLoader:
    """Return AllenNLP's own loader of batches of 5 rows, which keeps no instances in memory."""
    options = {"batch_size": 5, "max_instances_in_memory": 8, "quiet": True, **changes}
    loader = MultiProcessDataLoader(reader, str(path), num_workers=workers, **options)
    loader.index_with(Vocabulary.empty())
    return loader


def token_ids(pair, text: str) -> list[int]:
    """Return the ids of a text, special tokens included, by the tokenizer of `pair`."""
    return pair[0].tokenizer(" ".join(text.split()))["input_ids"]


def read_texts(instance, *names: str) -> list[list[list[int]]]:
    """Return the ids of each text of the given fields, or of all fields, of an instance."""
    return [instance[name].human_readable_repr() for name in names or instance.fields]
