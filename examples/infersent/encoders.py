"""Both published versions of InferSent, where the README of its repository puts their files."""

import os
from pathlib import Path

from bilstm_max import BiLSTMMax

_CLONE = Path(os.environ.get("INFERSENT", "."))

version1 = BiLSTMMax(_CLONE / "encoder/infersent1.pkl", _CLONE / "GloVe/glove.840B.300d.txt")
version2 = BiLSTMMax(
    _CLONE / "encoder/infersent2.pkl", _CLONE / "fastText/crawl-300d-2M.vec", version=2
)
