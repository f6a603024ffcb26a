"""The Model "consistency": any classifier, trained to predict the same for all views of a text."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.models import Model
from allennlp.modules import TextFieldEmbedder
from allennlp.nn.parallel import DdpAccelerator
from torch import Tensor
from torch.nn.functional import cross_entropy

from declutr.bridge.additions import attach
from declutr.models.task_model_wrapper import TaskModelWrapper
from declutr.models.views import Views
from declutr.modules.text_batches import flat, text_fields
from declutr.objectives import consistency, numerics
from declutr.objectives.distances import jensen_shannon
from declutr.system import raised_as
from declutr.system.distributed import all_reduced, of_all_processes, world_size

DIVERGENCES = ("jensen_shannon", "kl")
OWN, AUGMENTED, UNLABELLED = "", "augmented_", "unlabelled_"
_PREFIXES = (AUGMENTED + UNLABELLED, AUGMENTED, UNLABELLED, OWN)  # an earlier one takes a name


@Model.register("consistency")
class ConsistencyModel(TaskModelWrapper):
    """A classifier trained by consistency: its predictions for views of a text are to be equal.

    `loss = task loss + view_weight * sum_i CE(view i) + divergence_weight * D`, where CE is the
    cross entropy of a view of a labelled text and its label, and D the mean divergence of the
    predictions for a text and for its views. D is over the unlabelled texts of the batch if it has
    any, and else over the labelled ones. With cut views and "jensen_shannon" this is Cutoff (Shen
    et al., 2020, section 3.3); with unlabelled texts, an augmentation of each, "kl" and
    `view_weight` 0 it is UDA (Xie et al., 2020, equation 1).

    Unlabelled texts and augmentations come from the reader "semi_supervised": its text fields whose
    names begin with `unlabelled_`, `augmented_` or `augmented_unlabelled_` are `(n, r, L)`, r of
    them for each labelled text. Outside training they are ignored.

    # Parameters

    vocab, serialization_dir, ddp_accelerator : arguments of every AllenNLP model.
    model : the task model, a classifier whose outputs are `logits` or `probs` `(n, C)` and, for
        labelled texts, a `loss`. It must take texts without labels.
    views : how views are made: `{"type": "cutoff", ...}`, for which its text field embedder must be
        of type "mlm", or `{"type": "dropout"}`. `None` takes the augmentations of the reader.
    num_views : the number of views that `views` makes of each text.
    view_weight : the weight of the cross entropy of views, alpha in Cutoff; 0 leaves it out.
    divergence_weight : the weight of D: beta in Cutoff, lambda in UDA.
    divergence : `"jensen_shannon"` of a text and all its views, or `"kl"` from the text, without
        gradient, to each view.
    temperature, confidence : the sharpening of "kl", and the probability that the most probable
        class must exceed; see `declutr.objectives.consistency.sharpened_divergence`.
    annealing : the schedule of training signal annealing, `"linear"`, `"log"` or `"exp"`. The task
        loss is then the cross entropy of the labelled texts that are not yet predicted well enough.
    label : the argument of the task model that takes classes `(n,)`.

    # Raises

    `ConfigurationError` : settings are out of range or contradict each other, or, in training, a
        batch has no views or labels, or the task model gives no predictions or no loss.
    """

    def __init__(
        self,
        vocab: Vocabulary,
        model: Model,
        views: Optional[Views] = None,
        num_views: int = 1,
        view_weight: float = 1.0,
        divergence_weight: float = 1.0,
        divergence: str = "jensen_shannon",
        temperature: float = 1.0,
        confidence: float = 0.0,
        annealing: Optional[str] = None,
        label: str = "label",
        serialization_dir: Optional[str] = None,
        ddp_accelerator: Optional[DdpAccelerator] = None,
    ) -> None:
        super().__init__(vocab, model, serialization_dir, ddp_accelerator)
        self._views = views
        self._num_views = numerics.above_zero("num_views", num_views)
        if views is not None and (views.needs_positives or views.embeds_positives):
            raise ConfigurationError(
                f"{type(views).__name__} makes no texts: set views to 'cutoff' or 'dropout', or to "
                "null for the augmentations of the dataset reader."
            )
        self._view_weight = numerics.at_least_zero("view_weight", view_weight)
        self._divergence_weight = numerics.at_least_zero("divergence_weight", divergence_weight)
        self._divergence = numerics.one_of("divergence", divergence, DIVERGENCES)
        self._temperature = numerics.above_zero("temperature", temperature)
        if not 0 <= confidence < 1:
            raise ConfigurationError(f"confidence must lie in [0, 1), got {confidence}.")
        self._confidence = confidence
        if divergence != "kl" and (temperature != 1 or confidence):
            raise ConfigurationError(
                "temperature and confidence belong to the divergence 'kl', which has a side that "
                "is a target: remove them, or set divergence to 'kl'."
            )
        self._label, self._annealing = label, annealing
        if annealing is not None:
            numerics.one_of("annealing", annealing, consistency.SCHEDULES)
            self._passes_done = numerics.HostCount(self, "_passes")
        self._all_passes: int | None = None

    attached_to_trainers = True

    def attach(self, trainer: Any) -> None:
        """Take the number of steps, for annealing, from a trainer.

        `declutr.bridge` calls this for every trainer that is built.

        # Raises

        `ConfigurationError` : the data loader does not tell its length, which annealing needs.
        """
        attach(self.model, trainer)
        if self._annealing is not None:
            try:
                batches = min(of_all_processes(len(trainer.data_loader)))
                self._all_passes = batches * trainer._num_epochs
            except TypeError as error:
                raise ConfigurationError(
                    "annealing needs to know the number of steps, which this data loader does not "
                    "tell: use the data loader 'declutr', or remove annealing."
                ) from error

    def forward(self, **fields: Any) -> dict[str, Tensor]:  # type: ignore[override]
        """Return the outputs of the task model, in training with the whole `loss`.

        # Parameters

        fields : the arguments of the task model, and unlabelled and augmented texts; see the class.
        """
        parts = _parts(self.accepted(fields))
        if not self.training:
            return self.model(**parts[OWN])
        with self._within("anchors"):
            output = self.in_training(parts[OWN])
        logits = self._logits(output)
        labels = self._labels(parts[OWN], len(logits))
        loss = output["loss"] if self._annealing is None else self._annealed(logits, labels)
        views: list[Tensor] = []
        if self._view_weight or not parts[UNLABELLED]:
            views = self._of_views(parts, OWN, len(logits))
        if self._view_weight:
            of_views = torch.stack([_of_labelled(view, labels) for view in views]).sum()
            loss = loss + self._view_weight * self._recorded("view_loss", of_views)
        if parts[UNLABELLED]:
            logits, views = self._of_unlabelled(parts)
        divergence = self._recorded("consistency_loss", self._divergence_of(logits, views))
        return {**output, "loss": loss + self._divergence_weight * divergence}

    def _of_unlabelled(self, parts: dict[str, dict[str, Any]]) -> tuple[Tensor, list[Tensor]]:
        """Return the predictions for unlabelled texts and for each of their views."""
        with torch.set_grad_enabled(self._divergence != "kl"), self._within("anchors"):
            logits = self._logits(self.model(**parts[UNLABELLED]))
        return logits, self._of_views(parts, UNLABELLED, len(logits))

    def _of_views(self, parts: dict[str, dict[str, Any]], kind: str, count: int) -> list[Tensor]:
        """Return the predictions `(n, C)` for each view of the n texts of a kind."""
        given = parts[AUGMENTED + kind]
        if self._views is None:
            if not given:
                raise ConfigurationError(
                    f"views is null, and the dataset reader brings no texts '{AUGMENTED + kind}*'. "
                    "Give the reader 'semi_supervised' an augmentation, or set views to "
                    "{'type': 'cutoff'}."
                )
            together = self._logits(self.model(**given))  # (n * V, C), views of a text together
            return list(together.unflatten(0, (count, -1)).unbind(dim=1))
        if given:
            raise ConfigurationError(
                f"The dataset reader brings views ('{AUGMENTED + kind}*'), and the model makes its "
                "own: set the model's views to null, or remove the reader's augmentation."
            )
        fields = {name: field for name, field in parts[kind].items() if name != self._label}
        with self._within("positives"):
            return [
                self._logits(self.model(**self._changed(fields))) for _ in range(self._num_views)
            ]

    def _changed(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return a view of the texts of a batch, with all other fields as they are."""
        assert self._views is not None
        embedder: Any = next(
            (part for part in self.model.modules() if isinstance(part, TextFieldEmbedder)), None
        )
        texts = text_fields(fields)
        changed = {name: self._views(text, None, embedder)[1] for name, text in texts.items()}
        return {**fields, **changed}

    def _within(self, name: str) -> Any:
        return nullcontext() if self._views is None else self._views.within(name, self.model)

    def _divergence_of(self, logits: Tensor, views: list[Tensor]) -> Tensor:
        if self._divergence == "jensen_shannon":
            return jensen_shannon(logits, views[0], more=views[1:])
        settings = self._temperature, self._confidence
        each = [consistency.sharpened_divergence(logits, view, *settings) for view in views]
        return torch.stack(each).mean()

    def _annealed(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the annealed cross entropy, a mean over the texts that count in any process."""
        if self._all_passes is None:
            raise ConfigurationError(
                "annealing needs to know the number of steps: call attach(trainer) before training."
            )
        assert self._annealing is not None
        progress = min(1.0, self._passes_done.value / max(1, self._all_passes))
        threshold = consistency.annealing_threshold(self._annealing, progress, logits.size(1))
        self._passes_done.advance()
        total, count = consistency.annealed_cross_entropy(logits, labels, threshold)
        return total * world_size() / all_reduced(count).clamp_min(1)

    def _logits(self, output: dict[str, Tensor]) -> Tensor:
        with raised_as(ConfigurationError, ValueError):
            return consistency.logits_of(output, type(self.model).__name__)

    def _labels(self, fields: Mapping[str, Any], count: int) -> Tensor:
        labels = fields.get(self._label)
        if not isinstance(labels, Tensor) or labels.numel() != count or labels.is_floating_point():
            raise ConfigurationError(
                f"label is '{self._label}', but no field of one class an instance. The batch has "
                f"{', '.join(fields)}."
            )
        return labels.long().view(-1)

    def _recorded(self, name: str, value: Tensor) -> Tensor:
        self.training_means.record(name, all_reduced(value) / world_size())
        return value


def _of_labelled(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross entropy of the texts of all processes that have a label, or 0."""
    total = cross_entropy(logits, labels, reduction="sum")
    return total * world_size() / all_reduced((labels >= 0).sum()).clamp_min(1)


def _parts(fields: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the fields of a batch by the beginning of their names, which they lose.

    Texts of other kinds than the task model's own are flattened, `(n, r, L)` to `(n * r, L)`.
    """
    parts: dict[str, dict[str, Any]] = {prefix: {} for prefix in _PREFIXES}
    for name, field in fields.items():
        prefix = next(prefix for prefix in _PREFIXES if name.startswith(prefix))
        own = field if prefix == OWN else flat(field, spans=True)
        parts[prefix][name.removeprefix(prefix)] = own
    return parts
