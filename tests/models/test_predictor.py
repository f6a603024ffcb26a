"""The predictor reads lines and gives the model one instance for each row."""

import pytest
import torch
from allennlp.data import Vocabulary
from allennlp.data.token_indexers import PretrainedTransformerIndexer
from allennlp.data.tokenizers import PretrainedTransformerTokenizer
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


@pytest.fixture(scope="module")
def tokenizer(checkpoint):
    return PretrainedTransformerTokenizer(str(checkpoint))


@pytest.fixture
def reader(checkpoint, tokenizer) -> DeCLUTRDatasetReader:
    """Return a reader that samples spans, as in a training recipe."""
    indexers = {"tokens": PretrainedTransformerIndexer(str(checkpoint))}
    return DeCLUTRDatasetReader(
        tokenizer, indexers, num_anchors=2, num_positives=2, max_span_len=24, min_span_len=8
    )


@pytest.fixture
def predictor(reader) -> DeCLUTRPredictor:
    return DeCLUTRPredictor(Echo(), reader)


@pytest.fixture
def ids(tokenizer):
    return lambda text: tokenizer.tokenizer(" ".join(text.split()))["input_ids"]


def test_reads_texts_whole_whatever_the_recipe(predictor, reader, ids):
    assert not reader.sample_spans
    assert predictor.predict("ka  lo\tmi")["embeddings"] == ids("ka lo mi")


def test_long_texts_are_cut(predictor, documents):
    assert len(predictor.predict(documents[0])["embeddings"]) == 128


def test_is_registered():
    assert Predictor.by_name("declutr") is DeCLUTRPredictor
    assert DeCLUTRPredictor.keeps_blank_lines


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
    ],
)
def test_lines_of_json_are_parsed(predictor, line, text):
    row = predictor.load_line(line)
    assert row["text"] == text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ka lo mi\n", r"Expected JSON lines such as .*got 'ka lo mi\\n'.* --use-dataset-reader"),
        ('{"text": "ka"', "Expected JSON lines such as"),
        (
            '{"body": "ka"}',
            """Expected an object with a string under "text", got '{"body": "ka"}'""",
        ),
        ('{"text": 3}', 'a string under "text"'),
        ('["ka"]', 'a string under "text"'),
        ('"ka"', 'a string under "text"'),
    ],
)
def test_bad_lines_are_refused(predictor, line, message):
    with pytest.raises(ValueError, match=message):
        predictor.load_line(line)


def test_errors_quote_the_beginning_only(predictor):
    with pytest.raises(ValueError, match="Expected JSON lines") as caught:
        predictor.load_line("x" * 10_000)
    assert len(str(caught.value)) < 400


def test_there_is_one_output_for_each_row_blank_rows_included(predictor, ids):
    lines = ['{"text": "ka lo mi"}', "", '{"text": ""}', '{"text": "tu"}', " "]
    rows = predictor.predict_batch_json([predictor.load_line(line) for line in lines])
    expected = [ids(text) for text in ("ka lo mi", "", "", "tu", "")]
    assert [row["embeddings"] for row in rows] == expected


def test_a_file_of_texts_keeps_its_rows(predictor, reader, ids, tmp_path):
    """This is what `--use-dataset-reader` does."""
    texts = ["", "ka lo", "", "mi", ""]
    (tmp_path / "rows.txt").write_text("\n".join(texts) + "\n")
    rows = predictor.predict_batch_instance(list(reader.read(tmp_path / "rows.txt")))
    assert [row["embeddings"] for row in rows] == [ids(text) for text in texts]


def test_json_lines_and_plain_text_give_the_same(predictor, reader, documents, tmp_path):
    (tmp_path / "rows.txt").write_text("\n".join(documents[:3]) + "\n")
    by_file = predictor.predict_batch_instance(list(reader.read(tmp_path / "rows.txt")))
    by_line = predictor.predict_batch_json([{"text": text} for text in documents[:3]])
    assert by_file == by_line


def test_another_reader_is_left_alone(tmp_path):
    class Plain:
        pass

    plain = Plain()
    DeCLUTRPredictor(Echo(), plain)  # type: ignore[arg-type]
    assert not hasattr(plain, "sample_spans")


def test_a_null_text_is_blank_as_in_training_files(predictor):
    assert predictor.load_line('{"text": null}\n') == predictor.load_line("\n") == {"text": ""}


@pytest.mark.parametrize("text", [None, 3, ["a"]])
def test_a_text_that_is_no_string_is_refused(predictor, text) -> None:
    with pytest.raises(TypeError, match=f'string under "text", got {type(text).__name__}'):
        predictor.predict(text)
