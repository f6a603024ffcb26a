"""The device is "meta" here: whoever reads a tensor that lies there gets an error."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from declutr.modules.text_batches import flat, joined, part, rows_of
from declutr.system.host_copies import Arriving, carried, on_host, remember, to_device

META = torch.device("meta")
CPU = torch.device("cpu")


def spans(seed: int, *shape: int) -> dict[str, dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, 50, shape, generator=generator)
    return {"tokens": {"token_ids": ids, "mask": ids > 10}}


def on_meta(texts: dict[str, dict[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
    return {
        name: {key: to_device(tensor, META) for key, tensor in tensors.items()}
        for name, tensors in texts.items()
    }


def test_nothing_changes_on_the_host() -> None:
    tensor = torch.arange(3)
    assert to_device(tensor, CPU) is on_host(tensor) is remember(tensor, tensor) is tensor
    assert not vars(tensor)
    assert Arriving(tensor).wait() is tensor


def test_what_was_sent_is_known() -> None:
    tensor = torch.arange(3)
    sent = to_device(tensor, META)
    assert sent.device == META
    assert on_host(sent) is tensor
    assert to_device(sent, META) is sent


@pytest.mark.parametrize("inference", [False, True])
def test_what_is_not_known_is_read(inference: bool) -> None:
    with torch.inference_mode(inference):
        assert on_host(to_device(torch.arange(3), META)).tolist() == [0, 1, 2]
        with pytest.raises(NotImplementedError, match="meta"):
            on_host(torch.arange(3, device=META))


def test_a_change_in_place_is_noticed() -> None:
    sent = to_device(torch.arange(3), META)
    sent[1:].add_(1)
    with pytest.raises(NotImplementedError, match="meta"):
        on_host(sent)


OPERATIONS: dict[str, Callable[[dict], dict | None]] = {
    "flat": flat,
    "part": lambda texts: part(texts, slice(1, 3)),
    "joined": lambda texts: joined([flat(texts), spans_like(texts)]),
}


def spans_like(texts: dict[str, dict[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
    """Longer texts, on the same device."""
    longer = spans(1, 4, 7)
    return longer if texts["tokens"]["mask"].device == CPU else on_meta(longer)


@pytest.mark.parametrize("name", OPERATIONS)
def test_batches_stay_known(name: str) -> None:
    texts = spans(0, 3, 2, 5)
    expected, got = OPERATIONS[name](texts), OPERATIONS[name](on_meta(texts))
    assert expected is not None and got is not None
    for key, tensor in expected["tokens"].items():
        assert got["tokens"][key].device == META
        assert torch.equal(on_host(got["tokens"][key]), tensor), key


def test_of_several_tensors_all_must_be_known() -> None:
    one, other = to_device(torch.ones(2), META), torch.ones(2, device=META)
    assert on_host(carried(torch.add, one, one)).tolist() == [2, 2]
    with pytest.raises(NotImplementedError, match="meta"):
        on_host(carried(torch.add, one, other))


def test_checkpoints_hand_on_the_same_tensors() -> None:
    """In the forward pass and in the one that is done again."""
    labels = rows_of(to_device(torch.arange(4), META), slice(1, 3))
    weights = torch.ones(2, device=META, requires_grad=True)
    seen = []

    def step(texts: dict[str, Tensor], labels: Tensor) -> Tensor:
        seen.extend([on_host(texts["mask"]).tolist(), on_host(labels).tolist()])
        return (weights * texts["mask"]).sin().sum()

    loss = checkpoint(step, {"mask": labels}, labels, use_reentrant=False)
    assert isinstance(loss, Tensor)
    loss.backward()
    assert seen == [[1, 2]] * 4
