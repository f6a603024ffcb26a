"""Explanations of predictions look at the input."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from allennlp.data import Vocabulary
from allennlp.data.dataset_readers import TextClassificationJsonReader
from allennlp.data.token_indexers import PretrainedTransformerIndexer
from allennlp.data.tokenizers import PretrainedTransformerTokenizer
from allennlp.interpret.attackers import Hotflip
from allennlp.models import BasicClassifier
from allennlp.modules.seq2vec_encoders import ClsPooler
from allennlp.modules.text_field_embedders import BasicTextFieldEmbedder
from allennlp.modules.token_embedders import PretrainedTransformerEmbedder
from allennlp.predictors import TextClassifierPredictor

from declutr.bridge import saliency

from .conftest import TEXTS

SIZE = {"vocab_size": 150, "max_position_embeddings": 64}
DEEP = {**SIZE, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
OTHER_TRANSFORMERS = {
    "distilbert": lambda: transformers.DistilBertConfig(
        **SIZE, dim=16, n_layers=2, n_heads=2, hidden_dim=32
    ),
    "xlm-roberta": lambda: transformers.XLMRobertaConfig(**DEEP, intermediate_size=32),
    "electra": lambda: transformers.ElectraConfig(**DEEP, embedding_size=8, intermediate_size=32),
}


@pytest.fixture(params=OTHER_TRANSFORMERS)
def classifier(request: Any, bert: str, tmp_path: Path) -> TextClassifierPredictor:
    """Return the predictor of a classifier over a transformer that AllenNLP does not know."""
    torch.manual_seed(0)
    folder = str(shutil.copytree(bert, tmp_path / "other"))
    config = OTHER_TRANSFORMERS[request.param]()
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    indexers = {"tokens": PretrainedTransformerIndexer(folder)}
    reader = TextClassificationJsonReader(indexers, PretrainedTransformerTokenizer(folder))
    vocab = Vocabulary(tokens_to_add={"labels": ["a", "b"]})
    embedder = BasicTextFieldEmbedder({"tokens": PretrainedTransformerEmbedder(folder)})
    pooler = ClsPooler(embedder.get_output_dim())
    model = BasicClassifier(vocab, embedder, pooler, namespace="tags").eval()
    return TextClassifierPredictor(model, reader)


def test_saliency_is_that_of_the_input(
    classifier: TextClassifierPredictor, bare: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients by the embeddings of tokens, which are given to the transformer for this test."""
    model, text = classifier._model, {"sentence": TEXTS[0]}
    (instance,) = classifier.json_to_labeled_instances(text)
    embedder = model._text_field_embedder.token_embedder_tokens.transformer_model
    ids = torch.tensor([[token.text_id for token in instance["tokens"].tokens]])
    inputs = embedder.get_input_embeddings()(ids).detach().requires_grad_()
    states = embedder(inputs_embeds=inputs, attention_mask=torch.ones(ids.shape)).last_hidden_state
    logits = model._classification_layer(states[:, 0])
    label = torch.tensor([instance["label"].label])
    torch.nn.functional.cross_entropy(logits, label).backward()
    assert inputs.grad is not None
    shares = (inputs.grad * inputs).sum(-1)[0].detach().abs()

    def gradients() -> torch.Tensor:
        return torch.tensor(classifier.get_gradients([instance])[0]["grad_input_1"])

    module = bare("allennlp.nn.util")
    monkeypatch.setattr("allennlp.predictors.predictor.util", module)
    last = gradients()
    assert last.shape != inputs.shape or not torch.allclose(last, inputs.grad, atol=1e-6)
    with pytest.raises(RuntimeError, match="Unsupported token indexer"):
        Hotflip(classifier, "tags").initialize()
    saliency.input_embeddings(module)
    torch.testing.assert_close(gradients(), inputs.grad)

    simple = bare("allennlp.interpret.saliency_interpreters.simple_gradient")

    def found_shares() -> torch.Tensor:
        found = simple.SimpleGradient(classifier).saliency_interpret_from_json(text)
        return torch.tensor(found["instance_1"]["grad_input_1"])

    assert not torch.allclose(found_shares(), shares / shares.sum(), rtol=0.1, atol=0)
    saliency.products_with_inputs(simple)
    torch.testing.assert_close(found_shares(), shares / shares.sum())
    flipped = Hotflip(classifier, "tags").attack_from_json(text)
    assert flipped["final"][0] != flipped["original"]


def test_embeddings_that_allennlp_finds_stay(bert: str, bare: Any) -> None:
    embedder = PretrainedTransformerEmbedder(bert)
    module = bare("allennlp.nn.util")
    saliency.input_embeddings(module)
    words = embedder.transformer_model.get_input_embeddings()
    assert module.find_embedding_layer(BasicTextFieldEmbedder({"tokens": embedder})) is words
    with pytest.raises(RuntimeError, match="No embedding module found"):
        module.find_embedding_layer(torch.nn.Linear(1, 1))
