"""The Predictors "declutr", `{"text": …}` in and an embedding out, and "reclaim"."""

import json
from typing import Any

from allennlp.common.util import JsonDict
from allennlp.data import DatasetReader, Instance
from allennlp.models import Model
from allennlp.predictors import Predictor


@Predictor.register("declutr")
class DeCLUTRPredictor(Predictor):
    """Embeds texts: one row of output for each row of input, in order, blank ones included.

    The reader is switched to whole texts, so a training recipe's archive needs no overrides. Works
    with lines of text (`--use-dataset-reader`) and with JSON lines that have a key `text`.
    """

    keeps_blank_lines = True  # `allennlp predict` would drop them, and rows would shift

    def __init__(self, model: Model, dataset_reader: DatasetReader, frozen: bool = True) -> None:
        super().__init__(model, dataset_reader, frozen)
        if hasattr(dataset_reader, "sample_spans"):
            dataset_reader.sample_spans = False

    def predict(self, text: str) -> JsonDict:
        """The outputs of the model for one text: `{"embeddings": [...]}`."""
        return self.predict_json({"text": text})

    def load_line(self, line: str) -> JsonDict:
        """One line of a JSON-lines file; a blank one is an empty text."""
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
    """Stands for the default predictor of a task model, around the whole or around it alone."""

    @classmethod
    def of_task_model(
        cls, model: Model, dataset_reader: DatasetReader, **settings: Any
    ) -> Predictor:
        """Return the default predictor of the task model, or AllenNLP's own if it has none."""
        task: Any = model
        while task.default_predictor == "reclaim":  # a ReclaimModel
            task = task.model
        name = task.default_predictor
        kind: Any = Predictor if name is None else Predictor.by_name(name)
        return kind(model, dataset_reader, **settings)
