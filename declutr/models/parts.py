"""Construction of the parts of the Model "declutr", and checks that they fit together."""

import copy
import logging
from collections.abc import Mapping
from typing import Any

import torch
from allennlp.common import Lazy
from allennlp.common.checks import ConfigurationError
from allennlp.modules import FeedForward, Seq2VecEncoder, TextFieldEmbedder
from allennlp.modules.seq2vec_encoders import BagOfEmbeddingsEncoder

from declutr.models.views import Views
from declutr.modules.embedders import MLMTextFieldEmbedder
from declutr.modules.heads import Head, MomentumEncoder
from declutr.modules.token_embedding_bag import MeanOfBag, TokenEmbeddingBag
from declutr.modules.transformer_embedder import TransformerEmbedder
from declutr.objectives import Objective
from declutr.objectives.numerics import one_of
from declutr.objectives.objective import PAIRS, PROJECTIONS, TARGETS
from declutr.transformer.architectures import freeze_never_used

logger = logging.getLogger(__name__)

PRECISIONS = ("auto", "bfloat16", "float32")
"""The values of `precision`; see `declutr.modules.precision.training_precision`."""

# ---------------------------------------------------------------------------------- construction


def pooler_of(
    given: Lazy[Seq2VecEncoder] | Seq2VecEncoder | None, embedder: TextFieldEmbedder
) -> Seq2VecEncoder:
    """Return the pooler of a configuration, by default the mean over all tokens.

    Its `embedding_dim` is the width of token embeddings; another raises `ConfigurationError`.
    """
    width = embedder.get_output_dim()
    if given is None and isinstance(embedder, TokenEmbeddingBag):
        return MeanOfBag(width)
    if given is None:
        return BagOfEmbeddingsEncoder(width, averaged=True)
    pooler = _built(given, embedding_dim=width)
    if isinstance(pooler, MeanOfBag) and not isinstance(embedder, TokenEmbeddingBag):
        raise ConfigurationError(
            f"The pooler token_embedding_bag has no table in a {type(embedder).__name__}: remove "
            'seq2vec_encoder, or set the type of text_field_embedder to "token_embedding_bag".'
        )
    _require_width("seq2vec_encoder", pooler.get_input_dim(), width)
    return pooler


def freeze_unused(embedder: TextFieldEmbedder) -> None:
    """Freeze what this package's embedders never use of their transformers (global attention, …).

    Parameters without gradients would stop distributed training. Embedders of other packages may
    use them.
    """
    for part in embedder.modules():
        if isinstance(part, TransformerEmbedder):
            freeze_never_used(part.transformer_model)


def head_of(given: Lazy[Head] | None, width: int, feedforward: FeedForward | None) -> Head | None:
    """Return the head for embeddings of a width, or `None`; raise if there is a feedforward too."""
    if given is not None and feedforward is not None:
        raise ConfigurationError("Got feedforward and head; give one of them.")
    return _built(given, input_dim=width)


def predictor_of(
    given: Lazy[Head] | None, head: Head | None, loss: Objective | None
) -> Head | None:
    """Return the predictor of a configuration, built for the projections of a head, or `None`.

    # Raises

    `ConfigurationError` : there is no head, the objective has no targets, or the predictor does not
        give vectors as wide as projections.
    """
    if given is None:
        return None
    if head is None or loss is None or not loss.inputs.keys() & set(TARGETS):
        raise ConfigurationError(
            "A predictor stands between a head and an objective such as byol: give both, or remove "
            "it."
        )
    predictor = _built(given, input_dim=head.output_dim)
    _require_width("predictor, which predicts projections,", predictor.output_dim, head.output_dim)
    return predictor


def _built(given: Any, **widths: int) -> Any:
    return given.construct(**widths) if isinstance(given, Lazy) else given


def second_encoder(parts: Mapping[str, torch.nn.Module | None]) -> torch.nn.ModuleDict:
    """Return copies of the parts of an encoder, with the language modelling head frozen."""
    copies = {name: copy.deepcopy(part) for name, part in parts.items() if part is not None}
    second = torch.nn.ModuleDict(copies)
    if isinstance(second["embedder"], MLMTextFieldEmbedder):
        second["embedder"].freeze_head()
    return second


def decoder_of(embedder: TextFieldEmbedder, trained: bool) -> torch.nn.Module:
    """Return the decoder that reconstructs texts from the embeddings of an encoder.

    # Parameters

    embedder : the text field embedder.
    trained : whether its language modelling head is trained, and it is the only encoder.

    # Raises

    `ConfigurationError` : it is not, or its transformer has no cross-attention.
    """
    from declutr.modules.text_decoder import TextDecoder  # a second transformer, rarely wanted

    if not trained or not isinstance(embedder, MLMTextFieldEmbedder):
        raise ConfigurationError(
            "reconstruct needs the language modelling head of a single encoder: give it a text "
            'field embedder of type "mlm" with masked_language_modeling, and mlm_weight above 0, '
            "and remove two_encoders; or set reconstruct to false."
        )
    token_embedder = embedder.token_embedder
    return TextDecoder(token_embedder.transformer_model, token_embedder.encoder)


# ---------------------------------------------------------------------------- checks of the parts


def require_feedforward(
    feedforward: FeedForward | None, width: int, loss: Objective | None
) -> None:
    """Raise if a feedforward layer has the wrong input width, or there is no contrastive loss."""
    if feedforward is None:
        return
    _require_width("feedforward", feedforward.get_input_dim(), width)
    if loss is None:
        raise ConfigurationError(
            "A feedforward layer projects for a contrastive loss: set 'loss', or remove it."
        )


def require_objective(
    loss: Objective | None,
    projection: Any | None,
    pooler: Seq2VecEncoder,
    views: Views,
    chunk_size: int | None,
) -> None:
    """Raise unless a model of these parts can give the objective the inputs that it needs."""
    if loss is None:
        return
    name = type(loss).__name__
    if loss.same_texts and views.needs_positives:
        raise ConfigurationError(
            f"{name} finds what belongs together in the batch itself: remove positives from the "
            'dataset reader, and set "views": "dropout".'
        )
    if loss.group != views.group:
        raise ConfigurationError(
            f"{type(views).__name__} makes groups of {views.group} pair(s), and {name} takes "
            f'groups of {loss.group}: contrastive_tension and the views "tension" go together, '
            "with equal negatives."
        )
    if views.group > 1 and chunk_size is not None:
        raise ConfigurationError(
            f"{type(views).__name__} makes pairs of a whole batch: remove chunk_size."
        )
    if "token_vectors" in loss.inputs:
        if not hasattr(pooler, "local_vectors"):
            raise ConfigurationError(
                f"{name} compares tokens with texts, for which {type(pooler).__name__} has no "
                'vectors. Set "seq2vec_encoder": {"type": "ngram_convolutions"}.'
            )
        if projection is not None or chunk_size is not None:
            raise ConfigurationError(
                f"{name} takes the vectors of tokens as they are, and those of the whole batch: "
                "remove feedforward, head and chunk_size."
            )
    if projection is None and loss.inputs.keys() & set(PROJECTIONS):
        raise ConfigurationError(
            f"{name} compares embeddings and their projections: add a head, such as "
            '{"type": "projector", "hidden_dims": [4096, 4096, 4096]}.'
        )
    _require_size(loss, pooler, projection)


def _require_size(loss: Objective, pooler: Seq2VecEncoder, projection: Any | None) -> None:
    """Raise unless the inputs of the objective are as wide as its `embedding_size`."""
    if projection is None:
        width, of = pooler.get_output_dim(), "embeddings"
    else:
        width = getattr(projection, "output_dim", None) or projection.get_output_dim()
        of = "projections"
    if loss.embedding_size not in (None, width):
        raise ConfigurationError(
            f"The loss has embedding_size {loss.embedding_size}, but gets {of} of width {width}. "
            f"Set model.loss.embedding_size to {width}."
        )


def require_other_encoders(
    loss: Objective | None,
    momentum: MomentumEncoder | None,
    two_encoders: bool,
    feedforward: FeedForward | None,
    views: Views,
) -> None:
    """Raise if a momentum encoder or a second encoder does not fit the other parts."""
    inputs = set(loss.inputs) if loss is not None else set()
    if momentum is not None and not inputs & {"keys", *TARGETS}:
        raise ConfigurationError(
            f"{type(loss).__name__} does not compare with a target: remove momentum_encoder, or "
            "take an objective such as moco or byol. (A weighted_sum does if one of its terms "
            "does.)"
        )
    if momentum is not None and feedforward is not None:
        raise ConfigurationError(
            "With a momentum_encoder, projections are made by 'head': use it for 'feedforward'."
        )
    if two_encoders and not inputs & set(PAIRS):
        raise ConfigurationError(
            "Two encoders embed two views: set a 'loss' that compares two, such as quick_thoughts, "
            "or remove two_encoders."
        )
    if two_encoders and (momentum is not None or feedforward is not None):
        raise ConfigurationError(
            "two_encoders goes with neither momentum_encoder, which would be a third, nor "
            "feedforward: remove them; 'head' projects for each encoder."
        )
    if views.embeds_positives and (momentum is not None or two_encoders):
        raise ConfigurationError(
            f"{type(views).__name__} makes the vectors of the second view without an encoder: "
            "remove momentum_encoder and two_encoders, or take other views."
        )


def warn_of_unused_views(views: Views, loss: Objective | None) -> None:
    """Warn of views that an objective of single texts makes no use of."""
    if loss is not None and views.group == 1 and not loss.inputs.keys() & set(PAIRS):
        logger.warning(
            f"{type(loss).__name__} compares no two views of a text, so 'views' "
            f"({type(views).__name__}) change nothing. Remove the key."
        )


def warn_of_unused_settings(
    loss: Objective | None,
    masks: bool,
    predicts: bool,
    two_encoders: bool,
    *,
    contrastive_weight: float,
    mlm_weight: float,
    mlm_probability: float,
    embed_with_first: bool,
) -> None:
    """Warn of settings that a model of these parts makes no use of.

    # Parameters

    loss : the contrastive objective.
    masks, predicts : whether tokens are masked, and whether masked or all tokens are predicted.
    two_encoders : whether there is a second encoder.
    contrastive_weight, mlm_weight, mlm_probability, embed_with_first : the settings of the model.
    """
    unmasked = "no tokens are masked (masked_language_modeling of the token embedder)"
    unused = {
        "contrastive_weight": not loss and contrastive_weight not in (0, 1) and "there is no loss",
        "mlm_weight": not predicts and mlm_weight not in (0, 1) and unmasked,
        "mlm_probability": not masks and mlm_weight and mlm_probability != 0.15 and unmasked,
        "embed_with_first": not two_encoders and embed_with_first and "two_encoders is false",
    }
    for key, why in unused.items():
        if why:
            logger.warning(f"The model's {key} changes nothing, as {why}. Remove the key.")


def warn_of_no_masks(embedder: torch.nn.Module) -> None:
    """Warn of a transformer with a language modelling head in an embedder that masks no tokens."""
    wanted = any(getattr(part, "masked_language_modeling", False) for part in embedder.modules())
    if wanted and not hasattr(embedder, "masked_language_modeling"):
        logger.warning(
            "masked_language_modeling of the token embedder changes nothing, as the text field "
            'embedder is not of type "mlm". Set its type to "mlm", or the key to false.'
        )


def require_a_term(contrastive: bool, masked_language_modeling: bool) -> None:
    """Raise if there is neither a contrastive loss nor masked language modelling."""
    if not contrastive and not masked_language_modeling:
        raise ConfigurationError(
            "Nothing to train by: give the model a contrastive 'loss', or a text field "
            'embedder of type "mlm" with masked_language_modeling, or both (weights above 0).'
        )


def require_settings(mlm_probability: float, precision: str, chunk_size: int | None) -> None:
    """Raise if `mlm_probability`, `precision` or `chunk_size` is out of range."""
    if not 0 < mlm_probability <= 1:
        raise ConfigurationError(f"mlm_probability must lie in (0, 1], got {mlm_probability}.")
    one_of("precision", precision, PRECISIONS)
    if chunk_size is not None and chunk_size < 1:
        raise ConfigurationError(f"chunk_size must be at least 1, got {chunk_size}.")


def _require_width(name: str, got: int, expected: int) -> None:
    if got != expected:
        raise ConfigurationError(
            f"The input of {name} is {got} wide, but gets vectors of width {expected}. Set its "
            f"input dimension to {expected}."
        )
