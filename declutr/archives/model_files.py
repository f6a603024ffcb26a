"""Access by name to the files of a model, in a local folder or in a repository on the hub."""

from pathlib import Path, PurePosixPath
from typing import Any

from declutr.archives import MODULES, SETTINGS, JSONError, read_bounded_json


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
        self._settings: dict[str, dict[str, Any]] = {}
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
        if name not in self._settings:  # each look at the hub is a request
            content = self.json(name)
            if content is not None and not isinstance(content, dict):
                raise NotFollowed(f"'{self.place}': {name} should hold a JSON object of settings.")
            self._settings[name] = content or {}
        return self._settings[name]

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


def listed_modules(files: ModelFiles) -> list[tuple[str, str]] | None:
    """Return class name and folder of each module of a sentence-transformers model, in order.

    `None` without `modules.json`.

    # Raises

    `NotFollowed` : if the file is malformed, or names a folder outside.
    """
    listed = files.json(MODULES)
    if listed is None:
        return None
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise NotFollowed(f"'{files.place}': modules.json should hold a list of modules.")
    return [
        (
            str(entry.get("type", "")).rpartition(".")[2] or str(entry),
            files.inside(entry.get("path", "")),
        )
        for entry in listed
    ]


def read_prompts(files: ModelFiles) -> tuple[dict[str, str], str | None]:
    """Return the prompts of a sentence-transformers model by name, and the default one's name.

    # Raises

    `NotFollowed` : if the settings are malformed, or the default is none of the prompts.
    """
    settings = files.settings(SETTINGS)
    prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
    if not isinstance(prompts, dict) or any(
        not isinstance(text, str) for text in prompts.values() if text is not None
    ):
        raise NotFollowed(
            f"'{files.place}': the prompts in {SETTINGS} should be texts by their names."
        )
    # sentence-transformers defines the prompt names "query" and "document" in every model.
    if default is not None and default not in (*prompts, "query", "document"):
        raise NotFollowed(
            f"'{files.place}': {SETTINGS} has the default_prompt_name {default!r}, which is none "
            f"of its prompts ({', '.join(map(repr, prompts)) or 'there are none'}). Correct it "
            "there."
        )
    return {key: text or "" for key, text in prompts.items()}, default


def read_truncation(files: ModelFiles) -> int | None:
    """Return how many leading dimensions a sentence-transformers model keeps, if it says so.

    The number may be above that of the model's dimensions.

    # Raises

    `NotFollowed` : if the settings are malformed.
    """
    kept = files.settings(SETTINGS).get("truncate_dim")
    if kept is not None and (not isinstance(kept, int) or kept < 1):
        raise NotFollowed(
            f"'{files.place}': {SETTINGS} has truncate_dim {kept!r}; expected a number of "
            "dimensions."
        )
    return kept
