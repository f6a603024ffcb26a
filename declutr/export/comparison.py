"""Comparison of an exported folder, as each tool loads it, with the original model."""

import importlib.util
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from declutr.export.exportable import Exportable
from declutr.export.onnx_model import FILE
from declutr.export.output_place import ExportError
from declutr.system import LOADING, loggers_at

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
    """Return about 60 texts of 0 to 600 words in a dozen languages, with emoji and odd spaces."""
    words = " ".join(_SENTENCES).split()
    many = [words[i % len(words)] for i in range(2 * max(_LENGTHS))]
    long = [" ".join(many[number : number + count]) for number, count in enumerate(_LENGTHS)]
    plain = _SENTENCES[0].split() * 60
    english = [" ".join(plain[:count]) for count in _LENGTHS]
    return [*_SENTENCES, *_ODD, *long, *english]


@dataclass
class Comparison:
    """The differences between the embeddings of each tool and those of the original model.

    # Parameters

    texts : the number of texts that were embedded.
    largest : the largest absolute value in the embeddings of the original model.
    tolerance : the largest allowed difference, as a fraction of `max(1, largest)`.
    differences : the largest absolute difference over all texts, by tool.
    not_compared : the reason why a tool was not tried, by tool.
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
        """The tools whose embeddings differ by more than the limit, or are not finite."""
        return [name for name, value in self.differences.items() if not value <= self.limit]

    def table(self) -> str:
        """Return the differences as a Markdown table that is also aligned as plain text."""
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
    """Raised if a tool does not embed with the export as the original model does.

    The export has been deleted. `comparison` holds the differences.
    """

    def __init__(self, message: str, comparison: Comparison) -> None:
        super().__init__(message)
        self.comparison = comparison


Embed = Callable[[Path, list[str]], np.ndarray]
"""A function that embeds texts with an exported folder."""


def compare(
    folder: Path,
    model: Exportable,
    texts: Sequence[str],
    expected: np.ndarray,
    tolerance: float,
) -> Comparison:
    """Embed texts with an exported transformer in each tool, and compare; see `compare_ways`."""
    ways: dict[str, Embed] = {
        "declutr.Encoder": by_encoder,
        "transformers": partial(_by_transformers, model),
        "sentence-transformers": by_sentence_transformers,
        "onnxruntime": lambda folder, texts: by_onnxruntime(
            folder, _tokenized(folder, model, texts, "np")
        ),
    }
    return compare_ways(folder, ways, texts, expected, tolerance)


def compare_ways(
    folder: Path,
    ways: dict[str, Embed],
    texts: Sequence[str],
    expected: np.ndarray,
    tolerance: float,
) -> Comparison:
    """Embed texts with an exported folder in each tool, and compare with given embeddings.

    sentence-transformers is left out if it is not installed, and onnxruntime if the folder has no
    ONNX model.

    # Parameters

    folder : the exported folder.
    ways : the function that embeds with each tool, by its name.
    texts : n texts.
    expected : the embeddings `(n, d)` of the texts by the original model.
    tolerance : the largest allowed difference, as a fraction of `max(1, largest)`; it is only
        recorded in the result.

    # Returns

    The comparison; it does not raise for differences that are too large.
    """
    largest = float(np.abs(expected).max(initial=0.0))
    found = Comparison(len(texts), largest, tolerance)
    missing = {}
    if not importlib.util.find_spec("sentence_transformers"):
        missing["sentence-transformers"] = "not installed"
    if not (folder / FILE).exists():
        missing["onnxruntime"] = "not exported"
    found.not_compared = {name: why for name, why in missing.items() if name in ways}
    for name, embed in ways.items():
        if name in missing:
            continue
        with torch.inference_mode(), quiet():
            given = np.asarray(embed(folder, list(texts)))
        same_shape = given.shape == expected.shape
        difference = np.abs(given - expected).max(initial=0.0) if same_shape else np.nan
        found.differences[name] = float(difference)
    return found


def by_encoder(folder: Path, texts: list[str]) -> np.ndarray:
    """Return the embeddings `(n, d)` by `declutr.Encoder`."""
    from declutr.inference.encoder import Encoder

    return Encoder(folder, dtype="float32", device="cpu")(texts)


def _by_transformers(model: Exportable, folder: Path, texts: list[str]) -> np.ndarray:
    from transformers import AutoModel

    with LOADING:
        transformer = AutoModel.from_pretrained(
            folder, dtype=torch.float32, trust_remote_code=False
        ).eval()
    graph = model.graph(transformer)
    found = [
        graph(*(inputs[name] for name in model.inputs))[0].numpy()
        for inputs in _tokenized(folder, model, texts, "pt")
    ]
    return np.concatenate(found)


def by_sentence_transformers(folder: Path, texts: list[str]) -> np.ndarray:
    """Return the embeddings `(n, d)` by sentence-transformers, computed in float32."""
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(str(folder), device="cpu").float()
    return encoder.encode(texts, batch_size=_BATCH, show_progress_bar=False)


def by_onnxruntime(folder: Path, batches: Iterable[Any]) -> np.ndarray:
    """Return the embeddings `(n, d)` by the ONNX model, of the inputs of each batch of texts."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(str(folder / FILE), options, providers=providers)
    found = [session.run(["sentence_embedding"], dict(inputs))[0] for inputs in batches]
    return np.concatenate(found)


def _tokenized(folder: Path, model: Exportable, texts: list[str], kind: str) -> Iterator[Any]:
    """Return the inputs of the exported transformer for `texts`, batch by batch."""
    cut = {} if model.max_length is None else {"truncation": True}
    # As the code on the model card does.
    return tokenized(folder, [model.prompts.default + text for text in texts], kind, **cut)


def tokenized(folder: Path, texts: list[str], kind: str, **cut: bool) -> Iterator[Any]:
    """Yield the padded inputs of texts by the tokenizer of a folder, batch by batch.

    `kind` is that of the tensors, `"np"` or `"pt"`.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    for start in range(0, len(texts), _BATCH):
        batch = texts[start : start + _BATCH]
        yield tokenizer(batch, padding=True, return_tensors=kind, **cut)


@contextmanager
def quiet() -> Iterator[None]:
    """Return a context in which other packages load without progress bars and log messages.

    The random state of torch on the CPU is restored on exit.
    """
    from transformers import logging as transformers_logging

    before = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    own = loggers_at(logging.WARNING, "sentence_transformers")
    try:
        # transformers draws missing weights at random, which must not change later random numbers.
        with own, torch.random.fork_rng(devices=[]):
            yield
    finally:
        transformers_logging.set_verbosity(before)
        if bars:
            transformers_logging.enable_progress_bar()
