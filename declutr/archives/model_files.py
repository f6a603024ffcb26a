"""Access by name to the files of a model, in a local folder or in a repository on the hub."""

from pathlib import Path, PurePosixPath
from typing import Any

from declutr.archives import JSONError, read_bounded_json


class NotFollowed(ValueError):
    """Raised for a sentence-transformers model with modules or settings that are not supported."""


class ModelFiles:
    """The files of a model in a local folder or in a repository on the hub.

    # Parameters

    place : a folder, or a name on the hub.
    revision : the branch, tag or commit of a repository on the hub.
    """

    def __init__(self, place: str, revision: str | None = None) -> None:
        self.place, self._revision = place, revision
        self.local = Path(place).is_dir()

    def find(self, name: str) -> Path | None:
        """Return the local path of a file, or `None`; one on the hub is downloaded first."""
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
        # Without such a repository, loading the transformer fails with a better message.
        except (OSError, ValueError):
            return None
        return Path(found) if found else None

    def json(self, name: str) -> Any:
        """Return the content of a JSON file, or `None` if there is no such file.

        # Raises

        `NotFollowed` : if it is not JSON.
        """
        file = self.find(name)
        if file is None:
            return None
        try:
            return read_bounded_json(file)
        except JSONError as error:
            raise NotFollowed(f"'{file}' {error}.") from error

    def settings(self, name: str) -> dict[str, Any]:
        """Return the settings in a JSON file; an empty dictionary if there is no such file.

        # Raises

        `NotFollowed` : if it is not a JSON object.
        """
        content = self.json(name)
        if content is None:
            return {}
        if not isinstance(content, dict):
            raise NotFollowed(f"'{self.place}': {name} should hold a JSON object of settings.")
        return content

    def inside(self, folder: Any) -> str:
        """Return `folder`, an entry of `modules.json`, if it is a path inside the model.

        # Raises

        `NotFollowed` : if it is not a string, or leads outside.
        """
        path = PurePosixPath(folder) if isinstance(folder, str) and "\\" not in folder else None
        if path is not None and not path.is_absolute() and ".." not in path.parts:
            root = Path(self.place)
            if not self.local or (root / path).resolve().is_relative_to(root.resolve()):
                return folder
        raise NotFollowed(
            f"'{self.place}': modules.json names the folder {folder!r}, which is none inside."
        )
