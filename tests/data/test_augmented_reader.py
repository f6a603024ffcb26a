"""Tests of the reader "augmented".

The oracles are the augmentation called with `document_rng`, followed by the tokenizer. What it
shares with the other readers is tested in test_row_reader.py.
"""

import json
import logging
import pickle
import shutil
import sys
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from allennlp.commands.train import train_model
from allennlp.common import Params, cached_transformers
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader

import declutr.plugin  # noqa: F401
from declutr.archives.safety import UnsafeArchive, safely_loaded_archive
from declutr.archives.safety.building import untrusted
from declutr.corpus.documents import SourceError
from declutr.data.augmentations import Augmentation
from declutr.data.augmented_reader import AugmentedReader, RowTexts
from declutr.data.word_edits import EasyDataAugmentation
from declutr.inference.encoder import Encoder
from declutr.sampling.row_draws import document_rng
from tests import hostile_archives as hostile
from tests.conftest import run_config
from tests.data.batches import assert_same, collated, loader_of, read_texts, texts, token_ids

ROWS = ["ka lo mi tu re", "", "  sa \t no   ve", "pi", " ", "du ka lo mi sa no ve pi"]
USED = [0, 2, 3, 5]
SEED = 13370


class Doubled(Augmentation):
    """An augmentation that records its texts and repeats each text twice."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        self.given.append(text)
        return f"{text} {text}"


class Numbered(Augmentation):
    """An augmentation that returns words of random digits, so that no two draws are alike."""

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        return " ".join(map(str, rng.integers(10, size=12)))


class Emptied(Augmentation):
    """An augmentation that returns a blank text for texts of one or three words."""

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        return " \n " if len(text.split()) in (1, 3) else f"{text} ka"


@pytest.fixture(scope="module")
def rows_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("rows") / "rows.txt"
    file.write_text("\n".join(ROWS) + "\n")
    return file


@pytest.fixture(scope="module")
def many_file(tmp_path_factory, documents):
    """Write 47 texts of 3 to 60 words, with a blank row after each fourth one."""
    words = " ".join(documents).split()
    rng = np.random.default_rng(0)
    rows = []
    for number in range(47):
        rows += [" ".join(rng.choice(words, rng.integers(3, 60)))] + [""] * (number % 4 == 3)
    file = tmp_path_factory.mktemp("many") / "rows.txt"
    file.write_text("\n".join(rows) + "\n")
    return file


@pytest.fixture(scope="module")
def synonyms(tmp_path_factory, documents) -> Path:
    """Write a file with a synonym for each word of the documents."""
    file = tmp_path_factory.mktemp("synonyms") / "synonyms.tsv"
    words = sorted(set(" ".join(documents).split()) | set(" ".join(ROWS).split()))
    file.write_text("".join(f"{word}\t{word}x {word}y\n" for word in words))
    return file


@pytest.fixture
def make(pair, synonyms):
    def make(augmentation=None, **changes) -> AugmentedReader:
        augmentation = augmentation or EasyDataAugmentation(synonyms=str(synonyms))
        return AugmentedReader(augmentation, *pair, **changes)

    return make


def read(instance) -> tuple[list[int], list[int]]:
    """Return the ids of the anchor and of the positive of an instance."""
    (anchor,), (positive,) = read_texts(instance, "anchors", "positives")
    return anchor, positive


class TestRowTexts:
    def test_texts_are_returned_unchanged(self):
        rows = [*ROWS, "Übergrößen – 测试 🙂\u200d", "\ud800 alone", ""]
        texts = RowTexts(iter(rows))
        assert len(texts) == len(rows)
        assert [texts[row] for row in range(len(rows))] == rows
        sent = pickle.loads(pickle.dumps(texts))
        assert [sent[row] for row in range(len(rows))] == rows


class TestInstances:
    @pytest.mark.parametrize("kind", ["txt", "jsonl", "parquet"])
    def test_the_original_text_is_augmented(self, make, pair, tmp_path, kind):
        file = tmp_path / f"rows.{kind}"
        if kind == "txt":
            file.write_text("\n".join(ROWS) + "\n")
        elif kind == "jsonl":
            file.write_text("".join(json.dumps({"body": row}) + "\n" for row in ROWS))
        else:
            pandas = pytest.importorskip("pandas")
            pytest.importorskip("pyarrow")
            pandas.DataFrame({"body": ROWS}).to_parquet(file)
        augmentation = Doubled()
        reader = make(augmentation, text_key="body")
        assert reader.documents(file).tolist() == USED
        assert augmentation.given == []  # Reading augments nothing.
        for row in USED:
            expected = token_ids(pair, ROWS[row]), token_ids(pair, f"{ROWS[row]} {ROWS[row]}")
            assert read(reader.instance(file, row)) == expected
        assert augmentation.given == [ROWS[row] for row in USED]  # White space is as in the row.

    def test_draws_depend_on_seed_epoch_and_row(self, make, pair, rows_file, synonyms):
        reader = make(seed=7)
        augment = EasyDataAugmentation(synonyms=str(synonyms))
        for epoch in (0, 3):
            for row in USED:
                augmented = augment(ROWS[row], document_rng(7, epoch, row))
                expected = token_ids(pair, ROWS[row]), token_ids(pair, augmented)
                assert read(reader.instance(rows_file, row, epoch)) == expected

    def test_both_views(self, make, pair, rows_file):
        """The positive is the same as without `both`; the anchor is drawn after it."""
        one, both = make(Numbered()), make(Numbered(), both=True)
        rng = document_rng(SEED, 2, 5)
        positive, anchor = (token_ids(pair, Numbered()("", rng)) for _ in range(2))
        assert anchor != positive
        assert read(both.instance(rows_file, 5, 2)) == (anchor, positive)
        assert read(one.instance(rows_file, 5, 2)) == (token_ids(pair, ROWS[5]), positive)

    def test_resample_draws_anew_in_every_epoch(self, make, rows_file):
        def epochs(reader) -> list[str]:
            return [str(read(reader.instance(rows_file, 5, epoch))) for epoch in range(3)]

        anew, fixed = make(Numbered()), make(Numbered(), resample=False)
        assert len(set(epochs(anew))) == 3 and anew.draws_anew
        assert set(epochs(fixed)) == {epochs(anew)[0]} and not fixed.draws_anew
        assert epochs(make(Numbered(), seed=1)) != epochs(anew)

    def test_a_blank_augmentation_leaves_the_text(self, make, pair, rows_file, caplog):
        reader = make(Emptied())
        with caplog.at_level(logging.WARNING, logger="declutr.data.augmented_reader"):
            for _ in range(2):
                batch = reader.packed(rows_file, USED).tensors()
                assert_same(batch, collated(reader, rows_file, USED))
        expected = [f"{ROWS[0]} ka", ROWS[2], ROWS[3], f"{ROWS[5]} ka"]
        positives = [{"anchors": batch["positives"]}]
        assert texts(positives) == [str({"anchors": [token_ids(pair, text)]}) for text in expected]
        assert reader.blank_augmentations == 8
        assert caplog.text.count("left nothing of a text, which is taken as it is") == 1

    def test_blank_augmentations_of_both_views(self, make, pair, rows_file):
        reader = make(Emptied(), both=True)
        assert read(reader.instance(rows_file, 3)) == (token_ids(pair, ROWS[3]),) * 2
        assert reader.blank_augmentations == 2

    def test_blank_and_short_rows_are_left_out(self, make, pair, rows_file):
        lengths = [len(token_ids(pair, row)) - 2 for row in ROWS]
        least = sorted(lengths)[-2]
        expected = [row for row in range(6) if lengths[row] >= least]
        assert make(min_document_len=least).documents(rows_file).tolist() == expected
        with pytest.raises(ConfigurationError, match=r"0 of 6 rows have at least 99 token\(s\)"):
            make(min_document_len=99).documents(rows_file)
        with pytest.raises(ConfigurationError, match="at least 1 token, got 0"):
            make(min_document_len=0)

    def test_a_text_without_a_row(self, make, pair, rows_file):
        reader = make(Numbered())
        mine = reader.text_to_instance(ROWS[5], row=5, epoch=4)
        assert read(mine) == read(reader.instance(rows_file, 5, 4))
        made = [read(reader.text_to_instance(text))[1] for text in [*ROWS[2:4], ROWS[2]]]
        assert len(set(map(str, made))) == 3  # Another text or another call draws anew.
        again = make(Numbered())
        assert [read(again.text_to_instance(ROWS[n]))[1] for n in (3, 2, 2)] == [
            made[n] for n in (1, 0, 2)
        ]
        fixed = make(Numbered(), resample=False)
        assert read(fixed.text_to_instance("ka")) == read(fixed.text_to_instance("ka"))

    def test_a_corpus_that_changes_while_it_is_read_is_refused(self, make, tmp_path):
        file = tmp_path / "rows.txt"
        file.write_text("ka lo\nmi\n")
        reader = make()
        reader.corpus(file)
        file.write_text("ka lo\n")
        with pytest.raises(SourceError, match=r"1 rows, but 2 were tokenised: it changed while"):
            reader.documents(file)


class TestLoader:
    @pytest.mark.slow
    def test_workers_inherit_the_texts_and_count_together(self, make, many_file, monkeypatch):
        reader = make(Emptied())
        busy = loader_of(reader, many_file, num_workers=2)
        len(busy)
        monkeypatch.setattr("declutr.data.document_rows.read_documents", None)
        blank = sum(len(reader.texts(busy.data_path)[row].split()) in (1, 3) for row in range(58))
        assert blank > 0 and len(list(busy)) == 10
        assert 1 <= reader.blank_augmentations <= blank

    def test_validation_repeats_the_first_epoch(self, make, many_file):
        batches = loader_of(make(), many_file, resample=False, shuffle=False)
        assert_same(list(batches), list(batches))

    def test_whole_rows_are_neither_augmented_nor_kept(self, make, rows_file):
        augmentation = Doubled()
        reader = make(augmentation)
        with reader.no_sample():
            list(reader.read(rows_file))
            list(loader_of(reader, rows_file))
        assert augmentation.given == [] and "_kept_texts" not in vars(reader._training.source)


class TestSettings:
    def test_from_params(self, checkpoint, rows_file, synonyms):
        transformer = {"type": "pretrained_transformer", "model_name": str(checkpoint)}
        params = {
            "type": "augmented",
            "augmentation": {"type": "eda", "synonyms": str(synonyms), "swap": 0.3},
            "both": True,
            "min_document_len": 2,
            "resample": False,
            "seed": 3,
            "max_instances": 2,
            "with_ids": True,
            "tokenizer": transformer,
            "token_indexers": {"tokens": dict(transformer)},
        }
        reader = DatasetReader.from_params(Params(deepcopy(params)))
        assert isinstance(reader, AugmentedReader)
        expected = AugmentedReader(
            EasyDataAugmentation(synonyms=str(synonyms), swap=0.3),
            reader._tokenizer,
            reader._token_indexers,
            both=True,
            seed=3,
            with_ids=True,
        )
        assert reader.documents(rows_file).tolist() == [0, 2]
        assert_same(collated(reader, rows_file, [0, 2], 9), collated(expected, rows_file, [0, 2]))
        twin = pickle.loads(pickle.dumps(reader))  # A spawned worker gets a copy of a used reader.
        assert_same(twin.packed(rows_file, [2]).tensors(), reader.packed(rows_file, [2]).tensors())

    def test_it_needs_an_augmentation(self):
        with pytest.raises(ConfigurationError, match='key "augmentation" is required'):
            DatasetReader.from_params(Params({"type": "augmented"}))

    def test_an_untrusted_reader_does_not_augment(self, pair, rows_file):
        augmentation = Doubled()
        with untrusted():
            reader = AugmentedReader(augmentation, *pair)
        reader = pickle.loads(pickle.dumps(reader))
        reader._training.augmentation = augmentation
        message = "of an archive that was opened without trust.*open it with trust=True"
        for use in (
            lambda: reader.instance(rows_file, 0),
            lambda: reader.packed(rows_file, [0]),
            lambda: reader.text_to_instance("ka"),
            lambda: list(reader.read(rows_file)),
        ):
            with pytest.raises(ConfigurationError, match=message):
                use()
        assert augmentation.given == []
        with reader.no_sample():
            assert len(list(reader.read(rows_file))) == 6


MODULE = "def turned(text):\n    return ' '.join(reversed(text.split()))\n"
AUGMENTATIONS = {
    "eda": {"type": "eda"},
    "callable": {"type": "callable", "function": "own_turning:turned"},
}


@pytest.fixture(scope="module", params=sorted(AUGMENTATIONS))
def archive(request, tmp_path_factory, checkpoint, synonyms, many_file) -> Path:
    """Archive a model trained on augmented texts, whose file and module are then removed."""
    folder = tmp_path_factory.mktemp(f"augmented_{request.param}")
    augmentation = dict(AUGMENTATIONS[request.param])
    if request.param == "eda":
        augmentation["synonyms"] = str(shutil.copy(synonyms, folder / "synonyms.tsv"))
    (folder / "own_turning.py").write_text(MODULE)
    shutil.copytree(checkpoint, folder / "checkpoint")
    config = run_config(folder / "checkpoint", many_file)
    config["dataset_reader"] = {
        "type": "augmented",
        "augmentation": augmentation,
        **{key: config["dataset_reader"][key] for key in ("tokenizer", "token_indexers")},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        train_model(Params(config), str(folder / "run"))
    sys.modules.pop("own_turning", None)
    (folder / "own_turning.py").unlink()
    (folder / "synonyms.tsv").unlink(missing_ok=True)
    shutil.rmtree(folder / "checkpoint")
    cached_transformers._clear_caches()
    return folder / "run" / "model.tar.gz"


class TestArchives:
    @pytest.mark.slow
    def test_untrusted_archives_open_elsewhere(self, archive):
        rows = ["ka lo", "", "mi tu re"]
        embeddings = Encoder(str(archive), dtype="float32")(rows)
        assert embeddings.shape[0] == 3 and np.isfinite(embeddings).all()
        assert "own_turning" not in sys.modules
        trusted = Encoder(str(archive), dtype="float32", trust=True)(rows)
        np.testing.assert_array_equal(embeddings, trusted)

    @pytest.mark.slow
    def test_only_trusted_archives_augment(self, archive, many_file):
        with pytest.raises(ConfigurationError, match="opened without trust"):
            next(iter(safely_loaded_archive(archive).dataset_reader.read(many_file)))
        # With trust, the reader looks for the removed file or module, and says that it is missing.
        loaded = safely_loaded_archive(archive, trust=True).dataset_reader
        with pytest.raises(ConfigurationError, match=r"No module 'own_turning'|synonyms\.tsv'"):
            list(loaded.read(many_file))

    @pytest.mark.slow
    def test_a_hostile_archive_gains_nothing(self, archive, many_file, tmp_path, monkeypatch):
        """The reader names a module whose import leaves a mark, or a file that must not be read."""
        mark = tmp_path / "mark"
        (tmp_path / "hostile_turning.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        for augmentation in (
            {"type": "callable", "function": "hostile_turning:mkdir"},
            {"type": "eda", "synonyms": str(many_file)},
        ):
            place = tmp_path / augmentation["type"]
            place.mkdir()
            change = hostile.with_config("dataset_reader", "augmentation", value=augmentation)
            hostile.changed(archive, place, change)
            opened: list[str] = []
            monkeypatch.setattr("declutr.data.word_edits.from_file", opened.append)
            Encoder(str(place))(["ka lo"])
            reader = safely_loaded_archive(place).dataset_reader
            with pytest.raises(ConfigurationError, match="opened without trust"):
                list(reader.read(many_file))
            assert not mark.exists() and opened == []
            assert "hostile_turning" not in sys.modules

    @pytest.mark.slow
    def test_files_under_other_keys_are_refused(self, archive, tmp_path):
        change = hostile.with_config(
            "dataset_reader", "augmentation", value={"type": "eda", "stop_words": ["/etc/passwd"]}
        )
        place = hostile.changed(archive, tmp_path, change)
        with pytest.raises(UnsafeArchive, match=r"'dataset_reader\.augmentation\.stop_words\.0'"):
            safely_loaded_archive(place)
