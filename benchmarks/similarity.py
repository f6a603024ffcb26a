"""STS12 through the command, and by SentEval's own engine: whole processes, from start to end."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.memory import ROOT

_ENCODER = "random:300"

ENGINE = """\
import sys
sys.path[:0] = [{clone!r}, {scripts!r}]
import numpy as np, senteval
from senteval_today import patched
words = {{}}
def vector(word):
    if word not in words:
        words[word] = np.random.RandomState(len(words)).standard_normal(300).astype("float32")
    return words[word]
def batcher(params, batch):
    return np.stack([np.mean([vector(w) for w in words or ["."]], 0) for words in batch])
settings = dict(task_path={data!r}, usepytorch=True, kfold=5, batch_size=128, classifier={{}})
with patched():
    senteval.engine.SE(settings, batcher, lambda params, samples: None).eval("STS12")
"""
"""The engine with a random vector for each word, as `random:300` has."""


def commands(data: Path, clone: Path | None, scratch: Path) -> dict[str, list[str]]:
    """Return the commands to time, by name.

    Args:
        data: a folder laid out as SentEval's.
        clone: of github.com/facebookresearch/SentEval; without it, its engine is left out.
        scratch: where the evaluations go.
    """
    words = ["declutr", "evaluate-embeddings", str(data), _ENCODER, "--tasks", "STS12"]
    found = {}
    for name, more in (("with intervals", []), ("without intervals", ["--resamples", "0"])):
        # Results that are there would be kept, so that each run has a folder of its own.
        code = (
            "import sys, tempfile; from declutr.__main__ import main; "
            f"sys.argv = {[*words, '--no-plots', *more]!r}; "
            f"sys.argv += ['-o', tempfile.mkdtemp(dir={str(scratch)!r})]; main()"
        )
        found[f"declutr evaluate-embeddings, {name}"] = [sys.executable, "-c", code]
    if clone is not None:
        of = {"clone": str(clone), "scripts": str(ROOT / "scripts"), "data": str(data)}
        found["SentEval's engine"] = [sys.executable, "-c", ENGINE.format(**of)]
    return found
