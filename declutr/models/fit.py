"""What the Model "declutr" is put together of, and whether it fits."""

from __future__ import annotations

import copy
from typing import Any

import torch
from allennlp.common import Lazy
from allennlp.common.checks import ConfigurationError
from allennlp.modules import FeedForward, Seq2VecEncoder, TextFieldEmbedder
from allennlp.modules.seq2vec_encoders import BagOfEmbeddingsEncoder

from declutr.models.views import Views
from declutr.modules.embedders import MLMTextFieldEmbedder
from declutr.modules.heads import Head
from declutr.modules.momentum import MomentumEncoder
from declutr.objectives import Objective
from declutr.objectives.objective import TOKENS, VIEWS


def pooler_of(given: Lazy[Seq2VecEncoder] | Seq2VecEncoder | None, width: int) -> Seq2VecEncoder:
    """The pooler of a configuration, told the width of token vectors unless it says its own."""
    if given is None:
        return BagOfEmbeddingsEncoder(width, averaged=True)
    return given.construct(embedding_dim=width) if isinstance(given, Lazy) else given


def head_of(given: Lazy[Head] | None, width: int, feedforward: FeedForward | None) -> Head | None:
    """The head of a configuration, told the width of embeddings."""
    if given is None:
        return None
    if feedforward is not None:
        raise ConfigurationError("Got feedforward and head; give one of them.")
    return given.construct(input_dim=width) if isinstance(given, Lazy) else given


def predictor_of(
    given: Lazy[Head] | None, head: Head | None, loss: Objective | None
) -> Head | None:
    """The predictor of a configuration, told the width of projections."""
    if given is None:
        return None
    if head is None or loss is None or loss.uses_targets != "both":
        raise ConfigurationError(
            "A predictor stands between a head and an objective such as byol: give both, or remove "
            "it."
        )
    predictor = given.construct(input_dim=head.output_dim) if isinstance(given, Lazy) else given
    require_fit("predictor, which predicts projections,", predictor.output_dim, head.output_dim)
    return predictor


def require_targets(
    loss: Objective | None, momentum: MomentumEncoder | None, feedforward: FeedForward | None
) -> None:
    """Raise if there is a momentum encoder that nothing compares with."""
    if momentum is None:
        return
    if loss is None or loss.uses_targets is None:
        raise ConfigurationError(
            f"{type(loss).__name__} does not compare with a target: remove momentum_encoder, or "
            "take an objective such as moco or byol. (A weighted_sum does if all its terms do.)"
        )
    if feedforward is not None:
        raise ConfigurationError(
            "With a momentum_encoder, projections are made by 'head': use it for 'feedforward'."
        )


def require_objective(
    loss: Objective | None,
    projects: bool,
    pooler: Seq2VecEncoder,
    views: Views,
    chunk_size: int | None,
) -> None:
    """Raise unless a model of these parts can serve the objective."""
    if loss is None:
        return
    name = type(loss).__name__
    if loss.same_texts and views.needs_positives:
        raise ConfigurationError(
            f"{name} finds what belongs together in the batch itself: remove positives from the "
            'dataset reader, and set "views": "dropout".'
        )
    if loss.compares == TOKENS:
        if not hasattr(pooler, "local_vectors"):
            raise ConfigurationError(
                f"{name} compares tokens with texts, for which {type(pooler).__name__} has no "
                'vectors. Set "seq2vec_encoder": {"type": "ngram_convolutions"}.'
            )
        if projects or chunk_size is not None:
            raise ConfigurationError(
                f"{name} takes the vectors of tokens as they are, and those of the whole batch: "
                "remove feedforward, head and chunk_size."
            )
    if loss.uses_projections == "beside" and not projects:
        raise ConfigurationError(
            f"{name} compares embeddings and their projections: add a head, such as "
            '{"type": "projector", "hidden_dims": [4096, 4096, 4096]}.'
        )


def require_width(loss: Objective | None, pooler: Seq2VecEncoder, projection: Any | None) -> None:
    """Raise unless the objective gets what is as wide as it was told."""
    if loss is None or loss.embedding_size is None:
        return
    if projection is None:
        width, of = pooler.get_output_dim(), "embeddings"
    else:
        width = getattr(projection, "output_dim", None) or projection.get_output_dim()
        of = "projections"
    if loss.embedding_size != width:
        raise ConfigurationError(
            f"The loss has embedding_size {loss.embedding_size}, but gets {of} of width {width}. "
            f"Set model.loss.embedding_size to {width}."
        )


def require_two_encoders(
    loss: Objective | None,
    momentum: MomentumEncoder | None,
    feedforward: FeedForward | None,
) -> None:
    """Raise unless a model of these parts can have two encoders."""
    if loss is None or loss.compares != VIEWS:
        raise ConfigurationError(
            "Two encoders embed two views: set a 'loss' that compares two, such as quick_thoughts, "
            "or remove two_encoders."
        )
    if momentum is not None or feedforward is not None:
        raise ConfigurationError(
            "two_encoders goes with neither momentum_encoder, which would be a third, nor "
            "feedforward: remove them; 'head' projects for each encoder."
        )


def require_one_encoder(views: Views, momentum: MomentumEncoder | None, two_encoders: bool) -> None:
    """Raise if another encoder is to embed a view that none does."""
    if views.embeds_positives and (momentum is not None or two_encoders):
        raise ConfigurationError(
            f"{type(views).__name__} makes the vectors of the second view without an encoder: "
            "remove momentum_encoder and two_encoders, or take other views."
        )


def require_fit(name: str, got: int, expected: int) -> None:
    """Raise unless a module takes vectors as wide as it gets."""
    if got != expected:
        raise ConfigurationError(
            f"The input of {name} is {got} wide, but gets vectors of width {expected}. Set its "
            f"input dimension to {expected}."
        )


def second_encoder(
    embedder: TextFieldEmbedder, pooler: Seq2VecEncoder, head: Head | None
) -> torch.nn.ModuleDict:
    """Copies of an encoder's parts, to go ways of their own; no language is modelled by them."""
    parts = {"embedder": embedder, "pooler": pooler, "head": head}
    second = torch.nn.ModuleDict(
        {name: copy.deepcopy(part) for name, part in parts.items() if part is not None}
    )
    if isinstance(second["embedder"], MLMTextFieldEmbedder):
        second["embedder"].freeze_head()
    return second
