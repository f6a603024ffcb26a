"""The callback "refresh_clusters": when clusters are made, of what, and after a resume."""

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

from declutr.inference.encoder import Encoder
from declutr.objectives.without_negatives.k_means import k_means, principal_components
from declutr.training import cluster_callback
from declutr.training.checkpointer import AtomicCheckpointer
from declutr.training.cluster_callback import RefreshClusters
from tests.conftest import make_documents, run_config, table_config
from tests.training.test_exact_resume import differences

pytestmark = pytest.mark.slow

EPOCHS, TEXTS = 3, 24


@pytest.fixture
def config(table: Path, tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "sentences.txt"
    file.write_text("\n".join(["", *make_documents(TEXTS, 6, seed=2)]) + "\n")
    config = table_config(table, file)
    reader = config["dataset_reader"]
    kept = {key: reader[key] for key in ("tokenizer", "token_indexers")}
    config["dataset_reader"] = {"type": "sentences", "with_ids": True, **kept}
    loss = {"type": "deep_cluster", "instances": 30, "embedding_size": 32, "clusters": 4}
    config["model"] |= {"feedforward": None, "loss": loss}
    refresh = {"type": "refresh_clusters", "dimension": 8, "batch_size": 10}
    config["trainer"] |= {
        "type": "declutr",
        "num_epochs": EPOCHS,
        "callbacks": [{"type": "exact_resume"}, refresh],
        "checkpointer": {"type": "atomic", "keep_most_recent_by_count": 10},
    }
    return config


def trained(config: dict[str, Any], folder: Path, **options: Any) -> Any:
    return train_model(Params(copy.deepcopy(config)), str(folder), **options)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """What every refresh clusters, as it is embedded."""
    embeddings: list[torch.Tensor] = []

    def components(rows: torch.Tensor, dimension: int) -> torch.Tensor:
        embeddings.append(rows)
        return principal_components(rows, dimension)

    monkeypatch.setattr(cluster_callback, "principal_components", components)
    return embeddings


def test_all_texts_are_clustered_before_every_epoch(
    config: dict[str, Any], tmp_path: Path, seen: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters: list[torch.Tensor] = []

    def found(*arguments: Any) -> torch.Tensor:
        clusters.append(k_means(*arguments))
        return clusters[-1]

    monkeypatch.setattr(cluster_callback, "k_means", found)
    model = trained(config, tmp_path / "run")
    assert len(seen) == EPOCHS and not torch.equal(seen[0], seen[1])
    assert model._loss.assignments[1:25].tolist() == clusters[-1].tolist()  # row 0 is blank
    # With a rate of 0 the last refresh has seen what the archive gives.
    texts = (tmp_path / "sentences.txt").read_text().splitlines()[1:]
    still = copy.deepcopy(config)
    still["trainer"] |= {"num_epochs": 2, "optimizer": {"type": "sgd", "lr": 0.0}}
    trained(still, tmp_path / "still")
    rows = Encoder(tmp_path / "still", dtype="float32")(texts)
    assert rows.shape == (TEXTS, 32) and torch.equal(seen[-1], seen[0])
    assert torch.allclose(seen[-1], torch.from_numpy(rows), atol=1e-5)


def test_a_run_that_is_killed_between_epochs_goes_on_with_the_same_clusters(
    config: dict[str, Any], tmp_path: Path, seen: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    save = AtomicCheckpointer.save_checkpoint

    def saved(checkpointer: AtomicCheckpointer, trainer: Any) -> None:
        save(checkpointer, trainer)
        if trainer._total_batches_completed == 3 and not killed.exists():
            shutil.copytree(whole, killed)

    with monkeypatch.context() as patched:
        patched.setattr(AtomicCheckpointer, "save_checkpoint", saved)
        trained(config, whole)
    trained(config, killed, recover=True)
    # The checkpoint of an epoch already has the clusters of the next one.
    assert len(seen) == EPOCHS + 1 and torch.equal(seen[2], seen[3])
    last = f"model_state_e{EPOCHS}_b0.th"
    states = [torch.load(run / last, weights_only=True) for run in (whole, killed)]
    assert differences(*states) == []


def test_the_classifier_begins_anew_in_every_optimizer(
    config: dict[str, Any], tmp_path: Path
) -> None:
    """The optimizer "multi" with two equal parts trains as one of them alone."""
    config["trainer"]["optimizer"] = alone = {"type": "adamw", "lr": 0.01}
    plain = trained(config, tmp_path / "plain").state_dict()
    parts = {"optimizers": {"default": alone, "classifier": alone}}
    groups = [[["classifier"], {"optimizer_name": "classifier"}]]
    config["trainer"]["optimizer"] = {"type": "multi", **parts, "parameter_groups": groups}
    assert differences(trained(config, tmp_path / "several").state_dict(), plain) == []


@pytest.mark.long
def test_clusters_can_last_for_several_epochs(
    config: dict[str, Any], tmp_path: Path, seen: list
) -> None:
    config["trainer"]["callbacks"][1]["every_num_epochs"] = 2
    trained(config, tmp_path / "run")
    assert len(seen) == 2  # before epochs 0 and 2


@pytest.mark.long
def test_two_processes_have_the_clusters_of_one(
    config: dict[str, Any], checkpoint: Path, tmp_path: Path
) -> None:
    """An epoch of other clusters would end with other weights."""
    embedder = run_config(checkpoint, tmp_path)["model"]["text_field_embedder"]
    without = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    embedder["token_embedders"]["tokens"] |= {
        "masked_language_modeling": False,
        "transformer_kwargs": without,
    }
    config["model"]["text_field_embedder"] = embedder
    config["trainer"]["optimizer"] = {"type": "sgd", "lr": 0.1}
    one = trained(config, tmp_path / "one")
    two = copy.deepcopy(config)
    two["trainer"].pop("cuda_device")
    two["distributed"] = {"cuda_devices": [-1, -1]}
    two["data_loader"]["batch_size"] //= 2
    trained(two, tmp_path / "two")
    state = torch.load(tmp_path / "two" / "best.th", weights_only=True)
    assert torch.equal(state["_loss.assignments"], one.state_dict()["_loss.assignments"])
    for name, value in one.state_dict().items():
        assert torch.allclose(state[name].float(), value.float(), atol=1e-4), name


def test_what_is_refused(config: dict[str, Any], tmp_path: Path) -> None:
    def refused(name: str, message: str, **changes: Any) -> None:
        changed = copy.deepcopy(config)
        changed["model"] |= changes.pop("model", {})
        changed["trainer"] |= changes
        with pytest.raises(ConfigurationError, match=message):
            trained(changed, tmp_path / name)

    refused("without", "DeepCluster needs clusters.*refresh_clusters.*callbacks", callbacks=[])
    many = {**config["model"]["loss"], "clusters": 25}
    refused("many", "24 texts for 25 clusters: set model.loss.clusters", model={"loss": many})
    other = {"loss": {"type": "nt_xent"}, "views": "dropout"}
    refused("other", "for one objective deep_cluster, and the model has 0", model=other)
    with pytest.raises(ConfigurationError, match="iterations must be at least 1, got 0"):
        RefreshClusters("", iterations=0)
