"""The pooler "classification_pooler" in the Model "glue" against transformers' own classifiers."""

from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.models import Model
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DistilBertConfig,
    DistilBertModel,
)

import declutr.plugin  # noqa: F401
from declutr.modules.classification_pooler import ClassificationPooler

SIZES = {
    **{"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_labels": 3},
    **{"intermediate_size": 32, "max_position_embeddings": 40, "embedding_size": 16},
}


def classifier(kind: str, checkpoint: Path, folder: Path) -> Any:
    """A drawn classifier of transformers, saved in a folder with a tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    config = AutoConfig.for_model(kind, vocab_size=len(tokenizer), pad_token_id=1, **SIZES)
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)  # biases are drawn as 0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


@pytest.mark.parametrize("kind", ["bert", "albert", "roberta"])
def test_it_is_the_public_codes_classifier(kind: str, checkpoint: Path, tmp_path: Path) -> None:
    theirs = classifier(kind, checkpoint, tmp_path)
    embedder = {"type": "pretrained_transformer_mlm", "model_name": str(tmp_path)}
    config = {
        "type": "glue",
        "num_labels": 3,
        "text_field_embedder": {
            "token_embedders": {"tokens": {**embedder, "masked_language_modeling": False}}
        },
        "seq2vec_encoder": {"type": "classification_pooler", "model_name": str(tmp_path)},
    }
    ours = Model.from_params(Params(config), vocab=Vocabulary()).eval()
    last = theirs.classifier
    if kind == "roberta":
        assert ours._seq2vec_encoder._dropout.p == 0.1
        ours._seq2vec_encoder._dense.load_state_dict(last.dense.state_dict())
        last = last.out_proj
    ours._classification_layer.load_state_dict(last.state_dict())
    ids = torch.randint(5, 300, (4, 9))
    mask = torch.arange(9) < torch.tensor([9, 4, 6, 2])[:, None]
    tokens = {"token_ids": ids, "mask": mask, "type_ids": torch.zeros_like(ids)}
    with torch.no_grad():
        found = ours({"tokens": tokens})["logits"]
        expected = theirs(input_ids=ids, attention_mask=mask.long()).logits
    assert torch.allclose(found, expected, atol=1e-6)


def test_a_transformer_without_a_pooler_gets_a_new_layer(tmp_path: Path) -> None:
    config = DistilBertConfig(vocab_size=20, dim=16, n_layers=1, n_heads=2, hidden_dim=32)
    DistilBertModel(config).save_pretrained(tmp_path)
    pooler = ClassificationPooler(str(tmp_path))
    assert pooler.get_output_dim() == 16 and not pooler._dense.bias.any()
    assert 0.01 < pooler._dense.weight.std() < 0.03
    with pytest.raises(ConfigurationError, match="no pooler with a linear layer, got NoneType"):
        ClassificationPooler(str(tmp_path), pretrained=True)
