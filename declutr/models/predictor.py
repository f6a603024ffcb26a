"""The Predictors "declutr", which embeds texts, and "reclaim", which serves task models."""

import json
from typing import Any

from allennlp.common.util import JsonDict
from allennlp.data import DatasetReader, Instance
from allennlp.models import Model
from allennlp.predictors import Predictor

from declutr.bridge.component_names import short


@Predictor.register("declutr")
class DeCLUTRPredictor(Predictor):
    """A Predictor that embeds texts, with one output for each row of a file, blank rows included.

    The input is JSON lines with a key `text`, or, with `--use-dataset-reader`, one text a line. The
    dataset reader is set to return whole texts and not spans, so that the archive of a training
    recipe needs no overrides.
    """

    keeps_blank_lines = True  # otherwise `allennlp predict` drops them, and later rows shift

    def __init__(self, model: Model, dataset_reader: DatasetReader, frozen: bool = True) -> None:
        super().__init__(model, dataset_reader, frozen)
        if hasattr(dataset_reader, "sample_spans"):
            dataset_reader.sample_spans = False

    def predict(self, text: str) -> JsonDict:
        """Return the outputs of the model for one text: `{"embeddings": [...]}`."""
        return self.predict_json({"text": text})

    def load_line(self, line: str) -> JsonDict:
        """Parse a line of a JSON-lines file; a blank line is an empty text.

        # Raises

        `ValueError` : the line is not an object with a string under `text`.
        """
        if not line.strip():
            return {"text": ""}
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(
                f'Expected JSON lines such as {{"text": "…"}}, got {line[:60]!r} ({error}). For '
                "plain text with one document a line, add --use-dataset-reader."
            ) from error
        if isinstance(row, dict) and "text" in row and row["text"] is None:
            return {"text": ""}
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            raise ValueError(f'Expected an object with a string under "text", got {line[:60]!r}.')
        return row

    def _json_to_instance(self, json_dict: JsonDict) -> Instance:
        text = json_dict["text"]
        if not isinstance(text, str):
            raise TypeError(
                f'Expected a string under "text", got {type(text).__name__}. Give one text a row, '
                'and "" for none.'
            )
        return self._dataset_reader.text_to_instance(text)


@Predictor.register("reclaim", constructor="of_task_model")
class TaskModelPredictor(Predictor):
    """A stand-in that builds the default predictor of a task model.

    It serves archives that are opened as the Model "reclaim" and as the task model alone.
    """

    @classmethod
    def of_task_model(
        cls, model: Model, dataset_reader: DatasetReader, **settings: Any
    ) -> Predictor:
        """Return the default predictor of the task model, or AllenNLP's own if it has none."""
        task: Any = model
        while short(task.default_predictor) == "reclaim":  # a ReclaimModel
            task = task.model
        name = task.default_predictor
        kind: Any = Predictor if name is None else Predictor.by_name(name)
        return kind(model, dataset_reader, **settings)
