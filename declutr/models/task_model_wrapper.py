"""The base class of Models that add to the loss of any AllenNLP Model, and are it otherwise."""

import inspect
import os
import tempfile
from typing import Any, Optional

import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.models import Model
from allennlp.models.model import _DEFAULT_WEIGHTS
from allennlp.nn.parallel import DdpAccelerator
from allennlp.nn.util import read_state_dict

from declutr.models.metrics import RunningMeans


class TaskModelWrapper(Model):
    """A Model around a task model, to whose loss a subclass adds in training.

    Outside training, this model has the outputs, metrics, decoding and predictor of the unchanged
    task model, and takes no more time. In checkpoints, the weights of the task model are `model.*`.
    The override `{"model.bare": true}` loads an archive as the task model alone.

    # Parameters

    vocab, serialization_dir, ddp_accelerator : arguments of every AllenNLP model.
    model : the task model, which must return a `loss` in training.
    """

    default_predictor = "declutr-reclaim"

    asked_rarely: bool = False
    """Whether `get_metrics` reads the metrics of training at every call; see `RecordedModel`."""

    def __init__(
        self,
        vocab: Vocabulary,
        model: Model,
        serialization_dir: Optional[str] = None,
        ddp_accelerator: Optional[DdpAccelerator] = None,
    ) -> None:
        super().__init__(vocab, None, serialization_dir, ddp_accelerator)  # type: ignore[arg-type]
        self.model = model
        self._takes_ids = "ids" in inspect.signature(model.forward).parameters
        self.training_means = RunningMeans()
        """The running means of what is added, in this epoch."""

    def accepted(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of the task model: without `ids` if it takes none, or has none."""
        if self._takes_ids and fields.get("ids") is not None:
            return fields
        return {name: field for name, field in fields.items() if name != "ids"}

    def in_training(self, fields: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Return the outputs of the task model for a batch.

        # Raises

        `ConfigurationError` : there is no loss among them.
        """
        output = self.model(**fields)
        if "loss" not in output:
            raise ConfigurationError(
                f"In training {type(self.model).__name__} gave no 'loss', but "
                f"{', '.join(output) or 'nothing'}: do the instances have labels?"
            )
        return output

    def get_metrics(self, reset: bool = False) -> dict[str, float]:
        """Return the metrics of the task model, and in training the means of what is added."""
        metrics = dict(self.model.get_metrics(reset))
        if self.training:
            wanted = reset or self.asked_rarely or self.training_means.due()
            metrics |= self.training_means.compute() if wanted else self.training_means.last
            if reset:
                self.training_means.reset()
        return metrics

    def make_output_human_readable(
        self, output_dict: dict[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        return self.model.make_output_human_readable(output_dict)

    def get_regularization_penalty(self) -> Optional[torch.Tensor]:
        return self.model.get_regularization_penalty()

    def extend_embedder_vocab(
        self, embedding_sources_mapping: Optional[dict[str, str]] = None
    ) -> None:
        self.model.extend_embedder_vocab(embedding_sources_mapping)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the task model that this model lacks; predictors look these up."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "model" or name.startswith("__"):
                raise
            return getattr(self.model, name)

    @classmethod
    def _load(
        cls, config: Params, serialization_dir: Any, weights_file: Any = None, cuda_device: int = -1
    ) -> Model:
        settings = config["model"]
        if not settings.pop_bool("bare", False):
            return super()._load(config, serialization_dir, weights_file, cuda_device)
        config["model"] = settings["model"]
        file = weights_file or os.path.join(serialization_dir, _DEFAULT_WEIGHTS)
        weights = read_state_dict(file, cuda_device=-1)
        own = {
            name.removeprefix("model."): value
            for name, value in weights.items()
            if name.startswith("model.")
        }
        # The weights go through a file because the task model may override how it is loaded.
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, _DEFAULT_WEIGHTS)
            torch.save(own, file)
            return Model.load(config, serialization_dir, file, cuda_device)
