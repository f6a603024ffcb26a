"""Task models and data of a few lines, for the tests of what wraps any AllenNLP model."""

import copy
import json
from pathlib import Path
from typing import Any, Optional

import torch
from allennlp.common import Params
from allennlp.data import Batch, DatasetReader, TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules import Seq2VecEncoder, TextFieldEmbedder
from allennlp.nn import RegularizerApplicator
from allennlp.nn.util import get_text_field_mask
from allennlp.training.metrics import CategoricalAccuracy

import declutr.plugin  # noqa: F401

TEXTS = ["ka lo mi", "tu re", "sa no ve pi du ka", "lo", "mi mi tu", "re sa no ve"]
ROWS = [
    {"text": text, "second": " ".join(reversed(text.split())) + " ka", "label": "ab"[number % 2]}
    for number, text in enumerate(TEXTS)
]
OBJECTIVE = {"type": "reclaim", "instances": 6, "num_negatives": 3, "critic_width": 8}


@Model.register("pair_model_of_tests")
class PairModel(Model):
    """A user's own model: both texts of a pair by the same encoder, and no default predictor."""

    def __init__(
        self,
        vocab: Vocabulary,
        embedder: TextFieldEmbedder,
        encoder: Seq2VecEncoder,
        regularizer: Optional[RegularizerApplicator] = None,
        serialization_dir: Optional[str] = None,
    ) -> None:
        super().__init__(vocab, regularizer, serialization_dir)
        self.embedder = embedder
        self.encoder = encoder
        self.classify = torch.nn.Linear(2 * encoder.get_output_dim(), 2)
        self.accuracy = CategoricalAccuracy()
        self.calls: list[torch.Tensor] = []

    def forward(  # type: ignore[override]
        self,
        premise: TextFieldTensors,
        hypothesis: TextFieldTensors,
        label: Optional[torch.Tensor] = None,
    ) -> dict[str, torch.Tensor]:
        self.calls = [
            self.encoder(self.embedder(text), mask=get_text_field_mask(text))
            for text in (premise, hypothesis)
        ]
        logits = self.classify(torch.cat(self.calls, dim=1))
        output = {"logits": logits}
        if label is not None:
            output["loss"] = torch.nn.functional.cross_entropy(logits, label)
            self.accuracy(logits, label)
        return output

    def make_output_human_readable(
        self, output_dict: dict[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        return {**output_dict, "label": output_dict["logits"].argmax(dim=1)}

    def get_metrics(self, reset: bool = False) -> dict[str, float]:
        return {"accuracy": self.accuracy.get_metric(reset)}


def plain_embedder() -> dict[str, Any]:
    return {"token_embedders": {"tokens": {"type": "embedding", "embedding_dim": 5}}}


def transformer(checkpoint: Path, **changes: Any) -> dict[str, Any]:
    return {"type": "pretrained_transformer", "model_name": str(checkpoint), **changes}


def classifier(checkpoint: Path | None = None, **changes: Any) -> dict[str, Any]:
    """AllenNLP's classifier, of a transformer or of word embeddings."""
    if checkpoint is None:
        parts: dict[str, Any] = {
            "text_field_embedder": plain_embedder(),
            "seq2vec_encoder": {"type": "gru", "input_size": 5, "hidden_size": 4},
        }
    else:
        parts = {
            "text_field_embedder": {"token_embedders": {"tokens": transformer(checkpoint)}},
            "seq2vec_encoder": {"type": "cls_pooler", "embedding_dim": 32},
            "namespace": "tags",
        }
    return {"type": "basic_classifier", "num_labels": 2, **parts, **changes}


def pair_model(**changes: Any) -> dict[str, Any]:
    return {
        "type": "pair_model_of_tests",
        "embedder": plain_embedder(),
        "encoder": {"type": "gru", "input_size": 5, "hidden_size": 4},
        **changes,
    }


def reclaim(task: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"type": "reclaim", "model": task, "objective": OBJECTIVE, **changes}


def reader_config(checkpoint: Path | None = None, **changes: Any) -> dict[str, Any]:
    config: dict[str, Any] = {"type": "glue", "texts": "text", "label": "label", "with_ids": True}
    if checkpoint is not None:
        config["tokenizer"] = transformer(checkpoint)
        config["token_indexers"] = {"tokens": transformer(checkpoint)}
    return {**config, **changes}


def data_file(folder: Path) -> Path:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return file


def read_batch(
    folder: Path, reader: dict[str, Any], rows: slice = slice(None)
) -> tuple[Vocabulary, dict[str, Any]]:
    """The vocabulary of `ROWS`, and some of them as a batch."""
    made = DatasetReader.from_params(Params(copy.deepcopy(reader)))
    instances = list(made.read(data_file(folder)))
    for instance in instances:
        made.apply_token_indexers(instance)
    vocab = Vocabulary.from_instances(instances)
    batch = Batch(instances[rows])
    batch.index_instances(vocab)
    return vocab, batch.as_tensor_dict()


def build(config: dict[str, Any], vocab: Vocabulary, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return Model.from_params(Params(copy.deepcopy(config)), vocab=vocab)
