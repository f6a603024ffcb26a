"""The Model "glue": a classifier or regressor of texts and pairs, with the metrics of GLUE."""

from typing import Any, Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import BasicClassifier, Model
from torch import Tensor
from torch.nn.functional import cross_entropy

from declutr.modules.text_batches import wide
from declutr.system.distributed import all_reduced, world_size
from declutr.task_models.glue.metrics import (
    OF_CLASSES,
    OF_SCORES,
    ClassMetrics,
    ScoreMetrics,
    metrics_of,
)
from declutr.task_models.glue.reader import NO_CLASS
from declutr.task_models.glue.tasks import task_and_kind


@Model.register("glue")
class GlueModel(BasicClassifier):
    """AllenNLP's "basic_classifier", which also predicts scores, with the metrics of GLUE's tasks.

    Behind the pooler "classification_pooler" it is the baseline of GLUE's public fine-tuning code.
    The loss is the cross entropy of classes, or the squared error of scores as they are in the file
    (0 to 5 for STS-B), averaged over the texts of the batch that have a label, those of all
    processes together. Texts without one, which the reader "glue" gives with `keep_unlabelled`,
    have the class -100, or a score that is not a number; a batch of nothing else has the loss 0.

    Metrics are Matthews correlation and accuracy of CoLA, accuracy and F1 of MRPC and QQP, Pearson
    and Spearman correlations of scores, and accuracy of all other tasks. With the reader's
    `with_metadata`, MNLI also has `matched_accuracy` and `mismatched_accuracy`, if its two files
    are read as one data set. Correlations of training data are there at the end of an epoch.

    # Parameters

    vocab : the vocabulary, with the classes.
    task : a task of the reader "glue", which decides `labels`, `metrics` and `positive`.
    labels : without a task, `"class"` (the default) or `"score"`.
    metrics : the metrics, of "accuracy", "f1" and "matthews" for classes, of "pearson" and
        "spearman" for scores; by default those of the task.
    positive : the name of the class that F1 is about.
    others : the parameters of `BasicClassifier`: `text_field_embedder`, `seq2vec_encoder`,
        `dropout`, and so on.

    # Raises

    `ConfigurationError` : the task or a metric is unknown, or the vocabulary has no classes.
    """

    default_predictor = "declutr-glue"

    def __init__(
        self,
        vocab: Vocabulary,
        task: Optional[str] = None,
        labels: Optional[str] = None,
        metrics: Optional[list[str]] = None,
        positive: str = "1",
        **others: Any,
    ) -> None:
        task, self._of_scores = task_and_kind(task, labels)
        if self._of_scores:
            others["num_labels"] = 1
        super().__init__(vocab, **others)
        del self._accuracy  # these metrics are instead
        names = metrics_of(task, self._of_scores) if metrics is None else tuple(metrics)
        known = OF_SCORES if self._of_scores else OF_CLASSES
        if unknown := [name for name in names if name not in known]:
            kind = "scores" if self._of_scores else "classes"
            raise ConfigurationError(
                f"Unknown metrics of {kind}: {', '.join(unknown)}. Expected some of "
                f"{', '.join(known)}."
            )
        if not self._num_labels:
            raise ConfigurationError(
                f"The vocabulary has no classes in the namespace '{self._label_namespace}'. Set "
                'vocabulary to {"type": "from_instances"}, or num_labels, or labels to \'score\'.'
            )
        if self._of_scores:
            self._metrics: Any = ScoreMetrics(names)
            return
        classes = vocab.get_token_to_index_vocabulary(self._label_namespace)
        if "f1" in names and classes and positive not in classes:
            raise ConfigurationError(
                f"F1 is about the class '{positive}', but the classes are {', '.join(classes)}. "
                "Set positive to one of them."
            )
        self._metrics = ClassMetrics(self._num_labels, names, classes.get(positive, 1))

    def forward(  # type: ignore[override]
        self,
        tokens: TextFieldTensors,
        label: Optional[Tensor] = None,
        metadata: Optional[list[dict[str, Any]]] = None,
    ) -> dict[str, Tensor]:
        """Return predictions, and for labelled texts the `loss`.

        # Parameters

        tokens : texts, or joined pairs.
        label : classes or scores `(n,)`.
        metadata : of each text its `part` of the data set, if it has one.

        # Returns

        `logits` `(n, C)`, `probs` `(n, C)` and `token_ids` as in `BasicClassifier`; of scores,
        `score` `(n,)` in place of the first two.
        """
        output = super().forward(tokens)
        if self._of_scores:
            del output["probs"]
            output["score"] = output.pop("logits")[:, 0]
            if label is not None:
                output["loss"] = self._mean(*_squared_error(output["score"], label))
                self._metrics(output["score"], label)
        elif label is not None:
            output["loss"] = self._mean(*_cross_entropy(output["logits"], label))
            parts = None if metadata is None else [one.get("part", "") for one in metadata]
            self._metrics(output["logits"].argmax(dim=1), label, parts)
        return output

    def _mean(self, total: Tensor, known: Tensor) -> Tensor:
        """Return the mean of a sum over labelled texts; 0, with a gradient, if there are none."""
        count = known.sum()
        if self.training and world_size() > 1:
            # DistributedDataParallel averages over processes, of which some may have fewer labels.
            count = all_reduced(count) / world_size()
        return total / torch.where(count > 0, count, 1)

    def make_output_human_readable(self, output_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        """Add the names of classes as `label`, and `tokens`; scores stay as they are."""
        if self._of_scores:
            return output_dict
        return super().make_output_human_readable(output_dict)

    def get_metrics(self, reset: bool = False) -> dict[str, float]:
        if self._of_scores and self.training and not reset:
            return {}  # the trainer asks after each step, and ranks would be computed each time
        return self._metrics.get_metric(reset)


def _cross_entropy(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of the cross entropies of texts with a class, and which texts those are."""
    known = labels >= 0
    return cross_entropy(wide(logits), labels.long(), ignore_index=NO_CLASS, reduction="sum"), known


def _squared_error(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of the squared errors of texts with a score, and which texts those are."""
    known = ~labels.isnan()
    errors = torch.where(known, labels - wide(scores), scores * 0)
    return errors.square().sum(), known
