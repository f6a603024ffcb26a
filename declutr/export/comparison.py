"""Whether every way into an exported folder gives what the model itself gives."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from declutr.export.exportable import Exportable, ExportError
from declutr.export.onnx_model import FILE
from declutr.system.imports import loggers_at

_BATCH = 16
_LENGTHS = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 600)
_SENTENCES = (
    "The old house by the river was sold again last spring.",
    "Die Züge fahren pünktlich, außer wenn Schnee über Nacht fällt.",
    "Où étiez-vous hier soir, quand l'orage a éclaté sur la forêt ?",
    "¿Por qué duermen los gatos todo el día y corren de noche?",
    "Старый дом у реки снова продали прошлой весной.",
    "春天里河边的老房子又卖掉了。",
    "昨日の夜、駅前で友だちに会いました。",
    "어젯밤에는 비가 많이 내렸습니다.",
    "البيت القديم قرب النهر بيع مرة أخرى.",
    "पुराना घर नदी के किनारे फिर बिक गया।",
    "Το παλιό σπίτι δίπλα στο ποτάμι πουλήθηκε ξανά.",
    "İstanbul'da hava bugün çok güzel.",
)
_ODD = (
    "",
    " ",
    "\n\t\u00a0\u2003",
    "a",
    ".",
    "🙂",
    "👩‍👩‍👧 went to 🇫🇷 and ate 🥐🥐🥐 — wow!!!",
    "  leading and trailing white space \t\n",
    "one\u00a0two\u2003three\x1cfour\u3000five\u200bsix\r\nseven",
    "Tabs\tand\nlines\r\n\r\nand   blanks",
    "UPPER lower MiXeD 1234567890 3.14159 1,000,000",
    'https://example.org/a?b=c&d=%20#e me@example.org <b>bold</b> {"json": [1, 2]}',
    "cafe\u0301 and café, \ufb01ne and fine, ½ and Ⅷ, naïve and nai\u0308ve",
    "supercalifragilisticexpialidocious" * 4,
    "!?!?!?... ---- ///// @@@@ #### $$$$ %%%% ^^^^ &&&& ****",
    "\u202eright to left\u202c and soft\u00adhyphen and zero\u200dwidth",
)


def reference_texts() -> list[str]:
    """Return about 60 texts of 0 to 600 words, in a dozen languages, with emoji and odd blanks."""
    words = " ".join(_SENTENCES).split()
    many = [words[i % len(words)] for i in range(2 * max(_LENGTHS))]
    long = [" ".join(many[number : number + count]) for number, count in enumerate(_LENGTHS)]
    plain = _SENTENCES[0].split() * 60
    english = [" ".join(plain[:count]) for count in _LENGTHS]
    return [*_SENTENCES, *_ODD, *long, *english]


@dataclass
class Comparison:
    """The largest absolute difference of each way in, over all numbers of all texts.

    # Parameters

    texts : how many were embedded.
    largest : the largest absolute value of the model's own embeddings.
    tolerance : what a difference may be, in parts of `max(1, largest)`.
    differences : by the name of the way.
    not_compared : why a way was not tried, by its name.
    """

    texts: int
    largest: float
    tolerance: float
    differences: dict[str, float] = field(default_factory=dict)
    not_compared: dict[str, str] = field(default_factory=dict)

    @property
    def limit(self) -> float:
        """The largest absolute difference that passes."""
        return self.tolerance * max(1.0, self.largest)

    @property
    def failed(self) -> list[str]:
        """The ways that differ by more, or give what is no number."""
        return [name for name, value in self.differences.items() if not value <= self.limit]

    def table(self) -> str:
        """Return the differences in Markdown, which reads well as it is."""
        width = max(len(name) for name in [*self.differences, *self.not_compared, "loaded by"])
        lines = [
            f"| {'loaded by'.ljust(width)} | largest difference |",
            f"| {'-' * width} | ------------------ |",
        ]
        for name, value in self.differences.items():
            mark = " (too much)" if name in self.failed else ""
            lines.append(f"| {name.ljust(width)} | {f'{value:.1e}{mark}'.ljust(18)} |")
        for name, reason in self.not_compared.items():
            lines.append(f"| {name.ljust(width)} | {reason.ljust(18)} |")
        return "\n".join(lines)


class ExportDiffers(ExportError):
    """A part of the export does not embed as the model it was made from; nothing is left of it."""

    def __init__(self, message: str, comparison: Comparison) -> None:
        super().__init__(message)
        self.comparison = comparison


def compare(
    folder: Path,
    model: Exportable,
    texts: Sequence[str],
    expected: np.ndarray,
    tolerance: float,
) -> Comparison:
    """Load each part of an exported folder back and embed `texts` with it.

    # Parameters

    model : what was written there.
    expected : `(n, d)`, what the model itself makes of `texts`.
    tolerance : see `Comparison`.
    """
    largest = float(np.abs(expected).max(initial=0.0))
    found = Comparison(len(texts), largest, tolerance)
    ways: dict[str, Callable[[Path, Exportable, list[str]], np.ndarray]] = {
        "declutr.Encoder": _by_encoder,
        "transformers": _by_transformers,
    }
    if importlib.util.find_spec("sentence_transformers"):
        ways["sentence-transformers"] = _by_sentence_transformers
    else:
        found.not_compared["sentence-transformers"] = "not installed"
    if (folder / FILE).exists():
        ways["onnxruntime"] = _by_onnxruntime
    else:
        found.not_compared["onnxruntime"] = "not exported"
    for name, embed in ways.items():
        with torch.inference_mode(), quiet():
            given = np.asarray(embed(folder, model, list(texts)))
        same_shape = given.shape == expected.shape
        difference = np.abs(given - expected).max(initial=0.0) if same_shape else np.nan
        found.differences[name] = float(difference)
    return found


def _by_encoder(folder: Path, model: Exportable, texts: list[str]) -> np.ndarray:
    from declutr.inference.encoder import Encoder

    return Encoder(folder, dtype="float32", device="cpu")(texts)


def _by_transformers(folder: Path, model: Exportable, texts: list[str]) -> np.ndarray:
    from transformers import AutoModel

    transformer = AutoModel.from_pretrained(
        folder, dtype=torch.float32, trust_remote_code=False
    ).eval()
    graph = model.graph(transformer)
    found = [
        graph(*(inputs[name] for name in model.inputs)).numpy()
        for inputs in _tokenized(folder, model, texts, "pt")
    ]
    return np.concatenate(found)


def _by_sentence_transformers(folder: Path, model: Exportable, texts: list[str]) -> np.ndarray:
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(str(folder), device="cpu")
    return encoder.encode(texts, batch_size=_BATCH, show_progress_bar=False)


def _by_onnxruntime(folder: Path, model: Exportable, texts: list[str]) -> np.ndarray:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(
        str(folder / FILE), options, providers=["CPUExecutionProvider"]
    )
    found = [
        session.run(["sentence_embedding"], dict(inputs))[0]
        for inputs in _tokenized(folder, model, texts, "np")
    ]
    return np.concatenate(found)


def _tokenized(folder: Path, model: Exportable, texts: list[str], kind: str) -> Iterator[Any]:
    """Yield what the exported tokenizer makes of texts, batch by batch."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    cut = {} if model.max_length is None else {"truncation": True}
    texts = [model.prompts.default + text for text in texts]  # as the card says
    for start in range(0, len(texts), _BATCH):
        batch = texts[start : start + _BATCH]
        yield tokenizer(batch, padding=True, return_tensors=kind, **cut)


@contextmanager
def quiet() -> Iterator[None]:
    """Return a context without what other packages say while they load: bars, unused weights."""
    from transformers import logging as transformers_logging

    before = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    own = loggers_at(logging.WARNING, "sentence_transformers")
    try:
        # Weights that a checkpoint lacks are drawn at random; that is no business of others.
        with own, torch.random.fork_rng(devices=[]):
            yield
    finally:
        transformers_logging.set_verbosity(before)
        if bars:
            transformers_logging.enable_progress_bar()
