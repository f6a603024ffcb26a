"""Files of a model by name, in a folder or in a repository on the hub."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from declutr.archives import JSONError, read_bounded_json


class NotFollowed(ValueError):
    """A folder with modules or settings that we do not have."""


class ModelFiles:
    """Those of a folder, or of a repository on the hub.

    # Parameters

    place : a folder or a name on the hub.
    revision : branch, tag or commit, for a name.
    """

    def __init__(self, place: str, revision: str | None = None) -> None:
        self.place, self._revision = place, revision
        self.local = Path(place).is_dir()

    def find(self, name: str) -> Path | None:
        """Where a file is on this machine, if there is one; of the hub it is downloaded."""
        name = name.lstrip("/")
        if self.local:
            file = Path(self.place, name)
            return file if file.is_file() else None
        from transformers.utils import cached_file

        try:
            found = cached_file(
                self.place,
                name,
                revision=self._revision,
                _raise_exceptions_for_missing_entries=False,
                _raise_exceptions_for_connection_errors=False,
            )
        except (OSError, ValueError):  # no such repository: loading the transformer says so better
            return None
        return Path(found) if found else None

    def json(self, name: str) -> Any:
        """What a file of JSON holds; `None` if there is none.

        # Raises

        `NotFollowed` : it is no JSON.
        """
        file = self.find(name)
        if file is None:
            return None
        try:
            return read_bounded_json(file)
        except JSONError as error:
            raise NotFollowed(f"'{file}' {error}.") from error

    def settings(self, name: str) -> dict[str, Any]:
        """What a file of JSON settings holds; nothing if there is none.

        # Raises

        `NotFollowed` : it is no JSON object.
        """
        content = self.json(name)
        if content is None:
            return {}
        if not isinstance(content, dict):
            raise NotFollowed(f"'{self.place}': {name} should hold a JSON object of settings.")
        return content

    def inside(self, folder: Any) -> str:
        """A folder below the place, as a list of modules names it.

        # Raises

        `NotFollowed` : it leads elsewhere.
        """
        path = PurePosixPath(folder) if isinstance(folder, str) and "\\" not in folder else None
        if path is not None and not path.is_absolute() and ".." not in path.parts:
            root = Path(self.place)
            if not self.local or (root / path).resolve().is_relative_to(root.resolve()):
                return folder
        raise NotFollowed(
            f"'{self.place}': modules.json names the folder {folder!r}, which is none inside."
        )
