"""Runs of two processes go on after an interruption as they would have done without one."""

from typing import Any

import pytest
import torch

from tests import distributed_runs, two_processes
from tests.conftest import shared_by_workers

pytestmark = pytest.mark.slow
KINDS = ["declutr", "gradient_descent"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes found, in one start of them."""
    with shared_by_workers(tmp_path_factory, "several_processes") as folder:
        if not (folder / "results.pt").exists():
            folder.mkdir()
            found = two_processes.run(distributed_runs.everything, str(folder))
            torch.save(found, folder / "results.pt")
        return torch.load(folder / "results.pt", weights_only=False)


@pytest.mark.parametrize("kind", KINDS)
def test_processes_count_the_steps_of_all(kind: str, results: list[dict[str, Any]]) -> None:
    """Each epoch ends with the third step, as one process has three batches and the other five."""
    for process in results:
        whole, resumed = process[kind]["uneven"]
        assert [number for number, *_ in whole["steps"]] == list(range(1, 10))
        assert resumed["steps"] == whole["steps"][3:]
    first, second = (process[kind]["uneven"][1]["steps"] for process in results)
    assert first == second


@pytest.mark.parametrize("kind", KINDS)
def test_metrics_are_of_the_parts_of_all_processes(
    kind: str, results: list[dict[str, Any]]
) -> None:
    for process in results:
        whole, resumed = (run["metrics"]["training_accuracy"] for run in process[kind]["counting"])
        assert resumed == whole == 0.5  # what one process counts as right, the other does not


def test_a_step_with_fewer_batches_in_one_process_ends_for_all_at_once(
    results: list[dict[str, Any]],
) -> None:
    """A sharded model exchanges the norm of gradients while others might ask for batches."""
    first, second = (process["sharded"] for process in results)
    assert first == second and [number for number, *_ in first] == [1, 2]


def test_validation_data_that_do_not_reach_all_processes_are_refused(
    results: list[dict[str, Any]],
) -> None:
    """The validation loss would be 0 in every epoch, so that the first one stayed the best."""
    for process in results:
        assert "one of them none" in process["empty"]
