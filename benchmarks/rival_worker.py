"""One way to embed texts, in a process of its own: JSON lines in, JSON lines out.

`python rival_worker.py SETTINGS` says {"begun"} before anything is imported, opens the model,
embeds a text, and says {"ready"}; then a line {"kind": ..., "save": file or null} embeds the texts
of that kind and answers {"seconds": ...}.

It imports nothing of this package: `declutr` may come from another checkout.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, TextIO

Embed = Callable[[list[str]], Any]

FIRST = "A first text."


def main() -> None:
    """Serve standard input; what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    settings = json.loads(sys.argv[1])
    # No library takes more than these, whatever it makes of its own setting.
    cores = sorted(os.sched_getaffinity(0))[: settings["threads"]]
    os.sched_setaffinity(0, cores)
    serve(settings, sys.stdin, answers)


def serve(settings: dict[str, Any], questions: Iterable[str], answers: TextIO) -> None:
    """Open what `settings` name, and answer each line.

    Args:
        settings: `library`, `model` (a folder), `threads`, `texts` (a JSON file of lists of texts
            by kind), and what the function of `LIBRARIES` reads.
        questions: lines of JSON.
        answers: where lines of JSON go.
    """

    def say(**answer: Any) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    say(begun=True)
    embed, told = LIBRARIES[settings["library"]](settings)
    embed([FIRST])
    say(ready=True, **told)
    with open(settings["texts"], encoding="utf-8") as file:
        texts = json.load(file)
    for line in questions:
        question = json.loads(line)
        chosen = texts[question["kind"]]
        start = time.perf_counter()
        vectors = embed(chosen)
        seconds = time.perf_counter() - start
        if question.get("save"):
            import numpy as np

            np.save(question["save"], np.asarray(vectors))
        say(seconds=seconds)


def _declutr(settings: dict[str, Any]) -> tuple[Embed, dict[str, str]]:
    import declutr
    from declutr import Encoder

    _torch_threads(settings)
    encoder = Encoder(settings["model"], device="cpu", dtype=settings["dtype"])
    return encoder, {"dtype": encoder.describe()["dtype"], "at": os.path.dirname(declutr.__file__)}


def _sentence_transformers(settings: dict[str, Any]) -> tuple[Embed, dict[str, str]]:
    from sentence_transformers import SentenceTransformer

    _torch_threads(settings)
    model = SentenceTransformer(settings["model"], device="cpu")
    return lambda texts: model.encode(texts, show_progress_bar=False), {}


def _sentence_transformers_onnx(settings: dict[str, Any]) -> tuple[Embed, dict[str, str]]:
    import onnxruntime
    from sentence_transformers import SentenceTransformer

    _torch_threads(settings)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = settings["threads"]
    options.inter_op_num_threads = 1
    arguments = {
        "provider": "CPUExecutionProvider",
        "file_name": settings["file"],
        "session_options": options,
    }
    model = SentenceTransformer(
        settings["onnx"], backend="onnx", device="cpu", model_kwargs=arguments
    )
    return lambda texts: model.encode(texts, show_progress_bar=False), {}


def _fastembed(settings: dict[str, Any]) -> tuple[Embed, dict[str, str]]:
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    TextEmbedding.add_custom_model(
        model="local/model",
        pooling=PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(hf="local/model"),  # asked for, and not looked at for a folder
        dim=settings["dimension"],
        model_file=settings["file"],
    )
    model = TextEmbedding(
        "local/model",
        threads=settings["threads"],
        specific_model_path=settings["onnx"],
        providers=["CPUExecutionProvider"],
    )
    return lambda texts: list(model.embed(texts)), {}


def _torch_threads(settings: dict[str, Any]) -> None:
    import torch

    torch.set_num_threads(settings["threads"])


LIBRARIES = {
    "declutr": _declutr,
    "sentence-transformers": _sentence_transformers,
    "sentence-transformers onnx": _sentence_transformers_onnx,
    "fastembed": _fastembed,
}
"""Each opens a model, and returns what embeds and what else to tell of it."""


if __name__ == "__main__":
    del sys.path[0]  # modules beside this file are not to be taken for libraries
    main()
