"""BERT-flow: an invertible map of embeddings to standard normal vectors, fitted by likelihood.

The flow (`declutr.inference.flow_network`) is fitted with the encoder frozen, and stored beside the
weights as a whitening is (Li et al. 2020, arXiv:2011.05864). A whitening gives embeddings mean 0
and covariance I by a linear map; a flow goes on to what lies beyond mean and covariance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from declutr.bridge.adamw import AdamW
from declutr.inference.embedding_moments import ROWS, WhiteningError
from declutr.inference.fitted_map import FittedMap
from declutr.inference.flow_network import FlowNetwork
from declutr.system.processors import one_thread_if_forked

_CLIP = 1.0  # the largest norm of a gradient, as in the public code
_WORSE = 10.0  # bits for each dimension; a flow of few texts loses some of its first batch
_ADVICE = (
    "Dimensions that hardly differ between texts do that. Give more text, fit a linear whitening, "
    "or, in Python, `Flow.fit` with a lower learning_rate."
)


class Flow(FittedMap):
    """A normalising flow of embeddings; `transform` gives latent vectors as wide as embeddings.

        flow = Flow.fit(blocks)
        embeddings = flow.transform(embeddings)  # (n, d) -> (n, d)

    # Parameters

    network : the network of the flow.
    texts : the number of embeddings that it was fitted on; 0 if it is not known.
    digest : any string that identifies the training text; it is stored in the file.
    bits : the mean negative log-likelihood of these embeddings, in bits for each dimension.

    # Raises

    `WhiteningError` : numbers of the network are not finite.
    """

    format = "flow-1"

    def __init__(
        self,
        network: FlowNetwork,
        texts: int = 0,
        digest: str | None = None,
        bits: float | None = None,
    ) -> None:
        if not all(parameter.isfinite().all() for parameter in network.parameters()):
            raise WhiteningError(
                f"Got a flow with numbers that are not finite. If it was just fitted: {_ADVICE}"
            )
        self.network = network.double().requires_grad_(False)
        self.texts, self.digest, self.bits = texts, digest, bits

    @classmethod
    def fit(
        cls,
        blocks: Iterable[np.ndarray],
        *,
        levels: int = 3,
        depth: int = 3,
        width: int = 32,
        epochs: int = 1,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.01,
        seed: int = 0,
        progress: bool = False,
    ) -> Flow:
        """Fit a flow to all rows of all blocks, by maximum likelihood.

        The defaults are the public code's (`config_l3_d3_w32`; a batch there is 32 pairs of texts).
        Memory holds all embeddings in float32. The same blocks and seed give the same flow, and no
        random numbers of torch or numpy are used up.

        # Parameters

        blocks : any number of blocks of embeddings `(n, d)`.
        levels, depth, width : see `FlowNetwork`.
        epochs : how often all rows are gone through, in a new order.
        batch_size : the rows of a step; what does not fill a last one is left out of the epoch.
        learning_rate, weight_decay : of BERT's AdamW, constant; without bias correction.
        seed : the seed of the first weights and of the order of rows.
        progress : whether to show a bar of steps, on a terminal.

        # Raises

        `WhiteningError` : there are fewer rows than a batch takes; rows are not finite, of
            different width, too narrow for the levels, or equal in a dimension; or the flow
            fits worse than at the start.
        `ValueError` : a setting is out of range.
        """
        if epochs < 1 or batch_size < 2:
            raise ValueError(
                f"Expected epochs of at least 1 and batch_size of at least 2, got {epochs} and "
                f"{batch_size}."
            )
        rows = _rows(blocks, batch_size)
        generator = torch.Generator().manual_seed(seed)
        network = _undrawn(rows.size(1), levels, depth, width).to_empty(device="cpu")
        network.draw(generator)
        optimizer = AdamW(
            network.parameters(), learning_rate, weight_decay=weight_decay, correct_bias=False
        )
        steps = epochs * (len(rows) // batch_size)
        first = math.nan
        with torch.enable_grad():
            for batch in _shown(_batches(rows, epochs, batch_size, generator), steps, progress):
                loss = network.bits(batch).mean()
                first = loss.item() if math.isnan(first) else first
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(network.parameters(), _CLIP)
                optimizer.step()
        flow = cls(network, len(rows))
        flow.bits = flow.mean_bits(rows)
        if not flow.bits < first + _WORSE:
            raise WhiteningError(
                f"The flow diverged: {flow.bits:.3g} bits for each dimension after fitting, and "
                f"{first:.3g} before. {_ADVICE}"
            )
        return flow

    @property
    def input_dimension(self) -> int:
        return self.network.dimension

    @property
    def dimension(self) -> int:
        return self.network.dimension

    @property
    def description(self) -> list[Any]:
        """The word "flow", and the width d."""
        return ["flow", self.dimension]

    def told(self) -> str:
        levels: Any = self.network.levels
        return (
            f"A flow of {len(levels)} levels of {len(levels[0])} steps: {self.bits or 0:.3f} bits "
            f"for each of {self.dimension} dimensions."
        )

    @torch.no_grad()
    def inverse(self, latent: np.ndarray) -> np.ndarray:
        """Return the embeddings `(n, d)`, float64, whose latent vectors these `(n, d)` are."""
        return self.network.inverse(torch.as_tensor(latent, dtype=torch.float64)).numpy()

    @torch.no_grad()
    def mean_bits(self, rows: torch.Tensor) -> float:
        """Return the mean of `FlowNetwork.bits` over embeddings `(n, d)`."""
        sums = [self.network.bits(block.double()).sum().item() for block in rows.split(ROWS)]
        return math.fsum(sums) / len(rows)

    @torch.no_grad()
    def _map(self, rows: np.ndarray) -> np.ndarray:
        one_thread_if_forked()  # a static encoder computes nothing else by torch
        return self.network(torch.from_numpy(rows)).numpy()

    def _stored(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        # Fitted in float32, so that nothing is lost.
        arrays = {k: tensor.float().numpy() for k, tensor in self.network.state_dict().items()}
        levels: Any = self.network.levels
        width = levels[0][0].shift.first.out_features
        about = {"levels": len(levels), "depth": len(levels[0]), "width": width, "bits": self.bits}
        return arrays, about

    @classmethod
    def _of_stored(cls, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> Flow:
        shape = [int(about[name]) for name in ("dimension", "levels", "depth", "width")]
        if shape[1] * shape[2] > len(arrays):
            raise WhiteningError(f"it lacks layers of a flow of {shape[1]} levels of {shape[2]}")
        network = _undrawn(*shape)
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        try:
            network.load_state_dict(tensors, assign=True)
        except RuntimeError as error:
            raise WhiteningError("its arrays are not those of the flow it describes") from error
        return cls(network, int(about["texts"]), about["digest"], about["bits"])


def _undrawn(*shape: int) -> FlowNetwork:
    """Return a network whose parameters take no memory, and no random numbers."""
    with torch.device("meta"):
        return FlowNetwork(*shape)


def _rows(blocks: Iterable[np.ndarray], least: int) -> torch.Tensor:
    """Return the rows `(n, d)` of all blocks in float32, checked."""
    kept: list[np.ndarray] = []
    count = 0
    for block in blocks:
        block = np.asarray(block)
        if block.ndim != 2 or (kept and block.shape[1] != kept[0].shape[1]):
            expected = f"(n, {kept[0].shape[1]})" if kept else "(n, d)"
            raise WhiteningError(f"Got embeddings {block.shape}, expected {expected}.")
        if not np.isfinite(block).all():
            raise WhiteningError(
                f"Got embeddings that are not finite, within the {len(block)} rows after {count}. "
                "Expected numbers: the model, or a text, is broken."
            )
        kept.append(block.astype(np.float32))
        count += len(block)
    if count < least:
        raise WhiteningError(
            f"A flow needs at least as many texts as a batch takes, {least}, got {count}. Give "
            "more text."
        )
    rows = torch.from_numpy(np.concatenate(kept))
    if (rows == rows[0]).all():
        raise WhiteningError(f"The {count} embeddings are all equal: there is nothing to fit.")
    if constant := int((rows == rows[0]).all(dim=0).sum()):
        raise WhiteningError(
            f"{constant} of {rows.size(1)} dimensions are the same in all {count} embeddings, and "
            "a flow would scale them without end. Give more text, or fit a linear whitening."
        )
    return rows


def _batches(
    rows: torch.Tensor, epochs: int, size: int, generator: torch.Generator
) -> Iterator[torch.Tensor]:
    for _ in range(epochs):
        order = torch.randperm(len(rows), generator=generator)
        for start in range(0, len(rows) - size + 1, size):
            yield rows[order[start : start + size]]


def _shown(batches: Iterator[torch.Tensor], steps: int, progress: bool) -> Iterable[torch.Tensor]:
    from tqdm.auto import tqdm

    # With None, tqdm shows a bar only on a terminal, so that logs contain none.
    return tqdm(batches, "fitting", steps, unit=" steps", disable=None if progress else True)
