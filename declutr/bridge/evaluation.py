"""Repairs of validation and tests, of whose data AllenNLP may score or report a part alone."""

import contextlib
import inspect
import json
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath
from types import ModuleType, SimpleNamespace
from typing import Any

from declutr.bridge.repairs import replaces

logger = logging.getLogger(__name__)

_NO_BATCHES = (
    "The {} data give no batches (with several processes, one of them none), so that there would "
    "be {}. Give more of them, or set drop_last to false in the {}."
)
_NO_TRAINING = _NO_BATCHES.format("training", "no step", "data_loader")
_NO_VALIDATION = _NO_BATCHES.format("validation", "no validation loss", "validation_data_loader")
_ORDERS = ("shuffle", "_shuffle")  # settings of data loaders; the second one of "multitask"
_OF_TRAINING = {"batches_per_epoch": None, "drop_last": False, "_instances_per_epoch": None}


def whole_data(module: ModuleType) -> None:
    """Let `evaluate` read all data where the settings of the data loader are those of training.

    With `batches_per_epoch`, AllenNLP scores that many batches of the test data, and some of them
    twice if there are fewer; with `instances_per_epoch` of the loader "multitask", that many
    instances. With `drop_last` it leaves out the last batch. Can be removed when the command leaves
    out these settings.
    """
    loaders = module.DataLoader

    def from_params(*args: Any, **kwargs: Any) -> Any:
        return _read_wholly(loaders.from_params(*args, **kwargs))

    module.DataLoader = SimpleNamespace(from_params=from_params)  # type: ignore[attr-defined]


def metrics_of_files(module: ModuleType) -> None:
    """Let `evaluate` return the metrics of files of one name, such as a/dev.jsonl and b/dev.jsonl.

    AllenNLP puts the name without its ending before the names of metrics, so those of the last file
    replaced the others. Such files get as many of their folders as it takes to tell them apart
    (`a/dev.jsonl_accuracy`). Can be removed when AllenNLP tells them apart.
    """

    @replaces(module)
    def evaluate_from_archive(
        original: Any, archive_file: Any, input_file: str, *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        evaluators, found = module.Evaluator, []

        def from_params(*args: Any, **kwargs: Any) -> Any:
            evaluator = evaluators.from_params(*args, **kwargs)

            def evaluate(*args: Any, **kwargs: Any) -> Any:
                found.append(evaluator(*args, **kwargs))
                return found[-1]

            return evaluate

        module.Evaluator = SimpleNamespace(from_params=from_params)  # type: ignore[attr-defined]
        try:
            metrics = original(archive_file, input_file, *args, **kwargs)
        finally:
            module.Evaluator = evaluators  # type: ignore[attr-defined]
        if len(found) < 2:
            return metrics
        names = _names(input_file)
        return {
            f"{name}_{key}": value
            for name, of_file in zip(names, found, strict=True)
            for key, value in of_file.items()
        }


def predictions_in_order(module: ModuleType) -> None:
    """Let predictions that an evaluation writes have the order of the data.

    The data loader is mostly that of training, which shuffles, or sorts by length (the sampler
    "bucket"), or has workers with batches of their own, and nothing in a line of predictions says
    which row it is of. Can be removed when the evaluator, or `evaluate`, puts the loader in order.
    """

    @replaces(module.SimpleEvaluator)
    def __call__(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        call = inspect.signature(original).bind(self, *args, **kwargs)
        if call.arguments.get("predictions_output_file") is None:
            return original(*call.args, **call.kwargs)
        with _in_order(call.arguments["data_loader"]):
            return original(*call.args, **call.kwargs)


@contextlib.contextmanager
def _in_order(loader: Any) -> Iterator[None]:
    """Let a data loader read its data in order within this context."""
    changes: dict[str, Any] = {name: False for name in _ORDERS if getattr(loader, name, False)}
    if (sampler := getattr(loader, "batch_sampler", None)) is not None:
        size = sampler.get_batch_size()
        if size is None or size < 1:  # "max_tokens_sampler" has -1
            logger.warning(f"Predictions are in the order of {type(sampler).__name__}.")
        else:
            changes |= {"batch_sampler": None, "batch_size": size}
    if getattr(loader, "num_workers", False):
        # Each worker may make batches of its own share of the rows, and has a vocabulary of its
        # own, which an indexer of word pieces completes.
        changes["num_workers"] = 0
    before = {name: getattr(loader, name) for name in changes}
    vars(loader).update(changes)
    try:
        yield
    finally:
        vars(loader).update(before)


def _names(input_file: str) -> list[str]:
    """Return the names of the files that `evaluate` is given, each other than the others'."""
    try:
        files = json.loads(f"[{input_file}]")
    except json.JSONDecodeError:
        files = input_file.split(",")
    # What is given as an object has its number for a name.
    paths = [PurePath(str(n) if not isinstance(f, str) else f) for n, f in enumerate(files)]
    times = Counter(path.stem for path in set(paths))
    for parts in range(1, 1 + max(len(path.parts) for path in paths)):
        names = [p.stem if times[p.stem] == 1 else str(PurePath(*p.parts[-parts:])) for p in paths]
        if len(set(names)) == len(set(paths)):
            return names
    return list(map(str, paths))


def whole_test(module: ModuleType) -> None:
    """Let `evaluate_on_test` read all test data, and refuse it for several processes.

    See `whole_data`. Of several processes, the first one would score its share of the test data
    alone, or wait for the others until it fails. Can be removed when AllenNLP evaluates after the
    processes have ended.
    """

    @replaces(module.TrainModel)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if self.evaluation_data_loader is not None:
            _read_wholly(self.evaluation_data_loader)

    @replaces(module)
    def train_model(original: Any, params: Any, *args: Any, **kwargs: Any) -> Any:
        distributed = params.params.get("distributed") or {}
        devices, nodes = distributed.get("cuda_devices") or (), distributed.get("num_nodes") or 1
        if params.params.get("evaluate_on_test") and (len(devices) > 1 or int(nodes) > 1):
            raise module.ConfigurationError(
                "evaluate_on_test scores the test data of the first process alone where there are "
                "several. Leave it out, and run `allennlp evaluate ARCHIVE TEST_DATA` afterwards."
            )
        trainer = params.params.get("trainer")  # its settings, or its type alone
        if isinstance(trainer, dict) and trainer.get("num_epochs") == 0:
            raise module.ConfigurationError(
                "num_epochs is 0, so that there would be no weights to archive. Expected at least "
                'one epoch; the trainer "no_op" ({"trainer": {"type": "no_op"}}) archives a model '
                "as it begins."
            )
        return original(params, *args, **kwargs)


def some_batches(module: ModuleType) -> None:
    """Let a trainer refuse validation data without a batch, and a run without a step.

    The validation loss would be 0 in every epoch, so that the first one stayed the best, and the
    archive would hold the weights of the start. A loader that reads anew in each epoch does not
    know before how many batches it gives; of several processes, the one with the fewest ends the
    epoch for all. Can be removed when AllenNLP's trainer counts what it was given.
    """

    @replaces(module.GradientDescentTrainer)
    def _validation_loss(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        callbacks = self._callbacks
        batches: list[bool] = []

        def on_batch(*args: Any, **kwargs: Any) -> None:
            batches[:] = [True]

        self._callbacks = [*callbacks, SimpleNamespace(on_batch=on_batch)]
        try:
            found = original(self, *args, **kwargs)
        finally:
            self._callbacks = callbacks
        if not batches:
            raise module.ConfigurationError(_NO_VALIDATION)
        if not found[2] and ("loss" in {name for _, name in self._metric_tracker.tracked_metrics}):
            logger.warning(
                "The model gives no loss for the validation data, so that it counts as 0 in every "
                "epoch, and the first one stays the best. Set the trainer's validation_metric."
            )
        return found

    @replaces(module.GradientDescentTrainer)
    def _try_train(original: Any, self: Any) -> Any:
        result = original(self)
        if self._num_epochs and not self._total_batches_completed:
            raise module.ConfigurationError(_NO_TRAINING)
        return result


def whole_validation(module: ModuleType) -> None:
    """Let `train` read all validation data by a data loader of training, and refuse none at all.

    With `drop_last`, AllenNLP leaves out the rows that do not fill a batch, with
    `instances_per_epoch` it takes other instances in each epoch, and if there is no batch, the loss
    is 0. What a `validation_data_loader` says is left alone, and so is `batches_per_epoch`, of
    which AllenNLP warns itself. Can be removed when AllenNLP leaves out these settings.
    """
    from allennlp.nn.util import dist_reduce_sum

    @replaces(module.TrainModel)
    def from_partial_objects(original: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
        run = original(cls, *args, **kwargs)
        loader = getattr(run.trainer, "_validation_data_loader", None)
        if loader is not None and kwargs.get("validation_data_loader") is None:
            _read_wholly(loader, but=("batches_per_epoch",))
        of_training = getattr(run.trainer, "data_loader", None)
        for one, message in ((of_training, _NO_TRAINING), (loader, _NO_VALIDATION)):
            # The process with the fewest batches ends the epoch for all.
            if one is not None and dist_reduce_sum(int(_is_empty(one))):
                raise module.ConfigurationError(message)
        return run


def given_data(module: ModuleType) -> None:
    """Let null be no validation and test data where a vocabulary is made, as where a run is built.

    Several processes, and `build-vocab`, ended in an error of the reader's, with AllenNLP's loader.
    Can be removed when `data_loaders_from_params` asks whether there is a path.
    """

    @replaces(module)
    def data_loaders_from_params(original: Any, params: Any, *args: Any, **kwargs: Any) -> Any:
        for key in ("validation_data_path", "test_data_path"):
            if params.params.get(key, "") is None:
                del params.params[key]
        return original(params, *args, **kwargs)


def _is_empty(loader: Any) -> bool:
    """Return whether a data loader has no batches; False if it does not know their number."""
    try:
        return len(loader) == 0
    except (TypeError, NotImplementedError):  # it reads its data in every epoch
        return False


def _read_wholly(loader: Any, but: tuple[str, ...] = ()) -> Any:
    """Take from a data loader, and from its sampler, the settings that leave out data.

    # Parameters

    loader : any data loader.
    but : names of settings to keep.
    """
    parts = (loader, *(getattr(loader, part, None) for part in ("batch_sampler", "scheduler")))
    for part in parts:
        for name, whole in _OF_TRAINING.items():
            if name not in but and getattr(part, name, whole) != whole:
                told = name.removeprefix("_")
                logger.info("%s is for training: all data are evaluated.", told)
                setattr(part, name, whole)
    return loader
