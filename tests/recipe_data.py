"""Small data for a recipe, whatever its reader wants, and the recipe in small."""

import json
import random
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from allennlp.common import Params

from declutr.archives.static_folder import write_static
from declutr.corpus.text_pairs import NLI_CLASSES
from declutr.static_vectors.first_tables import table_of_texts
from tests.conftest import make_documents
from tests.evaluation.tasks.data_files import write_benchmark, write_sick
from tests.task_models.image_text.pairs import WIDTH, write_published

INSTANCES = 40  # at least, of every kind of data
BATCH = 4

_WIDTH, _PROJECTED = 32, 16  # of embeddings of the tiny transformer, and behind a head
# Only sizes and steps: what a recipe is stays.
_SIZES: dict[str, Any] = {
    "hidden_dims": [24, _PROJECTED],
    "channels": 8,
    "queue_size": 20,
    "memory_size": 20,
    "prototypes": 6,
    "frozen_steps": 5,
    "instances": 512,
    "noise": 8,
    "clusters": 6,
    "start_after": 5,
    "every_num_steps": 4,
    "max_span_len": 32,
    "min_span_len": 8,
    "image_width": WIDTH,
    "input_size": 12,
    "embedding_dim": 12,
    "hidden_size": 24,
    "latent_size": 4,
    "decoder_size": 24,
    "annealing_steps": 12,
    "cycle_steps": 15,
    "dual_size": 12,
    "particles": 4,
}
# Of tasks of GLUE: the columns, the label last, and the classes.
_GLUE = {
    "sst-2": (("sentence", "label"), ("0", "1")),
    "mnli": (("sentence1", "sentence2", "gold_label"), NLI_CLASSES),
    "sts-b": (("sentence1", "sentence2", "score"), ("0.5", "2.0", "3.8", "5.0")),
}


class RecipeData:
    """Files for readers of every kind, and folders for evaluations, small.

    Sentences are of four documents, with blank rows between. Tables have the columns and labels
    that a reader names.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        rng = random.Random(0)
        documents = make_documents(INSTANCES, 150)
        self._sentences = [
            " ".join(document.split()[: rng.randint(3, 12)])
            for document in [*documents, *documents[::-1]]
        ]
        self._lines("documents.txt", documents)
        self._static = folder / "static"
        table = table_of_texts(lambda: documents, vocabulary=400, dimension=_WIDTH)
        write_static(table, self._static)
        rows = list(self._sentences[: INSTANCES + 4])
        for place in (33, 22, 11):
            rows.insert(place, "")
        self._lines("sentences.txt", rows)
        self._teacher = folder / "teacher.npy"
        np.save(self._teacher, np.random.default_rng(0).normal(size=(len(rows), 5)))
        words = sorted({word for sentence in self._sentences for word in sentence.split()})
        self._lines("synonyms.tsv", [f"{a}\t{b}" for a, b in pairwise(words)])
        self._write_captions()
        splits = {
            split: [(*rng.sample(self._sentences, 2), rng.uniform(1, 5)) for _ in range(8)]
            for split in ("train", "dev", "test")
        }
        write_benchmark(folder / "SentEval/downstream/STS/STSBenchmark", splits)
        write_sick(folder / "SentEval/downstream/SICK", splits)

    def small(self, recipe: Path, **trainer: Any) -> dict[str, Any]:
        """The recipe for these data and a tiny transformer."""
        static = {"TRANSFORMER_MODEL": str(self._static)} if recipe.parent.name == "static" else {}
        config = Params.from_file(str(recipe), ext_vars=static).as_dict(quiet=True)
        head = config["model"].get("head") or {}
        pooler = config["model"].get("seq2vec_encoder") or {}
        own = 2 * _SIZES["hidden_size"] if "encoder" in pooler else _WIDTH
        _shrink(config, _PROJECTED if "hidden_dims" in head else own)
        if config["trainer"].get("type") == "no_op":  # nothing is read, nothing is trained
            return config
        for part in ("views", "loss"):  # of Contrastive Tension: small groups of pairs
            one = config["model"].get(part)
            if isinstance(one, dict) and "tension" in one["type"]:
                one["negatives"] = 1
        if "targets" in (loss := config["model"].get("loss") or {}):
            loss["targets"] = str(self._teacher)
        augmentation = config["dataset_reader"].get("augmentation", {})
        for one in augmentation.get("augmentations", [augmentation]):
            if one.get("type") == "eda":  # WordNet is not there
                one["synonyms"] = str(self._folder / "synonyms.tsv")
        if "unlabelled" in config["dataset_reader"]:  # as many texts without a label as with one
            config["dataset_reader"]["label_fraction"] = 0.5
        if config["dataset_reader"].get("label_fraction"):  # no more rows than slots of banks
            least = max(0.1, config["dataset_reader"]["label_fraction"])
            config["dataset_reader"]["label_fraction"] = least
        for callback in config["trainer"]["callbacks"]:
            if "data" in callback:
                callback["data"] = str(self._folder / "SentEval")
        for loader in ("data_loader", "validation_data_loader"):
            config[loader] |= {"batch_size": _batch_size(config["model"]), "num_workers": 0}
        file = str(self._file_for(config["dataset_reader"]))
        config["train_data_path"] = file
        # Without positives there is a loss in training only, and validation is refused.
        reader = config["dataset_reader"]
        alone = reader["type"] == "sentences" and not reader.get("positives")
        config["validation_data_path"] = None if alone else file
        if "validation_dataset_reader" in config:
            validation = self._file_for(config["validation_dataset_reader"])
            config["validation_data_path"] = str(validation)
        config["trainer"] |= {"cuda_device": -1, **trainer}
        return config

    def _file_for(self, reader: dict[str, Any]) -> Path:
        if reader["type"] == "text_pairs":
            return self._table_for(reader)
        if reader["type"] == "image_text":
            published = reader.get("captions_per_image")
            return self._folder / ("test_caps.txt" if published else "captions.jsonl")
        if reader["type"] in ("glue", "semi_supervised"):
            return self._glue_file_for(reader)
        name = "documents.txt" if reader["type"] == "declutr" else "sentences.txt"
        return self._folder / name

    def _table_for(self, reader: dict[str, Any]) -> Path:
        kind = "nli" if reader.get("format") == "nli" else reader.get("labels")
        usual = ("premise", "hypothesis") if kind == "nli" else ("anchor", "positive")
        anchor, positive = (
            reader.get(key) or name for key, name in zip(("anchor", "positive"), usual, strict=True)
        )
        rows_each = 1
        labels = cycle({"nli": NLI_CLASSES, "class": (0, 1), "score": (0.5, 2, 4.5)}.get(kind, "-"))
        if kind == "nli" and reader.get("labels") is None:  # triplets, of two rows each
            rows_each = 2
            labels = cycle(("entailment", "contradiction"))
        rng, rows = random.Random(1), []
        for number in range(rows_each * INSTANCES):
            texts = rng.sample(self._sentences, 3)
            row = {positive: texts[1], anchor: self._sentences[number // rows_each]}
            if "negative" in reader:
                row[reader["negative"]] = texts[2]
            rows.append(json.dumps({**row, reader.get("label") or "label": next(labels)}))
        return self._lines("pairs.jsonl", rows)

    def _glue_file_for(self, reader: dict[str, Any]) -> Path:
        """A TSV with the columns of SST-2 or MNLI, of which the reader takes `INSTANCES` rows."""
        fraction = 1 if reader.get("keep_unlabelled") else reader.get("label_fraction") or 1
        columns, classes = _GLUE[reader["task"]]
        rng, rows = random.Random(2), ["\t".join(columns)]
        for number in range(round(INSTANCES / fraction)):
            texts = rng.sample(self._sentences, len(columns) - 1)
            rows.append("\t".join([*texts, classes[number % len(classes)]]))
        return self._lines(f"{reader['task']}-{fraction}.tsv", rows)

    def _write_captions(self) -> None:
        """Half as many images as captions; and five captions an image as they are published."""
        captions = self._sentences[:INSTANCES]
        images = np.random.default_rng(0).normal(size=(INSTANCES // 2, WIDTH))
        np.save(self._folder / "captions.npy", images.astype(np.float32))
        rows = [{"image": row // 2, "caption": caption} for row, caption in enumerate(captions)]
        self._lines("captions.jsonl", [json.dumps(row) for row in rows])
        write_published(self._folder, captions)

    def _lines(self, name: str | Path, lines: list[str]) -> Path:
        file = self._folder / name
        file.write_text("\n".join(lines) + "\n")
        return file


def _batch_size(model: dict[str, Any]) -> int:
    """The size of a batch, which for groups of pairs is a multiple of their 2 K + 1 texts."""
    views = model.get("views")
    return 2 * views["negatives"] + 1 if isinstance(views, dict) and "negatives" in views else BATCH


def _shrink(config: Any, width: int) -> None:
    """Every size in a configuration, however deep, in place."""
    if isinstance(config, list):
        for value in config:
            _shrink(value, width)
    if isinstance(config, dict):
        sizes = _SIZES | {"embedding_size": width}
        if config.get("type") == "cls_pooler":
            sizes["embedding_dim"] = _WIDTH
        for key, value in config.items():
            if key in sizes and value is not None:
                config[key] = sizes[key]
            else:
                _shrink(value, width)
