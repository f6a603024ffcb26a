"""The Predictor "reclaim": whatever the task model of a model "reclaim" has as its own."""

from typing import Any

from allennlp.data import DatasetReader
from allennlp.models import Model
from allennlp.predictors import Predictor

from declutr.models.reclaim.model import ReclaimModel


@Predictor.register("reclaim", constructor="of_task_model")
class TaskModelPredictor(Predictor):
    """Stands for the default predictor of a task model, around the whole or around it alone."""

    @classmethod
    def of_task_model(
        cls, model: Model, dataset_reader: DatasetReader, **settings: Any
    ) -> Predictor:
        """The default predictor of the task model, of AllenNLP's class Predictor if it has none."""
        task: Any = model
        while isinstance(task, ReclaimModel):
            task = task.model
        name = task.default_predictor
        kind: Any = Predictor if name is None else Predictor.by_name(name)
        return kind(model, dataset_reader, **settings)
