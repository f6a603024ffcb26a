"""What is done with a model in between two training steps: it embeds, and is left as it was."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from allennlp.data import Batch
from allennlp.nn.util import move_to_device
from allennlp.training import GradientDescentTrainer


def text_encoder(
    trainer: GradientDescentTrainer, batch_size: int
) -> Callable[[list[str]], np.ndarray]:
    """Texts to the embeddings `(n, d)`, float32, of a trainer's model, which is in eval mode."""
    model = trainer.model
    # Beside the reader that samples spans of training documents.
    reader = copy.copy(trainer.data_loader.reader)  # type: ignore[attr-defined]
    reader.sample_spans = False

    # Not in inference mode: what a model keeps of a pass, such as tables of positions or gathered
    # parameters, it could not use in training.
    @torch.no_grad()
    def embedded(instances: list) -> np.ndarray:
        for instance in instances:
            reader.apply_token_indexers(instance)
        batch = Batch(instances)
        batch.index_instances(model.vocab)
        tensors = move_to_device(batch.as_tensor_dict(), trainer.cuda_device)
        # Not by `embed`: a sharded model gathers its parameters when it is called.
        return model(**tensors)["embeddings"].float().cpu().numpy()

    def encode(texts: list[str]) -> np.ndarray:
        instances = [reader.text_to_instance(text) for text in texts]
        # The longest first: if memory does not suffice, that shows at once.
        order = np.argsort([-len(instance["anchors"]) for instance in instances], kind="stable")
        parts = [
            embedded([instances[row] for row in order[start : start + batch_size]])
            for start in range(0, len(order), batch_size)
        ]
        vectors = np.concatenate(parts)
        embeddings = np.empty_like(vectors)
        embeddings[order] = vectors
        return embeddings

    return encode


@contextmanager
def undisturbed(model: torch.nn.Module, device: torch.device, seed: int) -> Iterator[None]:
    """The model in eval mode and all random numbers seeded; afterwards all is as it was."""
    modes = {module: module.training for module in model.modules()}
    python, numpy = random.getstate(), np.random.get_state()
    devices = [device] if device.type == "cuda" else []
    # The trainer may be validating, without gradients, but classifiers are trained.
    with torch.random.fork_rng(devices), torch.enable_grad():
        try:
            model.eval()
            random.seed(seed)
            np.random.seed(seed)
            torch.manual_seed(seed)
            yield
        finally:
            for module, training in modes.items():
                module.training = training
            random.setstate(python)
            np.random.set_state(numpy)


@contextmanager
def averaged_weights(trainer: GradientDescentTrainer) -> Iterator[None]:
    """The weights that validation sees, which are the ones to keep: with a moving average, it."""
    average = trainer._moving_average
    if average is None:
        yield
        return
    average.assign_average_value()
    try:
        yield
    finally:
        average.restore()
