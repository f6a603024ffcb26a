"""A user's script of supported imports, which `make lint` type-checks and nothing runs.

Were a type lost on its way to users, mypy would find an `assert_type` wrong, or an ignore unused.
"""

from pathlib import Path
from typing import assert_type

import numpy as np
import torch

from declutr import Encoder, __version__
from declutr.export import Exported, export_model
from declutr.inference.bulk import StoredEmbeddings
from declutr.inference.sources import NamedEncoder, open_encoder
from declutr.objectives import InfoNCE, Objective
from declutr.search import Hit, SearchIndex, build_index


@Objective.register("squared_distance_of_a_user")
class SquaredDistance(Objective):
    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, anchors: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
        return self.weight * (anchors - positives).pow(2).mean()


def embedded(texts: list[str], place: Path) -> np.ndarray:
    with Encoder(place, normalize=True, device="cpu") as encoder:
        assert_type(encoder, Encoder)
        assert_type(encoder.dimension, int)
        return encoder(texts)


def found(encoder: Encoder, lines: list[str]) -> list[str]:
    build_index(encoder, lines, "index")
    hits = SearchIndex("index").search(lines[0], k=3)
    assert_type(hits, list[Hit])
    return [hit.text for hit in hits]


assert_type(__version__, str)
assert_type(export_model("output", "exported"), Exported)
assert_type(open_encoder("words:glove.txt"), NamedEncoder)
assert_type(StoredEmbeddings("vectors").shape, tuple[int, int])
assert_type(InfoNCE(temperature=0.1), InfoNCE)
wrong: int = Encoder("output")  # type: ignore[assignment]
Encoder("output", no_such_setting=True)  # type: ignore[call-arg]
