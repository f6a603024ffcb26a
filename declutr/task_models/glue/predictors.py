"""The Predictors "glue", for texts and pairs, and "glue_submission", for the server of GLUE."""

from typing import Any

from allennlp.common.checks import ConfigurationError
from allennlp.common.util import JsonDict
from allennlp.data import DatasetReader, Instance
from allennlp.models import Model
from allennlp.predictors import Predictor, TextClassifierPredictor

from declutr.task_models.glue.reader import GlueReader

_SCORES = (0.0, 5.0)  # of STS-B, GLUE's only task with scores


@Predictor.register("glue")
class GluePredictor(TextClassifierPredictor):
    """A Predictor for the Model "glue": a class with probabilities, or a score, of each text.

    The input is JSON lines with a key `sentence`, or with `sentence1` and `sentence2` for a pair,
    or, with `--use-dataset-reader`, a file that the dataset reader takes.
    """

    def _json_to_instance(self, json_dict: JsonDict) -> Instance:
        texts = [
            json_dict[key] for key in ("sentence", "sentence1", "sentence2") if key in json_dict
        ]
        if len(texts) not in (1, 2) or not all(isinstance(text, str) for text in texts):
            raise ConfigurationError(
                'Expected a string under "sentence", or two under "sentence1" and "sentence2", got '
                f"{json_dict}."
            )
        return self._dataset_reader.text_to_instance(*texts)


@Predictor.register("glue_submission")
class GlueSubmission(GluePredictor):
    """A Predictor that writes the file of a task for the server of GLUE.

    It is for `allennlp predict --use-dataset-reader --silent` on a test file, and for any model
    that gives a `label` or a `score` and takes `metadata`. Each line is the index of a row and its
    prediction, under a header, as the public code writes them: names of classes, and scores with
    three digits, from 0 to 5.

    # Raises

    `ConfigurationError` : the dataset reader is not "glue", or a row is missing or has a wrong
        number of columns; the server takes complete files only.
    """

    def __init__(self, model: Model, dataset_reader: DatasetReader, frozen: bool = True) -> None:
        super().__init__(model, dataset_reader, frozen)
        if not isinstance(dataset_reader, GlueReader):
            raise ConfigurationError(
                "A submission needs rows with their index, from the dataset reader 'glue'; got a "
                f"{type(dataset_reader).__name__}."
            )
        dataset_reader.with_metadata = dataset_reader.strict = True
        self._written = 0

    def predict_instance(self, instance: Instance) -> JsonDict:
        return self.predict_batch_instance([instance])[0]

    def predict_batch_instance(self, instances: list[Instance]) -> list[JsonDict]:
        outputs = super().predict_batch_instance(instances)
        return [
            {**output, "index": _index(instance)}
            for output, instance in zip(outputs, instances, strict=True)
        ]

    def dump_line(self, outputs: JsonDict) -> str:
        """Return the line of a row, the first one below the header."""
        index = outputs["index"]
        if index != self._written:
            raise ConfigurationError(
                f"Expected the row with index {self._written}, got {index}: the server of GLUE "
                "takes complete files only, each by itself. Give one test file as it was published."
            )
        header = "" if self._written else "index\tprediction\n"
        self._written += 1
        return f"{header}{index}\t{_prediction(outputs)}\n"


def _index(instance: Instance) -> int:
    metadata: Any = instance.fields.get("metadata")
    if metadata is None:
        raise ConfigurationError(
            "A submission is made of a file, not of JSON: add --use-dataset-reader to the command."
        )
    return metadata["index"]


def _prediction(outputs: JsonDict) -> str:
    if "score" in outputs:
        return f"{min(max(outputs['score'], _SCORES[0]), _SCORES[1]):.3f}"
    return str(outputs["label"])
