"""Everything tests share: a tiny checkpoint and a corpus, made on the spot. No hub, no network."""

import json
import logging
import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["OMP_NUM_THREADS"] = "1"  # tests, and the processes they start, run beside each other
os.environ["DECLUTR_KEEP_DTYPE"] = "1"  # tests check numbers, on processors without them too

import gc
import importlib.util
import multiprocessing
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import _jsonnet
import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings

# Tests start some 150 processes. Without this, each compiles the package again, for a second.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A machine that does other work as well may take seconds to draw an example, or to try one.
settings.register_profile(
    "untimed", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")

# In each pytest worker, processes of `two_processes.py` and `forked_commands.py` are forked from
# one that has imported this once, and has not computed anything: importing takes longer than most
# of what is run in them.
multiprocessing.set_forkserver_preload(
    ["declutr.plugin", "allennlp.commands", "transformers.modeling_utils"]
)

# Each training tells every setting and parameter, which takes a twentieth of a small one.
for _name in ("allennlp.common.params", "allennlp.nn.initializers"):
    logging.getLogger(_name).setLevel(logging.WARNING)

RECIPES = Path(__file__).parent.parent / "training_config"
STAND_IN = "the transformer of a test"
_evaluate_file = _jsonnet.evaluate_file
_evaluated: list[Path] = []  # the folder in which all pytest workers keep evaluated recipes


def _evaluate_once(file: str, **settings: Any) -> str:
    """Evaluate a Jsonnet file; a recipe once, as it takes 0.1 to 0.2 s.

    Of all variables a recipe takes the transformer alone, which it passes on as it is.
    """
    model = settings.get("ext_vars", {}).get("TRANSFORMER_MODEL")
    if model is None or not _evaluated or not Path(file).is_relative_to(RECIPES):
        return _evaluate_file(file, **settings)
    place = _evaluated[0] / Path(file).relative_to(RECIPES).as_posix().replace("/", "-")
    if not place.exists():
        variables = {"TRANSFORMER_MODEL": STAND_IN}
        text = _evaluate_file(file, **{**settings, "ext_vars": variables})
        part = place.with_suffix(f".{os.getpid()}")
        part.write_text(text)
        part.rename(place)
    return place.read_text().replace(json.dumps(STAND_IN), json.dumps(model))


_jsonnet.evaluate_file = _evaluate_once  # before AllenNLP takes it
os.fsync = lambda file: None  # no test needs a file that outlives a power cut


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage while tests are imported, and later on not among what was imported.

    Each training from Python looks for it, which took one to two seconds.
    """
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Let a test and its fixtures draw the same numbers, whatever its worker ran before."""
    import numpy as np  # not by the process that only starts the workers
    import torch

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


PACKAGE = "package_on_demand"
"""The package of the fixture `written`."""


def make_documents(count: int, words: int, seed: int = 0) -> list[str]:
    """Documents that differ in what they are about: each prefers 30 of 600 made-up words."""
    rng = random.Random(seed)
    syllables = ["ka", "lo", "mi", "tu", "re", "sa", "no", "ve", "pi", "du"]
    vocabulary = ["".join(rng.choices(syllables, k=rng.randint(2, 4))) for _ in range(600)]
    documents = []
    for _ in range(count):
        topic = rng.sample(vocabulary, 30)
        documents.append(
            " ".join(rng.choice(topic if rng.random() < 0.7 else vocabulary) for _ in range(words))
        )
    return documents


@pytest.fixture(scope="session", autouse=True)
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where corpora are cached: never in the user's home."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["DECLUTR_CACHE"] = str(folder)
    return folder


@pytest.fixture(scope="session", autouse=True)
def _recipes_are_evaluated_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    with shared_by_workers(tmp_path_factory, "evaluated") as folder:
        folder.mkdir(exist_ok=True)
    _evaluated.append(folder)


@pytest.fixture(scope="session")
def documents() -> list[str]:
    """24 documents of 300 words."""
    return make_documents(24, 300)


@pytest.fixture(scope="session")
def corpus_file(tmp_path_factory: pytest.TempPathFactory, documents: list[str]) -> Path:
    """`documents`, one a line."""
    file = tmp_path_factory.mktemp("corpus") / "documents.txt"
    file.write_text("\n".join(documents) + "\n")
    return file


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, documents: list[str]) -> Path:
    """A RoBERTa-shaped transformer of two layers, 32 wide, for 128 tokens, with its tokenizer."""
    from declutr.quickstart.small_checkpoints import make_checkpoint, train_tokenizer

    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    tokenizer = train_tokenizer(documents, 400, max_length=128)
    make_checkpoint(folder, tokenizer, layers=2, hidden_size=32, heads=2, max_length=128)
    return folder


@pytest.fixture(scope="session")
def table(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A static encoder, 32 wide, with the tokenizer of `checkpoint`; see `table_config`."""
    from declutr.archives.static_folder import write_static
    from declutr.static_vectors.first_tables import random_table

    folder = tmp_path_factory.mktemp("table")
    write_static(random_table((checkpoint / "tokenizer.json").read_text(), 32), folder)
    return folder


@pytest.fixture(scope="session")
def prompted(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`checkpoint` as a folder of sentence-transformers, with prompts, none of them the default."""
    place = shutil.copytree(checkpoint, tmp_path_factory.mktemp("prompted") / "model")
    prompts = {"query": "ka lo: ", "passage": "mi: "}
    return as_sentence_transformers(place, 32, prompts=prompts, similarity_fn_name="dot")


@pytest.fixture(scope="module")
def pair(checkpoint: Path) -> tuple[Any, dict[str, Any]]:
    """The tokenizer of `checkpoint` and its indexer, as readers want them."""
    from allennlp.data.token_indexers import PretrainedTransformerIndexer
    from allennlp.data.tokenizers import PretrainedTransformerTokenizer

    tokenizer = PretrainedTransformerTokenizer(str(checkpoint))
    return tokenizer, {"tokens": PretrainedTransformerIndexer(str(checkpoint))}


@pytest.fixture(scope="session", autouse=True)
def no_processes_in_fast_tests(pytestconfig: pytest.Config) -> Iterator[None]:
    """With `not slow` in `-m`, a test that starts a process or trains says to be marked."""
    if "not slow" not in pytestconfig.getoption("markexpr"):
        yield
        return
    import multiprocessing.process
    import subprocess

    from allennlp.training import GradientDescentTrainer

    def refused(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("This starts a process or a training: mark it `pytest.mark.slow`.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", refused)
        patch.setattr(multiprocessing.process.BaseProcess, "start", refused)
        patch.setattr(GradientDescentTrainer, "train", refused)
        yield


def script(name: str) -> ModuleType:
    """Import a file of `scripts`, which is no package."""
    path = RECIPES.parent / "scripts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"script_{name}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def as_sentence_transformers(place: Path, width: int, **settings: Any) -> Path:
    """Make the folder of a transformer one of sentence-transformers, with settings of its own."""
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (path, kind) in enumerate(kinds.items())
    ]
    pooling = {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True}
    (place / "1_Pooling").mkdir()
    (place / "modules.json").write_text(json.dumps(modules))
    (place / "1_Pooling/config.json").write_text(json.dumps(pooling))
    (place / "config_sentence_transformers.json").write_text(json.dumps(settings))
    return place


@contextmanager
def shared_by_workers(tmp_path_factory: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """A path that all pytest workers of a run have in common; the others wait meanwhile."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with FileLock(folder / f"{name}.lock"):
        yield folder / name


def run_config(checkpoint: Path, corpus: Path, **changes: Any) -> dict[str, Any]:
    """What trains a small model of both objectives, with a projection, for three steps."""
    transformer = {"type": "pretrained_transformer", "model_name": str(checkpoint)}
    return {
        "dataset_reader": {
            "type": "declutr",
            "num_anchors": 2,
            "num_positives": 2,
            "max_span_len": 24,
            "min_span_len": 8,
            "tokenizer": {**transformer},
            "token_indexers": {"tokens": {**transformer}},
        },
        "vocabulary": {"type": "empty"},
        "train_data_path": str(corpus),
        "model": {
            "type": "declutr",
            "text_field_embedder": {
                "type": "mlm",
                "token_embedders": {
                    "tokens": {**transformer, "type": "pretrained_transformer_mlm"}
                },
            },
            "feedforward": {
                "input_dim": 32,
                "num_layers": 1,
                "hidden_dims": 6,
                "activations": "tanh",
            },
            "loss": {"type": "nt_xent"},
        },
        "data_loader": {"type": "declutr", "batch_size": 8, "shuffle": True},
        "trainer": {
            "optimizer": {"type": "huggingface_adamw", "lr": 1e-2},
            "num_epochs": 1,
            "cuda_device": -1,
            "run_confidence_checks": False,
        },
        **changes,
    }


def table_config(table: Path, corpus: Path, **changes: Any) -> dict[str, Any]:
    """As `run_config`, of a static encoder: in a tenth of the time, where any model will do."""
    config = run_config(table, corpus, **changes)
    embedder = {"type": "token_embedding_bag", "model_name": str(table), "token_dropout": 0.1}
    config["model"]["text_field_embedder"] = embedder
    return config


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path, corpus_file: Path) -> Path:
    """The folder of a finished run with its `model.tar.gz`, as another machine sees it.

    The checkpoint from which training began is gone.
    """
    from allennlp.commands.train import train_model
    from allennlp.common import Params, cached_transformers

    import declutr.plugin  # noqa: F401

    folder = tmp_path_factory.mktemp("trained")
    start = folder / "checkpoint"
    shutil.copytree(checkpoint, start)
    train_model(Params(run_config(start, corpus_file)), str(folder / "run"))
    shutil.rmtree(start)
    cached_transformers._clear_caches()
    return folder / "run"


@pytest.fixture
def onednn_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linear layers of any size take oneDNN's kernels, on whatever processor this is."""
    from declutr.transformer import training_products as linear_products

    onednn = linear_products.Products("onednn", "onednn", "onednn")
    monkeypatch.setattr(linear_products, "LEAST_WEIGHTS", 1)
    monkeypatch.setattr(linear_products, "products_of", lambda features, outputs: onednn)
    monkeypatch.setattr(linear_products, "output_of", lambda features, outputs: "onednn")


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Return a function that writes a module of a package and returns its dotted name."""
    (tmp_path / PACKAGE).mkdir()
    (tmp_path / PACKAGE / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))

    def written(name: str, text: str) -> str:
        (tmp_path / PACKAGE / f"{name}.py").write_text(text)
        return f"{PACKAGE}.{name}"

    yield written
    for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
        del sys.modules[name]


def imported() -> set[str]:
    """Return the names of the modules of `PACKAGE` that have been imported."""
    return {name.partition(".")[2] for name in sys.modules if name.startswith(f"{PACKAGE}.")}
