"""The contrastive term of the loss: the inputs of the objective, gathered from all processes."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.modules import FeedForward

from declutr.models.encoding import Encoders
from declutr.models.metrics import StepRecord
from declutr.modules.heads import Head
from declutr.objectives import Objective
from declutr.objectives.objective import PAIRS, PROJECTIONS, TARGETS, loss_of
from declutr.system.distributed import gather_numbers, gather_rows, gather_tokens, world_size
from declutr.system.host_memory import carried

_WHERE_FROM = {
    "labels": 'the reader "text_pairs" does, classes with labels "class" or "nli", scores with '
    'labels "score"',
    "ids": "its key 'with_ids' makes it",
    "documents": "the reader \"sentences\" does, with its key 'with_ids'",
    "negatives": 'the reader "text_pairs" does, with negative columns or format "nli"',
}


@dataclass(eq=False)
class ContrastiveTerm:
    """The loss of a contrastive objective over the embeddings of all processes.

    # Parameters

    objective : the objective, whose `inputs` name what it takes.
    encoders : the encoders, whose heads project the embeddings.
    feedforward : the projection in place of a head, applied in each process before gathering.
    predictor : a head on the projections of anchors and positives, for objectives with targets.
    scale_fix : True multiplies gradients by the number of processes, over which
        DistributedDataParallel averages them.
    record : the record of metrics that losses are added to.
    """

    objective: Objective
    encoders: Encoders
    feedforward: FeedForward | None
    predictor: Head | None
    scale_fix: bool
    record: StepRecord

    def __post_init__(self) -> None:
        self._wanted = self.objective.inputs
        self._wants_each = "positive_views" in self._wanted
        averaged = (name in self._wanted for name in PAIRS if name != "positive_views")
        self._wants_means = any(averaged)

    def __call__(
        self,
        embeddings: Mapping[str, torch.Tensor],
        beside: Mapping[str, torch.Tensor | None],
        training: bool,
    ) -> torch.Tensor | None:
        """Return the loss of a batch; `None` if a validation batch has too few pairs.

        # Parameters

        embeddings : the embeddings `(n, d)` by the name of the view.
        beside : the labels, ids, documents and text keys of the batch, `(B,)` each or `None`.
        training : False for a pass over validation data.

        # Raises

        `ConfigurationError` : an input of the objective is missing, the batch has an input that the
            objective cannot use, or a training batch has too few pairs.
        """
        views = self._gathered(embeddings)
        pairs = len(views["anchors"])
        if pairs < self.objective.min_pairs:
            if not training:
                return None
            raise ConfigurationError(
                f"The batch has {pairs} anchor(s), so there are no negatives to contrast with; at "
                f"least {self.objective.min_pairs} are needed. Raise batch_size (or num_anchors), "
                "and set drop_last on the data loader."
            )
        with torch.autocast(views["anchors"].device.type, enabled=False):
            self.record.geometry(views, training)
            given = self._of_all_processes(beside, pairs // world_size())
            given |= self._projections(views)
            self._require(given)
            loss = loss_of(self.objective, given)
        self.record.contrastive(loss, self.objective, pairs, training)
        return loss

    def _gathered(self, embeddings: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Gather the views `(N, d)` of all processes.

        `anchors` of this process are `(n, d)`, and the other views `(n * P, d)` are averaged over
        the P positives of an anchor (section 3.1 of the paper). `negatives` are not averaged, nor
        are `positive_views` `(N, P * d)`.
        """
        # Each process has the gradient of its own rows only.
        factor = world_size() if self.scale_fix else 1
        if "token_vectors" in embeddings:
            vectors, mask = embeddings["token_vectors"], embeddings["token_mask"]
            vectors, mask = gather_tokens(vectors, mask, factor)
            texts = self.encoders.own["pooler"].mean(vectors, mask)
            return {"anchors": texts, "token_vectors": vectors, "token_mask": mask}
        if "anchors" not in embeddings:  # the masked anchors are contrasted
            embeddings = {**embeddings, "anchors": embeddings["masked"]}
        anchors = len(embeddings["anchors"])
        names = [name for name in ("anchors", "positives", "keys", *TARGETS) if name in embeddings]
        views = {name: _mean_of_groups(embeddings[name], anchors) for name in names}
        if self._wants_each:
            views["positive_views"] = embeddings["positives"].reshape(anchors, -1)
        if self.feedforward is not None:
            for name in names:
                projected = self.feedforward(embeddings[name]).float()
                views[f"projected_{name}"] = _mean_of_groups(projected, anchors)
                if name == "positives" and self._wants_each:
                    views["positive_views"] = projected.reshape(anchors, -1)
        rows = torch.cat(list(views.values()), dim=1)  # one exchange for all
        parts = gather_rows(rows, factor).split([view.size(1) for view in views.values()], dim=1)
        views = dict(zip(views, parts, strict=True))
        if "negatives" in embeddings:
            views["negatives"] = gather_rows(embeddings["negatives"], factor)
        return views

    def _projections(self, views: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return every input that the objective may take, by name, given all gathered views."""
        if "token_vectors" in views:
            return views
        given = {}
        if "negatives" in views:
            given["negatives"] = self._projection("negatives", views)
        if self._wants_each:
            given["positive_views"] = self._each_positive(views)
        seconds = ["positives"] if self._wants_means else []
        pair = [name for name in ("anchors", *seconds) if name in views]
        projected = {name: self._projection(name, views) for name in pair}
        # Without a momentum encoder, the model's own projections are keys and targets.
        given |= {f"target_{name}": view for name, view in projected.items()}
        if "positives" in projected:
            given["keys"] = projected["positives"]
        others = [name for name in ("keys", *TARGETS) if name in views]
        given |= {name: self._projection(name, views) for name in others}
        given |= {name: given[name].detach() for name in TARGETS if name in given}
        if self.predictor is not None:
            projected = {name: self.predictor(view) for name, view in projected.items()}
        if not any(name in self._wanted for name in PROJECTIONS):
            return given | projected
        given |= {f"projected_{name}": view for name, view in projected.items()}
        return given | {name: views[name] for name in pair}

    def _each_positive(self, views: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the positives of each anchor `(N, P, m)`, projected all together."""
        rows = views["positive_views"]
        if self.feedforward is not None:  # they are projections
            return rows.unflatten(1, (-1, views["projected_positives"].size(1)))
        positives = rows.reshape(-1, views["positives"].size(1))  # (N * P, d)
        return self._projection("positives", {"positives": positives}).unflatten(0, (len(rows), -1))

    def _projection(self, name: str, views: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return a view projected by the feedforward layer or by the head of its encoder."""
        if f"projected_{name}" in views:
            return views[f"projected_{name}"]
        if self.feedforward is not None:
            return self.feedforward(views[name]).float()
        if self.encoders.own["head"] is None:
            return views[name]
        with self.encoders.gradients(name):
            return self.encoders.of(name)["head"](views[name])

    def _of_all_processes(
        self, beside: Mapping[str, torch.Tensor | None], anchors: int
    ) -> dict[str, torch.Tensor]:
        """Gather the labels, ids, documents and text keys `(N,)` that the objective takes.

        They are repeated for the anchors of a document, of which this process has `anchors` in all.
        """
        if beside["labels"] is not None and not {"labels", "token_vectors"} & self._wanted.keys():
            raise ConfigurationError(
                f"The data has labels, of which {self._name} makes no use. Remove 'labels' from "
                "the dataset reader, or take an objective of labelled pairs."
            )

        def repeated(values: torch.Tensor) -> torch.Tensor:
            return values.repeat_interleave(anchors // len(values))

        return {
            name: gather_numbers(carried(repeated, values))
            for name, values in beside.items()
            if values is not None and name in self._wanted
        }

    @property
    def _name(self) -> str:
        return type(self.objective).__name__

    def _require(self, given: Mapping[str, torch.Tensor]) -> None:
        wanted = self._wanted.items()
        missing = [name for name, is_required in wanted if is_required and name not in given]
        if missing:
            raise ConfigurationError(
                f"{self._name} needs {' and '.join(missing)}, which the dataset reader does not "
                f"bring: {_WHERE_FROM.get(missing[0], 'give it fields of these names')}."
            )


def _mean_of_groups(rows: torch.Tensor, groups: int) -> torch.Tensor:
    """Return the mean of every P consecutive rows: `(G * P, d)` to `(G, d)`."""
    return rows.reshape(groups, -1, rows.size(-1)).mean(dim=1)
