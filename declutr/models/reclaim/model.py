"""The Model "reclaim": any AllenNLP model, trained with a contrastive term added to its loss."""

import logging
from typing import Any, Optional

import torch
from allennlp.common import Lazy
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.models import Model
from allennlp.nn.parallel import DdpAccelerator

from declutr.models.reclaim.submodule_features import SubmoduleFeature, recorded_calls
from declutr.models.task_model_wrapper import TaskModelWrapper
from declutr.modules.text_batches import text_keys
from declutr.objectives import Objective
from declutr.objectives.memories.reclaim import Reclaim
from declutr.system.distributed import gather_ragged_rows, world_size

logger = logging.getLogger(__name__)


@Model.register("reclaim")
class ReclaimModel(TaskModelWrapper):
    """A task model trained with RECLAIM: `loss = task loss + weight * term` (equation 8).

    With a `task_weight`, the loss of the task is multiplied by it; 0 lets the term replace it.

    The term contrasts two features u and v of each instance, outputs of two submodules of the task
    model in its forward pass. In training and in checkpoints, the critic and the memory banks are
    beside the task model. Loaded as the task model alone (`{"model.bare": true}`, see
    `TaskModelWrapper`), an archive takes no `ids`: set `with_ids` of the dataset reader to false.

    Training needs `ids` `(n,)`, rows of the training data, which the readers "glue", "image_text"
    and "text_lines" give with `with_ids`. The term is over the instances of all processes.

    # Parameters

    vocab, serialization_dir, ddp_accelerator : arguments of every AllenNLP model.
    model : the task model, which must return a `loss` in training.
    objective : an objective of type "reclaim"; the model sets its two embedding sizes.
    weight : the weight of the term, lambda in the paper.
    u, v : the dotted names of submodules of `model`; see
        `declutr.models.reclaim.submodule_features`. By default, u is the pooled text
        (`_seq2vec_encoder`, or the only Seq2VecEncoder), and v the mean of its word embeddings (of
        the first Hugging Face transformer, or the output of the text field embedder).
    u_width, v_width : the widths of the outputs of submodules that have no attribute for it.
    task_weight : the weight of the loss of the task.
    mask_identical_texts : True excludes instances of the same text from each other's negatives.
    same : a field of integers `(n,)`, such as `"image_ids"`, by which equal ones are excluded too.

    # Raises

    `ConfigurationError` : the objective is of another type, a submodule, its width or its features
        are missing, or, in training, a batch has no ids or the task model returns no loss.
    """

    def __init__(
        self,
        vocab: Vocabulary,
        model: Model,
        objective: Lazy[Objective],
        weight: float = 0.1,
        u: Optional[str] = None,
        v: Optional[str] = None,
        u_width: Optional[int] = None,
        v_width: Optional[int] = None,
        mask_identical_texts: bool = False,
        same: Optional[str] = None,
        task_weight: float = 1.0,
        serialization_dir: Optional[str] = None,
        ddp_accelerator: Optional[DdpAccelerator] = None,
    ) -> None:
        super().__init__(vocab, model, serialization_dir, ddp_accelerator)
        for name, value in (("weight", weight), ("task_weight", task_weight)):
            if not value >= 0:
                raise ConfigurationError(f"{name} must be 0 or more, got {value}.")
        self._u = SubmoduleFeature(model, "u", u, u_width)
        self._v = SubmoduleFeature(model, "v", v, v_width)
        # Built after the task model, whose initial weights thus do not depend on the critic.
        made = objective.construct(embedding_size=self._u.width, v_embedding_size=self._v.width)
        if not isinstance(made, Reclaim):
            raise ConfigurationError(
                f"Expected an objective of type 'reclaim', got {type(made).__name__}. "
                'Set "objective": {"type": "reclaim", "instances": …}.'
            )
        self._objective: Reclaim = made
        self._weight, self._task_weight = weight, task_weight
        if task_weight and getattr(model, "without_loss", False):
            logger.warning(
                f"The model's task_weight {task_weight} changes nothing, as the task model has a "
                "loss of 0 (negatives null). Set its negatives, or task_weight to 0."
            )
        rank_by_critic: Any = getattr(model, "rank_by_critic", None)  # of images and captions
        if rank_by_critic is not None:
            rank_by_critic(made.critic, self._u.name, self._v.name)
        if mask_identical_texts and same is not None:
            raise ConfigurationError(
                f"Got mask_identical_texts and same ('{same}'): both say which instances are no "
                "negatives of each other. Remove one."
            )
        self._mask_identical_texts, self._same = mask_identical_texts, same
        self._told_of_no_gradient = False

    def forward(  # type: ignore[override]
        self, ids: Optional[torch.Tensor] = None, **fields: Any
    ) -> dict[str, torch.Tensor]:
        """Return the outputs of the task model, with the term added to `loss` in training.

        # Parameters

        ids : rows `(n,)` of the training data, passed on if the task model has such an argument.
        fields : the arguments of the task model.
        """
        given = self.accepted({**fields, "ids": ids})
        if not self.training:
            return self.model(**given)
        ids = _require_ids(ids)
        with recorded_calls(self.model, [self._u.name, self._v.name]) as calls:
            output = self.in_training(given)
        u, v = (
            feature.of_batch(self.model, calls[feature.name], given, len(ids))
            for feature in (self._u, self._v)
        )
        if not (u.requires_grad or v.requires_grad) and not self._told_of_no_gradient:
            self._told_of_no_gradient = True
            logger.warning(
                f"Neither u ('{self._u.name}') nor v ('{self._v.name}') has a gradient: RECLAIM's "
                "term trains its critic and nothing else. Are the submodules frozen?"
            )
        term = self._term(u, v, ids, self._keys(fields))
        return {**output, "loss": self._task_weight * output["loss"] + self._weight * term}

    def _keys(self, fields: dict[str, Any]) -> Optional[torch.Tensor]:
        """Return keys `(n,)` that are equal for instances that are not each other's negatives."""
        if self._same is not None:
            keys = fields.get(self._same)
            if not isinstance(keys, torch.Tensor) or keys.dim() != 1 or keys.is_floating_point():
                raise ConfigurationError(
                    f"same is '{self._same}', but no field of one whole number an instance. The "
                    f"batch has {', '.join(fields)}."
                )
            return keys.long()
        if not self._mask_identical_texts:
            return None
        keys = text_keys(fields)
        if keys is None:
            raise ConfigurationError(
                "mask_identical_texts compares texts by the ids of their tokens, but no text field "
                f"has any. The batch has {', '.join(fields)}. Index texts by single ids as well, "
                "or set it to false."
            )
        return keys

    def _term(
        self, u: torch.Tensor, v: torch.Tensor, ids: torch.Tensor, texts: Optional[torch.Tensor]
    ) -> torch.Tensor:
        """Return the contrastive term over the instances of all processes."""
        # Each process has the gradient of its own rows only, and DistributedDataParallel averages,
        # so they are multiplied by the number of processes. Last batches may differ in size.
        rows = gather_ragged_rows(torch.cat([u, v], dim=1), world_size())  # one exchange for both
        u, v = rows.split([self._u.width, self._v.width], dim=1)
        given = {"ids": ids} if texts is None else {"ids": ids, "texts": texts}
        given = {name: gather_ragged_rows(values) for name, values in given.items()}
        term = self._objective(u, v, **given)
        self.training_means.record("reclaim_loss", term, u.size(0))
        for name, value in self._objective.last_metrics.items():
            self.training_means.record(f"reclaim_{name}", value)
        return term


def _require_ids(ids: Optional[torch.Tensor]) -> torch.Tensor:
    if ids is None:
        raise ConfigurationError(
            "In training the model 'reclaim' needs 'ids', the row of each instance in the training "
            'data: set "with_ids": true in the dataset readers "glue", "image_text" and '
            '"text_lines", or let your reader add the field LabelField(row, skip_indexing=True) '
            'under the name "ids".'
        )
    if ids.dim() != 1 or ids.is_floating_point():
        raise ConfigurationError(
            f"Expected ids (n,) of whole numbers, one of each instance, got {tuple(ids.shape)} of "
            f"{ids.dtype}."
        )
    return ids
