"""The Predictors of GLUE where no file is read."""

from typing import Any

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader

from declutr.task_models.glue import GlueReader
from declutr.task_models.glue.predictors import GluePredictor, GlueSubmission


def made(kind: type[GluePredictor], reader: DatasetReader) -> Any:
    model: Any = torch.nn.Linear(1, 1)  # is not asked
    return kind(model, reader)


def test_json_is_a_text_or_a_pair() -> None:
    predictor = made(GluePredictor, GlueReader(texts=["a", "b"], combine=False))
    assert list(predictor._json_to_instance({"sentence": "ka"}).fields) == ["tokens"]
    pair = predictor._json_to_instance({"sentence1": "ka", "sentence2": "lo"})
    assert list(pair.fields) == ["premise", "hypothesis"]
    with pytest.raises(ConfigurationError, match=r"or two under .sentence1. and .*got {'text'"):
        predictor._json_to_instance({"text": "ka"})


def test_a_submission_needs_rows_with_an_index() -> None:
    with pytest.raises(ConfigurationError, match="from the dataset reader 'glue'; got a Dataset"):
        made(GlueSubmission, DatasetReader())
    predictor = made(GlueSubmission, GlueReader(texts="a"))
    assert predictor._dataset_reader.with_metadata
    scores = [{"index": 0, "score": -0.2}, {"index": 1, "score": 3.14159}]
    lines = [predictor.dump_line(one) for one in scores]
    assert lines == ["index\tprediction\n0\t0.000\n", "1\t3.142\n"]
    with pytest.raises(ConfigurationError, match="Expected the row with index 2, got 4"):
        predictor.dump_line({"index": 4, "label": "1"})
