"""Both views of each kind, as the objective of a model gets them."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.models import Model

import declutr.plugin  # noqa: F401
from declutr.objectives import NTXent, scd_loss
from declutr.transformer.architectures import dropout_rate
from tests.transformer.test_dropout_rates import Rates


def model_of(checkpoint: Path, unpadding: str = "auto", **changes: Any) -> Any:
    embedder = {
        "unpadding": unpadding,
        "type": "pretrained_transformer_mlm",
        "model_name": str(checkpoint),
        "masked_language_modeling": False,
    }
    config = {
        "type": "declutr",
        "text_field_embedder": {"type": "mlm", "token_embedders": {"tokens": embedder}},
        "loss": {"type": "nt_xent"},
        **changes,
    }
    torch.manual_seed(0)
    # AllenNLP removes keys from configurations while it reads them.
    return Model.from_params(Params(copy.deepcopy(config)), vocab=Vocabulary()).train()


def texts(count: int = 6, length: int = 9, seed: int = 0) -> dict:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, 300, (count, length), generator=generator)
    mask = torch.arange(length) < torch.arange(length - count, length)[:, None] + 1
    tensors = {"token_ids": ids, "mask": mask, "type_ids": torch.zeros_like(ids)}
    return {"tokens": tensors}


def spans(seed: int = 0) -> dict:
    """Return texts as documents of one span each."""
    return {"tokens": {key: t[:, None] for key, t in texts(seed=seed)["tokens"].items()}}


def seen_by(model: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    """Return a list to which every call of the objective adds its arguments."""
    given: list[tuple] = []
    objective = model._loss.forward

    def forward(*views: Any, **beside: Any) -> Any:
        given.append((*views, *beside.values()))
        return objective(*views, **beside)

    monkeypatch.setattr(model._loss, "forward", forward)
    return given


def test_dropout_makes_two_views_in_one_pass(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(checkpoint, views="dropout")
    given = seen_by(model, monkeypatch)
    passes: list[int] = []
    model._text_field_embedder.register_forward_pre_hook(
        lambda _, given: passes.append(len(given[0]["tokens"]["token_ids"]))
    )
    loss = model(texts())["loss"]
    loss.backward()
    ((anchors, positives),) = given
    assert passes == [12] and anchors.shape == positives.shape == (6, 32)
    apart = (anchors - positives).norm(dim=1)
    assert (apart > 1e-3).all()  # dropout, of each text
    cosines = torch.nn.functional.cosine_similarity(anchors[:, None], positives[None], dim=-1)
    assert cosines.argmax(dim=1).tolist() == list(range(6))
    assert loss.item() == pytest.approx(NTXent()(anchors, positives).item(), rel=1e-6)


def test_without_dropout_the_views_are_equal(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(checkpoint, views={"type": "dropout_rates", "low": 0.0, "high": 0.5})
    given = seen_by(model, monkeypatch)
    model(texts())
    model.eval()
    expected = model(texts())["embeddings"]
    ((anchors, positives),) = given
    assert torch.allclose(anchors, expected, atol=1e-6)  # rate 0
    assert not torch.allclose(positives, expected, atol=1e-2)


def test_levels_are_embeddings_and_means_of_word_embeddings(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(checkpoint, views="levels")
    given = seen_by(model, monkeypatch)
    model(texts())["loss"].backward()
    ((anchors, positives),) = given
    assert anchors.shape == (6, 32)
    tokens = texts()["tokens"]
    table = model._text_field_embedder.token_embedder.transformer_model.get_input_embeddings()
    for ids, mask, words in zip(tokens["token_ids"], tokens["mask"], positives, strict=True):
        assert torch.allclose(words, table.weight[ids[mask]].mean(dim=0), atol=1e-6)
    (of_words,) = torch.autograd.grad(
        model._make_views.embed_positives(texts(), model._text_field_embedder).sum(), table.weight
    )
    reached = (of_words.abs().sum(dim=1) > 0).nonzero()[:, 0]
    assert torch.equal(reached, tokens["token_ids"][tokens["mask"]].unique())


def test_each_view_has_its_own_dropout_rate(checkpoint: Path) -> None:
    # Packed, torch's functions are not what computes; they get what the layers have all the same.
    views = {"type": "dropout_rates", "low": 0.05, "high": 0.15}
    model = model_of(checkpoint, unpadding="none", views=views)
    before = [part.p for part in model.modules() if isinstance(part, torch.nn.Dropout)]
    model(texts())  # the first pass also tries, without dropout, whether padding reaches tokens
    with Rates() as rates:
        model(texts())
    for seen in (rates.layers, rates.attention):
        half = len(seen) // 2
        assert set(seen[:half]) == {0.05} and set(seen[half:]) == {0.15}
    assert [p.p for p in model.modules() if isinstance(p, torch.nn.Dropout)] == before


def test_the_loss_of_scd_is_that_of_the_paper(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the embeddings and projections of the whole batch."""
    model = model_of(
        checkpoint,
        views="dropout_rates",
        head={"type": "projector", "hidden_dims": [16, 8]},
        loss={"type": "scd"},
        seq2vec_encoder={"type": "cls_pooler"},
    )
    given = seen_by(model, monkeypatch)
    loss = model(texts())["loss"]
    ((first, second, p, q),) = given
    assert first.shape == second.shape == (6, 32) and p.shape == q.shape == (6, 8)
    assert torch.allclose(p, model._head(first), atol=1e-5)
    assert loss.item() == pytest.approx(scd_loss(first, second, p, q).item(), rel=1e-5)
    loss.backward()
    assert all(
        parameter.grad is not None for parameter in model.parameters() if parameter.requires_grad
    )
    described = model.describe_objective()
    assert (described["views"], described["head"]) == ("DropoutRateViews", "Projector")


@pytest.mark.parametrize(
    "views", [{"type": "dropout_rates", "low": 0.0, "high": 1e-9}, {"type": "levels"}]
)
def test_chunks_equal_the_whole_batch_with_a_pass_for_each_view(
    checkpoint: Path, views: dict
) -> None:
    """Without dropout, gradients with and without chunks are equal."""
    gradients = []
    for chunk_size in (None, 2):
        model = model_of(checkpoint, views=views, chunk_size=chunk_size)
        with dropout_rate(model, 0.0):
            model(texts())["loss"].backward()
        gradients.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradient, gradients[1][name], atol=1e-5), name


def test_hard_negatives_reach_objectives_that_take_them(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = [spans(seed) for seed in range(3)]
    model = model_of(checkpoint, loss={"type": "info_nce"})
    given = seen_by(model, monkeypatch)
    model(*batch)["loss"].backward()
    assert [view.shape for view in given[0]] == 3 * [(6, 32)]
    with pytest.raises(ConfigurationError, match="hard negatives, of which NTXent makes no use"):
        model_of(checkpoint, loss={"type": "nt_xent"})(*batch)


@pytest.mark.parametrize("unpadding", ["auto", "none"])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("kind", ["token", "span", "feature"])
def test_cutoff_makes_the_second_view(
    kind: str, both: bool, unpadding: str, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without dropout, only a view that is not cut equals the embedding."""
    views = {"type": "cutoff", "kind": kind, "rate": 0.3, "both": both}
    model = model_of(checkpoint, unpadding=unpadding, views=views)
    given = seen_by(model, monkeypatch)
    with dropout_rate(model, 0.0):
        model(texts(length=20))["loss"].backward()
    model.eval()
    expected = model(texts(length=20))["embeddings"]
    ((anchors, positives),) = given
    assert torch.allclose(anchors, expected, atol=1e-5) is not both
    assert ((positives - expected).norm(dim=1) > 1e-2).all()
    assert ((anchors - positives).norm(dim=1) > 1e-2).all()


TANH = {"input_dim": 32, "num_layers": 1, "hidden_dims": 6, "activations": "tanh"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"views": {"type": "cutoff", "kind": "word"}}, "Unknown kind of cutoff 'word'"),
        ({"views": {"type": "cutoff", "rate": 1.0}}, r"rate must lie in \(0, 1\), got 1.0"),
        ({"loss": {"type": "scd"}}, "SCD compares embeddings and their projections: add a head"),
        (
            {"loss": {"type": "instance_discrimination", "instances": 3, "embedding_size": 64}},
            "embedding_size 64, but gets embeddings of width 32. Set model.loss.embedding_size",
        ),
        (
            {"loss": {"type": "quick_thoughts"}},
            'QuickThoughts finds what belongs together in the batch.*"views": "dropout"',
        ),
        (
            {"views": "levels", "two_encoders": True, "loss": {"type": "quick_thoughts"}},
            "LevelViews makes the vectors of the second view without an encoder",
        ),
        ({"views": {"type": "dropout_rates", "low": 0.2, "high": 0.1}}, "low must be below high"),
        ({"views": {"type": "dropout_rates", "high": 1.0}}, r"high must lie in \[0, 1\), got 1.0"),
        (
            {"head": {"type": "projector"}, "feedforward": TANH},
            "Got feedforward and head; give one",
        ),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(
    checkpoint: Path, changes: dict, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        model_of(checkpoint, **changes)


TENSION: dict[str, Any] = {
    "views": {"type": "tension", "negatives": 1, "dropout": 0.0},
    "loss": {"type": "contrastive_tension", "negatives": 1},
    "two_encoders": True,
    "embed_with_first": True,
}


def test_tension_pairs_one_sentence_with_itself_and_the_others_with_each_other(
    checkpoint: Path,
) -> None:
    """Of texts 0 to 5, by two encoders: (0, 0), (1, 2), (3, 3), (4, 5). Without dropout."""
    model = model_of(checkpoint, **TENSION)
    with torch.no_grad():
        for parameter in model._second_encoder["embedder"].parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    loss = model(texts())["loss"]
    loss.backward()
    left = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert left == []
    model.eval()
    with torch.no_grad():
        x = model(texts())["embeddings"].double()  # of the first encoder alone
        second = model._second_encoder
        vectors = second["embedder"](texts())
        y = second["pooler"](vectors, texts()["tokens"]["mask"]).double()
    assert x.shape == (6, 32) == (6, model.embedding_dim)
    terms = []
    for one, other, same in ((0, 0, True), (1, 2, False), (3, 3, True), (4, 5, False)):
        z = sum(a * b for a, b in zip(x[one].tolist(), y[other].tolist(), strict=True))
        terms.append(math.log1p(math.exp(-z if same else z)))
    assert loss.item() == pytest.approx(sum(terms) / 4, rel=1e-5)


def test_dropout_of_tension_is_that_of_the_encoder_by_default(checkpoint: Path) -> None:
    without, usual = (
        model_of(checkpoint, **TENSION | {"views": {"type": "tension", "negatives": 1, **rate}})
        for rate in ({"dropout": 0.0}, {})
    )
    with torch.no_grad():
        exact = [without(texts())["loss"].item() for _ in range(2)]
        assert exact[0] == exact[1] != usual(texts())["loss"].item()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"views": "dropout"},
            r"makes groups of 1 pair\(s\), and ContrastiveTension takes groups of 2",
        ),
        ({"loss": {"type": "info_nce"}}, "InfoNCE takes groups of 1"),
        ({"loss": {"type": "contrastive_tension"}}, "groups of 8.* with equal negatives"),
        ({"chunk_size": 3}, "makes pairs of a whole batch: remove chunk_size"),
        ({"views": {"type": "tension", "negatives": 0}}, "negatives must be above 0, got 0"),
        ({"views": {"type": "tension", "dropout": 1}}, r"dropout must lie in \[0, 1\), got 1"),
    ],
)
def test_parts_of_tension_that_do_not_fit(checkpoint: Path, changes: dict, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        model_of(checkpoint, **TENSION | changes)


def test_batches_that_make_no_whole_groups_are_refused(checkpoint: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"A batch has 5 texts.*batch_size to a multiple of 3"
    ):
        model_of(checkpoint, **TENSION)(texts(5))


def test_each_dropout_rate_also_holds_for_two_encoders(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = {"type": "dropout_rates", "low": 0.0, "high": 0.5}
    model = model_of(checkpoint, views=views, two_encoders=True)
    given = seen_by(model, monkeypatch)
    model(texts())
    expected = model.eval()(texts())["embeddings"][:, :32]
    assert torch.allclose(given[0][0], expected, atol=1e-6)
    assert not torch.allclose(given[0][1], expected, atol=1e-2)


def test_readers_and_views_that_do_not_fit_together_are_refused(checkpoint: Path) -> None:
    with pytest.raises(ConfigurationError, match=r'There are no positives.*"views": "dropout"'):
        model_of(checkpoint)(texts())
    with pytest.raises(ConfigurationError, match="DropoutViews makes both views of the same text"):
        model_of(checkpoint, views="dropout")(spans(), spans())
