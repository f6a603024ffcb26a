"""Tests of the decoder of TSDAE against transformers' own causal language models."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.models import Model
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, BertConfig, BertModel, DistilBertConfig
from transformers import DistilBertModel as DistilBert

import declutr.plugin  # noqa: F401
from declutr.modules.text_decoder import TextDecoder
from tests import two_processes
from tests.models.test_views import spans

WIDTH, LAYERS = 32, 2


def model_of(checkpoint: Path, head: bool = True, **changes: Any) -> Any:
    embedder = {
        "type": "pretrained_transformer_mlm",
        "model_name": str(checkpoint),
        "masked_language_modeling": head,
    }
    config = {
        "type": "declutr",
        "text_field_embedder": {"type": "mlm", "token_embedders": {"tokens": embedder}},
        "seq2vec_encoder": {"type": "cls_pooler"},
        "reconstruct": True,
        **changes,
    }
    torch.manual_seed(0)
    return Model.from_params(Params(copy.deepcopy(config)), vocab=Vocabulary()).train()


def quiet(model: Any) -> Any:
    """The model in training, without dropout."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if hasattr(module, "dropout_prob"):  # that of attention in transformers 4
            module.dropout_prob = 0.0
    return model


def published(checkpoint: Path, model: Any) -> Any:
    """The decoder of TSDAE's public code: tied, and with the cross-attention of `model`."""
    of = {"is_decoder": True, "add_cross_attention": True, "use_cache": False}
    decoder = AutoModelForCausalLM.from_pretrained(checkpoint, **of).eval()
    missing = decoder.base_model.load_state_dict(
        {k: v for k, v in model._decoder.transformer.state_dict().items() if "cross" in k},
        strict=False,
    )
    assert not missing.unexpected_keys
    return decoder


def test_the_loss_is_that_of_the_public_code(checkpoint: Path) -> None:
    """Over the tokens of the batch, by a loop over its texts, which have no padding."""
    model = quiet(model_of(checkpoint))
    anchors, positives = spans(seed=1), spans(seed=2)
    loss = model(anchors, positives)["loss"]
    encoder, decoder = (
        model._text_field_embedder.token_embedder.encoder,
        published(checkpoint, model),
    )
    losses = []
    for row in range(6):
        target, noisy = (
            batch["tokens"]["token_ids"][row, 0][batch["tokens"]["mask"][row, 0]][None]
            for batch in (anchors, positives)
        )
        with torch.no_grad():
            embedding = encoder(input_ids=noisy).last_hidden_state[:, :1]
            logits = decoder(input_ids=target[:, :-1], encoder_hidden_states=embedding).logits
        losses += cross_entropy(logits[0], target[0, 1:], reduction="none").tolist()
    assert loss.item() == pytest.approx(sum(losses) / len(losses), abs=1e-5)
    assert model.get_metrics()["reconstruction_loss"] == pytest.approx(loss.item(), abs=1e-6)
    assert "mlm_loss" not in model.get_metrics()


def test_all_but_cross_attention_is_the_encoders(checkpoint: Path) -> None:
    model = model_of(checkpoint)
    own = {id(parameter) for parameter in model._text_field_embedder.parameters()}
    names = [n for n, p in model._decoder.named_parameters() if id(p) not in own]
    assert names and all("crossattention" in name for name in names)
    assert len(names) == LAYERS * 10  # four linear layers and a normalisation
    model(spans(seed=1), spans(seed=2))["loss"].backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    value = model._decoder.transformer.encoder.layer[0].crossattention.self.value
    assert value.weight.grad.abs().sum() > 0


def test_a_text_is_told_from_its_embedding_alone(checkpoint: Path) -> None:
    """No token is told from itself or from later ones, and none of another text."""
    model = quiet(model_of(checkpoint))
    texts = {"tokens": {key: t[:, 0] for key, t in spans(seed=1)["tokens"].items()}}
    embeddings = torch.randn(6, WIDTH)
    seen: list[torch.Tensor] = []
    model._decoder.transformer.register_forward_hook(
        lambda _, given, output: seen.append(output.last_hidden_state)
    )
    model._decoder(embeddings, texts)
    texts["tokens"]["token_ids"][:, 5] = 7
    model._decoder(embeddings, texts)
    embeddings[2] += 1
    model._decoder(embeddings, texts)
    first, changed, other = seen
    assert torch.allclose(first[:, :5], changed[:, :5], atol=1e-6)
    assert not torch.allclose(first[:, 5:], changed[:, 5:], atol=1e-3)
    rows = [not torch.allclose(a, b, atol=1e-3) for a, b in zip(changed, other, strict=True)]
    assert rows == [False, False, True, False, False, False]


def test_a_contrastive_loss_may_stand_beside_it(checkpoint: Path) -> None:
    model = quiet(model_of(checkpoint, loss={"type": "nt_xent"}, mlm_weight=0.5))
    loss = model(spans(seed=1), spans(seed=2))["loss"]
    metrics = model.get_metrics()
    expected = metrics["contrastive_loss"] + 0.5 * metrics["reconstruction_loss"]
    assert loss.item() == pytest.approx(expected, abs=1e-5)
    chunked = quiet(model_of(checkpoint, loss={"type": "nt_xent"}, mlm_weight=0.5, chunk_size=2))
    assert chunked(spans(seed=1), spans(seed=2))["loss"].item() == pytest.approx(
        loss.item(), abs=1e-4
    )


def test_validation_has_the_same_loss(checkpoint: Path) -> None:
    model = quiet(model_of(checkpoint))
    loss = model(spans(seed=1), spans(seed=2))["loss"].item()
    assert model.eval()(spans(seed=1), spans(seed=2))["loss"].item() == pytest.approx(
        loss, abs=1e-5
    )
    assert model(spans())["embeddings"].shape == (6, WIDTH)


@pytest.mark.parametrize(
    "changes", [{"mlm_weight": 0, "loss": {"type": "nt_xent"}}, {"two_encoders": True}]
)
def test_what_does_not_go_together_is_told(checkpoint: Path, changes: dict[str, Any]) -> None:
    two = {"loss": {"type": "nt_xent"}} if "two_encoders" in changes else {}
    with pytest.raises(ConfigurationError, match=r"reconstruct needs the language modelling head"):
        model_of(checkpoint, **changes, **two)


def test_without_a_head_there_is_nothing_to_train_by(checkpoint: Path) -> None:
    with pytest.raises(ConfigurationError, match="reconstruct needs the language modelling head"):
        model_of(checkpoint, head=False, loss={"type": "nt_xent"})


def test_texts_without_noisy_ones_are_told(checkpoint: Path) -> None:
    model = model_of(checkpoint)
    with pytest.raises(ConfigurationError, match=r"needs a positive for each anchor.*got none"):
        model(spans())
    two = {"tokens": {key: t.repeat(1, 2, 1) for key, t in spans()["tokens"].items()}}
    with pytest.raises(ConfigurationError, match="got 12 for 6 anchors"):
        model(spans(), two)


def test_transformers_without_cross_attention_are_told() -> None:
    sizes = {"vocab_size": 50, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16}
    with pytest.raises(
        ConfigurationError, match=r"DistilBertModel \(distilbert\).*BERT or RoBERTa"
    ):
        encoder = DistilBert(DistilBertConfig(**sizes))
        TextDecoder(encoder, encoder)
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 16}
    encoder = BertModel(BertConfig(num_attention_heads=2, **sizes), add_pooling_layer=False)
    assert TextDecoder(encoder, encoder).transformer.encoder.layer[0].crossattention


def test_sharded_models_are_refused(checkpoint: Path) -> None:
    class Wrapper:
        attach = None

    class Trainer:
        _ddp_wrapped_model = Wrapper()

    from declutr.models import trainer_data

    Wrapper.attach = lambda trainer: None
    with pytest.raises(ConfigurationError, match=r'reconstruct does not work with .*"fsdp"'):
        trainer_data.require_whole(model_of(checkpoint), Trainer(), reconstruct=object())


def gradients(checkpoint: str, first: int, last: int, distributed: bool = True) -> dict[str, Any]:
    """The gradients of a step over some rows of a batch, averaged by DistributedDataParallel."""
    model = quiet(model_of(Path(checkpoint)))
    rank = torch.distributed.get_rank() if distributed else 0
    rows = slice(last * rank, last * (rank + 1)) if distributed else slice(first, last)
    batch = [
        {"tokens": {key: tensor[rows] for key, tensor in spans(seed=seed)["tokens"].items()}}
        for seed in (1, 2)
    ]
    whole = torch.nn.parallel.DistributedDataParallel(model) if distributed else model
    whole(*batch)["loss"].backward()
    return {name: p.grad for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.slow
@pytest.mark.long
def test_two_processes_have_the_gradients_of_one(checkpoint: Path) -> None:
    """Texts have other lengths in each: the mean is over the tokens of both."""
    one = gradients(str(checkpoint), 0, 6, False)
    for other in two_processes.run(gradients, str(checkpoint), 0, 3):
        assert other.keys() == one.keys()
        assert all(torch.allclose(other[name], one[name], atol=1e-5) for name in one)
