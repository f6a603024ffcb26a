"""What comes with a batch beside two views, and objectives of something else than two views."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data.token_indexers import PretrainedTransformerIndexer
from allennlp.data.tokenizers import PretrainedTransformerTokenizer
from torch import Tensor

from declutr.data.data_loader import DeCLUTRDataLoader
from declutr.data.sentence_reader import SentenceReader
from declutr.data.span_reader import DeCLUTRDatasetReader
from declutr.objectives import (
    Triplet,
    instance_loss,
    jsd_mutual_information_loss,
    quick_thoughts_loss,
    sup_con_loss,
    triplet_loss,
)
from tests.models.test_views import model_of, texts

HEAD = {"type": "projector", "hidden_dims": [12, 8]}
NGRAMS = {"type": "ngram_convolutions", "channels": 4}
BANK = {"type": "instance_discrimination", "instances": 9, "embedding_size": 32}


def spans(count: int, seed: int) -> dict:
    """`count` spans of each of 3 documents: `(3, count, L)`."""
    tensors = texts(count=3 * count, seed=seed)["tokens"]
    return {"tokens": {key: t.unflatten(0, (3, count)) for key, t in tensors.items()}}


def embedded(model: Any, given: dict) -> Tensor:
    with torch.no_grad():
        return model.embed({"tokens": {k: t.flatten(0, -2) for k, t in given["tokens"].items()}})


def plain_model(checkpoint: Path, mlm: bool = False, **changes: Any) -> Any:
    """Without dropout, in float32."""
    embedder = {
        "type": "pretrained_transformer_mlm",
        "model_name": str(checkpoint),
        "masked_language_modeling": mlm,
        "transformer_kwargs": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    }
    field = {"type": "mlm", "token_embedders": {"tokens": embedder}}
    return model_of(checkpoint, precision="float32", text_field_embedder=field, **changes)


def assert_all_have_gradients(model: torch.nn.Module) -> None:
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    assert [name for name, p in trained if p.grad is None] == []


def test_classes_join_the_pairs_of_all_anchors(checkpoint: Path) -> None:
    """Two anchors a document, so a label stands for both."""
    model = plain_model(checkpoint, loss={"type": "sup_con", "temperature": 0.05})
    anchors, positives = spans(2, 0), spans(4, 1)
    labels = torch.tensor([5, 2, 5])
    with torch.no_grad():
        loss = model(anchors, positives, labels=labels)["loss"]
        without = model(anchors, positives)["loss"]
    first = embedded(model, anchors)
    second = embedded(model, positives).unflatten(0, (6, 2)).mean(dim=1)
    of_each = torch.tensor([5, 5, 2, 2, 5, 5]).repeat(2)
    expected = sup_con_loss(torch.cat([first, second]), of_each, 0.05)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    assert without.item() != pytest.approx(loss.item(), rel=1e-2)


def test_instances_are_told_from_each_other_by_their_ids(checkpoint: Path) -> None:
    model = plain_model(checkpoint, loss=BANK)
    bank = model._loss.bank.clone()
    anchors, ids = spans(2, 0), torch.tensor([8, 0, 3])
    loss = model(anchors, spans(2, 1), ids=ids)["loss"]
    loss.backward()
    expected = instance_loss(embedded(model, anchors), ids.repeat_interleave(2), bank)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    moved = (model._loss.bank != bank).any(dim=1).nonzero().flatten().tolist()
    assert moved == [0, 3, 8]
    assert model(texts(3), ids=ids)["loss"].isfinite()  # a reader without positives
    assert set(model.get_metrics()) == {"contrastive_loss", "uniformity"}


def test_pairs_have_a_retrieval_accuracy(checkpoint: Path) -> None:
    model = plain_model(checkpoint)
    model(spans(2, 0), spans(2, 1))
    assert "retrieval_accuracy" in model.get_metrics()


@pytest.mark.parametrize("mlm", [False, True])
def test_tokens_are_compared_with_texts(checkpoint: Path, mlm: bool) -> None:
    model = plain_model(checkpoint, mlm, loss={"type": "is_bert"}, seq2vec_encoder=NGRAMS)
    anchors = texts(5)
    output = model(anchors)
    output["loss"].backward()
    metrics = model.get_metrics()
    assert ("mlm_loss" in metrics) == mlm
    assert_all_have_gradients(model)
    vectors, mask = model._text_field_embedder(anchors), anchors["tokens"]["mask"]
    local = model._seq2vec_encoder.local_vectors(vectors, mask)
    expected = jsd_mutual_information_loss(local, mask, model._seq2vec_encoder(vectors, mask))
    assert metrics["contrastive_loss"] == pytest.approx(expected.item(), rel=1e-4)
    assert model.eval()(anchors)["embeddings"].shape == (5, 12) == (5, model.embedding_dim)


def test_two_encoders_go_ways_of_their_own(checkpoint: Path) -> None:
    """Quick-Thoughts: sentences by one, contexts by the other; texts by both."""
    loss = {"type": "quick_thoughts"}
    model = plain_model(checkpoint, loss=loss, views="dropout", two_encoders=True, head=HEAD)
    given = texts(5)
    ids, documents = torch.tensor([4, 5, 7, 8, 9]), torch.tensor([0, 0, 1, 1, 2])
    half = model._seq2vec_encoder.get_output_dim()
    both = embedded(model, given)
    assert both.shape == (5, 2 * half) == (5, model.embedding_dim)
    assert torch.equal(both[:, :half], both[:, half:])  # at the start
    with torch.no_grad():
        for parameter in model._second_encoder["embedder"].parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    both = embedded(model, given)
    assert not torch.allclose(both[:, :half], both[:, half:], atol=1e-2)
    loss = model(given, ids=ids, documents=documents)["loss"]
    loss.backward()
    assert_all_have_gradients(model)
    f, g = model._head(both[:, :half]), model._second_encoder["head"](both[:, half:])
    expected = quick_thoughts_loss(f, g, documents, ids=ids)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-3)


def test_neighbours_are_told_by_place_and_document() -> None:
    """Rows of two processes: the second's first sentence does not follow the first's last."""
    rows = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    f, g = rows
    ids = torch.tensor([4, 5, 9, 10, 11])
    loss = quick_thoughts_loss(f, g, ids=ids, reduction="none")
    scores = (f @ g.T).fill_diagonal_(-torch.inf).log_softmax(dim=1)
    expected = [scores[0, 1], scores[1, 0], scores[2, 3], (scores[3, 2] + scores[3, 4]) / 2]
    assert torch.allclose(loss, -torch.stack([*expected, scores[4, 3]]))
    order = torch.tensor([2, 0, 4, 1, 3])
    shuffled = quick_thoughts_loss(f[order], g[order], ids=ids[order], reduction="none")
    assert torch.allclose(shuffled, loss[order])
    with pytest.raises(ValueError, match=r"one id for each of the 5 rows, got \(2,\)"):
        quick_thoughts_loss(f, g, ids=ids[:2])


@pytest.mark.parametrize(
    ("changes", "given", "message"),
    [
        ({"loss": BANK}, {}, r"needs ids, which .* does not bring: its key 'with_ids'"),
        (
            {"loss": {"type": "sup_con"}},
            {"labels": torch.tensor([0.5, 0.1, 1.0])},
            r"class \(int64\).*cosine_regression",
        ),
        (
            {"loss": {"type": "info_nce"}},
            {"labels": torch.tensor([0, 1, 2])},
            "has labels, of which InfoNCE makes no use",
        ),
    ],
)
def test_what_is_missing_or_not_wanted(
    checkpoint: Path, changes: dict, given: dict, message: str
) -> None:
    model = plain_model(checkpoint, **changes)
    with pytest.raises((ConfigurationError, ValueError), match=message):
        model(spans(1, 0), spans(1, 1), **given)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": {"type": "is_bert"}}, "BagOfEmbeddingsEncoder has no vectors.*ngram_convol"),
        (
            {"loss": {"type": "is_bert"}, "seq2vec_encoder": NGRAMS, "chunk_size": 2},
            "remove feedforward, head and chunk_size",
        ),
        ({"loss": BANK, "two_encoders": True}, "Two encoders embed two views"),
        ({"two_encoders": True, "momentum_encoder": {}, "loss": {"type": "byol"}}, "neither mom"),
    ],
)
def test_parts_that_do_not_fit(checkpoint: Path, changes: dict, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        plain_model(checkpoint, **changes)


def trainer_for(
    reader: Any, path: Path, validates: bool = True, metric: str = "loss"
) -> SimpleNamespace:
    """What `attach` looks at."""
    trainer = SimpleNamespace(data_loader=DeCLUTRDataLoader(reader, str(path), batch_size=2))
    trainer.optimizer = None
    trainer._validation_data_loader = trainer.data_loader if validates else None
    trainer._metric_tracker = SimpleNamespace(tracked_metrics=[(-1.0, metric)])
    return trainer


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    file = tmp_path / "sentences.txt"
    file.write_text("ka lo mi\n\ntu re\nsa no\nve pi\n")
    return file


def test_a_validation_loss_that_there_is_not(checkpoint: Path, sentences: Path) -> None:
    """AllenNLP would take 0 for the loss of all epochs, and archive the first."""
    reader = SentenceReader(**parts(checkpoint))
    model = plain_model(checkpoint, views="dropout")
    with pytest.raises(ConfigurationError, match=r"no validation loss.*evaluate_embeddings"):
        model.attach(trainer_for(reader, sentences))
    model.attach(trainer_for(reader, sentences, validates=False))
    model.attach(trainer_for(reader, sentences, metric="sts"))
    pairs = SentenceReader(positives="next", **parts(checkpoint))
    plain_model(checkpoint).attach(trainer_for(pairs, sentences))


def test_no_validation_loss_without_positives_or_with_too_few_pairs(
    checkpoint: Path, sentences: Path, caplog: Any
) -> None:
    """Language modelling alone, and batches of a single pair."""
    alone = plain_model(checkpoint, mlm=True, loss=None)
    with pytest.raises(ConfigurationError, match="no validation loss where the dataset reader"):
        alone.attach(trainer_for(SentenceReader(**parts(checkpoint)), sentences))
    pairs = SentenceReader(positives="next", **parts(checkpoint))
    alone.attach(trainer_for(pairs, sentences))
    begun = trainer_for(SentenceReader(**parts(checkpoint)), sentences)
    begun._checkpointer = SimpleNamespace(find_latest_checkpoint=lambda: ("model", "training"))
    alone.attach(begun)  # by an earlier release
    assert "no validation loss where the dataset reader" in caplog.text
    trainer = trainer_for(pairs, sentences)
    trainer._validation_data_loader = DeCLUTRDataLoader(pairs, str(sentences), batch_size=1)
    message = r"at most 1 pair\(s\), and NTXent needs 2 for a validation loss: raise"
    with pytest.raises(ConfigurationError, match=message):
        plain_model(checkpoint).attach(trainer)
    plain_model(checkpoint, mlm=True).attach(trainer)  # it has the loss of language modelling
    spans_of = DeCLUTRDatasetReader(
        num_anchors=2, num_positives=1, max_span_len=2, min_span_len=1, **parts(checkpoint)
    )
    sentences.write_text("ka lo mi tu re sa no ve pi\n")
    trainer._validation_data_loader = DeCLUTRDataLoader(spans_of, str(sentences), batch_size=1)
    plain_model(checkpoint).attach(trainer)  # two anchors are two pairs


def test_views_that_change_nothing_are_told(checkpoint: Path, caplog: Any) -> None:
    views = {"type": "cutoff", "rate": 0.5}
    plain_model(checkpoint, views=views)
    assert "change nothing" not in caplog.text
    plain_model(checkpoint, loss=BANK, views=views)
    assert "InstanceDiscrimination compares no two views" in caplog.text
    assert "'views' (CutoffViews) change nothing" in caplog.text


def test_more_instances_than_places(checkpoint: Path, sentences: Path) -> None:
    reader = SentenceReader(with_ids=True, **parts(checkpoint))
    model = plain_model(checkpoint, loss={**BANK, "instances": 4})
    with pytest.raises(ConfigurationError, match=r"4 instances, but ids go up to 4.*at least 5"):
        model.attach(trainer_for(reader, sentences, validates=False))
    model = plain_model(checkpoint, loss={**BANK, "instances": 5})
    model.attach(trainer_for(reader, sentences, validates=False))


def parts(checkpoint: Path) -> dict[str, Any]:
    return {
        "tokenizer": PretrainedTransformerTokenizer(str(checkpoint)),
        "token_indexers": {"tokens": PretrainedTransformerIndexer(str(checkpoint))},
    }


def test_one_text_of_is_bert(checkpoint: Path) -> None:
    """In validation it has no loss, in training the error says what to do."""
    model = plain_model(checkpoint, loss={"type": "is_bert"}, seq2vec_encoder=NGRAMS)
    one = texts(count=1)
    assert "loss" not in model.eval()(one, one)
    with pytest.raises(ConfigurationError, match=r"1 anchor.*Raise batch_size"):
        model.train()(one)


def test_negatives_of_each_anchor_one_after_the_other(checkpoint: Path) -> None:
    rows = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    negatives = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    loss = Triplet()(rows, rows.flip(0), negatives)
    twice = rows.repeat_interleave(2, 0), rows.flip(0).repeat_interleave(2, 0)
    assert loss == triplet_loss(*twice, negatives)
