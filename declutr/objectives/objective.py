"""The base classes of objectives and miners.

A model gives an objective the tensors that the arguments of its `forward` method name.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from inspect import Parameter
from typing import Any, NamedTuple

import torch
from allennlp.common import Registrable
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.deprecations import OBJECTIVE_ARGUMENTS, OBJECTIVE_ATTRIBUTES, Deprecated, warn
from declutr.objectives.numerics import check_classes, check_views, full_precision

_Names = tuple[str, ...]
_PAIR = ("anchors", "positives")
_TOKENS = ("token_vectors", "token_mask")
PROJECTIONS = ("projected_anchors", "projected_positives")
TARGETS = ("target_anchors", "target_positives")
VIEWS = (*_PAIR, "positive_views", "keys", *PROJECTIONS, *TARGETS, *_TOKENS)
PAIRS = ("positives", "positive_views", "keys", "projected_positives", "target_positives")
"""The arguments that only a second view can fill."""

OF_DATA = ("labels", "ids", "documents", "texts", "negatives")
"""The arguments that come from the batch itself and not from the embeddings of its two views."""

_KNOWN = (*VIEWS, *OF_DATA)
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_OF_ANY_NAME = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


class Miner(torch.nn.Module, Registrable):
    """A module that selects the pairs or triplets of a batch that a loss is computed of.

    `forward` takes embeddings `(M, d)` and labels `(M,)` and returns indices of pairs or triplets,
    as the miners of pytorch-metric-learning do. A subclass extends or holds one of those miners.
    """

    default_implementation = "pair_margin"


class Objective(torch.nn.Module, Registrable):
    """A loss of two views of the same N texts; subclasses are registered under a name.

    `forward` returns a scalar to be minimised. A model gives it the tensors that its arguments
    name; arguments with a default may be missing:

    - `anchors`, `positives`: the two views `(N, d)`, of which row i of both belongs together. They
      are projections if the model has a projection head, unless `projected_anchors` is an argument
      as well.
    - `positive_views` `(N, P, d)`: the P positives of each anchor, not averaged.
    - `projected_anchors`, `projected_positives`: projections `(N, m)`, given beside the embeddings.
    - `keys`: the positives as the momentum encoder embeds them, or `positives` if the model has no
      momentum encoder.
    - `target_anchors`, `target_positives`: both views as the momentum encoder embeds them or, if
      there is none, as they are before the predictor. They have no gradient.
    - `token_vectors` `(N, T, c)`, `token_mask` `(N, T)`: token embeddings of a pooler that returns
      them (`ngram_convolutions`); `anchors` are then their means `(N, c)`.
    - tensors of the batch: `labels` `(N,)`, classes (int64) or scores (float32); `ids` `(N,)`, the
      rows of the corpus; `documents` `(N,)`, the documents that rows belong to (int64); `texts`
      `(N,)`, integers (int64) that are equal for equal texts; `negatives` `(M, d)`.

    An objective that takes `anchors` but no second view needs none. In distributed training it gets
    the rows of all processes. Embeddings are in float32 at least; an objective that needs unit
    vectors normalises them itself.

    After a step an objective may leave more values to be logged in `last_terms` (scalars, logged as
    `<name>_term`) and `last_metrics` (means over pairs, logged under their own names).
    """

    default_implementation = "nt_xent"

    min_pairs: int = 2
    """The smallest number of pairs in a batch that the loss can learn from."""

    min_consecutive: int = 1
    """The number of rows of one document that must follow each other for a loss."""

    embedding_size: int | None = None
    """The width d of the views if the objective was configured with one; the model checks it."""

    same_texts: bool = False
    """Whether both views must be of the same text, as the objective finds pairs in the batch."""

    group: int = 1
    """The number of consecutive pairs that belong together, which the views of a model make."""

    @property
    def inputs(self) -> dict[str, bool]:
        """The names of the tensors that `forward` takes, and whether each of them is required."""
        return inputs_of(self).required

    def forward(self, anchors: Tensor, positives: Tensor) -> Tensor:
        """Compute the scalar loss; subclasses may name other arguments, see the class."""
        raise NotImplementedError

    def attach_miner(self, miner: Miner) -> None:
        """Let `miner` select the pairs of the loss, or raise if the objective takes no miner."""
        raise ConfigurationError(f"{type(self).__name__} takes no miner: remove the key 'miner'.")

    def require_embeddings(self, width: int, projected: bool, concatenated: bool) -> None:
        """Raise `ConfigurationError` if the loss cannot be of the embeddings of a model.

        # Parameters

        width : the width d of embeddings.
        projected : whether a head or feedforward layer stands between them and the loss.
        concatenated : whether there are two encoders.
        """

    def follow_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Register hooks on the optimizer of the objective, which the model calls this with."""


class MetricLearningObjective(Objective):
    """An objective of labelled rows, which is the form that pytorch-metric-learning works on.

    The 2N rows are the N anchors followed by the N positives. Rows i and N + i have the same label.
    It is i, or the label in the data: the class of both texts, so that all texts of a class are
    positives of each other. Labels that say how two texts are related (such as paraphrases or not)
    are for `pair_softmax` and `cosine_regression`. Subclasses implement `labelled_loss`.
    """

    takes_labels: bool = True
    """Whether the objective takes classes of texts; if not, each pair is a class."""

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
        """Return a label `(N,)` for each pair of a batch without labels in the data."""
        return torch.arange(count, device=device)

    def labelled_loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Compute the scalar loss of embeddings `(2N, d)` with labels `(2N,)`."""
        raise NotImplementedError


class LibraryObjective(MetricLearningObjective):
    """An objective that is equal to a loss of pytorch-metric-learning and takes a miner.

    Subclasses implement `pair_loss`. The objective `cross_batch_memory` can wrap any of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._miner: Miner | None = None

    def pair_loss(self, mined: bool) -> torch.nn.Module:
        """Return the loss of pytorch-metric-learning to use, with a miner if `mined` is true."""
        raise NotImplementedError

    def attach_miner(self, miner: Miner) -> None:
        self._miner = miner

    @full_precision
    def labelled_loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        pairs = None if self._miner is None else self._miner(embeddings, labels)
        return self.pair_loss(mined=pairs is not None)(embeddings, labels, pairs)


class Inputs(NamedTuple):
    """The tensors that the `forward` method of an objective takes."""

    positional: _Names
    """The views that are passed by position, because `forward` has other names for them."""

    required: dict[str, bool]
    """The names of all tensors, and whether each is required because `forward` has no default."""


def inputs_of(objective: torch.nn.Module) -> Inputs:
    """Return the tensors that an objective takes, as the signature of its `forward` names them.

    The two views may have any names. Class attributes that say what an objective takes are
    deprecated: views in `compares`, `uses_projections`, `uses_targets`; others in `needs`, `takes`.

    # Raises

    `ConfigurationError` : if `forward` has an argument that no model gives.
    """
    kind, declared = type(objective), _declared(objective)
    inputs = _of_signature(kind.forward, kind.__name__, _declared_views(declared))
    if not declared.keys() & {"needs", "takes"}:
        return inputs
    taken = {name: required for name, required in inputs.required.items() if name in VIEWS}
    for attribute, required in (("takes", False), ("needs", True)):
        taken |= dict.fromkeys(declared.get(attribute, ()), required)
    return Inputs(inputs.positional, taken)


def with_positives(inputs: Mapping[str, bool], several: bool) -> dict[str, bool]:
    """Return inputs of an objective with positives as `several` views of their own, or as one."""
    kept, left = ("positive_views", "positives") if several else ("positives", "positive_views")
    return {name: needed or name == kept for name, needed in inputs.items() if name != left}


def loss_of(objective: Any, given: Mapping[str, Tensor]) -> Tensor:
    """Compute the loss of an objective from those of the `given` tensors that it takes."""
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
    """Return the views to pass by position: up to the last one with a name of `forward`'s own."""
    if arguments and arguments[0].kind is Parameter.VAR_POSITIONAL:
        return _PAIR
    first = [argument for argument in arguments[:2] if argument.kind in _POSITIONAL]
    if not any(argument.name in VIEWS for argument in arguments):
        return _PAIR[: len(first)]
    own = [n for n, a in enumerate(first, 1) if a.name not in _KNOWN and a.default is a.empty]
    return _PAIR[: max(own, default=0)]


def _declared(objective: torch.nn.Module) -> dict[str, Any]:
    """Return what the deprecated class attributes declare, with a warning for each of them."""
    kind, declared = type(objective), {}
    for name in OBJECTIVE_ATTRIBUTES:
        if (value := getattr(objective, name, None)) is not None:
            declared[name] = value
            old = Deprecated(f"{kind.__module__}.{kind.__qualname__}.{name}", OBJECTIVE_ARGUMENTS)
            warn(old, inspect.unwrap(kind.forward))  # type: ignore[arg-type]
    return declared


def _declared_views(declared: dict[str, Any]) -> _Names | None:
    """Return the views that the attributes declare, by the positions of `forward`, if they do."""
    compares, targets = declared.get("compares"), declared.get("uses_targets")
    if compares == "texts":
        return ("anchors",)
    if compares == "tokens":
        return (*_TOKENS, "anchors")
    if declared.get("uses_projections") == "beside":
        return (*_PAIR, *PROJECTIONS)
    if targets is None:
        return _PAIR if compares == "views" else None
    return (*_PAIR, *TARGETS) if targets == "both" else ("anchors", "keys")
