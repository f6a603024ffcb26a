"""The TrainerCallback "refresh_clusters", which clusters all texts for DeepCluster."""

import logging
from typing import Any, Optional

import numpy as np
import torch
from allennlp.common import Tqdm
from allennlp.common.checks import ConfigurationError
from allennlp.nn.util import move_to_device
from allennlp.training import GradientDescentTrainer, TrainerCallback
from allennlp.training.optimizers import MultiOptimizer

from declutr.data.batch_workers import Batches
from declutr.data.collation import PackedBatch
from declutr.data.data_loader import DeCLUTRDataLoader
from declutr.models.trainer_data import require_enough_texts
from declutr.objectives import DeepCluster
from declutr.objectives.without_negatives.k_means import k_means, principal_components
from declutr.system.distributed import is_sharded, of_all_processes, process_rank, world_size
from declutr.training.model_in_training import undisturbed

logger = logging.getLogger(__name__)


@TrainerCallback.register("refresh_clusters")
class RefreshClusters(TrainerCallback):
    """A callback that gives the objective `deep_cluster` its clusters, anew for every epoch.

    Before the first epoch and after each but the last, all texts of the training data are embedded
    in evaluation mode. The whitened principal components of the embeddings are clustered by k-means
    (Caron et al., 2018, sections 3.3 and 4.1), and the classifier and what the optimizer knows
    about it begin anew. Several processes share the embedding; the first one clusters for all.

    Clusters depend on the weights, the seed and the epoch, and no random numbers of training are
    used up. So a resumed run goes on with the clusters of its checkpoint, or makes the same ones.

    # Parameters

    serialization_dir : the serialization directory, which AllenNLP passes.
    every_num_epochs : the number of epochs between two refreshes.
    dimension : the number of principal components, or the width of embeddings if that is less.
    iterations : the iterations of k-means.
    batch_size : the texts that are embedded at a time.
    seed : the seed of k-means and of new classifiers.

    # Raises

    `ConfigurationError` : a number is below 1, or, before the first step, the model has no
        objective `deep_cluster` or is sharded, the data loader is not "declutr", or there are fewer
        texts than clusters.
    """

    looks_at_metrics = False
    assigns_clusters = True

    def __init__(
        self,
        serialization_dir: str,
        every_num_epochs: int = 1,
        dimension: int = 256,
        iterations: int = 20,
        batch_size: int = 64,
        seed: int = 13370,
    ) -> None:
        super().__init__(serialization_dir)
        numbers = {
            "every_num_epochs": every_num_epochs,
            "dimension": dimension,
            "iterations": iterations,
            "batch_size": batch_size,
        }
        for name, value in numbers.items():
            if value < 1:
                raise ConfigurationError(f"{name} must be at least 1, got {value}.")
        self._every, self._dimension, self._iterations = every_num_epochs, dimension, iterations
        self._batch_size, self._seed = batch_size, seed
        self._epoch: Optional[int] = None  # the epoch that the clusters were made for

    def on_start(self, trainer: GradientDescentTrainer, *args: Any, **kwargs: Any) -> None:
        super().on_start(trainer, *args, **kwargs)
        self._refresh_for(trainer, trainer._start_after_epochs_completed)

    def on_epoch(
        self, trainer: GradientDescentTrainer, metrics: Any, epoch: int, *args: Any, **kwargs: Any
    ) -> None:
        if epoch + 1 < trainer._num_epochs:
            self._refresh_for(trainer, epoch + 1)

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self._epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._epoch = state_dict["epoch"]

    def _refresh_for(self, trainer: GradientDescentTrainer, epoch: int) -> None:
        """Make clusters for an epoch, unless there are those that it takes."""
        objective = _objective_of(trainer)
        epoch -= epoch % self._every
        if epoch == self._epoch or epoch >= trainer._num_epochs:
            return
        rows, embeddings = self._embedded(trainer)
        require_enough_texts(objective, len(rows))
        seed = np.random.SeedSequence([self._seed, epoch]).generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(seed[0]))
        clusters = None
        if process_rank() == 0:
            prepared = principal_components(embeddings.to(trainer.cuda_device), self._dimension)
            found = k_means(prepared, objective.clusters, generator, self._iterations)
            clusters = found.cpu(), generator.get_state()
        clusters, state = of_all_processes(clusters)[0]
        generator.set_state(state)
        objective.assign(rows, clusters, generator)
        whole = trainer.optimizer
        for optimizer in (
            whole.optimizers.values() if isinstance(whole, MultiOptimizer) else (whole,)
        ):
            for parameter in objective.classifier.parameters():
                optimizer.state.pop(parameter, None)
        self._epoch = epoch
        if trainer._primary:
            sizes = clusters.bincount(minlength=objective.clusters)
            logger.info(
                f"Epoch {epoch}: {len(rows):,} texts in {(sizes > 0).sum():,} clusters of "
                f"{sizes[sizes > 0].min():,} to {sizes.max():,}."
            )

    @torch.no_grad()
    def _embedded(self, trainer: GradientDescentTrainer) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the rows `(M,)` of all texts, and their embeddings `(M, d)` in float32."""
        loader: Any = trainer.data_loader
        own = np.array_split(loader.documents, world_size())[process_rank()]
        batches = Batches(loader.reader, loader.data_path, trainer.model.vocab)
        starts = range(0, len(own), self._batch_size)
        shown = Tqdm.tqdm(starts, "embedding for clusters") if trainer._primary else starts
        parts = []
        with undisturbed(trainer.model, trainer.cuda_device, self._seed), torch.no_grad():
            for start in shown:
                batch = batches[0, own[start : start + self._batch_size]]
                tensors: Any = batch.tensors() if isinstance(batch, PackedBatch) else batch
                anchors = move_to_device(tensors["anchors"], trainer.cuda_device)
                parts.append(trainer.model(anchors=anchors)["embeddings"].float().cpu())
        rows, embeddings = zip(
            *of_all_processes((torch.from_numpy(own), torch.cat(parts))), strict=True
        )
        return torch.cat(rows), torch.cat(embeddings)


def _objective_of(trainer: GradientDescentTrainer) -> DeepCluster:
    """Return the objective, after what it takes is checked."""
    found = [part for part in trainer.model.modules() if isinstance(part, DeepCluster)]
    if len(found) != 1:
        raise ConfigurationError(
            f"refresh_clusters is for one objective deep_cluster, and the model has {len(found)}."
        )
    if is_sharded(trainer.model):
        raise ConfigurationError(
            "refresh_clusters needs the whole model in each process: train without an accelerator "
            "that shards."
        )
    if not isinstance(trainer.data_loader, DeCLUTRDataLoader):
        raise ConfigurationError('refresh_clusters reads the rows of the data loader "declutr".')
    return found[0]
