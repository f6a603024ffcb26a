"""Tests of what is checked of a trainer's data before the first step."""

from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.common.checks import ConfigurationError

from declutr.data.data_loader import DeCLUTRDataLoader
from declutr.data.sentence_reader import SentenceReader
from declutr.models.trainer_data import (
    require_consecutive,
    require_trained,
    require_whole_groups,
)
from declutr.objectives import NTXent, PredictiveCoding, QuickThoughts


def loader(pair: Any, folder: Path, text: str, **settings: bool) -> DeCLUTRDataLoader:
    file = folder / "sentences.txt"
    file.write_text(text)
    return DeCLUTRDataLoader(SentenceReader(*pair), str(file), batch_size=2, **settings)


def test_documents_too_short_for_the_steps_ahead_are_refused(pair: Any, tmp_path: Path) -> None:
    data = loader(pair, tmp_path, "ka lo\nmi tu\nre\n\nsa\nno\n", consecutive=True)
    require_consecutive(PredictiveCoding(4, steps=2), data)
    message = (
        r"at most 3 sentence\(s\) follow each other, and PredictiveCoding needs 4\. Lower .*steps"
    )
    with pytest.raises(ConfigurationError, match=message):
        require_consecutive(PredictiveCoding(4, steps=3), data)
    apart = loader(pair, tmp_path, "ka lo\n\nre\n\nsa\n", consecutive=True)
    with pytest.raises(ConfigurationError, match=r"1 sentence.*QuickThoughts needs 2\. Write the"):
        require_consecutive(QuickThoughts(), apart)


def test_a_loader_that_draws_from_anywhere_is_refused(pair: Any, tmp_path: Path) -> None:
    data = loader(pair, tmp_path, "ka lo\nmi tu\nre\n")
    with pytest.raises(ConfigurationError, match="draws them from anywhere: set its 'consecutive'"):
        require_consecutive(PredictiveCoding(4, steps=2), data)
    require_consecutive(NTXent(), data)
    require_consecutive(None, data)


@pytest.mark.parametrize(("size", "drop_last"), [(9, False), (8, True)])
def test_batches_of_broken_groups_are_refused(size: int, drop_last: bool) -> None:
    """Two pairs are of 2 * 2 - 1 texts, as one sentence is in both."""

    class Batches:
        batch_size = 9
        drop_last = True

    require_whole_groups(2, Batches())
    Batches.batch_size, Batches.drop_last = size, drop_last
    require_whole_groups(1, Batches())
    with pytest.raises(ConfigurationError, match=r"groups of 3 texts.*multiple of 3, and drop_"):
        require_whole_groups(2, Batches())


def test_a_model_that_is_frozen_as_a_whole_is_refused() -> None:
    model = torch.nn.Linear(1, 1)
    model.weight.requires_grad_(False)
    require_trained(model)
    model.bias.requires_grad_(False)
    with pytest.raises(ConfigurationError, match=r"All parameters are frozen.*no_grad"):
        require_trained(model)


def test_a_loader_of_allennlp_is_not_looked_at() -> None:
    class OfAllenNLP:
        documents = None

    require_consecutive(PredictiveCoding(4), OfAllenNLP())
