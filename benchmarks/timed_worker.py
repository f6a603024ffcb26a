"""Something to be timed, in a process of its own: JSON lines in, JSON lines out.

`python timed_worker.py SETTINGS` says {"begun"} before anything is imported, opens what is to be
timed, calls it once, and says {"ready"} with the processor time so far; then a line
{"kind": ..., "save": file or null, "size": number or null} calls it with the texts of that kind,
so many at once or all, and answers {"seconds": ...}.

It imports nothing of this package: `declutr` and `benchmarks` may come from another checkout.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, TextIO

Timed = Callable[[list[str]], Any]

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
        settings: `what` (a key of `OPENERS`), `threads`, `texts` (a JSON file of lists of texts
            by kind), and what the function of `OPENERS` reads.
        questions: lines of JSON.
        answers: where lines of JSON go.
    """

    def say(**answer: Any) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    say(begun=True)
    timed, told = OPENERS[settings["what"]](settings)
    timed([FIRST])
    say(ready=True, processor_seconds=time.process_time(), **told)
    with open(settings["texts"], encoding="utf-8") as file:
        texts = json.load(file)
    for line in questions:
        question = json.loads(line)
        chosen = texts[question["kind"]]
        size = question.get("size") or len(chosen)
        calls = [chosen[at : at + size] for at in range(0, len(chosen), size)]
        start = time.perf_counter()
        for call in calls:
            result = timed(call)
        seconds = time.perf_counter() - start
        if question.get("save"):
            import numpy as np

            np.save(question["save"], np.asarray(result))
        say(seconds=seconds)


def _declutr(settings: dict[str, Any]) -> tuple[Timed, dict[str, str]]:
    import declutr
    from declutr import Encoder

    _torch_threads(settings)
    encoder = Encoder(settings["model"], device="cpu", dtype=settings["dtype"])
    return encoder, {"dtype": encoder.describe()["dtype"], "at": os.path.dirname(declutr.__file__)}


def _static(settings: dict[str, Any]) -> tuple[Timed, dict[str, str]]:
    """A static encoder of this package, without what only transformers need."""
    import declutr
    from declutr import Encoder

    return Encoder(settings["model"], device="cpu"), {"at": os.path.dirname(declutr.__file__)}


def _model2vec(settings: dict[str, Any]) -> tuple[Timed, dict[str, str]]:
    from model2vec import StaticModel

    model = StaticModel.from_pretrained(settings["model"])
    if settings["threads"] == 1:
        return lambda texts: model.encode(texts, use_multiprocessing=False), {}
    return model.encode, {}


def _sentence_transformers(settings: dict[str, Any]) -> tuple[Timed, dict[str, str]]:
    from sentence_transformers import SentenceTransformer

    _torch_threads(settings)
    model = SentenceTransformer(settings["model"], device="cpu")
    size = settings.get("batch_size", 32)  # theirs by default
    return lambda texts: model.encode(texts, batch_size=size, show_progress_bar=False), {}


def _sentence_transformers_onnx(settings: dict[str, Any]) -> tuple[Timed, dict[str, str]]:
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


def _sentence_transformers_openvino(settings: dict[str, Any]) -> tuple[Timed, dict[str, str]]:
    """OpenVINO by its own choice of a dtype, or in float32 if that is asked for."""
    from sentence_transformers import SentenceTransformer

    _torch_threads(settings)
    options = {"INFERENCE_NUM_THREADS": settings["threads"]}
    if settings["dtype"] == "float32":
        options["INFERENCE_PRECISION_HINT"] = "f32"
    arguments = {"file_name": settings["file"], "ov_config": options}
    model = SentenceTransformer(
        settings["onnx"], backend="openvino", device="cpu", model_kwargs=arguments
    )
    transformer: Any = model[0].model
    chosen = transformer.request.get_property("INFERENCE_PRECISION_HINT").get_type_name()
    names = {"f32": "float32", "bf16": "bfloat16"}
    told = {"dtype": names[chosen]}
    return lambda texts: model.encode(texts, show_progress_bar=False), told


def _fastembed(settings: dict[str, Any]) -> tuple[Timed, dict[str, str]]:
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


def _training_step(settings: dict[str, Any]) -> tuple[Timed, dict[str, str]]:
    """A step on the paper's spans, ours or the reference's; texts are not looked at."""
    import declutr
    from benchmarks import step

    _torch_threads(settings)
    shape, documents = settings["shape"], settings.get("documents", 2)
    batch = step._batch(documents, 0, shape, "cpu")
    way = step.reference_of if settings.get("whose") == "reference" else step.ours_of
    take = way(shape, settings.get("dropout", 0.1), settings["dtype"], batch, "cpu")
    return lambda texts: take(), {"at": os.path.dirname(declutr.__file__)}


def _torch_threads(settings: dict[str, Any]) -> None:
    import torch

    torch.set_num_threads(settings["threads"])


OPENERS = {
    "declutr": _declutr,
    "declutr static": _static,
    "model2vec": _model2vec,
    "sentence-transformers": _sentence_transformers,
    "sentence-transformers onnx": _sentence_transformers_onnx,
    "sentence-transformers openvino": _sentence_transformers_openvino,
    "fastembed": _fastembed,
    "training step": _training_step,
}
"""Each opens what is timed, and returns it and what else to tell of it. All but the last return
what embeds texts."""


if __name__ == "__main__":
    del sys.path[0]  # modules beside this file are not to be taken for libraries
    main()
