"""The base class of readers that give text fields and the number of the row."""

from collections.abc import Sequence
from typing import Any, Optional

import numpy as np
from allennlp.data import DatasetReader, Field, Instance, TokenIndexer, Tokenizer
from allennlp.data.fields import ListField, TextField
from allennlp.data.token_indexers import SingleIdTokenIndexer
from allennlp.data.tokenizers import WhitespaceTokenizer

from declutr.data.augmentations import Augmentation
from declutr.data.collation import number_field
from declutr.data.document_rows import kept_by_path
from declutr.data.row_augmentation import TrainingAugmentation
from declutr.data.row_reader import EpochCounts
from declutr.sampling.row_draws import RowDraws


class NumberedTextsReader(DatasetReader):
    """A base class of readers whose instances have text fields and, with `with_ids`, a row number.

    It serves models that are AllenNLP's own in kind, without token ids on disk. A subclass passes
    its rows through `shard_iterable`, so that several workers or processes tokenize each row once.

    # Parameters

    tokenizer, token_indexers : any AllenNLP pair; the default is white space and single ids.
    with_ids : whether each instance has the field `ids` (int64).
    max_instances, serialization_dir : as in AllenNLP.
    augmentation : of the texts of rows, in training only, for a subclass that calls `augmented` and
        has `rows` and `instance_of`, by which the loader "declutr" reads the rows of an epoch.
    seed : the seed of what the augmentation draws.
    """

    def __init__(
        self,
        tokenizer: Optional[Tokenizer],
        token_indexers: Optional[dict[str, TokenIndexer]],
        with_ids: bool,
        max_instances: Optional[int],
        serialization_dir: Optional[str],
        augmentation: Optional[Augmentation] = None,
        seed: int = 13370,
    ) -> None:
        sharding = {"manual_distributed_sharding": True, "manual_multiprocess_sharding": True}
        super().__init__(max_instances, serialization_dir=serialization_dir, **sharding)
        self._tokenizer = tokenizer or WhitespaceTokenizer()
        self._token_indexers = token_indexers or {"tokens": SingleIdTokenIndexer()}
        self._with_ids = with_ids
        self._augmentation = TrainingAugmentation(augmentation, RowDraws(seed, resample=True))
        self._epochs = EpochCounts() if augmentation else None

    @property
    def draws_anew(self) -> bool:
        """Whether instances differ from epoch to epoch, so that they must not be cached."""
        return self._augmentation.draws_anew

    def rows(self, path: Any) -> Sequence[Any]:
        """Return the rows that give instances, in order."""
        raise NotImplementedError

    def instance_of(self, path: Any, row: Any, epoch: int) -> Instance:
        """Return the instance of a row in one epoch."""
        raise NotImplementedError

    @kept_by_path
    def _kept_rows(self, path: Any) -> Sequence[Any]:
        return self.rows(path)

    def documents(self, path: Any) -> np.ndarray:
        """Return the places of the rows that give instances, `(n,)`: from 0."""
        return np.arange(len(self._kept_rows(path)))[: self.max_instances]

    def instance(self, path: Any, row: int, epoch: int = 0) -> Instance:
        """Return the instance of the row at a place, in one epoch."""
        return self.instance_of(path, self._kept_rows(path)[row], epoch)

    def next_epoch(self) -> int:
        """Return the epoch that is read next, from 0, and count it; 0 without an augmentation."""
        return self._epochs.read(self.get_worker_info()) if self._epochs else 0

    def augmented(self, path: Any, texts: tuple[str, ...], row: int, epoch: int) -> list[str]:
        """Return the texts of a row as they are in an epoch of training.

        # Raises

        `ConfigurationError` : if validation data are read as well, or the augmentation raises it.
        """
        (made,) = self._augmentation(path, [texts], [(epoch, row)])
        return list(made)

    def numbered(self, id: Optional[int]) -> dict[str, Field]:
        """Return `{"ids": field}` for the number of a row.

        Without `with_ids`, or if the number is `None`, return an empty dictionary.
        """
        return {"ids": number_field(id)} if self._with_ids and id is not None else {}

    def apply_token_indexers(self, instance: Instance) -> None:
        for field in instance.fields.values():
            for text in field.field_list if isinstance(field, ListField) else [field]:
                if isinstance(text, TextField):
                    text.token_indexers = self._token_indexers
