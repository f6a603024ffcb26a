"""Tests of distillation against a loop over rows, and of the files of a teacher."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from allennlp.common.checks import ConfigurationError

from declutr.models.trainer_data import require_room
from declutr.objectives import Distillation, distillation_loss
from tests.objectives import laws
from tests.objectives.oracles import cosine, mean, normal


def test_equals_a_loop_over_rows() -> None:
    student, teacher = normal(5, 4), normal(5, 7, seed=1)

    def shares(rows: torch.Tensor, i: int, tau: float) -> list[float]:
        weights = [math.exp(cosine(rows[i], rows[j]) / tau) for j in range(5) if j != i]
        return [weight / sum(weights) for weight in weights]

    each = [
        sum(
            p * math.log(p / q)
            for p, q in zip(shares(teacher, i, 0.2), shares(student, i, 0.5), strict=True)
        )
        for i in range(5)
    ]
    for reduction, expected in (("mean", mean(each)), ("sum", sum(each))):
        loss = distillation_loss(student, teacher, 0.5, 0.2, reduction)
        assert loss.item() == pytest.approx(expected, abs=1e-12)
    assert distillation_loss(teacher, 3 * teacher, 0.3, 0.3).item() == pytest.approx(0, abs=1e-12)
    laws.assert_gradients(lambda rows: distillation_loss(rows, teacher), student)


def test_rows_of_several_files_are_those_of_their_numbers(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(25, 3)).astype(np.float32)
    for number, start in enumerate((0, 10, 20)):
        np.save(tmp_path / f"embeddings-{number:05d}.npy", rows[start : start + 10])
    np.save(tmp_path / "whole.npy", rows.astype(np.float16))
    anchors, ids = normal(6, 4).float(), torch.tensor([21, 0, 9, 10, 24, 10])
    losses = [
        Distillation(str(place))(anchors, ids) for place in (tmp_path, tmp_path / "whole.npy")
    ]
    expected = distillation_loss(anchors, torch.from_numpy(rows[ids]))
    assert losses[0].item() == pytest.approx(expected.item())
    assert losses[1].item() == pytest.approx(expected.item(), abs=1e-2)


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    rows = np.ones((3, 2), np.float32)
    rows[1] = np.nan
    np.save(tmp_path / "some.npy", rows)
    objective = Distillation(str(tmp_path / "some.npy"))
    for ids, message in (
        ([0, 1], "an embedding that is not finite, of row 1. Embed again"),
        ([0, 3], r"has 3 embeddings, got the row 3. Embed train_data_path again"),
    ):
        with pytest.raises(ValueError, match=message):
            objective(normal(2, 4), torch.tensor(ids))
    with pytest.raises(ConfigurationError, match=r"places for 3 .* up to 5. Embed train_data_path"):
        require_room(objective, SimpleNamespace(documents=np.array([0, 5]), reader=None))
    loader = SimpleNamespace(data_path="docs", reader=SimpleNamespace(corpus=lambda path: "ab"))
    with pytest.raises(ConfigurationError, match=r"3 embeddings, and .docs. has 2 rows\. Embed"):
        require_room(objective, loader)
    elsewhere = Distillation(str(tmp_path))  # an archive is opened without the files
    with pytest.raises(ConfigurationError, match=r"Found no embeddings .* expected an npy file"):
        elsewhere(normal(2, 4), torch.tensor([0, 1]))
    (tmp_path / "bad.npy").write_text("no array")
    with pytest.raises(ConfigurationError, match="cannot be read as npy"):
        Distillation(str(tmp_path / "bad.npy")).instances  # noqa: B018
    with pytest.raises(ValueError, match=r"of the same text; got embeddings \(2, 4\) and"):
        distillation_loss(normal(2, 4), normal(3, 4))
