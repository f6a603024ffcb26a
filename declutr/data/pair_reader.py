"""The DatasetReader "text_pairs", which reads pairs and triplets of texts from tables."""

from collections.abc import Sequence
from typing import Any, Optional, Union

from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance, TokenIndexer, Tokenizer

from declutr.corpus import Paths
from declutr.corpus.text_pairs import Columns, TextPair, class_label, score_label
from declutr.data.augmentations import Augmentation
from declutr.data.collation import number_field
from declutr.data.pair_rows import PairFiles, PairRows, PairTexts, TokenizedPairs
from declutr.data.row_augmentation import TrainingAugmentation
from declutr.data.row_reader import RowReader

NLI = "nli"
LABELS = ("class", "score", NLI)


@DatasetReader.register("text_pairs")
class TextPairReader(RowReader):
    """A reader of pairs and triplets of texts from TSV, CSV, JSON lines or parquet.

    Pairs may have labels. The data are held in memory, as they are usually small. Texts are kept
    whole; the `max_length` of the tokenizer cuts longer ones. Rows of natural language inference
    become triplets (`format: "nli"`, for supervised SimCSE) or pairs with classes (`labels: "nli"`,
    for Sentence-BERT).

    Fields: `anchors` `(1, L)` and `positives` `(1, L)`; with negatives, `negatives` `(K, L)`; with
    labels, `labels`, a class (int64) or a score (float32); and with `with_ids`, `ids`, the number
    of the pair, from 0.

    # Parameters

    format : `"nli"` groups rows of premise, hypothesis and label by premise, and combines each
        entailed hypothesis with a contradicting one as its negative
        (`declutr.corpus.text_pairs.read_nli_triplets`). By default, each row is a pair.
    anchor, positive : the columns of the two texts, by name or by number from 0. The default is
        "anchor" and "positive", or the first two columns without a header. For natural language
        inference, they are premise and hypothesis, whose usual names are known.
    negative : the column or columns of hard negatives. A column of JSON may hold a list.
    label : the column of the label; "label" by default, or the third column without a header.
    labels : the kind of label: `"class"` (an int, 0 or above), `"score"` (a number), or `"nli"`
        (entailment 0, neutral 1, contradiction 2; rows without agreement are left out). By default,
        pairs have no label.
    max_score : the number that scores are divided by; 5 for STS.
    header : whether the first line of TSV and CSV names the columns. By default it does, unless
        columns are given by number.
    augmentation : of anchors and positives, in training only, each with draws of its own, anew in
        every epoch (`declutr.data.row_augmentation.TrainingAugmentation`). Negatives and labels
        stay as they are. Validation data need a `validation_dataset_reader` without it.
    with_ids : whether to give `ids` in training, for objectives that recognise pairs.
    others : the parameters of every reader (`declutr.data.row_reader.RowReader`). `text_key` and
        `cache_dir` apply to whole texts; `max_instances` counts pairs.

    # Raises

    `ConfigurationError` : if settings contradict each other.
    `declutr.corpus.documents.SourceError` : if the data cannot be read; it names the file and line.
    """

    _training: PairTexts

    def __init__(
        self,
        tokenizer: Optional[Tokenizer] = None,
        token_indexers: Optional[dict[str, TokenIndexer]] = None,
        format: Optional[str] = None,
        anchor: Optional[Union[str, int]] = None,
        positive: Optional[Union[str, int]] = None,
        negative: Optional[Union[str, int, list[Union[str, int]]]] = None,
        label: Optional[Union[str, int]] = None,
        labels: Optional[str] = None,
        max_score: float = 1.0,
        header: Optional[bool] = None,
        *,
        augmentation: Optional[Augmentation] = None,
        with_ids: bool = False,
        encoding_errors: str = "strict",
        **others: Any,
    ) -> None:
        super().__init__(tokenizer, token_indexers, encoding_errors=encoding_errors, **others)
        negatives = negative if isinstance(negative, list) else [negative]
        columns = Columns(anchor, positive, tuple(n for n in negatives if n is not None), label)
        _check_settings(format, labels, columns, max_score, header)
        if header is None:  # Columns that are given by number need no header.
            header = not any(isinstance(column, int) for column in columns.given)
        self._pair_files = PairFiles(
            columns,
            "nli pairs" if labels == NLI else "nli triplets" if format == NLI else "pairs",
            {"class": class_label, "score": score_label(max_score)}.get(labels or ""),
            header,
            encoding_errors,
        )
        augmented = TrainingAugmentation(augmentation, self._draws)
        rows = PairRows(self._pair_files, self._codec, with_ids, with_texts=bool(augmented))
        self._training = PairTexts(rows, self._codec, augmented)

    def pairs(self, path: Paths) -> TokenizedPairs:
        """Return the pairs at `path`, reading and tokenising them on the first call."""
        return self._training.source.corpus(path)

    def read_pairs(self, path: Paths) -> list[TextPair]:
        """Return the pairs at `path` as texts."""
        return self._pair_files.read(path)

    def text_to_instance(  # type: ignore[override]
        self,
        text: str,
        positive: Optional[str] = None,
        negatives: Sequence[str] = (),
        label: Optional[Union[int, float]] = None,
    ) -> Instance:
        """Make an instance of a pair, or of one whole text if no positive is given.

        The instance is not part of a file, so it has no `ids`.

        # Parameters

        text : the anchor.
        positive : a text that belongs to it.
        negatives : its hard negatives.
        label : a class (an int) or a score (a float).
        """
        if positive is None:
            return self._whole_text(text)
        fields = self._training.of_texts((text, positive, *negatives))
        if label is not None:
            fields["labels"] = number_field(label)
        return Instance(fields)


def _check_settings(
    format: Optional[str],
    labels: Optional[str],
    columns: Columns,
    max_score: float,
    header: Optional[bool],
) -> None:
    """Raise `ConfigurationError` for settings that are unknown or contradict each other."""
    if format not in (None, NLI):
        raise ConfigurationError(
            f"Unknown format '{format}': expected 'nli' for premise, hypothesis and label, or null "
            "for rows of pairs. Names of files tell TSV, CSV, JSON and parquet."
        )
    if labels is not None and labels not in LABELS:
        raise ConfigurationError(
            f"Unknown labels '{labels}': expected one of {', '.join(LABELS)}, or null for none."
        )
    natural_inference = NLI in (format, labels)
    if format == NLI and labels not in (None, NLI):
        raise ConfigurationError(
            f"format is 'nli', where labels can be 'nli' only, got '{labels}'. Remove format for "
            "pairs with labels of another kind."
        )
    if columns.label is not None and labels is None and not natural_inference:
        raise ConfigurationError(
            f"The label is in column {columns.label!r}, but labels does not say what it is. "
            f"Expected one of {', '.join(LABELS)}."
        )
    if columns.negatives and natural_inference:
        raise ConfigurationError(
            f"Got negative {list(columns.negatives)}, but natural language inference has rows of "
            "premise, hypothesis and label; contradictions are the negatives. Remove negative."
        )
    if not max_score > 0:
        raise ConfigurationError(f"max_score must be above 0, got {max_score}.")
    names = [column for column in columns.given if isinstance(column, str)]
    if header is False and names:
        raise ConfigurationError(
            f"Without a header columns have no names, got {names}. Expected numbers, from 0, or "
            "header true."
        )
    if any(isinstance(column, int) and column < 0 for column in columns.given):
        raise ConfigurationError("Columns are numbered from 0; got a number below that.")
