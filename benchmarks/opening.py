"""Opens a corpus as training does; run by `benchmarks.corpus` in processes of their own.

The imports stand up here so that they do not count as what opening takes.
"""

import time
from pathlib import Path
from typing import Any

from allennlp.common import Params
from allennlp.data import DatasetReader

import declutr.plugin  # noqa: F401
from benchmarks.corpus import reader_settings


def open_corpus(folder: str, corpus: str, cache: str) -> dict[str, float]:
    """Open a corpus by the reader of a recipe, tokenising it if it is new.

    Returns:
        Seconds (without those for the reader itself), documents and tokens.
    """
    settings = {**reader_settings(Path(folder)), "cache_dir": cache}
    reader: Any = DatasetReader.from_params(Params(settings))
    start = time.perf_counter()
    store = reader.corpus(corpus)
    documents = len(reader.documents(corpus))  # what an epoch consists of
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "documents": documents, "tokens": int(store.num_tokens.sum())}
