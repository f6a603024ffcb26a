"""Which weights a stored whitening or flow was fitted to: a digest of their file, noted in its own.

A whitening of other weights would be applied without an error, and spoil the embeddings.
"""

import hashlib
import json
import logging
import tarfile
from pathlib import Path
from posixpath import normpath
from typing import IO

from declutr.archives import FITTED_TO, WEIGHTS, WHITENING, weights_of

_BLOCK = 1 << 20
logger = logging.getLogger(__name__)


def digest_of_model(place: Path) -> str | None:
    """Return the digest of a model's weights; `None` if there are none.

    # Parameters

    place : a serialization directory, or the `model.tar.gz` of one: equal weights have equal
        digests in both.
    """
    if place.is_dir():
        weights = weights_of(place)
        return None if weights is None else digest_of_file(weights)
    with tarfile.open(place, "r:gz") as archive:
        for member in archive:
            if normpath(member.name) in WEIGHTS and (content := archive.extractfile(member)):
                return _digest(content)
    return None


def digest_of_file(weights: Path) -> str:
    """Return the digest of a file of weights."""
    with open(weights, "rb") as content:
        return _digest(content)


def noted_in(whitening: Path) -> str | None:
    """Return the digest that a whitening's file notes; `None` if it has none, or is damaged.

    Releases up to 2.4.7 noted none.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(whitening, framework="numpy") as stored:
            noted = json.loads((stored.metadata() or {})["whitening"]).get(FITTED_TO)
    except (SafetensorError, OSError, KeyError, ValueError, AttributeError):
        return None
    return noted if isinstance(noted, str) else None


def fitting_whitening(folder: Path, archived: Path | None, own: Path | None) -> list[str]:
    """Return the name of a run's whitening in a list, empty if it is not of the archived weights.

    The whitening is removed if it is not of the folder's own weights, either, or notes none.

    # Parameters

    folder : the folder of the run.
    archived : the file of weights that are archived.
    own : the file of weights of the folder.
    """
    whitening = folder / WHITENING
    if not whitening.exists() or (archived is not None and not archived.is_file()):
        return []  # AllenNLP itself reports weights that are not there
    noted = noted_in(whitening)
    if noted is not None:
        if archived is not None and noted == digest_of_file(archived):
            return [WHITENING]
        if own is not None and noted == digest_of_file(own):
            return []
    why = "was fitted to other weights than those that are there now"
    _remove(whitening, why if noted else "does not note to which weights it was fitted")
    return []


def remove_whitening(serialization_dir: str) -> None:
    """Remove the whitening of a run whose weights are trained on, with a warning."""
    _remove(Path(serialization_dir, WHITENING), "was fitted to weights that are trained on")


def _remove(whitening: Path, why: str) -> None:
    if whitening.exists():
        whitening.unlink()
        logger.warning(
            f"'{whitening}' {why}, and is removed. Fit it again afterwards: declutr whiten."
        )


def _digest(content: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while block := content.read(_BLOCK):
        digest.update(block)
    return f"sha256:{digest.hexdigest()}"
