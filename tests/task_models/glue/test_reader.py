"""Tests of the reader "glue" on written rows, and with AllenNLP's own loaders and classifier."""

import copy
import json
import math
from pathlib import Path

import pytest
import torch
from allennlp.commands.train import TrainModel, train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Batch, DatasetReader, Vocabulary
from allennlp.data.data_loaders import MultiProcessDataLoader
from allennlp.models.archival import load_archive
from allennlp.predictors import Predictor

import declutr.plugin  # noqa: F401
from declutr.task_models.glue import GlueReader
from declutr.task_models.glue.tasks import TASKS
from tests.data.batches import as_tensors
from tests.task_models.glue.published_files import ROWS, published


@pytest.fixture(scope="module")
def make(pair):
    return lambda **changes: GlueReader(*pair, **changes)


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> Path:
    """Make SST-2 with 60 rows, a third of them positive, and a broken one after the tenth."""
    lines = [f"ka lo {'mi ' * (row % 7)}\t{int(row % 3 == 0)}" for row in range(60)]
    lines.insert(10, "broken")
    file = tmp_path_factory.mktemp("glue") / "train.tsv"
    file.write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    return file


def write(folder: Path, kind: str) -> Path:
    file = folder / "file.tsv"
    file.write_text(published(kind))
    return file


class TestInstances:
    @pytest.mark.parametrize("task", ["cola", "sst-2"])
    def test_a_single_text_has_tokens_and_a_label(self, make, pair, tmp_path, task):
        instances = list(make(task=task, with_ids=True).read(write(tmp_path, task)))
        assert len(instances) == len(ROWS[task])
        for number, instance in enumerate(instances):
            (text,), label = ROWS[task][number]
            assert list(instance.fields) == ["tokens", "label", "ids"]
            assert instance["tokens"].tokens == pair[0].tokenize(text)
            assert instance["label"].label == label and instance["ids"].label == number

    @pytest.mark.parametrize("task", ["mrpc", "qqp", "mnli", "qnli", "rte", "wnli", "sick-e"])
    def test_pairs_are_joined(self, make, pair, tmp_path, task):
        reference = pair[0].tokenizer
        instances = list(make(task=task).read(write(tmp_path, task)))
        for instance, (texts, label) in zip(instances, ROWS[task], strict=True):
            assert list(instance.fields) == ["tokens", "label"]
            ids = [token.text_id for token in instance["tokens"].tokens]
            assert ids == reference(*texts)["input_ids"]
            assert instance["label"].label == label.lower()

    def test_premise_and_hypothesis(self, make, pair, tmp_path):
        instances = list(make(task="rte", combine=False).read(write(tmp_path, "rte")))
        for instance, (texts, _) in zip(instances, ROWS["rte"], strict=True):
            assert list(instance.fields) == ["premise", "hypothesis", "label"]
            assert instance["premise"].tokens == pair[0].tokenize(texts[0])
            assert instance["hypothesis"].tokens == pair[0].tokenize(texts[1])

    def test_scores_are_floats(self, make, tmp_path):
        instances = list(make(task="sts-b", with_ids=True).read(write(tmp_path, "sts-b")))
        tensors = as_tensors(instances)
        torch.testing.assert_close(tensors["label"], torch.tensor([3.8, 5.0]))
        assert tensors["ids"].tolist() == [0, 1] and tensors["ids"].dtype == torch.int64

    @pytest.mark.parametrize("kind", ["cola test", "mnli test", "sts-b test"])
    def test_test_files_give_instances_without_labels(self, make, tmp_path, kind):
        instances = list(make(task=kind.split()[0]).read(write(tmp_path, kind)))
        assert [list(instance.fields) for instance in instances] == [["tokens"]] * 2

    def test_metadata_say_index_and_part(self, make, tmp_path):
        """QQP's index is its id; MNLI's files are two parts, each with rows from 0."""
        (tmp_path / "test.tsv").write_text("id\tquestion1\tquestion2\n7\tka\tlo\n")
        (instance,) = make(task="qqp", with_metadata=True).read(tmp_path / "test.tsv")
        assert instance["metadata"].metadata == {"index": 7, "part": ""}
        for part in ("matched", "mismatched"):
            (tmp_path / f"dev_{part}.tsv").write_text(published("mnli dev"))
        read = list(make(task="mnli", with_metadata=True).read(tmp_path / "dev_*.tsv"))
        parts = [("matched", 0), ("matched", 1), ("mismatched", 0), ("mismatched", 1)]
        expected = [{"index": index, "part": part} for part, index in parts]
        assert [instance["metadata"].metadata for instance in read] == expected

    def test_trec_questions_are_read(self, make, pair, tmp_path):
        (tmp_path / "a.label").write_text("LOC:city Where is ka ?\n")
        (instance,) = make(task="TREC").read(tmp_path / "a.label")
        assert instance["tokens"].tokens == pair[0].tokenize("Where is ka ?")
        assert instance["label"].label == "LOC"

    def test_own_files_are_read_without_a_transformer(self, tmp_path):
        (tmp_path / "own.jsonl").write_text('{"a": "ka lo", "b": "mi", "kind": "news"}\n')
        path = tmp_path / "own.jsonl"
        (instance,) = GlueReader(texts="a", label="kind").read(path)
        assert [str(token) for token in instance["tokens"].tokens] == ["ka", "lo"]
        (instance,) = GlueReader(texts=["a", "b"], label="kind", combine=False).read(path)
        assert [str(token) for token in instance["hypothesis"].tokens] == ["mi"]

    def test_instances_are_made_of_texts(self, make):
        reader = make(task="sst-2", with_ids=True, label_namespace="sentiment_labels")
        assert list(reader.text_to_instance("ka  lo").fields) == ["tokens"]
        instance = reader.text_to_instance("ka", label=1, id=7)
        assert instance["label"]._label_namespace == "sentiment_labels"
        assert instance["label"].label == "1" and instance["ids"].label == 7


class TestFractions:
    def test_ids_are_rows_of_the_file(self, make, many):
        everything = make(task="sst-2").rows(many)
        assert [row.id for row in everything] == [*range(10), *range(11, 61)]
        part = make(task="sst-2", label_fraction=0.1).rows(many)
        assert part == make(task="sst-2", label_fraction=0.1).rows(many)
        assert set(part) <= set(everything)
        assert sorted(row.label for row in part) == ["0"] * 4 + ["1"] * 2

    def test_fractions_are_nested_and_depend_on_the_seed(self, make, many):
        shares = [set(make(task="sst-2", label_fraction=f).rows(many)) for f in (0.01, 0.05, 0.5)]
        assert shares[0] <= shares[1] <= shares[2] and len(shares[0]) == 2
        other = make(task="sst-2", label_fraction=0.5, fraction_seed=1).rows(many)
        assert set(other) != shares[2] and len(other) == len(shares[2])

    @pytest.mark.parametrize("labels", ["class", "score"])
    def test_rows_without_a_label_may_be_kept(self, make, tmp_path, labels):
        """Those that a fraction leaves out, and those whose label is empty."""
        rows = [{"text": f"ka {row}", "label": str(row % 2) if row else ""} for row in range(21)]
        file = tmp_path / "rows.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        own = {"texts": "text", "label": "label", "labels": labels, "label_fraction": 0.2}
        some = make(**own).rows(file)
        reader = make(**own, keep_unlabelled=True, with_ids=True)
        assert [row for row in reader.rows(file) if row.label is not None] == some
        instances = list(reader.read(file))
        batch = Batch(instances)
        batch.index_instances(Vocabulary.from_instances(instances))
        tensors = batch.as_tensor_dict()
        assert tensors["ids"].tolist() == list(range(21))
        known = tensors["label"] >= 0  # neither -100 nor not a number
        assert known.nonzero().flatten().tolist() == [row.id for row in some]

    @pytest.mark.parametrize("fraction", [0.0, 1.1, 10.0])
    def test_a_fraction_out_of_range_is_refused(self, make, fraction):
        with pytest.raises(ConfigurationError, match="expected a share above 0 and at most 1"):
            make(task="sst-2", label_fraction=fraction)

    def test_a_fraction_of_a_test_file_is_refused(self, make, tmp_path):
        with pytest.raises(ConfigurationError, match=r"no row has a label, so label_fraction has"):
            make(task="sst-2", label_fraction=0.1).rows(write(tmp_path, "sst-2 test"))


class TestSharding:
    @pytest.mark.slow
    @pytest.mark.parametrize("workers", [0, 2])
    @pytest.mark.parametrize("most", [None, 7])
    def test_workers_read_every_row_once(self, make, many, workers, most):
        reader = make(task="sst-2", with_ids=True, max_instances=most)
        loader = MultiProcessDataLoader(reader, str(many), batch_size=8, num_workers=workers)
        loader.index_with(Vocabulary.from_instances(reader.read(many)))
        ids = [row for batch in loader for row in batch["ids"].tolist()]
        assert sorted(ids) == [row.id for row in reader.rows(many)][:most]

    def test_processes_share_the_rows(self, make, many, monkeypatch):
        reader = make(task="sst-2", with_ids=True, label_fraction=0.5)
        whole = [instance["ids"].label for instance in reader.read(many)]
        parts = []
        monkeypatch.setattr("allennlp.common.util.is_distributed", lambda: True)
        monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)
        for rank in range(2):
            monkeypatch.setattr("torch.distributed.get_rank", lambda rank=rank: rank)
            parts.append([instance["ids"].label for instance in reader.read(many)])
        assert parts == [whole[0::2], whole[1::2]]


class TestSettings:
    def test_a_reader_is_built_from_params(self, checkpoint):
        transformer = {"type": "pretrained_transformer", "model_name": str(checkpoint)}
        of_words = {"tokenizer": transformer, "token_indexers": {"tokens": dict(transformer)}}
        settings = {"type": "glue", "texts": [1, 2], "label": 0, "labels": "score", **of_words}
        reader = DatasetReader.from_params(Params(settings))
        assert reader._layout.texts == ((1,), (2,)) and reader._layout.label == (0,)
        assert reader._layout.header is False

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"task": "mlni"}, "No task 'mlni'.*Did you mean 'mnli'"),
            ({"task": "rte", "texts": "a"}, "'rte' says where everything is, but texts is given"),
            ({}, r"Got 0 column\(s\) of texts and no task"),
            ({"texts": ["a", "b", "c"]}, r"Got 3 column\(s\) of texts"),
            ({"texts": "a", "label": "b", "labels": "rank"}, "Unknown labels 'rank'"),
            ({"texts": "a", "labels": "score"}, "no label says in which column they are"),
            ({"texts": -1}, "Columns are numbered from 0, got -1"),
            ({"texts": "a", "header": False}, r"have names only with a header, got \['a'\]"),
            ({"texts": "a", "label": 1}, r"got \['a'\] and \[1\]"),
        ],
    )
    def test_contradicting_settings_are_refused(self, make, settings, message):
        with pytest.raises(ConfigurationError, match=message):
            make(**settings)

    def test_joining_pairs_without_a_transformer_is_refused(self):
        with pytest.raises(ConfigurationError, match="WhitespaceTokenizer does not know what goes"):
            GlueReader(task="rte")

    def test_unreadable_data_are_reported(self, make, tmp_path):
        with pytest.raises(ConfigurationError, match="Found no documents at"):
            list(make(task="rte").read(tmp_path / "nowhere.tsv"))
        with pytest.raises(ConfigurationError, match="line 2: the label is 'not_entailment'"):
            list(make(task="wnli").read(write(tmp_path, "rte")))

    def test_every_task_can_be_read(self, make):
        assert [make(task=task)._task for task in TASKS] == TASKS


def classifier(checkpoint: Path, data: Path, **reader) -> dict:
    transformer = {"type": "pretrained_transformer", "model_name": str(checkpoint)}
    return {
        "dataset_reader": {
            "type": "glue",
            "tokenizer": dict(transformer),
            "token_indexers": {"tokens": dict(transformer)},
            **reader,
        },
        "train_data_path": str(data),
        "validation_data_path": str(data),
        "model": {
            "type": "basic_classifier",
            "namespace": "tags",  # where the indexer puts word pieces
            "text_field_embedder": {"token_embedders": {"tokens": dict(transformer)}},
            "seq2vec_encoder": {"type": "cls_pooler", "embedding_dim": 32},
        },
        "data_loader": {"batch_size": 4, "shuffle": True},
        "trainer": {
            "optimizer": {"type": "huggingface_adamw", "lr": 1e-3},
            "num_epochs": 1,
            "cuda_device": -1,
        },
    }


class TestTraining:
    @pytest.mark.slow
    @pytest.mark.parametrize("task", ["cola", "mrpc", "mnli"])
    def test_the_basic_classifier_learns(self, checkpoint, tmp_path, task):
        config = classifier(checkpoint, write(tmp_path, task), task=task)
        training = TrainModel.from_params(
            Params(copy.deepcopy(config)), serialization_dir=str(tmp_path), local_rank=0
        )
        before = {name: value.clone() for name, value in training.model.state_dict().items()}
        metrics = training.run()
        assert math.isfinite(metrics["training_loss"]) and "validation_accuracy" in metrics
        labels = {label for _, label in ROWS[task]}
        known = training.model.vocab.get_token_to_index_vocabulary("labels")
        assert set(known) == labels and training.model._num_labels == 2
        after = training.model.state_dict()
        assert any(not torch.equal(value, after[name]) for name, value in before.items())

    @pytest.mark.slow
    def test_predicts_from_an_archive(self, checkpoint, tmp_path):
        data = write(tmp_path, "sst-2")
        train_model(Params(classifier(checkpoint, data, task="sst-2")), str(tmp_path / "run"))
        predictor = Predictor.from_archive(load_archive(str(tmp_path / "run")))
        (_, second) = predictor._dataset_reader.read(data)
        of_file = predictor._model.forward_on_instance(second)
        of_text = predictor.predict_json({"sentence": ROWS["sst-2"][1][0][0]})
        assert of_text["probs"] == pytest.approx(of_file["probs"])
        assert of_text["label"] == of_file["label"]
