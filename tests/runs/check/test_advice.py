"""What a check advises."""

from dataclasses import replace
from typing import Any

from declutr.runs.check.advice import of_memory
from declutr.runs.check.memory import Device, MemoryFigures

GPU = Device("cuda", "a GPU", 10 * 10**9, "float16", 1)
STEP = MemoryFigures(
    *(10**9, 10**9, 2 * 10**9, 12 * 10**9),
    peak=16 * 10**9,
    process=18 * 10**9,
    parameters=250 * 10**6,
    trained=250 * 10**6,
)


def config(kind: str, **embedder: Any) -> dict[str, Any]:
    model = {"type": kind, "text_field_embedder": {"token_embedders": {"tokens": embedder}}}
    return {"model": model, "data_loader": {"batch_size": 16}}


def test_a_step_that_does_not_fit_into_memory_has_ways_to_fit() -> None:
    (own,) = of_memory(config("declutr"), STEP, GPU)
    assert own.startswith("A step takes about 18.0 GB, and a GPU has 10.0 GB. Set model.chunk_size")
    # Weights, gradients and optimizer leave 6 of the 12 GB that 16 rows take; half is for safety.
    assert "model.chunk_size 4 " in own and "tokens.gradient_checkpointing true, or a lower" in own
    (other,) = of_memory(config("basic_classifier", gradient_checkpointing=True), STEP, GPU)
    assert other.endswith("10.0 GB. Set a lower data_loader.batch_size.")
    for enough in (18 * 10**9, None):
        assert not list(of_memory(config("declutr"), STEP, replace(GPU, memory=enough)))
