"""Which weights a stored whitening or flow was fitted to: a digest of their file, noted in its own.

A whitening of other weights would be applied without an error, and spoil the embeddings.
"""

import hashlib
import json
import tarfile
from pathlib import Path
from posixpath import normpath
from typing import IO

from declutr.archives import FITTED_TO, WEIGHTS, weights_of

_BLOCK = 1 << 20


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


def _digest(content: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while block := content.read(_BLOCK):
        digest.update(block)
    return f"sha256:{digest.hexdigest()}"
