"""Augmentations of the rows of a reader, drawn by (seed, epoch, row)."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from allennlp.common.checks import ConfigurationError

from declutr.archives.safety.building import is_untrusted
from declutr.bridge.archives import is_archived
from declutr.corpus import normalize_whitespace
from declutr.data.augmentations import Augmentation
from declutr.sampling.row_draws import RowDraws, text_digest
from declutr.system.host_memory import shared_zeros

logger = logging.getLogger(__name__)


class RowAugmentation:
    """An augmentation of the texts of rows, which draws by (seed, epoch, row) alone.

    # Parameters

    augmentation : takes a text as it stands in its row.
    draws : the random draws of each row.
    """

    def __init__(self, augmentation: Augmentation, draws: RowDraws) -> None:
        self._augmentation, self._draws = augmentation, draws
        self._untrusted = is_untrusted()
        self._num_blank = shared_zeros(dtype=torch.int64)  # Workers count too.

    @property
    def num_blank(self) -> int:
        """The number of texts of which nothing was left.

        Workers count without a lock, so that a few may be missed.
        """
        return int(self._num_blank)

    def __call__(
        self, rows: Sequence[Sequence[str]], keys: Sequence[tuple[int, ...]]
    ) -> list[list[str]]:
        """Return the augmented texts of each row, drawn one after the other; some may be blank.

        # Parameters

        rows : the texts of each row.
        keys : for each row, the arguments of `RowDraws.at`.

        # Raises

        `ConfigurationError` : if the augmentation raises it, or is of an untrusted archive.
        """
        if self._untrusted:
            raise ConfigurationError(
                "This dataset reader is of an archive that was opened without trust, and its "
                "augmentation may read files and import modules that the archive names. If you "
                "made the archive yourself, open it with trust=True (--trust). The reader "
                '"augmented" gives whole texts where sample_spans is False.'
            )

        def drawn() -> Iterator[tuple[str, np.random.Generator]]:
            for texts, key in zip(rows, keys, strict=True):
                rng = self._draws.at(*key)
                yield from ((text, rng) for text in texts)

        made = iter([normalize_whitespace(text) for text in self._augmentation.of_many(drawn())])
        return [[next(made) for _ in texts] for texts in rows]

    def or_originals(
        self, rows: Sequence[Sequence[str]], keys: Sequence[tuple[int, ...]]
    ) -> list[list[str]]:
        """Return the augmented texts of each row; one of which nothing is left stays as it was."""
        return [
            [new or self.instead(old) for new, old in zip(*texts, strict=True)]
            for texts in zip(self(rows, keys), rows, strict=True)
        ]

    def instead(self, original: Any) -> Any:
        """Return the original of a text of which nothing was left; it is counted.

        A warning is logged the first time.
        """
        if not self._num_blank:
            logger.warning(
                "An augmentation left nothing of a text, which is taken as it is instead. Further "
                "ones are counted, not reported one by one."
            )
        self._num_blank += 1
        return original


class TrainingAugmentation:
    """An augmentation of the texts of labelled rows, in training only.

    Labels stay as they are. Texts of a row are drawn anew in every epoch, as long as the loader
    reads rows anew. A reader of an archive, which is opened for prediction and evaluation, augments
    nothing. A reader in training must not be that of validation as well, so only one place can be
    read.

    # Parameters

    augmentation : `None` leaves all texts as they are.
    draws : the random draws of each row.
    """

    def __init__(self, augmentation: Augmentation | None, draws: RowDraws) -> None:
        self._of_rows = None
        if augmentation is not None and not is_archived():
            self._of_rows = RowAugmentation(augmentation, draws)
        self.draws_anew = self._of_rows is not None and draws.resample
        self._place = shared_zeros(dtype=torch.int64)  # Workers read it too.

    def __bool__(self) -> bool:
        """Whether texts are augmented at all."""
        return self._of_rows is not None

    def __call__(
        self, path: Any, rows: Sequence[Sequence[str]], keys: Sequence[tuple[int, ...]]
    ) -> Sequence[Sequence[str]]:
        """Return the texts of each row, augmented; one of which nothing is left stays as it was.

        # Parameters

        path : where the rows are from.
        rows : the texts of each row.
        keys : for each row, the epoch and the number of the row.

        # Raises

        `ConfigurationError` : if the rows are from another place than before, or the augmentation
            raises it.
        """
        if self._of_rows is None:
            return rows
        self._require_one_place(path)
        return self._of_rows.or_originals(rows, keys)

    def _require_one_place(self, path: Any) -> None:
        place = text_digest(str(path)) >> 1 or 1  # fits int64, and is not 0
        if int(self._place) not in (0, place):
            raise ConfigurationError(
                f"{path}: the dataset reader has an augmentation and already read another place, "
                "so validation would be on augmented texts. Expected one place, train_data_path: "
                "give a validation_dataset_reader that is the same without augmentation."
            )
        self._place.fill_(place)
