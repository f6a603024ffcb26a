"""Runs of two processes go on after an interruption as they would have done without one."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM, EsmConfig, LongformerConfig

from tests import distributed_runs, two_processes
from tests.conftest import shared_by_workers
from tests.families import bytes_of_roberta, wordpiece
from tests.system.test_distributed import model_config
from tests.training.test_sharding import batch_of

pytestmark = pytest.mark.slow
KINDS = ["declutr", "gradient_descent"]


def with_unused_parameters(folder: Path) -> list[Path]:
    """Return tiny transformers, some of whose parameters embeddings do not depend on."""
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    size |= {"intermediate_size": 32, "max_position_embeddings": 80}
    tokenizers = bytes_of_roberta(), wordpiece()
    given = [
        {"vocab_size": len(one), "pad_token_id": one.pad_token_id, **size} for one in tokenizers
    ]
    mask_id = tokenizers[1].mask_token_id
    longformer = LongformerConfig(attention_window=4, **given[0])
    configs = longformer, EsmConfig(mask_token_id=mask_id, **given[1])
    places = []
    for tokenizer, config in zip(tokenizers, configs, strict=True):
        places.append(folder / config.model_type)
        AutoModelForMaskedLM.from_config(config).save_pretrained(places[-1])
        tokenizer.save_pretrained(places[-1])
    return places


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes found, in one start of them."""
    with shared_by_workers(tmp_path_factory, "several_processes") as folder:
        if not (folder / "results.pt").exists():
            folder.mkdir(exist_ok=True)
            batches = [batch_of(4, 0), batch_of(4, 1)]
            cases = [
                (model_config(place, {}, {}), "by_position", batches, torch.float32)
                for place in with_unused_parameters(folder)
            ]
            found = two_processes.run(distributed_runs.everything, str(folder), cases)
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


@pytest.mark.parametrize("number", [0, 1])
def test_a_step_with_fewer_batches_in_one_process_ends_for_all_at_once(
    number: int, results: list[dict[str, Any]]
) -> None:
    """A sharded model exchanges the norm of gradients while others might ask for batches."""
    first, second = (process["sharded"][number] for process in results)
    assert first == second and [number for number, *_ in first] == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_each_process_counts_as_much_where_one_has_fewer_batches_for_a_step(
    kind: str, results: list[dict[str, Any]]
) -> None:
    """The others leave out as many, and divide their losses by the number of those left."""
    for process in results:
        of_three, *uneven, of_two, more, fewer = process["accumulated"][kind]
        assert len(of_three) == 2 and uneven == [of_three, of_three]
        assert len(of_two) == 1 and more == fewer == of_two
        assert process["all_in_one"] == [[0, 1]]


@pytest.mark.parametrize("kind", KINDS)
def test_schedules_of_all_processes_count_on_the_same_number_of_steps(
    kind: str, results: list[dict[str, Any]]
) -> None:
    """Otherwise each has rates of its own, and the weights of the processes go apart."""
    first, second = (process["rates"][kind] for process in results)
    assert first == second
    assert [rate for _, rate, _ in first] == pytest.approx([0.05 * (1 - k / 9) for k in range(9)])
    assert [process["numbers"] for process in results] == [[9, 9], [9, 9]]


@pytest.mark.parametrize("kind", KINDS)
def test_names_of_parameters_are_those_of_the_model(
    kind: str, results: list[dict[str, Any]]
) -> None:
    """Patterns begin with them, and what they freeze is frozen before processes wait for it."""
    for process in results:
        numbers, rates, weights = zip(*process["named"][kind], strict=True)
        assert numbers == (1, 2, 3) and rates == (0, 0, 0)
        assert weights[0] == weights[1] == weights[2]


@pytest.mark.parametrize("kind", KINDS)
def test_layers_that_are_frozen_at_first_are_trained_later(
    kind: str, results: list[dict[str, Any]]
) -> None:
    """DistributedDataParallel would wait for their gradients, and end with an error."""
    first, second = (process["unfrozen"][kind] for process in results)
    _, _, weights = zip(*first, strict=True)
    assert first == second and len(weights) == 6
    assert weights[0] == weights[1] == weights[2] and weights[2] != weights[3] != weights[4]


def test_validation_data_that_do_not_reach_all_processes_are_refused(
    results: list[dict[str, Any]],
) -> None:
    """The validation loss would be 0 in every epoch, so that the first one stayed the best."""
    for process in results:
        assert all("The validation data give no batches" in told for told in process["empty"])
        assert len(process["empty"]) == 3


@pytest.mark.parametrize("number, kind", [(0, "longformer"), (1, "esm")])
def test_parameters_that_embeddings_do_not_depend_on_do_not_stop_training(
    number: int, kind: str, results: list[dict[str, Any]]
) -> None:
    """DistributedDataParallel would wait for their gradients, and end with an error."""
    first, second = (process["steps"][number] for process in results)
    assert first["losses"] == pytest.approx(second["losses"]) and len(first["losses"]) == 2
    for ours, theirs in zip(first["gradients"], second["gradients"], strict=True):
        assert all(torch.equal(gradient, theirs[name]) for name, gradient in ours.items())
        assert any(gradient.any() for gradient in ours.values())
        assert not any("global" in name or "contact" in name for name in ours)
