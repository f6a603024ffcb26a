"""A fixture that makes trainers for small runs with random numbers in every part."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.data import Vocabulary
from allennlp.data.token_indexers import PretrainedTransformerIndexer
from allennlp.data.tokenizers import PretrainedTransformerTokenizer
from allennlp.models import Model
from allennlp.training import GradientDescentTrainer, Trainer

import declutr.plugin  # noqa: F401 - registers what configurations name
from declutr.data.data_loader import DeCLUTRDataLoader
from declutr.data.span_reader import DeCLUTRDatasetReader
from tests.conftest import run_config

EPOCHS = 2
STEPS = 3  # an epoch: 5 batches in groups of 2, the last group being a single one


class Killed(BaseException):
    """An exception that no code catches, like SIGKILL."""


@pytest.fixture(scope="module")
def make_trainer(checkpoint: Path, corpus_file: Path) -> Callable[..., GradientDescentTrainer]:
    """Return a function that makes a trainer with dropout, masks, a schedule and validation."""

    def make(
        folder: Path, seed: int | None = 7, memory: bool = False, **changes: Any
    ) -> GradientDescentTrainer:
        reader = DeCLUTRDatasetReader(
            tokenizer=PretrainedTransformerTokenizer(str(checkpoint)),
            token_indexers={"tokens": PretrainedTransformerIndexer(str(checkpoint))},
            num_anchors=1,
            num_positives=2,
            max_span_len=12,
            min_span_len=6,
        )
        loaders = [
            DeCLUTRDataLoader(reader, str(corpus_file), batch_size=size, shuffle=train, quiet=True)
            for size, train in ((5, True), (12, False))
        ]
        config = run_config(checkpoint, corpus_file)["model"]
        if memory:
            config["loss"] = {"type": "cross_batch_memory", "loss": {}, "embedding_size": 6}
        torch.manual_seed(0)
        model = Model.from_params(Params(config), vocab=Vocabulary())
        for loader in loaders:
            loader.index_with(model.vocab)
        folder.mkdir(exist_ok=True)
        config = {
            "optimizer": {"type": "huggingface_adamw", "lr": 1e-2},
            "learning_rate_scheduler": {"type": "slanted_triangular", "cut_frac": 0.5},
            "num_epochs": EPOCHS,
            "cuda_device": -1,
            "num_gradient_accumulation_steps": 2,
            "grad_norm": 1.0,
            "run_confidence_checks": False,
            "checkpointer": {
                "type": "atomic",
                "save_every_num_batches": 1,
                "keep_most_recent_by_count": None,
            },
            "callbacks": [] if seed is None else [{"type": "exact_resume", "seed": seed}],
            **changes,
        }
        # Random numbers drawn before training must not matter.
        torch.manual_seed(torch.seed() % 1000)
        trainer = Trainer.from_params(
            Params(config),
            model=model,
            serialization_dir=str(folder),
            data_loader=loaders[0],
            validation_data_loader=loaders[1],
        )
        assert isinstance(trainer, GradientDescentTrainer)
        return trainer

    return make
