"""A folder of stored embeddings of several encoders."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from declutr.embedding_store.blocks import StoreError, size_on_disk
from declutr.embedding_store.keyed_rows import KeyedRows
from declutr.system.cache_folder import held_alone, mark_in_use
from declutr.system.files import locked, write_whole

_LAYOUT = 1  # to be increased when the files change
_ABOUT = "about.json"


class EmbeddingStore:
    """Embeddings on disk, in a folder for each fingerprint of what made them.

    Nothing but the fingerprint tells whether embeddings may be used again: it has to change with
    all that changes them.

    # Parameters

    folder : the folder, which is made if it does not exist.

    # Raises

    `StoreError` : the folder cannot be made.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"'{self.folder}' cannot be made or is no folder ({error.strerror or error})."
            ) from error

    def rows(self, fingerprint: str, about: Mapping[str, Any] | None = None) -> KeyedRows:
        """Open the embeddings that have a fingerprint; there may be none yet.

        # Parameters

        fingerprint : any text; a digest of it is the name of the folder.
        about : JSON values that say for people what made the embeddings.

        # Raises

        `StoreError` : the folder cannot be read or written.
        """
        place = self._place(fingerprint)
        try:
            with locked(self.folder / ".lock"):  # none is removed meanwhile
                place.mkdir(exist_ok=True)
                if not (place / _ABOUT).exists():
                    content = {"fingerprint": fingerprint, **(about or {})}
                    write_whole(place / _ABOUT, json.dumps(content, indent=1), shared=True)
                rows = KeyedRows(place)
                mark_in_use(place / _ABOUT, rows)
            return rows
        except StoreError:
            raise
        except OSError as error:
            raise StoreError(
                f"'{place}' cannot be written to ({error.strerror or error})."
            ) from error

    @property
    def size(self) -> int:
        """The size on disk, in bytes."""
        return sum(map(size_on_disk, self._places()))

    def shrink(self, most: int) -> int:
        """Remove embeddings of encoders, the least recently used first, down to `most` bytes.

        Those that a running process has open stay.
        """
        removed = 0
        with locked(self.folder / ".lock"):
            sizes = {place: size_on_disk(place) for place in self._places()}
            for place in sorted(sizes, key=lambda place: place.stat().st_mtime_ns):
                if sum(sizes.values()) - removed <= most:
                    break
                with held_alone(place / _ABOUT) as free:
                    if free:
                        shutil.rmtree(place)
                        removed += sizes[place]
        return removed

    def _place(self, fingerprint: str) -> Path:
        digest = hashlib.sha256(fingerprint.encode()).hexdigest()
        return self.folder / f"{digest[:32]}-{_LAYOUT}"

    def _places(self) -> list[Path]:
        """Return the folders of encoders, and none that anything else made."""
        found = []
        for file in self.folder.glob(f"*/{_ABOUT}"):
            try:
                fingerprint = json.loads(file.read_text("utf-8"))["fingerprint"]
            except (OSError, ValueError, KeyError, TypeError):
                continue
            if isinstance(fingerprint, str) and self._place(fingerprint) == file.parent:
                found.append(file.parent)
        return found
