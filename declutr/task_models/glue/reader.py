"""The DatasetReader "glue": labelled texts and pairs for AllenNLP's own models."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Optional, Union

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Field, Instance, TokenIndexer, Tokenizer
from allennlp.data.fields import LabelField, TensorField, TextField

from declutr.corpus.documents import PathLike, SourceError, normalize_whitespace, source_files
from declutr.data.numbered_texts import NumberedTextsReader
from declutr.task_models.glue.joined_texts import JoinedTexts
from declutr.task_models.glue.labelled_rows import (
    SENTEVAL_TASKS,
    LabelledRow,
    fraction_of_rows,
    read_labelled_rows,
    read_senteval_rows,
    require_fraction,
)
from declutr.task_models.glue.layouts import LAYOUTS, Layout, own_layout, task_name

logger = logging.getLogger(__name__)

TASKS = [*LAYOUTS, *SENTEVAL_TASKS]
LABELS = ("class", "score")
Columns = Union[str, int, list[Union[str, int]]]


@DatasetReader.register("glue")
class GlueReader(NumberedTextsReader):
    """Texts and pairs with classes or scores, from the published files of GLUE and of SentEval.

    Files are TSV as published (quotes are characters like others), or JSON lines, CSV or parquet,
    plain or compressed. Files of one's own have no `task` but `texts` and `label`. Test files
    without labels give instances without them. `declutr.task_models.glue.layouts` has the columns
    of each task.

    Fields: `tokens` `(L,)`, the text, or both of a pair with the special tokens between; with
    `combine` false, a pair is `premise` `(L,)` and `hypothesis` `(L,)`. `label`, a class (in the
    vocabulary) or a score (float32, as in the file: 0 to 5 for STS-B). With `with_ids`, `ids`
    (int64), the number of the row in its file.

    # Parameters

    tokenizer, token_indexers : any AllenNLP pair; the default is white space and single ids. A
        transformer's special tokens are added whatever its `add_special_tokens`, and its
        `max_length` counts for the whole of a pair.
    task : `"cola"`, `"sst-2"`, `"mrpc"`, `"qqp"`, `"sts-b"`, `"mnli"` (SNLI as well), `"qnli"`,
        `"rte"`, `"wnli"`; of SentEval `"sick-e"`, `"sick-r"`, `"trec"`, and from a folder `"mr"`,
        `"cr"`, `"mpqa"`, `"subj"`.
    texts : without a task, the column of the text, or a list of the two of a pair, by name or by
        number from 0.
    label : without a task, the column of the label; none gives instances without.
    labels : without a task, `"class"` or `"score"`.
    header : without a task, whether the first line of TSV and CSV names the columns; by default,
        unless columns are given by number.
    combine : join a pair to one sequence, as `basic_classifier` wants. It needs a transformer's
        tokenizer.
    with_ids : give each instance its `ids`.
    label_fraction : train with this share of the rows (0.01 is 1 %), drawn within each class, or
        each tenth of the scores, at least one. Give `validation_dataset_reader` without it: this
        reader takes its share of every file.
    fraction_seed : of that draw. The same seed gives the same rows of a file, and those of a
        smaller share are among those of a larger one.
    strict : a row with a wrong number of columns is an error; otherwise it is left out, which the
        log counts.
    label_namespace : of classes in the vocabulary.
    encoding_errors : `"strict"` or `"replace"`, for text that is not UTF-8. TREC and tasks from a
        folder are read as UTF-8 or, if no character of a file is UTF-8, as Latin-1; a bad byte
        among others that are UTF-8 is an error.
    max_instances : use no more rows than this, for a quick try.

    # Raises

    `ConfigurationError` : settings that contradict each other, or data that cannot be read; then
        it names file and line.
    """

    def __init__(
        self,
        tokenizer: Optional[Tokenizer] = None,
        token_indexers: Optional[dict[str, TokenIndexer]] = None,
        task: Optional[str] = None,
        texts: Optional[Columns] = None,
        label: Optional[Union[str, int]] = None,
        labels: Optional[str] = None,
        header: Optional[bool] = None,
        combine: bool = True,
        with_ids: bool = False,
        label_fraction: Optional[float] = None,
        fraction_seed: int = 13370,
        strict: bool = False,
        label_namespace: str = "labels",
        encoding_errors: str = "strict",
        max_instances: Optional[int] = None,
        serialization_dir: Optional[str] = None,
    ) -> None:
        super().__init__(tokenizer, token_indexers, with_ids, max_instances, serialization_dir)
        self._joined = JoinedTexts(self._tokenizer)
        try:
            self._task, self._layout = _task_and_layout(task, texts, label, labels, header)
            if label_fraction is not None:
                require_fraction(label_fraction)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
        self._combine = combine
        self._fraction, self._fraction_seed = label_fraction, fraction_seed
        self._strict = strict
        self._label_namespace = label_namespace
        self._encoding_errors = encoding_errors
        pairs = self._layout is not None and len(self._layout.texts) == 2
        if pairs and combine and not self._joined.joins_pairs:
            raise ConfigurationError(
                f"A {type(self._tokenizer).__name__} does not know what goes between the two texts "
                "of a pair. Use a tokenizer of type 'pretrained_transformer', or set combine to "
                "false for the fields premise and hypothesis."
            )

    def rows(self, path: PathLike | Sequence[PathLike]) -> list[LabelledRow]:
        """The rows at `path` that give instances, in order.

        # Raises

        `ConfigurationError` : data that cannot be read, or that has no labels for a fraction.
        """
        try:
            if self._layout is None:
                assert self._task is not None
                rows = read_senteval_rows(self._task, path)
            else:
                files = source_files(path)
                rows = read_labelled_rows(
                    files, self._layout, str(path), self._strict, self._encoding_errors
                )
        except SourceError as error:
            raise ConfigurationError(str(error)) from error
        return rows if self._fraction is None else self._labelled_part(rows, str(path))

    def _labelled_part(self, rows: list[LabelledRow], source: str) -> list[LabelledRow]:
        assert self._fraction is not None
        labels: list[Any] = [row.label for row in rows if row.label is not None]
        if not labels:
            raise ConfigurationError(
                f"{source}: no row has a label, so label_fraction has nothing to choose from. Is "
                "this a test file? Remove label_fraction for it."
            )
        numbers = fraction_of_rows(labels, self._fraction, self._fraction_seed)
        chosen = [rows[number] for number in numbers]
        logger.info(
            "%s: %d of %d labels are used (%.1f %%).",
            source,
            len(chosen),
            len(rows),
            100 * len(chosen) / len(rows),
        )
        return chosen

    def _read(self, file_path: Any) -> Iterable[Instance]:
        for row in self.shard_iterable(self.rows(file_path)):
            second = row.texts[1] if len(row.texts) == 2 else None
            yield self.text_to_instance(row.texts[0], second, row.label, row.id)

    def text_to_instance(  # type: ignore[override]
        self,
        text: str,
        second: Optional[str] = None,
        label: Optional[Union[str, int, float]] = None,
        id: Optional[int] = None,
    ) -> Instance:
        """The instance of a text, or with a second one of a pair.

        A label that is a float is a score; others are classes by name. Without an id there is no
        field `ids`.
        """
        text = normalize_whitespace(text)
        fields: dict[str, Field] = {}
        if second is None:
            fields["tokens"] = TextField(self._joined.single(text))
        elif self._combine:
            fields["tokens"] = TextField(self._joined.pair(text, normalize_whitespace(second)))
        else:
            fields["premise"] = TextField(self._joined.single(text))
            fields["hypothesis"] = TextField(self._joined.single(normalize_whitespace(second)))
        if isinstance(label, float):
            fields["label"] = TensorField(torch.tensor(label))
        elif label is not None:
            fields["label"] = LabelField(str(label), self._label_namespace)
        return Instance({**fields, **self.numbered(id)})


def _task_and_layout(
    task: Optional[str],
    texts: Optional[Columns],
    label: Optional[Union[str, int]],
    labels: Optional[str],
    header: Optional[bool],
) -> tuple[Optional[str], Optional[Layout]]:
    """The task, if any, and its layout, if its files have columns.

    # Raises

    `ConfigurationError` : values that are unknown, or contradict each other; `SourceError` : an
        unknown task.
    """
    given = {"texts": texts, "label": label, "labels": labels, "header": header}
    if task is not None:
        task = task_name(task, TASKS)
        needless = [key for key, value in given.items() if value is not None]
        if needless:
            raise ConfigurationError(
                f"The task '{task}' says where everything is, but {', '.join(needless)} is given "
                "too. Remove it, or the task for files of your own."
            )
        return task, LAYOUTS.get(task)
    columns = tuple(texts if isinstance(texts, list) else [] if texts is None else [texts])
    if len(columns) not in (1, 2):
        raise ConfigurationError(
            f"Got {len(columns)} column(s) of texts and no task. Expected texts with one column or "
            f"two, by name or number, or a task: {', '.join(TASKS)}."
        )
    if labels is not None and labels not in LABELS:
        raise ConfigurationError(f"Unknown labels '{labels}': expected one of {', '.join(LABELS)}.")
    if labels is not None and label is None:
        raise ConfigurationError(
            f"labels is '{labels}', but no label says in which column they are. Give its name or "
            "number, or remove labels."
        )
    numbers = [column for column in (*columns, label) if isinstance(column, int)]
    names = [column for column in (*columns, label) if isinstance(column, str)]
    if any(number < 0 for number in numbers):
        raise ConfigurationError(f"Columns are numbered from 0, got {min(numbers)}.")
    if names and (header is False or (header is None and numbers)):
        raise ConfigurationError(
            f"Columns have names only with a header, got {names}"
            f"{f' and {numbers}' if numbers else ''}. Set header to true if the first line has "
            "them, or give numbers alone, from 0."
        )
    return None, own_layout(columns, label, labels == "score", header)
