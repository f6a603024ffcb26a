"""A fake encoder whose embeddings, of width 4, are a known function of the text alone."""

import json
import zlib
from pathlib import Path

import numpy as np

DIMENSION = 4


def embedding(text: str) -> np.ndarray:
    """Return an embedding `(4,)` of the length and a checksum of a text.

    A text with "nan" or "inf" has that number in its embedding.
    """
    data = text.encode("utf-8")
    vector = np.array(
        [zlib.crc32(data) / 2**32, -zlib.adler32(data) / 2**20, len(data) / 7, -0.0], np.float32
    )
    for number, word in enumerate(("nan", "inf")):
        if word in text:
            vector[number] = float(word)
    return vector


class Encoder:
    """A fake encoder that records its calls and cuts texts of more than `longest` characters."""

    def __init__(self, longest: int = 1000, fail_at: int | None = None) -> None:
        self.longest = longest
        self.fail_at = fail_at
        self.calls: list[list[str]] = []
        self.truncated_texts = 0

    @property
    def texts(self) -> list[str]:
        return [text for call in self.calls for text in call]

    def __call__(self, texts: list[str]) -> np.ndarray:
        if self.fail_at is not None and len(self.texts) + len(texts) > self.fail_at:
            raise KeyboardInterrupt
        self.calls.append(list(texts))
        self.truncated_texts += sum(len(text) > self.longest for text in texts)
        return np.array([embedding(text) for text in texts]).reshape(len(texts), DIMENSION)


def without_checksums(folder: Path) -> None:
    """Remove the checksums from a manifest, which release 1.5 did not write."""
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    del content["checksum"], content["checksums"]
    path.write_text(json.dumps(content))
