"""A sharded model equals a whole one in gradients, weights and files."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.models import Model
from allennlp.models.archival import archive_model
from allennlp.nn.parallel import DdpAccelerator
from allennlp.training.optimizers import MultiOptimizer
from transformers import AutoModel, AutoModelForMaskedLM

from declutr import Encoder
from declutr.objectives.memories.lipschitz_critic import Critic
from declutr.training.sharded_model import ShardedModel
from declutr.training.sharding import FsdpAccelerator, repeated_layers
from tests import sharded_steps as steps
from tests import two_processes
from tests.conftest import run_config, shared_by_workers
from tests.families import FAMILIES, build, build_t5
from tests.system.test_distributed import FEEDFORWARD, MEMORY, model_config

FSDP = {"type": "fsdp"}
NO_MLM = {"masked_language_modeling": False}
PROTOTYPES = {
    **{"type": "swav", "embedding_size": 32, "prototypes": 5, "assigned_views": 1},
    **{"renormalise": True, "frozen_steps": 1},
}
# The first update goes beyond the bound.
TEMPERATURE = {"type": "info_nce", "similarity": "cosine", "temperature": 0.01001}
TEMPERATURE |= {"learn_temperature": True, "view_pairs": "full_graph"}
# name: changes of the model, of the embedder, of the accelerator, how to step
CASES: dict[str, tuple[dict, dict, dict, dict]] = {
    "both": ({"feedforward": FEEDFORWARD}, {}, {}, {"validate": True}),
    "float32": ({}, {}, {}, {"dtype": torch.float32}),
    "contrastive": ({}, NO_MLM, {}, {}),
    "mlm": ({"loss": None}, {}, {}, {"masks": "half"}),
    "head without mlm": ({"mlm_weight": 0.0}, {}, {}, {}),
    "frozen": ({"feedforward": FEEDFORWARD}, {"train_parameters": False, **NO_MLM}, {}, {}),
    "mix of layers": ({}, {"last_layer_only": False}, {}, {}),
    "memory": ({"loss": MEMORY}, {}, {}, {}),
    "prototypes": ({"loss": PROTOTYPES}, NO_MLM, {}, {}),
    "learnt temperature": ({"loss": TEMPERATURE}, NO_MLM, {}, {}),
    "fixed scale": ({"loss": {"type": "nce"}}, NO_MLM, {}, {}),
    "accumulation": ({}, {}, {}, {"accumulate": 2}),
    "in groups": ({"mask_contrastive_anchor": False}, {"unpadding": "grouped"}, {}, {}),
    "checkpointing": ({}, {"gradient_checkpointing": True}, {}, {}),
    "chunks": ({"chunk_size": 1}, {}, {}, {}),
    "chunks, checkpointing": ({"chunk_size": 1}, {"gradient_checkpointing": True}, {}, {}),
    "kept gathered": ({}, {}, {"reshard_after_forward": False}, {}),
    "offloaded": ({}, {}, {"cpu_offload": True}, {}),
    "replicas": ({}, {}, {"replicas": 2}, {}),
}
# A second step is of weights that have been updated, and of what the objective remembers. Of these
# cases it would show no more than of the others.
ONE_STEP = {"contrastive", "mlm", "head without mlm", "mix of layers", "accumulation", "in groups"}
ONE_STEP |= {"checkpointing", "chunks", "chunks, checkpointing", "frozen"}
# Of two layers and the rest, how many lie gathered beside each other in these cases.
GATHERED = dict.fromkeys(("contrastive", "checkpointing", "chunks", "chunks, checkpointing"), 2)
GATHERED["kept gathered"] = 3


def batch_of(documents: int, seed: int) -> dict:
    """Return spans of 3 to 24 tokens, so that processes have different numbers of tokens."""
    generator = torch.Generator().manual_seed(seed)
    texts = {}
    for name, spans in (("anchors", 1), ("positives", 2)):
        lengths = torch.randint(3, 25, (documents, spans, 1), generator=generator)
        mask = torch.arange(24) < lengths
        ids = torch.randint(8, 40, mask.shape, generator=generator).masked_fill(~mask, 1)
        tensors = {"token_ids": ids, "mask": mask, "type_ids": torch.zeros_like(ids)}
        texts[name] = {"tokens": tensors}
    return texts


def training(checkpoint: Path, corpus: Path) -> dict[str, Any]:
    """Return a configuration with both losses, dropout, a schedule, accumulation and clipping."""
    config = run_config(checkpoint, corpus)
    config["dataset_reader"] |= {"max_span_len": 12, "min_span_len": 6}
    config["data_loader"]["batch_size"] = 2
    config["validation_data_path"] = str(corpus)
    config["validation_data_loader"] = {"type": "declutr", "batch_size": 5, "resample": False}
    config["trainer"] |= {
        "type": "declutr",
        "read_every": 3,
        "optimizer": {**config["trainer"]["optimizer"], "lr": 1e-3, "weight_decay": 0.1},
        "num_epochs": 2,
        "grad_norm": 1.0,
        "num_gradient_accumulation_steps": 2,
        "learning_rate_scheduler": {"type": "slanted_triangular", "cut_frac": 0.5},
        "checkpointer": {"type": "atomic", "save_every_num_batches": 2},
        "callbacks": [{"type": "exact_resume", "seed": 7}, {"type": "run_record"}],
    }
    del config["trainer"]["cuda_device"]
    return config


@pytest.fixture(scope="module")
def results(
    checkpoint: Path, corpus_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Run all cases in processes that are started once, in one pytest worker only."""
    with shared_by_workers(tmp_path_factory, "sharded") as folder:
        if not (folder / "results.pt").exists():
            folder.mkdir(exist_ok=True)
            _compute(checkpoint, corpus_file, folder)
    return {**torch.load(folder / "results.pt", weights_only=False), "folder": folder}


def _compute(checkpoint: Path, corpus: Path, folder: Path) -> None:
    cases: list[tuple[tuple, dict]] = []
    for name, (model, embedder, options, how) in CASES.items():
        config = model_config(checkpoint, model, embedder)
        batches = [batch_of(4, seed) for seed in range(1 if name in ONE_STEP else 2)]
        cases.append(((config, batches, {**FSDP, **options}), how))
    for family in FAMILIES:
        config = model_config(build(family, folder / family), {}, {"eval_mode": True})
        del config["text_field_embedder"]["token_embedders"]["tokens"]["transformer_kwargs"]
        cases.append(((config, [batch_of(4, 2)], FSDP), {}))
    for precision in ("float32", "bfloat16"):  # of everything but the layers
        config = model_config(checkpoint, {"precision": precision}, {})
        options = {**FSDP, "gather_dtype": "bfloat16"}
        cases.append(((config, [batch_of(4, 0)], options), {"dtype": torch.float32}))
    many = cases + [((arguments[0], arguments[1], None), how) for arguments, how in cases[:2]]
    memory = [
        (model_config(checkpoint, model, embedder), batch_of(4, 0), {**FSDP, **options})
        for name, (model, embedder, options, _) in CASES.items()
        if name in GATHERED
    ]
    runs = training(checkpoint, corpus), str(folder)
    uneven = [((config, [batch_of(6, 0)], FSDP), {}) for ((config, *_), _) in cases[:1]]
    results = {
        "alone": steps.several(cases),
        "together": two_processes.run(steps.everything, many, memory, *runs),
        "one of three": steps.several(uneven)[0],
        "three": two_processes.run(steps.several, uneven, processes=3),
    }
    torch.save(results, folder / "results.pt")


def same(ours: dict, expected: dict, within: float) -> None:
    """Assert that losses, metrics, gradients and, in the process that has them, weights agree."""
    for name in ("losses", "norms", "validation"):
        assert ours[name] == pytest.approx(expected[name], rel=within), name
    assert ours["metrics"] == pytest.approx(expected["metrics"], rel=within)
    pairs = list(zip(ours["gradients"], expected["gradients"], strict=True))
    for got, wanted in [*pairs, *([(ours["state"], expected["state"])] if ours["state"] else [])]:
        assert got.keys() == wanted.keys()
        wanted = {name: value.double() for name, value in wanted.items()}  # some are flags
        largest = max(value.abs().max().item() for value in wanted.values())
        assert largest > 1e-3
        for name, value in wanted.items():
            assert got[name].shape == value.shape
            assert (got[name].double() - value).abs().max().item() <= within * largest, name


@pytest.mark.slow
@pytest.mark.parametrize("number, name", list(enumerate([*CASES, *FAMILIES])))
def test_a_sharded_model_equals_one_process(results: dict, number: int, name: str) -> None:
    expected = results["alone"][number]
    within = 1e-5 if name == "float32" else 1e-10
    for rank, process in enumerate(results["together"]):
        ours = process["cases"][number]
        if name == "replicas":  # what clipping scales in place
            ours = {**ours, "gradients": expected["gradients"]}
        same(ours, expected, within)
        assert bool(ours["state"]) is (rank == 0), "only the first process has the whole"


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_a_sharded_model_equals_distributed_data_parallel(results: dict, number: int) -> None:
    after = len(CASES) + len(FAMILIES) + 2
    for process in results["together"]:
        within = 1e-5 if number else 1e-12
        ours, theirs = process["cases"][number], process["cases"][after + number]
        same({**ours, "state": {}}, theirs, within)
        if ours["state"]:
            same(ours, theirs, within)


@pytest.mark.slow
def test_three_processes_with_shards_of_different_sizes_equal_one(results: dict) -> None:
    for (process,) in results["three"]:
        same(process, results["one of three"], 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1])
def test_gradients_of_gathering_in_bfloat16_are_close(results: dict, which: int) -> None:
    number = len(CASES) + len(FAMILIES) + which
    for process in results["together"]:
        ours, expected = process["cases"][number], results["alone"][number]
        assert ours["losses"] == pytest.approx(expected["losses"], rel=0.01)
        got, wanted = (
            torch.cat([g.flatten() for g in run["gradients"][0].values()])
            for run in (ours, expected)
        )
        assert got.dtype is torch.float32
        assert torch.cosine_similarity(got, wanted, dim=0) > 0.995
        assert all(value.dtype is torch.float32 for value in ours["state"].values())


@pytest.mark.slow
def test_each_process_holds_its_share(results: dict) -> None:
    """Count the parameters and the two moments of Adam."""
    parameters, moments = results["alone"][0]["held"]
    assert moments == 2 * parameters
    for key, count in (("together", 2), ("three", 3)):
        processes = results[key]
        held = [(p["cases"] if key == "together" else p)[0]["held"] for p in processes]
        assert sum(p for p, _ in held) == parameters
        for p, m in held:
            assert m == 2 * p
            assert p == pytest.approx(parameters / count, rel=0.05)


@pytest.mark.slow
def test_one_layer_is_gathered_at_a_time(results: dict) -> None:
    for process in results["together"]:
        assert process["memory"] == [(most, 3) for most in GATHERED.values()]


# ------------------------------------------------------------------------------- whole trainings


def weights(folder: Path) -> dict[str, torch.Tensor]:
    state = torch.load(folder / "best.th", weights_only=True)
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


def metrics(folder: Path) -> dict[str, float]:
    recorded = json.loads((folder / "metrics_epoch_1.json").read_text())
    floats = {name: value for name, value in recorded.items() if isinstance(value, float)}
    return {name: value for name, value in floats.items() if not name.endswith("_MB")}


def assert_same_run(one: Path, other: Path, within: float) -> None:
    left, right = weights(one), weights(other)
    assert left.keys() == right.keys()
    for name, value in left.items():
        torch.testing.assert_close(right[name], value, rtol=within, atol=within, msg=name)
    assert metrics(other) == pytest.approx(metrics(one), abs=within)


def assert_same_state(ours: Any, expected: Any, within: float) -> None:
    """Assert that two results of `get_checkpoint_state` have close weights and moments."""
    if isinstance(expected, dict):
        assert ours.keys() == expected.keys()
        for key, value in expected.items():
            assert_same_state(ours[key], value, within)
    elif torch.is_tensor(expected):
        assert type(ours) is torch.Tensor and ours.device.type == "cpu"
        torch.testing.assert_close(ours, expected, rtol=within, atol=within)
    elif not isinstance(expected, float):
        assert ours == expected


def state_of(process: dict[str, Any], name: str) -> list[dict]:
    model, training = process[name]
    return [model, training["optimizer"], training["learning_rate_scheduler"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "one, other, within",
    [("ddp", "fsdp", 2e-5), ("fsdp", "resumed", 0)],
    ids=["ddp and fsdp agree", "a resumed run is bit-identical"],
)
def test_training_ends_with_the_same_weights_and_states(
    one: str, other: str, within: float, results: dict
) -> None:
    folder, (first, second) = results["folder"], results["together"]
    assert_same_run(folder / one, folder / other, within)
    for ours, expected in zip(state_of(first, other), state_of(first, one), strict=True):
        assert_same_state(ours, expected, within)
    assert first["killed"] is None
    assert second["fsdp"] is None, "only the first process of a node writes"


@pytest.mark.slow
def test_files_are_the_same_as_without_sharding(results: dict) -> None:
    names = [
        {f.name for f in (results["folder"] / run).iterdir() if f.suffix == ".th"}
        for run in ("ddp", "fsdp")
    ]
    assert names[0] == names[1]
    assert "best.th" in names[0] and len(names[0]) == 5  # two checkpoints of two files


@pytest.mark.slow
@pytest.mark.parametrize("run", ["ddp to fsdp", "fsdp to ddp"])
def test_checkpoints_do_not_depend_on_who_wrote_them(results: dict, run: str) -> None:
    assert_same_run(results["folder"] / "ddp", results["folder"] / run, 2e-5)


@pytest.mark.slow
def test_one_process_can_resume_a_run_of_two(
    results: dict, checkpoint: Path, corpus_file: Path, tmp_path: Path
) -> None:
    """It draws other masks, but starts with the same weights and optimizer state."""
    folder = results["folder"] / "fsdp"
    for name in ("model_state_e1_b2.th", "training_state_e1_b2.th"):
        shutil.copy(folder / name, tmp_path)
    config = training(checkpoint, corpus_file)
    config["data_loader"]["batch_size"] = 4
    model, state = steps.train(config, str(tmp_path), None)
    expected, _ = state_of(results["together"][0], "fsdp")[:2]
    assert state["optimizer"]["state"][0]["step"] == 6
    for name, value in expected.items():
        assert (model[name] - value).abs().max() < 0.05, name


@pytest.mark.slow
def test_tied_weights_are_written_once(results: dict) -> None:
    state = torch.load(results["folder"] / "fsdp" / "best.th")
    tied = [v for n, v in state.items() if n.endswith(("word_embeddings.weight", "decoder.weight"))]
    assert len(tied) == 2 and tied[0].data_ptr() == tied[1].data_ptr()


@pytest.mark.slow
def test_weights_that_are_not_finite_are_not_written(results: dict) -> None:
    """The other process holds the part with these weights."""
    first, second = results["together"]
    assert "not finite any more" in first["broken"] and second["broken"] == ""
    assert not list((results["folder"] / "broken").glob("*.th"))


@pytest.mark.slow
def test_the_archive_loads_in_one_process(results: dict, tmp_path: Path) -> None:
    texts = ["ka lo mi tu", "re sa", ""]
    rows = []
    for run in ("ddp", "fsdp"):
        archive = tmp_path / f"{run}.tar.gz"
        archive_model(str(results["folder"] / run), archive_path=str(archive))
        rows.append(torch.from_numpy(Encoder(str(archive))(texts)))
    torch.testing.assert_close(rows[1], rows[0], rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------------------- the command


@pytest.mark.slow
@pytest.mark.long
def test_two_nodes_equal_two_processes_of_one(
    results: dict, checkpoint: Path, corpus_file: Path, tmp_path: Path
) -> None:
    """The command runs once on each node, with one process and a folder of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = training(checkpoint, corpus_file)
    config["distributed"] = {"cuda_devices": [-1], "num_nodes": 2, "ddp_accelerator": FSDP}
    config["distributed"] |= {"primary_address": "127.0.0.1", "primary_port": port}
    (tmp_path / "config.json").write_text(json.dumps(config))
    environment = {**os.environ, "ALLENNLP_LOG_LEVEL": "WARNING"}
    command = [sys.executable, "-m", "allennlp", "train", str(tmp_path / "config.json")]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    folders = [tmp_path / f"node{rank}" for rank in range(2)]
    nodes = [
        subprocess.Popen(
            [*command, "-s", str(folder), "--node-rank", str(rank)], env=environment, **pipes
        )
        for rank, folder in enumerate(folders)
    ]
    outputs = [node.communicate(timeout=300)[0] for node in nodes]
    for node, output in zip(nodes, outputs, strict=True):
        assert node.returncode == 0, output
    for folder in folders:  # each node has all it needs
        assert_same_run(results["folder"] / "ddp", folder, 2e-5)
        assert len(list(folder.glob("*_state_*.th"))) == 4, "old checkpoints are cleaned up"
        assert json.loads((folder / "run.json").read_text())["processes"] == 2
    vectors = [Encoder(str(folder))(["ka lo mi"]) for folder in folders]
    assert (vectors[0] == vectors[1]).all()


# ---------------------------------------------------------------------------- layers and errors


@pytest.mark.parametrize("family", [*FAMILIES, "t5"])
def test_layers_are_found_in_every_family(family: str, tmp_path: Path) -> None:
    if family == "t5":  # those of the encoder and of the decoder
        model = AutoModel.from_pretrained(build_t5(tmp_path))
        assert [type(layer).__name__ for layer in repeated_layers(model)] == ["T5Block"] * 4
        return
    model = AutoModelForMaskedLM.from_pretrained(build(family, tmp_path))
    layers = repeated_layers(model)
    if family == "albert":  # one layer, used twice
        assert layers == []
        return
    assert len(layers) == 2 and len({type(layer) for layer in layers}) == 1
    # Names of parameters in layers have numbers, and none of those is outside of the layers.
    inside = {id(p) for layer in layers for p in layer.parameters()}
    outside = [n for n, p in model.named_parameters() if id(p) not in inside]
    assert outside and not [n for n in outside if ".0." in n or ".1." in n]


def test_layers_that_cannot_be_gathered_alone_are_left_out() -> None:
    def linears(count: int, width: int = 4) -> torch.nn.ModuleList:
        return torch.nn.ModuleList([torch.nn.Linear(width, width) for _ in range(count)])

    model = torch.nn.Module()
    model.layers = linears(3, 16)
    model.small = linears(3)
    assert repeated_layers(model) == list(model.layers)
    model.layers[2].weight = model.layers[0].weight  # tied
    assert repeated_layers(model) == list(model.small)
    model.small[0].register_parameter("other", model.layers[0].weight)
    assert repeated_layers(model) == []
    model.critic = Critic(32, 32, width=64, lipschitz=False)  # it reads weights of its layers
    assert repeated_layers(model) == []
    assert repeated_layers(torch.nn.Linear(2, 2)) == []


@pytest.fixture
def build_accelerator(monkeypatch: pytest.MonkeyPatch) -> Callable[..., DdpAccelerator]:
    """Return a function that builds the accelerator as in the first of four processes."""
    monkeypatch.setattr("declutr.training.sharding.is_distributed", lambda: True)
    place = {"local_rank": 0, "world_size": 4, "cuda_device": -1}
    return lambda **options: DdpAccelerator.from_params(Params({**FSDP, **options}), **place)


def test_the_accelerator_is_registered(build_accelerator: Callable[..., DdpAccelerator]) -> None:
    built = build_accelerator(reshard_after_forward=False, cpu_offload=True, replicas=2)
    assert isinstance(built, FsdpAccelerator) and built.is_primary


def test_a_single_process_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r'only this one. Set "distributed"'):
        FsdpAccelerator(local_rank=0, world_size=1)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"gather_dtype": "float16"}, "Unknown gather_dtype 'float16': expected one of float32, b"),
        ({"replicas": 3}, r"4 process\(es\) cannot hold 3 whole model"),
        ({"replicas": 0}, "replicas must divide"),
    ],
)
def test_wrong_options_are_refused(
    options: dict, message: str, build_accelerator: Callable[..., DdpAccelerator]
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build_accelerator(**options)


def test_a_regularizer_is_refused(build_accelerator: Callable, checkpoint: Path) -> None:
    penalty = {"regexes": [[".*", {"type": "l2", "alpha": 0.1}]]}
    config = model_config(checkpoint, {"regularizer": penalty}, {})
    model = Model.from_params(Params(config), vocab=Vocabulary())
    with pytest.raises(ConfigurationError, match=r"regularizer needs whole.*weight_decay"):
        build_accelerator().wrap_model(model)


def test_a_parameter_that_is_one_number_is_refused(
    build_accelerator: Callable, checkpoint: Path
) -> None:
    config = model_config(checkpoint, {"loss": {"type": "nce", "learn_bias": True}}, NO_MLM)
    model = Model.from_params(Params(config), vocab=Vocabulary.empty())
    with pytest.raises(ConfigurationError, match=r"'_loss\.bias' is a single number .* learn_bias"):
        build_accelerator().wrap_model(model)


def test_a_torch_without_fully_shard_is_refused(
    build_accelerator: Callable[..., DdpAccelerator], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch.distributed.fsdp

    monkeypatch.delattr(torch.distributed.fsdp, "fully_shard")
    with pytest.raises(ConfigurationError, match=r"needs torch 2\.6 or newer, got 2"):
        build_accelerator().wrap_model(torch.nn.Linear(1, 1))  # type: ignore[arg-type]


def test_gradient_scaling_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"use_amp does not work.*precision computes"):
        ShardedModel(torch.nn.Linear(1, 1), 0, 2).init_grad_scaler()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"_moving_average": object()}, "moving_average does not work"),
        ({"optimizer": MultiOptimizer.__new__(MultiOptimizer)}, 'type "multi" does not work'),
        ({"_checkpointer": None}, 'give the trainer a checkpointer .of type "atomic"'),
        ({"_checkpointer": SimpleNamespace(_save_completed_epochs=False)}, "epochs on"),
    ],
)
def test_trainers_that_need_the_whole_model_are_refused(changes: dict, message: str) -> None:
    whole = {"_moving_average": None, "optimizer": None, "_serialization_dir": "somewhere"}
    whole["_checkpointer"] = SimpleNamespace(_save_completed_epochs=True)
    trainer = SimpleNamespace(**{**whole, **changes})
    with pytest.raises(ConfigurationError, match=message):
        ShardedModel(torch.nn.Linear(1, 1), 0, 2).attach(trainer)
