"""The command `push-to-hf` with the interface that huggingface_hub has today.

AllenNLP clones a repository of the hub, copies the files of a model into the clone and pushes it
with git. huggingface_hub 1.0 removed all of that. The classes here have the interface that AllenNLP
expects, and upload the same files with `HfApi.upload_folder`.
"""

import contextlib
import inspect
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

from declutr.bridge.lending import lent_names

_ATTRIBUTES, _CARD = ".gitattributes", "README.md"


def hub_names() -> contextlib.AbstractContextManager[None]:
    """Lend `HfFolder` and `Repository`, removed in huggingface_hub 1.0, to `push-to-hf`.

    Can be removed when AllenNLP uploads with `HfApi.upload_folder`.
    """
    makers = {"HfFolder": lambda: HfFolder, "Repository": lambda: Repository}
    return lent_names("huggingface_hub", makers)


def hub_uploads(module: ModuleType) -> bool:
    """Let `push-to-hf` create a repository by its id, and upload the files without git.

    Can be removed when AllenNLP uploads with `HfApi.upload_folder`.
    """
    import huggingface_hub

    create = huggingface_hub.HfApi.create_repo
    if "organization" in inspect.signature(create).parameters:
        return False
    pushed = [_CARD, _ATTRIBUTES, *module._ALLOWLIST_PATHS]

    def open_repository(folder: Any, clone_from: Any, use_auth_token: bool | str) -> Repository:
        return Repository(folder, clone_from, use_auth_token, pushed)

    module.HfApi, module.HfFolder = HfApi, HfFolder  # type: ignore[attr-defined]
    module.Repository = open_repository  # type: ignore[attr-defined]
    return True


class HfFolder:
    """The place of the token of this machine's user."""

    @staticmethod
    def get_token() -> str | None:
        """Return the token of the environment or of the last login, or `None`."""
        import huggingface_hub

        return huggingface_hub.get_token()


class HfApi:
    """The part of the hub's interface that `push-to-hf` uses."""

    def create_repo(
        self, name: str, token: str | None, organization: str | None, private: bool, exist_ok: bool
    ) -> Any:
        """Create a repository of the user, or of an organization, and return its URL.

        # Raises

        `ValueError` : there is no token.
        """
        import huggingface_hub

        if not token:
            raise ValueError(
                "There is no token of the Hugging Face Hub here, and push-to-hf needs one that may "
                "write. Log in with `hf auth login`, or set HF_TOKEN in the environment."
            )
        repo_id = f"{organization}/{name}" if organization else name
        return huggingface_hub.HfApi(token=token).create_repo(
            repo_id, private=private, exist_ok=exist_ok
        )


class Repository:
    """A folder of files for a repository of the hub.

    # Parameters

    folder : the folder; it is made. Files of the repository that a push changes are fetched.
    clone_from : the URL that `HfApi.create_repo` returned.
    use_auth_token : a token, or whether to use that of this machine's user.
    pushed : names of the files and folders to upload; everything by default.

    # Raises

    `OSError` : the folder has files that no push put there. They could be overwritten.
    """

    def __init__(
        self,
        folder: Path,
        clone_from: Any,
        use_auth_token: bool | str = True,
        pushed: list[str] | None = None,
    ) -> None:
        import huggingface_hub

        self._api = huggingface_hub.HfApi(token=use_auth_token)
        self._folder, self._repo_id, self._pushed = Path(folder), clone_from.repo_id, pushed
        self._folder.mkdir(parents=True, exist_ok=True)
        if any(self._folder.iterdir()) and not (self._folder / _ATTRIBUTES).exists():
            raise OSError(
                f"The folder '{self._folder}' is not empty, and no push made it. Expected a new "
                "folder for the files to be pushed. Give another one as --local-repo-path."
            )

    def git_pull(self, rebase: bool = False) -> None:
        """Fetch the files of the repository that a push extends: its card and its attributes."""
        fetched = {
            name: self._api.hf_hub_download(self._repo_id, name)
            for name in (_ATTRIBUTES, _CARD)
            if self._api.file_exists(self._repo_id, name)
        }
        # Nothing changes before all is fetched: a card without attributes would look like a folder
        # that no push made.
        for name in (_ATTRIBUTES, _CARD):
            here = self._folder / name
            here.unlink(missing_ok=True)  # a push that failed may have left it
            if name in fetched:
                shutil.copyfile(fetched[name], here)

    def lfs_track(self, patterns: list[str]) -> None:
        """Keep files of these patterns in Git LFS."""
        attributes = self._folder / _ATTRIBUTES
        text = attributes.read_text(encoding="utf-8") if attributes.exists() else ""
        lines = [f"{pattern} filter=lfs diff=lfs merge=lfs -text" for pattern in patterns]
        new = [line for line in lines if line not in text.splitlines()]
        gap = "\n" if text and not text.endswith("\n") else ""
        attributes.write_text(text + gap + "".join(f"{line}\n" for line in new), encoding="utf-8")

    def push_to_hub(self, commit_message: str) -> None:
        """Upload the folder's files as one commit."""
        names = self._pushed
        self._api.upload_folder(
            repo_id=self._repo_id,
            folder_path=self._folder,
            commit_message=commit_message,
            allow_patterns=names and [*names, *(f"{name}/*" for name in names)],
        )
