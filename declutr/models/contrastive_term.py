"""The contrastive term: what the objective is given of the embeddings of a batch, and its loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.modules import FeedForward

from declutr.models.encoding import Encoders
from declutr.models.step_record import StepRecord
from declutr.modules.heads import Head
from declutr.objectives import Objective
from declutr.objectives.objective import PROJECTIONS, TARGETS, loss_of
from declutr.system.distributed import gather_numbers, gather_rows, gather_tokens, world_size
from declutr.system.host_memory import carried

_WHERE_FROM = {
    "labels": 'the reader "text_pairs" does, classes with labels "class" or "nli", scores with '
    'labels "score"',
    "ids": "its key 'with_ids' makes it",
    "documents": "the reader \"sentences\" does, with its key 'with_ids'",
    "negatives": 'the reader "text_pairs" does, with negative columns or format "nli"',
}


class ContrastiveTerm:
    """The loss of an objective over the rows of all processes.

    # Parameters

    objective : names what it takes.
    encoders : their heads project.
    feedforward : projects in place of heads, in each process before anything is gathered.
    predictor : on the projections of anchors and positives, for objectives with targets.
    scale_fix : multiply gradients by the number of processes, as DistributedDataParallel averages.
    record : of the steps.
    """

    def __init__(
        self,
        objective: Objective,
        encoders: Encoders,
        feedforward: FeedForward | None,
        predictor: Head | None,
        scale_fix: bool,
        record: StepRecord,
    ) -> None:
        self._objective, self._wanted = objective, objective.inputs
        self._encoders, self._feedforward, self._predictor = encoders, feedforward, predictor
        self._scale_fix, self._record = scale_fix, record

    def __call__(
        self,
        embeddings: Mapping[str, torch.Tensor],
        beside: Mapping[str, torch.Tensor | None],
        training: bool,
    ) -> torch.Tensor | None:
        """The loss; `None` if validation has too few pairs.

        # Parameters

        embeddings : by view.
        beside : what came with the batch, `(B,)` each.

        # Raises

        `ConfigurationError` : something is missing or not used; in training, too few pairs.
        """
        views = self._gathered(embeddings)
        if not self._enough(len(views["anchors"]), training):
            return None
        with torch.autocast(views["anchors"].device.type, enabled=False):
            self._record.geometry(views, training)
            given = self._of_all_processes(beside, len(views["anchors"]) // world_size())
            given |= self._projections(views)
            self._require(given)
            loss = loss_of(self._objective, given)
        self._record.contrastive(loss, self._objective, len(views["anchors"]), training)
        return loss

    def _enough(self, pairs: int, training: bool) -> bool:
        """Whether there are enough anchors; in training there must be."""
        if training and pairs < self._objective.min_pairs:
            raise ConfigurationError(
                f"The batch has {pairs} anchor(s), so there are no negatives to contrast with; at "
                f"least {self._objective.min_pairs} are needed. Raise batch_size (or num_anchors), "
                "and set drop_last on the data loader."
            )
        return pairs >= self._objective.min_pairs

    def _gathered(self, embeddings: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Views `(N, d)` of all processes, of those of this one.

        `anchors` are `(n, d)`, all others `(n * P, d)`: P positives are represented by their mean
        (section 3.1 of the paper). `negatives` stay as many as they are.
        """
        # Each process holds the gradient of its own rows.
        factor = world_size() if self._scale_fix else 1
        if "token_vectors" in embeddings:
            vectors, mask = embeddings["token_vectors"], embeddings["token_mask"]
            vectors, mask = gather_tokens(vectors, mask, factor)
            texts = self._encoders.own["pooler"].mean(vectors, mask)
            return {"anchors": texts, "token_vectors": vectors, "token_mask": mask}
        if "anchors" not in embeddings:  # contrasted as they are after masking
            embeddings = {**embeddings, "anchors": embeddings["masked"]}
        anchors = len(embeddings["anchors"])
        names = [name for name in ("anchors", "positives", "keys", *TARGETS) if name in embeddings]
        views = {name: _mean_of_groups(embeddings[name], anchors) for name in names}
        if self._feedforward is not None:
            for name in names:
                projected = self._feedforward(embeddings[name]).float()
                views[f"projected_{name}"] = _mean_of_groups(projected, anchors)
        rows = torch.cat(list(views.values()), dim=1)  # one exchange for all
        parts = gather_rows(rows, factor).split([view.size(1) for view in views.values()], dim=1)
        views = dict(zip(views, parts, strict=True))
        if "negatives" in embeddings:
            views["negatives"] = gather_rows(embeddings["negatives"], factor)
        return views

    def _projections(self, views: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """All that the objective may take of the views of all processes, by name."""
        if "token_vectors" in views:
            return views
        given = {}
        if "negatives" in views:
            given["negatives"] = self._projected("negatives", views["negatives"])
        pair = [name for name in ("anchors", "positives") if name in views]
        projected = {name: self._projection(name, views) for name in pair}
        # Without a momentum encoder, what there is of the model's own stands for its views.
        given |= {f"target_{name}": view for name, view in projected.items()}
        if "positives" in projected:
            given["keys"] = projected["positives"]
        others = [name for name in ("keys", *TARGETS) if name in views]
        given |= {name: self._projection(name, views) for name in others}
        targets = [name for name in TARGETS if name in given and name in self._wanted]
        given |= {name: given[name].detach() for name in targets}
        if self._predictor is not None:
            projected = {name: self._predictor(view) for name, view in projected.items()}
        if not any(name in self._wanted for name in PROJECTIONS):
            return given | projected
        given |= {f"projected_{name}": view for name, view in projected.items()}
        return given | {name: views[name] for name in pair}

    def _projection(self, name: str, views: Mapping[str, torch.Tensor]) -> torch.Tensor:
        if self._feedforward is not None:
            return views[f"projected_{name}"]
        return self._projected(name, views[name])

    def _projected(self, name: str, embeddings: torch.Tensor) -> torch.Tensor:
        """The view of that name, by what projects it."""
        if self._feedforward is not None:
            return self._feedforward(embeddings).float()
        if self._encoders.own["head"] is None:
            return embeddings
        head: Any = self._encoders.of(name)["head"]
        with torch.set_grad_enabled(
            torch.is_grad_enabled() and not self._encoders.is_of_target(name)
        ):
            return head(embeddings)

    def _of_all_processes(
        self, beside: Mapping[str, torch.Tensor | None], anchors: int
    ) -> dict[str, torch.Tensor]:
        """What the objective wants of that, `(N,)`, if this process has so many `anchors`."""
        has = {name: values for name, values in beside.items() if values is not None}
        if "labels" in has and not {"labels", "token_vectors"} & self._wanted.keys():
            raise ConfigurationError(
                f"The data has labels, of which {self._name} makes no use. Remove 'labels' from "
                "the dataset reader, or take an objective of labelled pairs."
            )

        def repeated(values: torch.Tensor) -> torch.Tensor:
            return values.repeat_interleave(anchors // len(values))

        return {
            name: gather_numbers(carried(repeated, values))
            for name, values in has.items()
            if name in self._wanted
        }

    @property
    def _name(self) -> str:
        return type(self._objective).__name__

    def _require(self, given: Mapping[str, torch.Tensor]) -> None:
        missing = [name for name in self._wanted if self._wanted[name] and name not in given]
        if not missing:
            return
        raise ConfigurationError(
            f"{self._name} needs {' and '.join(missing)}, which the dataset reader does not "
            f"bring: {_WHERE_FROM.get(missing[0], 'give it fields of these names')}."
        )


def _mean_of_groups(rows: torch.Tensor, groups: int) -> torch.Tensor:
    """`(G * P, d)` -> `(G, d)`."""
    return rows.reshape(groups, -1, rows.size(-1)).mean(dim=1)
