"""The instances of any dataset reader as rows that the loader "declutr" can draw from."""

from typing import Any

import numpy as np
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance


class InstanceRows:
    """The instances of a reader, read once and kept in memory; one instance is one row.

    It has the part of the interface of `declutr.data.row_reader.RowReader` that the loader needs
    for batches of equally many rows. A reader that draws other instances in every epoch says so by
    `draws_anew`, and has this part itself (`documents`, `instance`).

    # Parameters

    reader : the reader. Every process reads all instances, because the loader itself cuts batches
        into the shares of processes.
    """

    def __init__(self, reader: DatasetReader) -> None:
        self._reader = reader
        self._instances: dict[str, list[Instance]] = {}

    def documents(self, path: Any) -> np.ndarray:
        """Return the numbers of all rows, 1-D."""
        if self._draws_anew:
            return self._reader.documents(path)  # type: ignore[attr-defined]
        return np.arange(len(self._read(path)))

    def instance(self, path: Any, row: int, epoch: int = 0) -> Instance:
        """Return one row in an epoch, which is the same in every epoch unless the reader draws."""
        if self._draws_anew:
            return self._reader.instance(path, row, epoch)  # type: ignore[attr-defined]
        return self._read(path)[row]

    @property
    def _draws_anew(self) -> bool:
        return getattr(self._reader, "draws_anew", False)

    def apply_token_indexers(self, instance: Instance) -> None:
        """Give the text fields of an instance the indexers of the reader."""
        self._reader.apply_token_indexers(instance)

    def _read(self, path: Any) -> list[Instance]:
        key = str(path)
        if key not in self._instances:
            self._instances[key] = self._all_shares(path)
            if not self._instances[key]:
                raise ConfigurationError(f"No instances were read from '{path}'.")
        return self._instances[key]

    def _all_shares(self, path: Any) -> list[Instance]:
        """Return all instances; in one of several processes, a reader would give its share."""
        share = self._reader._distributed_info
        self._reader._set_distributed_info(None)  # also for readers inside
        try:
            return list(self._reader.read(path))
        finally:
            self._reader._set_distributed_info(share)
