"""Tests of texts of labelled rows that are augmented in training, by every reader that has them."""

import copy
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance, Vocabulary
from allennlp.data.data_loaders import MultiProcessDataLoader
from allennlp.data.dataset_readers import InterleavingDatasetReader, ShardedDatasetReader
from allennlp.models import archival

import declutr.plugin  # noqa: F401
from declutr.archives.safety.building import untrusted
from declutr.bridge import archives
from declutr.data.augmentations import Augmentation
from declutr.data.data_loader import DeCLUTRDataLoader
from declutr.data.pair_reader import TextPairReader
from declutr.sampling.row_draws import document_rng
from declutr.task_models.glue import GlueReader

ROWS = [(f"ka lo {'mi ' * (n % 5)}tu", f"re {n}", n % 2) for n in range(24)]
SEED = 5


class Numbered(Augmentation):
    """An augmentation that puts random digits after a text, and leaves nothing of some texts."""

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        digits = " ".join(map(str, rng.integers(10, size=8)))
        return "" if text == "re 3" else f"{text} {digits}"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("labelled") / "rows.jsonl"
    keys = "anchor", "positive", "label"
    file.write_text("\n".join(json.dumps(dict(zip(keys, row, strict=True))) for row in ROWS))
    return file


Make = Callable[..., Any]


@pytest.fixture(params=["glue", "text_pairs"])
def make(request: pytest.FixtureRequest, pair: Any) -> Make:
    if request.param == "text_pairs":
        return lambda **more: TextPairReader(*pair, labels="class", seed=SEED, **more)
    columns = {"texts": ["anchor", "positive"], "label": "label", "combine": False}
    return lambda **more: GlueReader(*pair, **columns, seed=SEED, **more)


def ids_of(instance: Instance) -> list[list[int]]:
    """The token ids of both texts of a pair."""
    found = []
    for name, field in instance.fields.items():
        if name not in ("label", "labels"):
            some = field.human_readable_repr()
            found.append([int(i) for i in (some[0] if isinstance(some[0], list) else ids(field))])
    return found


def ids(field: Any) -> list[int]:
    return [token.text_id for token in field.tokens]


def expected(pair: Any, row: int, epoch: int) -> list[list[int]]:
    """By one generator for the row, the first text first."""
    rng = document_rng(SEED, epoch, row)
    made = [Numbered()(text, rng) or text for text in ROWS[row][:2]]
    return [pair[0].tokenizer(text)["input_ids"] for text in made]


def test_texts_are_drawn_by_epoch_and_row(make: Make, pair: Any, file: Path) -> None:
    reader = make(augmentation=Numbered())
    assert reader.draws_anew
    for row, epoch in [(3, 0), (0, 0), (7, 2), (3, 1), (7, 2)]:
        assert ids_of(reader.instance(file, row, epoch)) == expected(pair, row, epoch)
    plain = make()
    assert (
        not plain.draws_anew
        and plain.instance(file, 3).fields.keys() == reader.instance(file, 3).fields.keys()
    )


@pytest.mark.slow
def test_batches_are_the_same_for_any_number_of_workers_and_after_resuming(
    make: Make, file: Path
) -> None:
    def epochs(workers: int, begin: int = 0) -> list[Any]:
        reader = make(augmentation=Numbered())
        loader = DeCLUTRDataLoader(
            reader, str(file), batch_size=5, shuffle=True, num_workers=workers
        )
        vocab = Vocabulary.empty()
        vocab.add_tokens_to_namespace(["0", "1"], "labels")
        loader.index_with(vocab)
        loader.begin_at(begin)
        return [flat(batch) for _ in range(begin, 2) for batch in loader]

    once = epochs(0)
    for other in (epochs(2), epochs(0, begin=1)):
        assert all(map(torch.equal, once[-len(other) :], other))
    half = len(once) // 2
    assert not any(
        a.shape == b.shape and a.equal(b) for a, b in zip(once[:half], once[half:], strict=True)
    )


def flat(batch: Any) -> torch.Tensor:
    if isinstance(batch, dict):
        return torch.cat([flat(value) for _, value in sorted(batch.items())])
    return batch.flatten().long()


def test_validation_must_have_a_reader_of_its_own(make: Make, file: Path, tmp_path: Path) -> None:
    reader, other = make(augmentation=Numbered()), shutil.copy(file, tmp_path / "dev.jsonl")
    reader.instance(file, 0)
    with pytest.raises(
        ConfigurationError, match=r"dev\.jsonl: .* give a validation_dataset_reader"
    ):
        reader.instance(other, 0)
    make().instance(other, 0)


def test_readers_of_archives_leave_texts_as_they_are(make: Make, file: Path) -> None:
    built = []
    token = archives._archived.set(True)
    built.append(make(augmentation=Numbered()))
    with untrusted():
        built.append(make(augmentation=Numbered()))
    archives._archived.reset(token)
    for reader in built:
        assert not reader.draws_anew
        assert ids_of(reader.instance(file, 2)) == ids_of(make().instance(file, 2))


def test_loading_an_archive_says_so_to_its_readers(tmp_path: Path) -> None:
    reader = {"type": "glue", "task": "sst-2", "augmentation": {"type": "span_deletion"}}
    readers = archival._load_dataset_readers(
        Params({"dataset_reader": copy.deepcopy(reader)}), str(tmp_path)
    )
    assert [one.draws_anew for one in readers] == [False, False]
    assert DatasetReader.from_params(Params(reader)).draws_anew


def test_untrusted_readers_refuse(make: Make, file: Path) -> None:
    with untrusted():
        reader = make(augmentation=Numbered())
    with pytest.raises(ConfigurationError, match="opened without trust"):
        reader.instance(file, 0)


def test_predicted_texts_stay(pair: Any) -> None:
    reader = GlueReader(*pair, task="sst-2", augmentation=Numbered())
    assert (
        ids(reader.text_to_instance("ka lo")["tokens"]) == pair[0].tokenizer("ka lo")["input_ids"]
    )


def test_allennlps_loader_gets_one_draw_an_epoch(make: Make, pair: Any, file: Path) -> None:
    reader = make(augmentation=Numbered())
    with pytest.warns(UserWarning, match="drawn once"):
        MultiProcessDataLoader(reader, str(file), batch_size=2)
    for epoch in (1, 2):  # the loader read epoch 0
        found = sorted(ids_of(instance) for instance in reader.read(str(file)))
        assert found == sorted(expected(pair, row, epoch) for row in range(len(ROWS)))


@pytest.mark.parametrize("kind", ["interleaving", "sharded"])
def test_instances_that_are_kept_of_a_reader_inside_are_told(
    kind: str, make: Make, file: Path
) -> None:
    reader = make(augmentation=Numbered())
    around = (
        InterleavingDatasetReader({"one": reader})
        if kind == "interleaving"
        else ShardedDatasetReader(reader)
    )
    path = json.dumps({"one": str(file)}) if kind == "interleaving" else f"{file}*"
    for loader in (MultiProcessDataLoader, DeCLUTRDataLoader):
        with pytest.warns(UserWarning, match="drawn once"):
            loader(around, path, batch_size=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DeCLUTRDataLoader(around, path, batch_size=2, resample=False)
        MultiProcessDataLoader(around, path, batch_size=2, max_instances_in_memory=2)
