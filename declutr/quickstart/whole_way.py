"""The quickstart: corpus, transformer, training and embeddings, on text that every machine has.

The corpus is the docstrings of the installed Python packages, and the transformer is a small one
with random initial weights, so no hub and no download is needed. Every step that is done is kept,
and an interrupted training is resumed.
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from allennlp.common import Params
from allennlp.data import DataLoader, DatasetReader
from allennlp.models.archival import load_archive
from allennlp.training.util import evaluate

import declutr.plugin  # noqa: F401 - registers the names that recipes use
from declutr.corpus.documents import read_lines
from declutr.evaluation.tasks.span_retrieval import adjacent_span_pairs, span_retrieval_accuracy
from declutr.inference.encoder import Encoder
from declutr.quickstart import MARK, require_own
from declutr.quickstart.docstrings import DEFAULT_PACKAGES, write_corpus
from declutr.quickstart.small_checkpoints import make_checkpoint, train_tokenizer
from declutr.quickstart.static_encoder import (
    read_docstrings,
    reported,
    retrieval,
    search_both,
    start_of,
)
from declutr.system.processors import usable_processors

VOCABULARY = 8_000
MAX_LENGTH = 128


class Quality(NamedTuple):
    """The validation loss and the span retrieval accuracy of a model on held-out documents."""

    validation_loss: float
    retrieval: float


class Quickstart:
    """The steps of `make train`: write a corpus, make a transformer, train, embed and report.

    The constructor creates the folder, and points the environment variables `TRANSFORMER_MODEL`
    and `DECLUTR_CACHE` of this process into it.

    # Parameters

    folder : the folder of all results.
    recipes : the folder of recipes, `training_config`.
    overrides : configuration keys of the recipe and their values, as for `allennlp train -o`.
    packages : the names of the installed packages whose docstrings are the corpus.

    # Raises

    `FileExistsError` : the folder holds files that no quickstart has written.
    """

    def __init__(
        self,
        folder: Path,
        recipes: Path,
        overrides: dict | None = None,
        packages: tuple[str, ...] = DEFAULT_PACKAGES,
    ) -> None:
        require_own(folder)
        self.folder = folder
        self.recipes = recipes
        self.packages = packages
        self.train_file = folder / "train.txt"
        self.validation_file = folder / "validation.txt"
        self.docstrings_file = folder / "docstrings.jsonl"
        self.checkpoint = folder / "transformer"
        self.untrained = folder / "untrained"
        self.model = folder / "model"
        self.static = folder / "static"
        self.embeddings = folder / "embeddings.jsonl"
        self.given = overrides or {}
        self.overrides = {
            "train_data_path": str(self.train_file),
            "validation_data_path": str(self.validation_file),
            **self.given,
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARK).touch()
        os.environ["TRANSFORMER_MODEL"] = str(self.checkpoint)
        os.environ["DECLUTR_CACHE"] = str(folder / "cache")

    def run(self) -> tuple[Quality, Quality]:
        """Run all steps; return the quality before and after training."""
        steps = [
            ("Corpus: the docstrings of the installed Python packages", self.make_corpus),
            ("A tokenizer and a small transformer with random weights", self.make_transformer),
            ("allennlp train", self.train),
            ("allennlp predict: embeddings of the held-out documents", self.predict),
            ("An encoder without a transformer, of the same documents", self.train_static),
        ]
        for number, (title, step) in enumerate(steps, start=1):
            _say(f"{number}/6  {title}")
            # The mark of a step is written at its end, so that a half-written file is not kept.
            done = self.folder / f".{step.__name__}.done"
            if done.exists():
                print("     kept from an earlier run")
                continue
            step()
            done.touch()
        _say("6/6  Before and after training")
        before, after = self.quality(self.untrained), self.quality(self.model)
        print(self.report(before, after))
        print(self.report_static())
        return before, after

    def make_corpus(self) -> None:
        """Write the training documents and the held-out documents."""
        files = self.packages, self.train_file, self.validation_file
        counts = write_corpus(
            *files,
            docstrings_path=self.docstrings_file,
            min_words=2 * 64,
            workers=usable_processors(),
        )
        print(
            f"     {counts.train_documents} documents to train on ({counts.train_words / 1e6:.1f} "
            f"million words), {counts.validation_documents} held out"
        )

    def make_transformer(self) -> None:
        """Train a tokenizer on the corpus, and make a transformer for it."""
        with self.train_file.open(encoding="utf-8") as texts:
            tokenizer = train_tokenizer(texts, VOCABULARY, max_length=MAX_LENGTH)
        # On CPUs there is no fast attention with dropout, and so short a training does not need it.
        shape: Any = {"layers": 3, "hidden_size": 128, "heads": 4, "dropout": 0.0}
        model = make_checkpoint(self.checkpoint, tokenizer, max_length=MAX_LENGTH, **shape)
        print(f"     {model.num_parameters() / 1e6:.1f} million parameters")

    def train(self) -> None:
        """Archive the untrained transformer, then train it; resume an interrupted training."""
        recipe = ["train", str(self.recipes / "quickstart.jsonnet")]
        # An archive of the untrained model comes from the same recipe with a trainer that does
        # nothing.
        kept = {k: v for k, v in self.overrides.items() if not k.startswith("trainer")}
        nothing = json.dumps({**kept, "trainer": {"type": "no_op"}})
        _allennlp(*recipe, "-s", str(self.untrained), "-o", nothing, "--force", quiet=True)
        begun = (self.model / "config.json").exists()
        _allennlp(
            *(*recipe, "-s", str(self.model), "-o", json.dumps(self.overrides)),
            "--recover" if begun else "--force",
        )

    def predict(self) -> None:
        """Write the embeddings of the held-out documents, one row each."""
        options = ("--output-file", str(self.embeddings), "--batch-size", "32", "--silent")
        places = (str(self.model), str(self.validation_file))
        _allennlp("predict", *places, "--use-dataset-reader", *options)
        with self.embeddings.open() as rows:
            print(f"     {sum(1 for _ in rows)} rows in {self.embeddings}")

    def train_static(self) -> None:
        """Train a static encoder by one line, which needs nothing but the documents."""
        one_line = ["train", "static_declutr", str(self.train_file), "-s", str(self.static)]
        changed = ["-o", json.dumps(self.given)] if self.given else []
        begun = "--recover" if (self.static / "config.json").exists() else "--force"
        _allennlp(*one_line, *changed, begun, without_transformer=True)

    def report_static(self) -> str:
        """Return a text with what the static encoder finds, before and after its training."""
        docstrings = read_docstrings(self.docstrings_file)
        start, trained = Encoder(start_of(self.static)), Encoder(self.static)
        encoders = {
            "static encoder, first table": start,
            "static encoder, trained": trained,
            "transformer, untrained": Encoder(self.untrained),
            "transformer, trained": Encoder(self.model),
        }
        return reported(
            search_both(start, trained, docstrings), retrieval(encoders, docstrings), self.static
        )

    def quality(self, archive: Path) -> Quality:
        """Return the loss and the retrieval accuracy of an archive on the held-out documents."""
        documents = list(read_lines(self.validation_file))
        encoder = Encoder(archive)
        retrieval = span_retrieval_accuracy(encoder, adjacent_span_pairs(documents))
        return Quality(self._validation_loss(archive), retrieval)

    def _validation_loss(self, archive: Path) -> float:
        params = Params.from_file(self.recipes / "quickstart.jsonnet", json.dumps(self.overrides))
        reader = DatasetReader.from_params(params["dataset_reader"])
        data: Any = {"reader": reader, "data_path": self.validation_file}
        loader = DataLoader.from_params(params["validation_data_loader"], **data)
        model = load_archive(archive).model
        loader.index_with(model.vocab)
        return evaluate(model.eval(), loader)["loss"]

    def report(self, before: Quality, after: Quality) -> str:
        """Return a text with the results, where they are, and what to try next."""
        own = shlex.quote(json.dumps({"train_data_path": "docs.txt"}))
        losses = f"{before.validation_loss:8.3f}   {after.validation_loss:8.3f}"
        retrieval = f"{before.retrieval:8.1%}   {after.retrieval:8.1%}"
        return f"""
                                    before      after
    validation loss               {losses}
    span retrieval accuracy       {retrieval}

  Retrieval: a span of a held-out document must find the span next to it among all documents; the
  two share no text.

  Everything lies in {self.folder}:
    {self.model.name}/             the trained model (model.tar.gz), metrics, and run.json
    {self.embeddings.name}   one embedding for each line of {self.validation_file.name}
    {self.checkpoint.name}/       the transformer that training began with

  Next:
    source {Path(sys.executable).parent}/activate
    TRANSFORMER_MODEL={self.checkpoint} declutr sample-spans \\
        {self.recipes}/quickstart.jsonnet --data {self.train_file}
        shows what is contrasted
    TRANSFORMER_MODEL=distilroberta-base declutr train {self.recipes}/declutr.jsonnet \\
        -s output -o {own}
        trains the paper's recipe on your own documents, one a line
    python -c 'from declutr import Encoder; print(Encoder("{self.model}")(["Some text."]).shape)'
"""


def _allennlp(*arguments: str, quiet: bool = False, without_transformer: bool = False) -> None:
    """Run the `allennlp` command, with its progress bars and without its log."""
    command = [sys.executable, "-m", "declutr", *arguments]
    if not sys.stderr.isatty():
        command.append("--file-friendly-logging")
    program = "declutr" if without_transformer else "allennlp"
    print(f"     $ {program} {shlex.join(arguments)}", flush=True)
    environment = {**os.environ, "ALLENNLP_LOG_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}
    if without_transformer:
        del environment["TRANSFORMER_MODEL"]
    output = subprocess.PIPE if quiet else None
    done = subprocess.run(command, env=environment, stderr=output, check=False, text=True)
    if done.returncode:
        raise SystemExit(f"{done.stderr or ''}\nThe command above failed (exit {done.returncode}).")


def _say(title: str) -> None:
    print(f"\n{title}", flush=True)
