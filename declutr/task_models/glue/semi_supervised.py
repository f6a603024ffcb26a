"""The DatasetReader "semi_supervised": labelled texts, unlabelled ones beside them, and views."""

import inspect
import logging
from collections.abc import Iterable, Iterator
from typing import Any, Optional

import numpy as np
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance, TokenIndexer, Tokenizer
from allennlp.data.fields import ListField

from declutr.data.augmentations import Augmentation
from declutr.data.reader_keys import require_known_keys
from declutr.data.row_augmentation import RowAugmentation
from declutr.sampling.document_selection import all_rows, shuffled
from declutr.sampling.row_draws import RowDraws
from declutr.task_models.glue.labelled_rows import LabelledRow
from declutr.task_models.glue.reader import GlueReader

logger = logging.getLogger(__name__)


@DatasetReader.register("semi_supervised")
class SemiSupervisedReader(GlueReader):
    """A reader of labelled texts with unlabelled texts and augmentations, for "consistency".

    It reads the files of the reader "glue", and its instances have the fields of that reader.
    Beside them are lists of texts for the Model "consistency":

    - `unlabelled_tokens` `(r, L)`, r unlabelled texts, and `augmented_unlabelled_tokens` `(r, L)`,
      an augmentation of each;
    - `augmented_tokens` `(V, L)`, V augmentations of the labelled text.

    With `combine` false there are `unlabelled_premise`, `unlabelled_hypothesis` and so on, and both
    texts of a pair are augmented. Unlabelled are the rows whose label is empty, of any file at the
    path, and those that `label_fraction` leaves out, whose labels are not looked at.

    An epoch goes once through the labelled or through the unlabelled texts, whichever takes longer;
    the others are repeated. Augmentations are drawn once, as in the public code of UDA
    (`aug_copy=1`), from `seed` and the number of the row. A file without any label is read as by
    the reader "glue". With two or more workers of AllenNLP's own loader the order of instances is
    not that of the files, and differs from run to run; the loader "declutr" keeps it.

    # Parameters

    augmentation : makes views of texts (`eda`, `callable`, ...); a text that loses all its words
        stays as it is. By default there are none, and the model makes them.
    num_views : V, the number of augmentations of a labelled text.
    unlabelled : r, the number of unlabelled texts beside each labelled one.
    seed : the seed of augmentations, and of the order of unlabelled texts.
    others : the parameters of the reader "glue". `max_instances` counts labelled texts, repeated
        ones as well.

    # Raises

    `ConfigurationError` : `num_views` or `unlabelled` is negative, or there is nothing that the
        reader "glue" would not give. When data are read: if there are no unlabelled texts, or if
        there is an augmentation and the reader comes from an untrusted archive, because
        augmentations may read files and import modules.
    """

    def __init__(
        self,
        tokenizer: Optional[Tokenizer] = None,
        token_indexers: Optional[dict[str, TokenIndexer]] = None,
        augmentation: Optional[Augmentation] = None,
        num_views: int = 0,
        unlabelled: int = 0,
        seed: int = 13370,
        **others: Any,
    ) -> None:
        known = inspect.signature(GlueReader).parameters
        unknown = {key: value for key, value in others.items() if key not in known}
        require_known_keys(type(self), GlueReader, unknown)
        if others.get("keep_unlabelled"):
            raise ConfigurationError(
                "Got keep_unlabelled, but this reader puts unlabelled texts beside labelled ones. "
                "Remove it, and set unlabelled; or take the reader 'glue'."
            )
        super().__init__(tokenizer, token_indexers, **others)
        if num_views < 0 or unlabelled < 0:
            raise ConfigurationError(
                f"num_views and unlabelled must be 0 or above, got {num_views} and {unlabelled}."
            )
        if num_views and augmentation is None:
            raise ConfigurationError(
                f"Got num_views {num_views} and no augmentation to make them: set it, or set "
                "num_views to 0 for views that the model makes."
            )
        if not num_views and not unlabelled:
            raise ConfigurationError(
                "Got num_views 0 and unlabelled 0: set unlabelled to the number of unlabelled "
                "texts beside each labelled one, or num_views, or take the reader 'glue'."
            )
        draws = RowDraws(seed, resample=True)
        self._views = RowAugmentation(augmentation, draws) if augmentation else None
        self._num_views, self._unlabelled, self._seed = num_views, unlabelled, seed

    def _read(self, file_path: Any) -> Iterable[Instance]:
        every = self._rows_at(file_path, with_unlabelled=True)
        labelled = [row for row in every if row.label is not None]
        if not labelled:
            yield from super()._read(file_path)
            return
        if self._fraction is not None:
            labelled = self._labelled_part(labelled, str(file_path))
        chosen = {row.id for row in labelled}
        others = [row for row in every if row.id not in chosen]
        self._require(others, str(file_path))
        logger.info(f"{file_path}: {len(labelled)} labelled and {len(others)} unlabelled texts.")
        for row, beside in self.shard_iterable(self._together(labelled, others)):
            yield self._instance(row, beside)

    def _require(self, unlabelled: list[LabelledRow], source: str) -> None:
        if self._unlabelled and not unlabelled:
            raise ConfigurationError(
                f"{source}: all texts have labels, and {self._unlabelled} without one are wanted "
                "beside each. Add rows with an empty label (the path may be a list of files), set "
                "label_fraction, or set unlabelled to 0."
            )

    def _together(
        self, labelled: list[LabelledRow], others: list[LabelledRow]
    ) -> Iterator[tuple[LabelledRow, list[LabelledRow]]]:
        """Yield each labelled row of an epoch with the unlabelled rows beside it."""
        each = self._unlabelled
        order = shuffled(all_rows(len(others)), (self._seed,)) if each else np.empty(0, np.int32)
        count = max(len(labelled), -(-len(order) // each) if each else 0)
        for number in range(count):
            places = range(number * each, (number + 1) * each)
            beside = [others[order[place % len(order)]] for place in places]
            yield labelled[number % len(labelled)], beside

    def _instance(self, row: LabelledRow, beside: list[LabelledRow]) -> Instance:
        instance = self._instance_of(row.texts, row.label, row.id)
        lists = {"augmented_": [self._augmented(row, view) for view in range(self._num_views)]}
        lists["unlabelled_"] = [one.texts for one in beside]
        if self._views is not None:
            lists["augmented_unlabelled_"] = [self._augmented(one, 0) for one in beside]
        for prefix, texts in lists.items():
            fields = [self._instance_of(one).fields for one in texts]
            for name in fields[0] if fields else ():
                instance.add_field(prefix + name, ListField([of_one[name] for of_one in fields]))
        return instance

    def _augmented(self, row: LabelledRow, view: int) -> tuple[str, ...]:
        assert self._views is not None
        (made,) = self._views.or_originals([row.texts], [(view, row.id)])
        return tuple(made)
