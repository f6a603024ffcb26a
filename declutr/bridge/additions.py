"""What AllenNLP is taught about this package: plugin, predictors' lines, trainer, sharded models.

Not cures of a version, but made in the same way and under the same switch. Each takes the module
right after it ran and returns whether it changed anything.
"""

import functools
import importlib
import os
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from declutr.bridge.repairs import replaces

# Modules of the rooms above, imported when AllenNLP first needs them.
PLUGIN = "declutr.plugin"
WEIGHT_DECAY = "declutr.training.weight_decay"


def own_plugin(module: ModuleType) -> bool:
    """Let `discover_plugins` find `declutr.plugin`, so that any `allennlp` command knows us.

    Can go when AllenNLP finds plugins by entry points.
    """

    @replaces(module)
    def discover_plugins(original: Any) -> Iterator[str]:
        listed = False
        for name in original():  # which imports it while there are other folders to look into
            listed = listed or name == PLUGIN
            yield name
        if not listed:
            yield PLUGIN

    return True


def blank_lines(module: ModuleType) -> bool:
    """Let `predict` pass blank lines to a predictor that has `keeps_blank_lines`: a row per line.

    A line ends with a line feed, as wherever files are read here, and not with a carriage return.

    Can go when AllenNLP lets a predictor decide.
    """

    @replaces(module._PredictManager)
    def _get_json_data(original: Any, self: Any) -> Iterator[Any]:
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

    return True


def one_draw_warning(module: ModuleType) -> bool:
    """Say so when this loader keeps the instances of a reader that wants to draw them anew.

    Can go when the loader asks the reader.
    """

    @replaces(module.MultiProcessDataLoader)
    def __init__(original: Any, self: Any, reader: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("max_instances_in_memory") is None and getattr(reader, "draws_anew", False):
            warnings.warn(
                "This data loader keeps every instance in memory, so spans are drawn once and are "
                'the same in every epoch. Set "type": "declutr" on the data_loader (or '
                "max_instances_in_memory) to draw fresh ones.",
                stacklevel=3,  # of who builds the loader
            )
        original(self, reader, *args, **kwargs)

    return True


def attached_models(module: ModuleType) -> bool:
    """Let a model, and what a `DdpAccelerator` wraps it in, meet its trainer by a method `attach`.

    A model of which each process holds a part (`declutr.training.sharding`) can only be written by
    all of them together, with the optimizer that the trainer holds; a momentum encoder moves after
    each step of that. Can go when AllenNLP asks the wrapped model for the state of a checkpoint.
    """

    @replaces(module.GradientDescentTrainer)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for part in (self._ddp_wrapped_model, self.model):
            attach = getattr(part, "attach", None)
            if attach is not None:
                attach(self)

    return True


def groups_by_module(module: ModuleType) -> bool:
    """Let `parameter_groups` of any optimizer name what weight decay spares by the type of its
    module (`declutr.training.weight_decay`).

    "multi" matches patterns itself before other optimizers see them. Can go when AllenNLP gives
    optimizers the model.
    """

    def resolved(groups: Any, model_parameters: Any) -> Any:
        return importlib.import_module(WEIGHT_DECAY).with_undecayed(groups, model_parameters)

    @replaces(module)
    def make_parameter_groups(original: Any, model_parameters: Any, groups: Any = None) -> Any:
        groups = resolved(groups, model_parameters) if groups else groups
        return original(model_parameters, groups)

    @replaces(module.MultiOptimizer)
    def __init__(
        original: Any, self: Any, model_parameters: Any, optimizers: Any, parameter_groups: Any
    ) -> None:
        groups = resolved(parameter_groups, model_parameters)
        original(self, model_parameters, optimizers, groups)

    return True


def optimized_models(module: ModuleType) -> bool:
    """Say which model a trainer, and so its optimizer, is being built for (`groups_by_module`).

    Can go with that.
    """
    cls = module.GradientDescentTrainer
    original = cls.from_partial_objects.__func__

    @functools.wraps(original)  # AllenNLP builds objects by the signature
    def from_partial_objects(cls: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        with importlib.import_module(WEIGHT_DECAY).optimizing(model):
            return original(cls, model, *args, **kwargs)

    cls.from_partial_objects = classmethod(from_partial_objects)
    return True


_SAME_TRAINERS = {"gradient_descent", "declutr"}
_OF_TRAINERS = {"type", "read_every"}  # in which they may differ


def moved_runs(module: ModuleType) -> bool:
    """Let `--recover` go on with as many processes elsewhere: other nodes, another port, sharded;
    and with the other trainer, AllenNLP's or "declutr", which do the same.

    AllenNLP refuses whatever differs from the configuration of the run, and a cluster gives a job
    that it starts again other nodes; recipes had AllenNLP's trainer before release 1.7. Can go when
    AllenNLP compares what is trained, not where and by whom.
    """

    @replaces(module)
    def create_serialization_dir(
        original: Any, params: Any, serialization_dir: Any, recover: bool, force: bool
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

    return True


def rates_of_the_same_trainer(module: ModuleType) -> bool:
    """Let `find-lr` take configurations with the trainer "declutr", whose loop it does not use.

    It refuses all but AllenNLP's by name. Can go when it looks at the class.
    """

    @replaces(module)
    def find_learning_rate_model(original: Any, params: Any, *args: Any, **kwargs: Any) -> None:
        trainer = params.params.get("trainer", {})
        if _type(trainer) == "declutr":
            own = {key: trainer[key] for key in trainer if key not in _OF_TRAINERS}
            params.params["trainer"] = own
        original(params, *args, **kwargs)

    return True


def _type(trainer: Any) -> str:
    return trainer.get("type", "gradient_descent")


def _processes(distributed: Any) -> int:
    return len(distributed.get("cuda_devices") or ()) * distributed.get("num_nodes", 1)
