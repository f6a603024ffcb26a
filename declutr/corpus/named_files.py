"""Texts that may be meant for files: a path is read, the name of a file is a text, with a word."""

from __future__ import annotations

import logging
import os
import re
from typing import Any

from declutr.corpus.documents import read_documents, source_files

logger = logging.getLogger(__name__)

_LONGEST_NAME = 4096  # characters; no system takes longer ones
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


class NamedFiles:
    """What is to be embedded, with one warning in its life for a text that names a file.

    # Parameters

    instead : what to do if the file was meant, for that warning.
    """

    def __init__(self, instead: str) -> None:
        self._instead = instead
        self._told = False

    def texts(self, inputs: Any) -> Any:
        """The texts of the files at a path; anything else as it is.

        A text is never opened, whatever it names: texts may come from others.

        # Raises

        `declutr.corpus.documents.SourceError` (a `ValueError`) : a path with nothing there, or that
            cannot
            be read.
        """
        if isinstance(inputs, os.PathLike):
            return list(read_documents(source_files(inputs), encoding_errors="replace"))
        if isinstance(inputs, str) and not self._told and names_a_file(inputs):
            self._told = True
            logger.warning(
                "%r names a file, and is embedded as the text it is. If its lines were meant: %s. "
                "Further names are not told of.",
                inputs,
                self._instead,
            )
        return inputs


def names_a_file(text: str) -> bool:
    """Whether a text is the name of a file that is there, or a URL and nothing else.

    Any text may be asked about: one that cannot be a name is none.
    """
    if len(text) > _LONGEST_NAME or "\n" in text:
        return False
    # `isfile` takes zero bytes, lone surrogates and parts that are too long for no file.
    return os.path.isfile(text) or _URL.fullmatch(text) is not None
