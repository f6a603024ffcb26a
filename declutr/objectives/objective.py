"""What every contrastive objective is, and which tensors it is given: those its `forward` names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from inspect import Parameter
from typing import Any, NamedTuple

import torch
from allennlp.common import Registrable
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.objectives.checks import check_classes, check_views
from declutr.objectives.numerics import full_precision

_Names = tuple[str, ...]
_PAIR = ("anchors", "positives")
_TOKENS = ("token_vectors", "token_mask")
PROJECTIONS = ("projected_anchors", "projected_positives")
TARGETS = ("target_anchors", "target_positives")
VIEWS = (*_PAIR, "keys", *PROJECTIONS, *TARGETS, *_TOKENS)
PAIRS = ("positives", "keys", "projected_positives", "target_positives")
"""What there is of a second view alone."""

OF_DATA = ("labels", "ids", "documents", "texts", "negatives")
"""What comes with a batch beside its two views."""

_KNOWN = (*VIEWS, *OF_DATA)
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_OF_ANY_NAME = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


class Miner(torch.nn.Module, Registrable):
    """Takes embeddings `(M, d)` and labels `(M,)`; returns indices of pairs or of triplets.

    Subclasses also subclass a miner of pytorch-metric-learning, or hold one.
    """

    default_implementation = "pair_margin"


class Objective(torch.nn.Module, Registrable):
    """A loss between two views of the same N things; register subclasses under a name.

    `forward` returns a scalar to be minimised. A model gives it what its arguments name, of which
    those with a default may be missing:

    - `anchors`, `positives`: the two views `(N, d)`, row i of both belonging together. They are
      projections where the model projects, unless `projected_anchors` are asked for as well.
    - `projected_anchors`, `projected_positives`: projections `(N, m)`, beside embeddings.
    - `keys`: positives by the momentum encoder, or `positives` where there is none.
    - `target_anchors`, `target_positives`: both views by the momentum encoder or, where there is
      none, as they are before the predictor. They have no gradient.
    - `token_vectors` `(N, T, c)` and `token_mask` `(N, T)`, of a pooler that has them
      (`ngram_convolutions`); `anchors` are their means `(N, c)` then.
    - what comes with a batch: `labels` `(N,)`, classes (int64) or scores (float32); `ids` `(N,)`,
      the rows of the corpus; `documents` `(N,)`, the documents they belong to (int64); `texts`
      `(N,)`, equal numbers (int64) for equal texts; `negatives` `(M, d)`.

    An objective of `anchors` alone needs no second view. Under several processes all hold the rows
    of all of them. Embeddings come in float32 at least; normalisation is the objective's own
    business.

    After a step, `last_terms` (scalars, logged as `<name>_term`) and `last_metrics` (means over
    pairs, logged under their own names) may hold what else is worth logging.
    """

    default_implementation = "nt_xent"

    min_pairs: int = 2
    """Fewer pairs than this have no negatives, and the loss says nothing."""

    embedding_size: int | None = None
    """The width of what it gets, where it was told; the model sees that it is."""

    same_texts: bool = False
    """Whether both views must be of the same text: it finds other pairs in the batch itself."""

    @property
    def inputs(self) -> dict[str, bool]:
        """The names of what it takes, and whether that must be given: the arguments of `forward`,
        unless a subclass says otherwise."""
        return inputs_of(self).required

    def forward(self, anchors: Tensor, positives: Tensor) -> Tensor:
        raise NotImplementedError

    def attach_miner(self, miner: Miner) -> None:
        """Select pairs with `miner` before the loss; objectives that cannot do so raise."""
        raise ConfigurationError(f"{type(self).__name__} takes no miner: remove the key 'miner'.")


class MetricLearningObjective(Objective):
    """Two views as labelled rows, which is what pytorch-metric-learning works on.

    The 2N rows are the N anchors and after them the N positives; row i and row N + i share a label,
    which is i, or what `labels` of the data say: the class of both texts, so that all texts of a
    class are positives of each other. What two texts are to each other (paraphrases or not) is for
    `pair_softmax` and `cosine_regression`.
    Subclasses implement `labelled_loss`.
    """

    takes_labels: bool = True
    """Whether it asks for the classes of texts; otherwise it numbers pairs itself."""

    @property
    def inputs(self) -> dict[str, bool]:
        skipped = () if self.takes_labels else ("labels",)
        return {name: needed for name, needed in super().inputs.items() if name not in skipped}

    def forward(
        self, anchors: Tensor, positives: Tensor, *, labels: Tensor | None = None
    ) -> Tensor:
        check_views(anchors, positives, "Anchors and positives")
        if labels is None:
            labels = self.labels(anchors.size(0), anchors.device)
        check_classes(labels, anchors.size(0))
        return self.labelled_loss(torch.cat([anchors, positives]), torch.cat([labels, labels]))

    def labels(self, count: int, device: torch.device) -> Tensor:
        """The labels `(N,)` of the pairs of one batch."""
        return torch.arange(count, device=device)

    def labelled_loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The scalar loss of rows `(2N, d)` with labels `(2N,)`."""
        raise NotImplementedError


class LibraryObjective(MetricLearningObjective):
    """An objective that is a loss of pytorch-metric-learning, or equal to one, of pairs that a
    miner may select.

    Subclasses implement `pair_loss`. `cross_batch_memory` goes around any of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._miner: Miner | None = None

    def pair_loss(self, mined: bool) -> torch.nn.Module:
        """The loss of pytorch-metric-learning that serves with or without a miner."""
        raise NotImplementedError

    def attach_miner(self, miner: Miner) -> None:
        self._miner = miner

    @full_precision
    def labelled_loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        pairs = None if self._miner is None else self._miner(embeddings, labels)
        return self.pair_loss(mined=pairs is not None)(embeddings, labels, pairs)


class Inputs(NamedTuple):
    """What an objective takes."""

    positional: _Names
    """Views that are passed by position, because `forward` has other names for them."""

    required: dict[str, bool]
    """All names, and whether `forward` has no default for them."""


def inputs_of(objective: torch.nn.Module) -> Inputs:
    """Read off the arguments of `forward` what an objective takes.

    Objectives that were written for releases before 1.9 may give the two views any names, or
    declare by class attributes what they take: views by `compares`, `uses_projections` and
    `uses_targets`, and what comes with a batch by `needs` and `takes`.

    # Raises

    `ConfigurationError` : `forward` takes something that no model gives.
    """
    kind = type(objective)
    inputs = _of_signature(kind.forward, kind.__name__, _declared_views(objective))
    needs, takes = (getattr(objective, name, None) for name in ("needs", "takes"))
    if needs is None and takes is None:
        return inputs
    views = {name: required for name, required in inputs.required.items() if name in VIEWS}
    of_data = dict.fromkeys(takes or (), False) | dict.fromkeys(needs or (), True)
    return Inputs(inputs.positional, {**views, **of_data})


def loss_of(objective: Any, given: Mapping[str, Tensor]) -> Tensor:
    """Compute an objective's loss from what it takes of `given`."""
    positional = inputs_of(objective).positional
    named = [name for name in objective.inputs if name in given and name not in positional]
    return objective(*(given[name] for name in positional), **{name: given[name] for name in named})


@cache
def _of_signature(forward: Callable[..., Any], owner: str, declared: _Names | None) -> Inputs:
    _, *arguments = inspect.signature(forward).parameters.values()  # without `self`
    positional = _with_other_names(arguments) if declared is None else declared
    required = dict.fromkeys(positional, True)
    for place, argument in enumerate(arguments):
        if place < len(positional) and argument.kind is not Parameter.KEYWORD_ONLY:
            continue
        if argument.name in _KNOWN:
            required[argument.name] = argument.default is argument.empty
        elif argument.default is argument.empty and argument.kind not in _OF_ANY_NAME:
            raise ConfigurationError(
                f"The forward method of {owner} takes '{argument.name}', which no model gives. "
                f"Name it as one of {', '.join(_KNOWN)}, or give it a default."
            )
    return Inputs(positional, required)


def _with_other_names(arguments: list[Parameter]) -> _Names:
    """The views of a pair that `forward` has names of its own for, and those before them."""
    if arguments and arguments[0].kind is Parameter.VAR_POSITIONAL:
        return _PAIR
    first = [argument for argument in arguments[:2] if argument.kind in _POSITIONAL]
    if not any(argument.name in VIEWS for argument in arguments):
        return _PAIR[: len(first)]
    own = [n for n, a in enumerate(first, 1) if a.name not in _KNOWN and a.default is a.empty]
    return _PAIR[: max(own, default=0)]


def _declared_views(objective: torch.nn.Module) -> _Names | None:
    """The views that class attributes declare, in the order of the arguments of `forward`."""
    compares = getattr(objective, "compares", None)
    if compares == "texts":
        return ("anchors",)
    if compares == "tokens":
        return (*_TOKENS, "anchors")
    if getattr(objective, "uses_projections", None) == "beside":
        return (*_PAIR, *PROJECTIONS)
    targets = getattr(objective, "uses_targets", None)
    if targets is not None:
        return (*_PAIR, *TARGETS) if targets == "both" else ("anchors", "keys")
    return _PAIR if compares == "views" else None
