"""The predictor reads lines and gives the model one instance for each row."""

import pytest
import torch
from allennlp.data import Vocabulary
from allennlp.models import Model
from allennlp.predictors import Predictor

from declutr.data.span_reader import DeCLUTRDatasetReader
from declutr.models.predictor import DeCLUTRPredictor


class Echo(Model):
    """A model that outputs the ids of each text, without padding."""

    def __init__(self) -> None:
        super().__init__(Vocabulary.empty())
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, anchors):  # type: ignore[override]
        group = anchors["tokens"]
        pairs = zip(group["token_ids"], group["mask"], strict=True)
        return {"embeddings": [ids[mask].tolist() for ids, mask in pairs]}


@pytest.fixture
def reader(pair) -> DeCLUTRDatasetReader:
    """Return a reader that samples spans, as in a training recipe."""
    return DeCLUTRDatasetReader(
        *pair, num_anchors=2, num_positives=2, max_span_len=24, min_span_len=8
    )


@pytest.fixture
def predictor(reader) -> DeCLUTRPredictor:
    return DeCLUTRPredictor(Echo(), reader)


@pytest.fixture
def ids(pair):
    return lambda text: pair[0].tokenizer(" ".join(text.split()))["input_ids"]


def test_reads_texts_whole_whatever_the_recipe(predictor, reader, ids, documents):
    assert Predictor.by_name("declutr") is DeCLUTRPredictor
    assert DeCLUTRPredictor.keeps_blank_lines and not reader.sample_spans
    assert predictor.predict("ka  lo\tmi")["embeddings"] == ids("ka lo mi")
    assert len(predictor.predict(documents[0])["embeddings"]) == 128  # cut


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('{"text": "ka lo"}\n', "ka lo"),
        ('{"text": "", "id": 3}', ""),
        ('  {"text": "mi"}  \r\n', "mi"),
        ('{"text": "na\\u00efve \\n two"}', "naïve \n two"),
        ("\n", ""),
        ("", ""),
        (" \t\r\n", ""),
        ('{"text": null}\n', ""),  # as in training files
    ],
)
def test_lines_of_json_are_parsed(predictor, line, text):
    row = predictor.load_line(line)
    assert row["text"] == text
    assert text or row == {"text": "", "id": 3} or row == {"text": ""}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ka lo mi\n", r"Expected JSON lines such as .*got 'ka lo mi\\n'.* --use-dataset-reader"),
        ('{"text": "ka"', "Expected JSON lines such as"),
        ("x" * 10_000, "Expected JSON lines such as"),
        ('{"body": "ka"}', """an object with a string under "text", got '{"body": "ka"}'"""),
        ('{"text": 3}', 'a string under "text"'),
        ('["ka"]', 'a string under "text"'),
        ('"ka"', 'a string under "text"'),
    ],
)
def test_bad_lines_are_refused(predictor, line, message):
    with pytest.raises(ValueError, match=message) as caught:
        predictor.load_line(line)
    assert len(str(caught.value)) < 400  # errors quote the beginning only


def test_there_is_one_output_for_each_row_blank_rows_included(predictor, ids):
    lines = ['{"text": "ka lo mi"}', "", '{"text": ""}', '{"text": "tu"}', " "]
    rows = predictor.predict_batch_json([predictor.load_line(line) for line in lines])
    expected = [ids(text) for text in ("ka lo mi", "", "", "tu", "")]
    assert [row["embeddings"] for row in rows] == expected


def test_a_file_of_texts_keeps_its_rows(predictor, reader, ids, tmp_path, documents):
    """This is what `--use-dataset-reader` does; JSON lines give the same."""
    texts = ["", "ka lo", "", "mi", "", documents[0]]
    (tmp_path / "rows.txt").write_text("\n".join(texts) + "\n")
    rows = predictor.predict_batch_instance(list(reader.read(tmp_path / "rows.txt")))
    assert [row["embeddings"] for row in rows[:-1]] == [ids(text) for text in texts[:-1]]
    assert rows == predictor.predict_batch_json([{"text": text} for text in texts])


def test_another_reader_is_left_alone():
    plain = type("Plain", (), {})()
    DeCLUTRPredictor(Echo(), plain)  # type: ignore[arg-type]
    assert not hasattr(plain, "sample_spans")


@pytest.mark.parametrize("text", [None, 3, ["a"]])
def test_a_text_that_is_no_string_is_refused(predictor, text) -> None:
    with pytest.raises(TypeError, match=f'string under "text", got {type(text).__name__}'):
        predictor.predict(text)
