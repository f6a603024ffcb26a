"""Distillation: embeddings that are alike where those of a teacher are (a file of them)."""

from functools import cached_property
from pathlib import Path
from typing import Optional

import numpy as np
import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.objectives import numerics
from declutr.objectives.distances import off_diagonal
from declutr.objectives.objective import Objective
from declutr.system.host_memory import on_host, to_device


@numerics.full_precision
def distillation_loss(
    student: Tensor,
    teacher: Tensor,
    temperature: float = 0.05,
    teacher_temperature: float = 0.05,
    reduction: str = "mean",
) -> Tensor:
    """Compute how far the similarities of texts are from those of a teacher.

    The loss of text i is the divergence `KL(p_i || q_i)`, where p_i and q_i are the distributions
    over the other texts of the batch, `softmax_{j != i}(cos(x_i, x_j) / tau)` of the teacher's and
    of the student's embeddings (Fang et al., 2021, "SEED", equation 4, whose queue the batch
    replaces here). The two may differ in width.

    # Parameters

    student, teacher : embeddings `(N, d)` and `(N, k)` of the same texts.
    temperature, teacher_temperature : tau of the student and of the teacher.
    reduction : `"mean"` or `"sum"` over the texts, or `"none"` for the divergences `(N,)`.

    # Raises

    `ValueError` : if the numbers of rows differ or the reduction is unknown.
    """
    if student.dim() != 2 or teacher.shape[:1] != student.shape[:1] or teacher.dim() != 2:
        raise ValueError(
            "Row i of both must be of the same text; got embeddings "
            f"{tuple(student.shape)} and, of the teacher, {tuple(teacher.shape)}."
        )
    targets = _logits(teacher, teacher_temperature).log_softmax(dim=1)  # (N, N - 1)
    found = _logits(student, temperature).log_softmax(dim=1)
    terms = (targets.exp() * (targets - found)).sum(dim=1)
    return numerics.reduced(terms, reduction, student)


def _logits(embeddings: Tensor, temperature: float) -> Tensor:
    """Return the cosines of every row with all others, divided by a temperature, `(N, N - 1)`."""
    rows = numerics.unit(embeddings)
    return off_diagonal(rows @ rows.T).view(len(rows), len(rows) - 1) / temperature


@Objective.register("distillation")
class Distillation(Objective):
    """The divergence of similarities from those of a teacher's embeddings, which lie in files.

    `forward(anchors (N, d), ids (N,))` takes ids instead of a second view; see `distillation_loss`.
    The embeddings of the teacher are those of `train_data_path`, row by row, as `declutr embed
    TEACHER train_data_path -o targets` writes them. Files are mapped into memory and opened in the
    first training step, so that an archive is opened without them.

    # Parameters

    targets : the folder of `declutr embed` (format npy), or an npy file of rows `(n, k)`.
    temperature : tau of the student, above 0.
    teacher_temperature : tau of the teacher; by default that of the student.
    reduction : `"mean"` or `"sum"` over the texts.

    # Raises

    `ConfigurationError` : a temperature or reduction is out of range, or, in training, there are no
        such files.
    """

    more_room = (
        "Embed train_data_path again (`declutr embed TEACHER train_data_path -o ...`): targets are "
        "rows of that file, blank ones included."
    )
    """What to do where there are not as many embeddings as rows in the corpus."""

    of_every_row = True
    """Whether there must be as many: other numbers are of another corpus, or of a part of it."""

    def __init__(
        self,
        targets: str,
        temperature: float = 0.05,
        teacher_temperature: Optional[float] = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.targets = targets
        self.temperature = numerics.above_zero("temperature", temperature)
        self.teacher_temperature = numerics.above_zero(
            "teacher_temperature",
            temperature if teacher_temperature is None else teacher_temperature,
        )
        self.reduction = numerics.scalar_reduction(reduction)

    @property
    def instances(self) -> int:
        """The number n of rows that the teacher has embedded."""
        return int(self._starts[-1])

    def forward(self, anchors: Tensor, ids: Tensor) -> Tensor:  # type: ignore[override]
        """Compute the loss of embeddings `(N, d)` of the rows `ids` `(N,)` of the corpus.

        # Raises

        `ValueError` : there is no such row, or its embedding was not finite.
        """
        teacher = to_device(self._rows(on_host(ids).numpy()), anchors.device)
        temperatures = self.temperature, self.teacher_temperature
        return distillation_loss(anchors, teacher, *temperatures, self.reduction)

    def _rows(self, ids: np.ndarray) -> Tensor:
        """Return the teacher's embeddings `(N, k)` of rows `(N,)`, on the host."""
        if ids.min(initial=0) < 0 or ids.max(initial=0) >= self.instances:
            raise ValueError(
                f"'{self.targets}' has {self.instances} embeddings, got the row {ids.max()}. "
                f"{self.more_room}"
            )
        shards = np.searchsorted(self._starts, ids, side="right") - 1
        rows = np.empty((len(ids), self._shards[0].shape[1]), np.float32)
        for shard in np.unique(shards).tolist():
            where = shards == shard
            rows[where] = self._shards[shard][ids[where] - self._starts[shard]]
        if not np.isfinite(rows).all():
            bad = int(ids[~np.isfinite(rows).all(axis=1)][0])
            raise ValueError(
                f"'{self.targets}' has an embedding that is not finite, of row {bad}. Embed again "
                "with `--dtype float32`, or remove the row."
            )
        return torch.from_numpy(rows)

    @cached_property
    def _starts(self) -> np.ndarray:
        """The numbers of the first rows of files, and the number of all rows."""
        return np.cumsum([0, *(len(shard) for shard in self._shards)])

    @cached_property
    def _shards(self) -> list[np.ndarray]:
        """The embeddings `(n_i, k)` of each file, mapped into memory."""
        place = Path(self.targets)
        files = [place] if place.is_file() else sorted(place.glob("embeddings-*.npy"), key=_number)
        try:
            shards = [np.load(file, mmap_mode="r") for file in files]
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"'{place}' cannot be read as npy: {error}") from error
        if not shards or any(s.ndim != 2 or s.shape[1] != shards[0].shape[1] for s in shards):
            raise ConfigurationError(
                f"Found no embeddings (n, k) in '{place}', expected an npy file or a folder of "
                "`declutr embed TEACHER train_data_path -o FOLDER` (format npy)."
            )
        return shards


def _number(file: Path) -> tuple[int, str]:
    return len(file.name), file.name
