"""Train, embed, evaluate, search and export once, with the declutr that is installed.

    python scripts/try_installation.py

The interpreter that runs this script is the one that is tried. It needs neither a hub nor data: the
corpus is docstrings of AllenNLP, and the transformer is a tiny one with random weights. Ends with
status 1 and the output of the command that failed.
"""

import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OPTIONAL = (
    *("spacy", "nltk", "lmdb", "h5py", "tensorboardX", "cached_path", "pytest"),
    *("pyarrow", "onnx", "faiss", "bm25s", "matplotlib", "lz4", "zstandard"),
)
CHANGES = {
    "trainer.num_epochs": 1,
    "data_loader.batch_size": 16,
    "validation_data_loader.batch_size": 16,
    "data_loader.num_workers": 0,
}
CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")  # of TREC
PLACES = ("model", "exported")


def main() -> None:
    sys.path[:] = [place for place in sys.path if Path(place).resolve() != ROOT / "scripts"]
    started = time.monotonic()
    print(f"Python {platform.python_version()}, {versions()}", flush=True)
    absent = [name for name in OPTIONAL if importlib.util.find_spec(name) is None]
    print(f"  without {', '.join(absent) or 'nothing'}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ.update(HF_HUB_OFFLINE="1", TQDM_DISABLE="1", DECLUTR_CACHE="cache")
        os.environ.update(ALLENNLP_LOG_LEVEL="ERROR", TRANSFORMER_MODEL=f"{folder}/transformer")
        make_inputs()
        for command in commands():
            run(*command)
        shape = embeddings_shape()
    print(f"  embeddings of {shape}; all in {time.monotonic() - started:.0f} s", flush=True)


def versions() -> str:
    names = ("declutr", "torch", "transformers", "numpy", "scikit-learn")
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)


def make_inputs() -> None:
    """Write documents, a checkpoint, and the questions of TREC as SentEval lays them out."""
    import declutr.plugin  # noqa: F401
    from declutr.quickstart.docstrings import write_corpus
    from declutr.quickstart.small_checkpoints import make_checkpoint, train_tokenizer

    train, held_out = Path("train.txt"), Path("validation.txt")
    write_corpus(("allennlp",), train, held_out, min_words=128, workers=1)
    with train.open(encoding="utf-8") as texts:
        tokenizer = train_tokenizer(texts, 1000, max_length=128)
    make_checkpoint(
        Path("transformer"), tokenizer, layers=1, hidden_size=32, heads=2, max_length=128
    )
    questions = Path("data/downstream/TREC")
    questions.mkdir(parents=True)
    for name, number in (("train_5500.label", 90), ("TREC_10.label", 24)):
        lines = [f"{CLASSES[n % 6]}:fine {CLASSES[n % 6] * 3} w{n} ?\n" for n in range(number)]
        (questions / name).write_text("".join(lines), encoding="utf-8")


def commands() -> list[tuple[str, ...]]:
    documents = {"train_data_path": "train.txt", "validation_data_path": "validation.txt"}
    overrides = json.dumps({**documents, **CHANGES})
    recipe = str(ROOT / "training_config" / "quickstart.jsonnet")
    evaluation = ("--protocol", "prototyping", "--corpus", "validation.txt", "--no-plots")
    return [
        ("train", recipe, "-s", "model", "-o", overrides, "--file-friendly-logging"),
        ("embed", "model", "validation.txt", "-o", "embeddings", "--quiet"),
        ("evaluate-embeddings", "data", "model", "-o", "scores", "--device", "cpu", *evaluation),
        ("index", "model", "validation.txt", "-o", "found"),
        ("export", "model", "exported", "--no-onnx"),
    ]


def run(*arguments: str) -> None:
    started = time.monotonic()
    command = [sys.executable, "-m", "declutr", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    print(f"  declutr {arguments[0]:22s}{time.monotonic() - started:5.0f} s", flush=True)
    if done.returncode:
        sys.exit(f"{done.stdout}\n{done.stderr}\ndeclutr {arguments[0]} failed, see above.")


def embeddings_shape() -> str:
    from declutr import Encoder

    one, other = (Encoder(place, device="cpu")(["One text.", "Another one."]) for place in PLACES)
    if abs(one - other).max() > 1e-4:
        sys.exit("The exported model embeds otherwise than the archive.")
    return " x ".join(map(str, one.shape))


if __name__ == "__main__":
    main()
