"""The DatasetReader "glue", which reads labelled texts and pairs for AllenNLP's own models."""

import logging
import math
from collections.abc import Iterable, Sequence
from typing import Any, Optional, Union

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Field, Instance, TokenIndexer, Tokenizer
from allennlp.data.fields import LabelField, MetadataField, TensorField, TextField

from declutr.corpus.documents import PathLike, SourceError, normalize_whitespace
from declutr.corpus.source_files import source_files
from declutr.data.augmentations import Augmentation
from declutr.data.numbered_texts import NumberedTextsReader
from declutr.system import raised_as
from declutr.task_models.glue import labelled_rows
from declutr.task_models.glue.joined_texts import JoinedTexts
from declutr.task_models.glue.layouts import Scores
from declutr.task_models.glue.tasks import Columns, task_and_layout

logger = logging.getLogger(__name__)

NO_CLASS = -100
"""The class of texts without a label, which torch's cross entropy ignores."""


@DatasetReader.register("glue")
class GlueReader(NumberedTextsReader):
    """A reader of texts and pairs with classes or scores, for the files of GLUE and SentEval.

    Files are TSV as published (quotes have no special meaning), or JSON lines, CSV or parquet,
    plain or compressed. For users' own files, set `texts` and `label` instead of `task`. Test files
    without labels give instances without them. `declutr.task_models.glue.layouts` lists the columns
    of each task.

    The fields of an instance are `tokens` `(L,)`, a text or both texts of a pair with the special
    tokens between them, or with `combine` false `premise` `(L,)` and `hypothesis` `(L,)`; `label`,
    a class (in the vocabulary) or a score (float32, as in the file: 0 to 5 for STS-B); and with
    `with_ids`, `ids` (int64), the number of the row in its file. With `with_metadata` there is
    `metadata`, a dictionary: `index`, as in the column of that name, and `part`, "matched" or
    "mismatched" for rows of MNLI's files of these names, which may be read as one data set.

    # Parameters

    tokenizer, token_indexers : any tokenizer of AllenNLP with its indexers; the default is white
        space and single ids. A transformer's special tokens are added even if its
        `add_special_tokens` is false, and its `max_length` applies to a pair as a whole.
    task : `"cola"`, `"sst-2"`, `"mrpc"`, `"qqp"`, `"sts-b"`, `"mnli"` (SNLI as well), `"qnli"`,
        `"rte"`, `"wnli"`; of SentEval `"sick-e"`, `"sick-r"`, `"trec"`, and from a folder `"mr"`,
        `"cr"`, `"mpqa"`, `"subj"`.
    texts : without a task, the column of the text, or a list of the two columns of a pair, by name
        or by number from 0.
    label : without a task, the column of the label; without it, instances have no label.
    labels : without a task, `"class"` (the default) or `"score"`.
    header : without a task, whether the first line of TSV and CSV names the columns; by default it
        does unless columns are given by number.
    combine : whether to join a pair to one sequence, as `basic_classifier` needs it. This requires
        the tokenizer of a transformer.
    with_ids : whether instances have the field `ids`.
    label_fraction : the share of the rows to train with (0.01 is 1 %), drawn within each class, or
        within each tenth of the scores, at least one row each. Configure a
        `validation_dataset_reader` without it, because this reader takes the share of every file.
    fraction_seed : the seed of that draw. The same seed gives the same rows of a file, and the rows
        of a smaller share are among those of a larger one.
    keep_unlabelled : whether rows without a label among others that have one, and those that
        `label_fraction` leaves out, give instances as well, with the class -100, which torch's
        cross entropy ignores, or a score that is not a number. The Model "glue" leaves them out of
        its loss, and the Model "reclaim" around it has them in its term.
    strict : whether a row with a wrong number of columns is an error. Otherwise such rows are left
        out, and their number is logged.
    label_namespace : the namespace of classes in the vocabulary.
    encoding_errors : `"strict"` or `"replace"`, for text that is not UTF-8. TREC and tasks from a
        folder are read as UTF-8 or, if no character of a file is UTF-8, as Latin-1; a bad byte
        among others that are UTF-8 is an error.
    max_instances : the largest number of rows to use; `serialization_dir` is set by AllenNLP.
    augmentation : of the texts of each row, such as `eda`, in training only; with a loader of type
        "declutr" drawn anew in every epoch (EDA's public code writes copies, drawn once). Configure
        a `validation_dataset_reader` without it: reading a second place is an error. The reader of
        an archive augments nothing.
    seed : the seed of what the augmentation draws.
    with_metadata : whether instances have the field `metadata`.

    # Raises

    `ConfigurationError` : settings contradict each other, or data cannot be read. The message then
        names the file and the line.
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
        augmentation: Optional[Augmentation] = None,
        seed: int = 13370,
        keep_unlabelled: bool = False,
        with_metadata: bool = False,
    ) -> None:
        reading = tokenizer, token_indexers, with_ids, max_instances, serialization_dir
        super().__init__(*reading, augmentation, seed)
        self._joined = JoinedTexts(self._tokenizer)
        with raised_as(ConfigurationError, ValueError):
            self._task, self._layout = task_and_layout(task, texts, label, labels, header)
            if label_fraction is not None:
                labelled_rows.require_fraction(label_fraction)
        self._combine = combine
        self._fraction, self._fraction_seed = label_fraction, fraction_seed
        self._keep_unlabelled, self.with_metadata = keep_unlabelled, with_metadata
        self.strict = strict
        self._label_namespace = label_namespace
        self._encoding_errors = encoding_errors
        pairs = self._layout is not None and len(self._layout.texts) == 2
        if pairs and combine and not self._joined.joins_pairs:
            raise ConfigurationError(
                f"A {type(self._tokenizer).__name__} does not know what goes between the two texts "
                "of a pair. Use a tokenizer of type 'pretrained_transformer', or set combine to "
                "false for the fields premise and hypothesis."
            )

    def rows(self, path: PathLike | Sequence[PathLike]) -> list[labelled_rows.LabelledRow]:
        """Return the rows that give instances, in order.

        # Parameters

        path : files, folders or globs; for SentEval's tasks with one file per class, their folder.

        # Raises

        `ConfigurationError` : the data cannot be read, or has no labels to take a fraction of.
        """
        rows = self._rows_at(path, with_unlabelled=self._keep_unlabelled)
        if self._fraction is None:
            return rows
        if not self._keep_unlabelled:
            return self._labelled_part(rows, str(path))
        labelled = [row for row in rows if row.label is not None]
        chosen = {row.id for row in self._labelled_part(labelled, str(path))}
        return [row if row.id in chosen else row._replace(label=None) for row in rows]

    def _rows_at(
        self, path: PathLike | Sequence[PathLike], with_unlabelled: bool = False
    ) -> list[labelled_rows.LabelledRow]:
        with raised_as(ConfigurationError, SourceError):
            if self._layout is None:
                assert self._task is not None
                return labelled_rows.read_senteval_rows(self._task, path)
            how = str(path), self.strict, self._encoding_errors, with_unlabelled
            return labelled_rows.read_labelled_rows(source_files(path), self._layout, *how)

    def _labelled_part(
        self, rows: list[labelled_rows.LabelledRow], source: str
    ) -> list[labelled_rows.LabelledRow]:
        assert self._fraction is not None
        labels: list[Any] = [row.label for row in rows if row.label is not None]
        if not labels:
            raise ConfigurationError(
                f"{source}: no row has a label, so label_fraction has nothing to choose from. Is "
                "this a test file? Remove label_fraction for it."
            )
        numbers = labelled_rows.fraction_of_rows(labels, self._fraction, self._fraction_seed)
        chosen = [rows[number] for number in numbers]
        logger.info(
            f"{source}: {len(chosen)} of {len(rows)} labels are used "
            f"({100 * len(chosen) / len(rows):.1f} %)."
        )
        return chosen

    def _read(self, file_path: Any) -> Iterable[Instance]:
        epoch = self.next_epoch()
        for row in self.shard_iterable(self.rows(file_path)):
            yield self.instance_of(file_path, row, epoch)

    def instance_of(self, path: Any, row: labelled_rows.LabelledRow, epoch: int) -> Instance:
        texts = self.augmented(path, row.texts, row.id, epoch)
        instance = self._instance_of(texts, row.label, row.id)
        if row.label is None and self._keep_unlabelled:
            instance.add_field("label", self._no_label())
        if self.with_metadata:
            index = row.id if row.number is None else row.number
            instance.add_field("metadata", MetadataField({"index": index, "part": row.part}))
        return instance

    def _no_label(self) -> Field:
        if self._layout is not None and isinstance(self._layout.labels, Scores):
            return TensorField(torch.tensor(math.nan))
        return LabelField(NO_CLASS, self._label_namespace, skip_indexing=True)

    def _instance_of(
        self, texts: Sequence[str], label: Any = None, id: Optional[int] = None
    ) -> Instance:
        return self.text_to_instance(texts[0], texts[1] if len(texts) == 2 else None, label, id)

    def text_to_instance(  # type: ignore[override]
        self,
        text: str,
        second: Optional[str] = None,
        label: Optional[Union[str, int, float]] = None,
        id: Optional[int] = None,
    ) -> Instance:
        """Return the instance of a text or of a pair.

        # Parameters

        text : the text, or the first one of a pair.
        second : the second text of a pair.
        label : a float is a score, anything else is the name of a class.
        id : the value of the field `ids`; without it there is no such field.
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
