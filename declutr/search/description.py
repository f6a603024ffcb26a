"""`index.json`: what an index holds, written last, so that where it is the rest is there too."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from declutr._version import __version__
from declutr.system.atomic_files import write_whole
from declutr.system.checksums import json_checksum

FILE = "index.json"
_FORMAT = 1


class SearchError(ValueError):
    """An index that cannot be built or searched, or a query: the message says what to do."""


class OtherIndex(SearchError):
    """An index that another release of this package wrote."""


@dataclass(frozen=True)
class IndexDescription:
    """What `index.json` says.

    # Parameters

    rows, left_out : lines, and those among them that are never found.
    model : where the model is, as `Encoder` takes it; an absolute path if it is a file or folder.
    options : arguments of `Encoder` with which it embeds queries as it did lines.
    encoder : `Encoder.describe()` of then; a prompt is in `prompts`.
    backend : what searches, one of `BACKENDS` but `"auto"`.
    approximate : whether it looks at a part of the lines only; then `effort` says how hard it
        looks, and `recall` the share of the ten nearest lines that it finds.
    prompts : what was put before lines (`document`), and what is put before queries (`query`);
        `None` where the encoder decides, and does for both alike.
    checksums : of the files beside it, by name (see `declutr.system.checksums`); version 1.5 wrote
        none.
    """

    rows: int
    left_out: int
    model: str
    options: dict[str, Any]
    encoder: dict[str, Any]
    backend: str
    approximate: bool
    effort: int | None = None
    recall: float | None = None
    prompts: dict[str, str] | None = None
    checksums: dict[str, str] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        content = {"format": _FORMAT, "declutr": __version__, **asdict(self)}
        content["checksum"] = json_checksum(content)
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        write_whole(folder / FILE, text)

    @classmethod
    def load(cls, folder: Path) -> IndexDescription:
        """That of a finished index.

        # Raises

        `OtherIndex` : it is of another release.
        `SearchError` : there is none, or something else is called so.
        """
        path = folder / FILE
        if not path.is_file():
            if (folder / "embeddings").is_dir():
                raise SearchError(
                    f"The index '{folder}' is not finished. Repeat the command that builds it: it "
                    "goes on where it stopped."
                )
            raise SearchError(
                f"There is no index at '{folder}'. `declutr index MODEL LINES -o {folder}` "
                "builds one."
            )
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            damaged = content.pop("checksum", None) not in (None, json_checksum(content))
            version, release = content.pop("format"), content.pop("declutr")
            if version != _FORMAT:
                raise OtherIndex(
                    f"'{path}' was written by declutr {release}, in another format. Build it "
                    "again: `declutr index MODEL LINES -o INDEX --overwrite`."
                )
            if damaged:
                raise ValueError("it is damaged: its content is not what its checksum says")
            return cls(**content)._checked()
        except OtherIndex:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise SearchError(
                f"'{path}' does not describe an index ({error}). Build it again: `declutr index "
                "MODEL LINES -o INDEX --overwrite`."
            ) from error

    def _checked(self) -> IndexDescription:
        """This, if its prompts are texts of both sides."""
        prompts = self.prompts
        if prompts is not None and (
            prompts.keys() != {"document", "query"}
            or not all(isinstance(text, str) for text in prompts.values())
        ):
            raise ValueError(f"prompts {prompts!r}")
        return self
