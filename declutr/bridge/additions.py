"""What AllenNLP is taught about this package: plugin, predictors' lines, archives, sharded models.

Not cures of a version, but made in the same way and under the same switch. Each takes the module
right after it ran and returns whether it changed anything.
"""

import contextlib
import functools
import importlib
import importlib.util
import inspect
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

PLUGIN = "declutr.plugin"
ARCHIVES = "declutr.archives.carried"
SAFE_ARCHIVES = "declutr.archives.safety"
TRAINING = "declutr.training"
WEIGHT_DECAY = "declutr.training.weight_decay"


def own_plugin(module: ModuleType) -> bool:
    """Let `discover_plugins` find `declutr.plugin`, so that any `allennlp` command knows us.

    Can go when AllenNLP finds plugins by entry points.
    """
    if not _can_be_found(PLUGIN):
        return False
    original = module.discover_plugins

    @functools.wraps(original)
    def discover_plugins() -> Iterator[str]:
        listed = False
        for name in original():
            listed = listed or name == PLUGIN
            yield name
        if not listed:
            yield PLUGIN

    module.discover_plugins = discover_plugins  # type: ignore[attr-defined]
    return True


def blank_lines(module: ModuleType) -> bool:
    """Let `predict` pass blank lines to a predictor that has `keeps_blank_lines`: a row per line.

    A line ends with a line feed, as wherever files are read here, and not with a carriage return.

    Can go when AllenNLP lets a predictor decide.
    """
    cls = module._PredictManager
    original = cls._get_json_data

    @functools.wraps(original)
    def _get_json_data(self: Any) -> Iterator[Any]:
        if not getattr(self._predictor, "keeps_blank_lines", False):
            yield from original(self)
        elif self._input_file == "-":
            if hasattr(module.sys.stdin, "reconfigure"):
                module.sys.stdin.reconfigure(newline="\n")
            yield from map(self._predictor.load_line, module.sys.stdin)
        else:
            file = module.cached_path(self._input_file)
            with module.open_compressed(file, newline="\n") as lines:
                yield from map(self._predictor.load_line, lines)

    cls._get_json_data = _get_json_data
    return True


def one_draw_warning(module: ModuleType) -> bool:
    """Say so when this loader keeps the instances of a reader that wants to draw them anew.

    Can go when the loader asks the reader.
    """
    cls = module.MultiProcessDataLoader
    original = cls.__init__

    @functools.wraps(original)
    def __init__(self: Any, reader: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("max_instances_in_memory") is None and getattr(reader, "draws_anew", False):
            warnings.warn(
                "This data loader keeps every instance in memory, so spans are drawn once and are "
                'the same in every epoch. Set "type": "declutr" on the data_loader (or '
                "max_instances_in_memory) to draw fresh ones.",
                stacklevel=2,
            )
        original(self, reader, *args, **kwargs)

    cls.__init__ = __init__
    return True


def archived_transformers(module: ModuleType) -> bool:
    """Let archives carry the files of their transformer and load with them
    (`declutr.archives.carried`), and never be made of damaged weights.

    Can go when AllenNLP archives the files that a model's parts are built from.
    """
    load_readers, load_model = module._load_dataset_readers, module._load_model

    @functools.wraps(load_readers)
    def _load_dataset_readers(config: Any, serialization_dir: str) -> Any:
        return load_readers(_use_archived(config, serialization_dir), serialization_dir)

    @functools.wraps(load_model)
    def _load_model(
        config: Any, weights_path: Any, serialization_dir: str, cuda_device: int
    ) -> Any:
        config = _use_archived(config, serialization_dir)
        return load_model(config, weights_path, serialization_dir, cuda_device)

    archive = module.archive_model
    signature = inspect.signature(archive)

    @functools.wraps(archive)
    def archive_model(*args: Any, **kwargs: Any) -> str:
        arguments = signature.bind(*args, **kwargs).arguments
        weights = arguments.get("weights", module._DEFAULT_WEIGHTS)
        _require_whole(os.path.join(arguments["serialization_dir"], weights))
        carried = _archive(arguments["serialization_dir"])
        if carried:
            included = arguments.get("include_in_archive") or []
            arguments["include_in_archive"] = [*included, *carried]
        return archive(**arguments)

    module._load_dataset_readers = _load_dataset_readers  # type: ignore[attr-defined]
    module._load_model = _load_model  # type: ignore[attr-defined]
    module.archive_model = archive_model  # type: ignore[attr-defined]
    return True


def checked_extraction(module: ModuleType) -> bool:
    """Extract archives by the rules of `declutr.archives.safety`: nothing outside a fresh folder.

    AllenNLP extracts whatever members there are: `../`, links, devices. Can go when it gives
    tarfile a filter and has a limit.
    """
    if not _can_be_found(SAFE_ARCHIVES):
        return False

    @contextlib.contextmanager
    def extracted_archive(resolved_archive_file: Any, cleanup: bool = True) -> Iterator[str]:
        extract = importlib.import_module(SAFE_ARCHIVES).extract
        folder = tempfile.mkdtemp()
        try:
            extract(Path(resolved_archive_file), Path(folder))
        except BaseException:  # AllenNLP does not know the folder yet
            shutil.rmtree(folder, ignore_errors=True)
            raise
        try:
            yield folder
        finally:
            if cleanup:
                shutil.rmtree(folder, ignore_errors=True)

    module.extracted_archive = extracted_archive  # type: ignore[attr-defined]
    return True


def attached_models(module: ModuleType) -> bool:
    """Let a model, and what a `DdpAccelerator` wraps it in, meet its trainer by a method `attach`.

    A model of which each process holds a part (`declutr.training.sharding`) can only be written by
    all of them together, with the optimizer that the trainer holds; a momentum encoder moves after
    each step of that. Can go when AllenNLP asks the wrapped model for the state of a checkpoint.
    """
    cls = module.GradientDescentTrainer
    original = cls.__init__

    @functools.wraps(original)  # AllenNLP builds objects by the signature
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for part in (self._ddp_wrapped_model, self.model):
            attach = getattr(part, "attach", None)
            if attach is not None:
                attach(self)

    cls.__init__ = __init__
    return True


def groups_by_module(module: ModuleType) -> bool:
    """Let `parameter_groups` of any optimizer name what weight decay spares by the type of its
    module (`declutr.training.weight_decay`).

    "multi" matches patterns itself before other optimizers see them. Can go when AllenNLP gives
    optimizers the model.
    """
    if not _can_be_found(TRAINING):
        return False
    original, multi = module.make_parameter_groups, module.MultiOptimizer
    build = multi.__init__

    def resolved(groups: Any, model_parameters: Any) -> Any:
        return importlib.import_module(WEIGHT_DECAY).with_undecayed(groups, model_parameters)

    @functools.wraps(original)
    def make_parameter_groups(model_parameters: Any, groups: Any = None) -> Any:
        groups = resolved(groups, model_parameters) if groups else groups
        return original(model_parameters, groups)

    @functools.wraps(build)  # AllenNLP builds objects by the signature
    def __init__(self: Any, model_parameters: Any, optimizers: Any, parameter_groups: Any) -> None:
        build(self, model_parameters, optimizers, resolved(parameter_groups, model_parameters))

    module.make_parameter_groups = make_parameter_groups  # type: ignore[attr-defined]
    multi.__init__ = __init__
    return True


def optimized_models(module: ModuleType) -> bool:
    """Say which model a trainer, and so its optimizer, is being built for (`groups_by_module`).

    Can go with that.
    """
    if not _can_be_found(TRAINING):
        return False
    cls = module.GradientDescentTrainer
    original = cls.from_partial_objects.__func__

    @functools.wraps(original)  # AllenNLP builds objects by the signature
    def from_partial_objects(cls: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        with importlib.import_module(WEIGHT_DECAY).optimizing(model):
            return original(cls, model, *args, **kwargs)

    cls.from_partial_objects = classmethod(from_partial_objects)
    return True


def moved_runs(module: ModuleType) -> bool:
    """Let `--recover` go on with as many processes elsewhere: other nodes, another port, sharded;
    and with the other trainer, AllenNLP's or "declutr", which do the same.

    AllenNLP refuses whatever differs from the configuration of the run, and a cluster gives a job
    that it starts again other nodes; recipes had AllenNLP's trainer before release 1.7. Can go when
    AllenNLP compares what is trained, not where and by whom.
    """
    original = module.create_serialization_dir

    @functools.wraps(original)
    def create_serialization_dir(
        params: Any, serialization_dir: Any, recover: bool, force: bool
    ) -> None:
        config = os.path.join(serialization_dir, "config.json")
        if recover and os.path.isfile(config):
            begun, params = module.Params.from_file(config).params, params.duplicate()
            now, before = params.params.get("distributed"), begun.get("distributed")
            if now and before and _processes(now) == _processes(before):
                params.params["distributed"] = before
            trainer, before = params.params.get("trainer"), begun.get("trainer")
            if trainer and before and {_type(trainer), _type(before)} <= _SAME_TRAINERS:
                own = {key: trainer[key] for key in trainer.keys() - _OF_TRAINERS}
                own |= {key: before[key] for key in before.keys() & _OF_TRAINERS}
                params.params["trainer"] = own
        original(params, serialization_dir, recover, force)

    module.create_serialization_dir = create_serialization_dir  # type: ignore[attr-defined]
    return True


def rates_of_the_same_trainer(module: ModuleType) -> bool:
    """Let `find-lr` take configurations with the trainer "declutr", whose loop it does not use.

    It refuses all but AllenNLP's by name. Can go when it looks at the class.
    """
    original = module.find_learning_rate_model

    @functools.wraps(original)
    def find_learning_rate_model(params: Any, *args: Any, **kwargs: Any) -> None:
        trainer = params.params.get("trainer", {})
        if _type(trainer) == "declutr":
            params.params["trainer"] = {
                key: value for key, value in trainer.items() if key not in _OF_TRAINERS
            }
        original(params, *args, **kwargs)

    module.find_learning_rate_model = find_learning_rate_model  # type: ignore[attr-defined]
    return True


_SAME_TRAINERS = {"gradient_descent", "declutr"}
_OF_TRAINERS = {"type", "read_every"}  # in which they may differ


def _type(trainer: Any) -> str:
    return trainer.get("type", "gradient_descent")


def _processes(distributed: Any) -> int:
    return len(distributed.get("cuda_devices") or ()) * distributed.get("num_nodes", 1)


def _archive(serialization_dir: Any) -> list[str]:
    if not _can_be_found(ARCHIVES):
        return []
    return importlib.import_module(ARCHIVES).archive_transformer(str(serialization_dir))


def _require_whole(weights: str) -> None:
    if _can_be_found(ARCHIVES):
        importlib.import_module(ARCHIVES).require_whole_weights(weights)


def _use_archived(config: Any, serialization_dir: Any) -> Any:
    if not _can_be_found(ARCHIVES):
        return config
    archives = importlib.import_module(ARCHIVES)
    return archives.use_archived_transformer(config, str(serialization_dir))


def _can_be_found(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its package is not there
        return False
