"""Embedding with a model between two training steps, without an effect on training."""

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from allennlp.data import Batch
from allennlp.nn.util import move_to_device
from allennlp.training import GradientDescentTrainer

from declutr.transformer.packing import evaluating


def text_encoder(
    trainer: GradientDescentTrainer, batch_size: int
) -> Callable[[list[str]], np.ndarray]:
    """Return a function that embeds texts with the model of a trainer, in evaluation mode.

    # Returns

    A function from a list of n texts to their embeddings `(n, d)` in float32.
    """
    model = trainer.model
    # A copy, because the reader itself samples spans of training documents.
    reader = copy.copy(trainer.data_loader.reader)  # type: ignore[attr-defined]
    reader.sample_spans = False

    # Inference mode is not used, because tensors that a model keeps from a pass, such as tables of
    # positions or gathered parameters, could not be used in training afterwards.
    @torch.no_grad()
    def embedded(instances: list) -> np.ndarray:
        for instance in instances:
            reader.apply_token_indexers(instance)
        batch = Batch(instances)
        batch.index_instances(model.vocab)
        tensors = move_to_device(batch.as_tensor_dict(), trainer.cuda_device)
        # The model is called, and not its method `embed`, because a sharded model gathers its
        # parameters when it is called.
        return model(**tensors)["embeddings"].float().cpu().numpy()

    def encode(texts: list[str]) -> np.ndarray:
        instances = [reader.text_to_instance(text) for text in texts]
        # The longest texts come first, so that a lack of memory shows immediately.
        order = np.argsort([-len(instance["anchors"]) for instance in instances], kind="stable")
        batches = (order[start : start + batch_size] for start in range(0, len(order), batch_size))
        parts = [embedded([instances[row] for row in rows]) for rows in batches]
        vectors = np.concatenate(parts)
        embeddings = np.empty_like(vectors)
        embeddings[order] = vectors
        return embeddings

    return encode


@contextmanager
def undisturbed(model: torch.nn.Module, device: torch.device, seed: int) -> Iterator[None]:
    """Set evaluation mode and seed all random numbers in a context; restore both afterwards.

    # Parameters

    model : the model to set to evaluation mode.
    device : the device whose random numbers are restored, beside those of the CPU.
    seed : the seed of the random numbers of Python, numpy and torch.
    """
    python, numpy = random.getstate(), np.random.get_state()
    devices = [device] if device.type == "cuda" else []
    # Evaluation may train classifiers, also while the trainer validates without gradients.
    with evaluating(model), torch.random.fork_rng(devices), torch.enable_grad():
        try:
            random.seed(seed)
            np.random.seed(seed)
            torch.manual_seed(seed)
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


@contextmanager
def averaged_weights(trainer: GradientDescentTrainer) -> Iterator[None]:
    """Use the weights of the trainer's moving average in a context, if it has one.

    They are the weights that validation uses and that are saved as the best.
    """
    average = trainer._moving_average
    if average is None:
        yield
        return
    average.assign_average_value()
    try:
        yield
    finally:
        average.restore()
