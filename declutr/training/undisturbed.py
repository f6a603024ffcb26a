"""A look at a model in between two training steps that leaves no trace."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


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
