"""Additions to AllenNLP for this package: its names, blank lines, its trainer and sharded models.

They do not work around a change of a library, but are applied in the same way and switched off
together with the bridge. Each function takes a module of AllenNLP right after its body ran.
"""

import collections.abc
import importlib
import inspect
import itertools
import json
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from declutr.bridge.own_names import as_before
from declutr.bridge.registry import extend, own_name
from declutr.bridge.repairs import NEAREST, replaces

logger = logging.getLogger(__name__)

# Modules of packages that build on the bridge, so they are imported only when AllenNLP needs them.
PLUGIN = "declutr.plugin"


def own_plugin(module: ModuleType) -> None:
    """Let `discover_plugins` make the names of this package known to any `allennlp` command.

    Nothing of this package is imported before a class of it is looked up, and then `declutr.plugin`
    first. Can be removed when AllenNLP finds plugins by entry points and imports them on demand.
    """

    @replaces(module)
    def discover_plugins(original: Any) -> Iterator[str]:
        extend(before_use=PLUGIN)
        for name in original():  # imports each plugin while its folder is on the path
            if name != PLUGIN:
                yield name


def blank_lines(module: ModuleType) -> None:
    """Let `predict` pass blank lines to a predictor that sets `keeps_blank_lines`.

    Such a predictor then gives one row per line. A line ends with a line feed, as everywhere in
    this package, and not with a carriage return.

    Can be removed when AllenNLP lets a predictor decide.
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


def nearest_keys(module: ModuleType) -> None:
    """Let the error of a configuration's wrong key name the nearest right one, and what there is.

    AllenNLP names the wrong keys alone ("Extra parameters passed to ..."). Can be removed when it
    names the keys that a class takes.
    """

    @replaces(module)
    def create_kwargs(
        original: Any, constructor: Any, cls: Any, params: Any, **extras: Any
    ) -> dict[str, Any]:
        try:
            return original(constructor, cls, params, **extras)
        except module.ConfigurationError as error:
            begin = f"Extra parameters passed to {cls.__name__}: "
            if not str(error).startswith(begin) or getattr(error, "names_keys", False):
                raise
            taken = module.infer_params(cls, constructor).keys() - extras.keys() - {"self", "cls"}
            told = importlib.import_module(NEAREST).of_wrong_keys(params.params, sorted(taken))
            named = module.ConfigurationError(f"{error}. {told}")
            named.names_keys = True  # the same class may be built of another one of its kind
            raise named from None


_LISTS = (list, tuple, set, collections.abc.Iterable)


def whole_lists(module: ModuleType) -> None:
    """Refuse a text or a number where AllenNLP makes a list of what is given.

    A text was the list of its letters: `"no_grad": "bias"` froze all that has a b, i, a or s in its
    name. Can be removed when `construct_arg` asks for a list.
    """

    @replaces(module)
    def construct_arg(
        original: Any,
        class_name: Any,
        argument_name: str,
        popped_params: Any,
        annotation: Any,
        default: Any,
        **extras: Any,
    ) -> Any:
        single = isinstance(popped_params, (str, int, float)) and popped_params is not default
        parts = getattr(annotation, "__args__", ())
        split = parts and all(map(module.can_construct_from_params, parts))  # others stay as given
        if single and split and getattr(annotation, "__origin__", None) in _LISTS:
            got = json.dumps(popped_params)
            raise module.ConfigurationError(
                f"Expected a list for {argument_name} of {class_name}, such as [{got}], got {got}."
            )
        return original(class_name, argument_name, popped_params, annotation, default, **extras)


_OF_COMMANDS = {
    *("model", "data_loader", "validation_data_loader", "serialization_dir", "local_rank"),
    *("world_size", "distributed", "ddp_wrapped_model"),
}


def trainer_keys(module: ModuleType) -> None:
    """Tell of keys that a trainer does not take, such as a misspelt one, with the nearest one.

    AllenNLP's trainer takes any key, and passed over those that it does not know. They are an error
    of a class that sets `refuses_other_keys`, as "declutr" does, and a warning of all others,
    whose runs may have had some for long. Can be removed when the trainer refuses them.
    """

    @replaces(module.GradientDescentTrainer)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        taken = _named(original) | _named(type(self).__init__)
        other = {key: kwargs[key] for key in kwargs.keys() - taken - {"run_sanity_checks"}}
        if other:
            keys = sorted(taken - _OF_COMMANDS - {"self"})
            told = importlib.import_module(NEAREST).of_wrong_keys(other, keys)
            told = f"Extra parameters passed to {type(self).__name__}: {other}. {told}"
            if "refuses_other_keys" in vars(type(self)):  # classes that extend it may read others
                raise module.ConfigurationError(told)
            logger.warning("%s AllenNLP's trainer makes no use of others.", told)
        original(self, *args, **kwargs)


def _named(function: Any) -> set[str]:
    """Return the names of the parameters of a function, without those of `*args` and `**kwargs`."""
    parameters = inspect.signature(function).parameters.values()
    any_of = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    return {one.name for one in parameters if one.kind not in any_of}


def one_draw_warning(module: ModuleType) -> None:
    """Warn if the default data loader keeps the instances of a reader that draws new ones.

    Such a reader sets `draws_anew`. Can be removed when the loader asks the reader.
    """

    @replaces(module.MultiProcessDataLoader)
    def __init__(original: Any, self: Any, reader: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("max_instances_in_memory") is None and draws_anew(reader):
            warnings.warn(
                "This data loader keeps every instance in memory, so spans are drawn once and are "
                'the same in every epoch. Set "type": "declutr" on the data_loader (or '
                "max_instances_in_memory) to draw fresh ones.",
                stacklevel=3,  # the code that builds the loader
            )
        original(self, reader, *args, **kwargs)


def draws_anew(reader: Any) -> bool:
    """Return whether a reader, or one that it reads by, draws other instances in every epoch.

    Those of AllenNLP that read by others are "sharded", "interleaving" and "multitask".
    """
    if hasattr(reader, "draws_anew"):
        return bool(reader.draws_anew)
    parts = [getattr(reader, name, None) for name in ("reader", "readers", "_readers")]
    inside = [part.values() if isinstance(part, dict) else [part] for part in parts if part]
    return any(map(draws_anew, itertools.chain(*inside)))


def attached_models(module: ModuleType) -> None:
    """Call `attach` of a model of this package, and of its distributed wrapper, with the trainer.

    The wrapper is what a `DdpAccelerator` makes of the model. A sharded model
    (`declutr.training.sharding`) needs the trainer because all processes must write a checkpoint
    together, with the optimizer that the trainer holds. A momentum encoder needs it because it is
    updated after each step of that optimizer.

    Can be removed when AllenNLP asks the wrapped model for the state of a checkpoint.
    """

    @replaces(module.GradientDescentTrainer)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for part in (self._ddp_wrapped_model, self.model):
            attach(part, self)


def attach(part: Any, trainer: Any) -> None:
    """Call the method `attach` of a model or wrapper with its trainer, if it asks for that.

    It does by the attribute `attached_to_trainers`: other packages may have an `attach` that means
    something else.
    """
    if getattr(part, "attached_to_trainers", False):
        part.attach(trainer)


_OF_TRAINERS = {"type", "read_every"}  # keys in which the two may differ


def moved_runs(module: ModuleType) -> None:
    """Let `--recover` accept other nodes, ports and sharding, and the other equivalent trainer.

    AllenNLP refuses any difference from the configuration of the run. But a cluster gives other
    nodes to a job that it starts again, and recipes used AllenNLP's trainer before release 1.7,
    which trains in the same way as "declutr". The number of processes must be the same. Other
    differences are told in one message, and how a run goes on whose recipe a release has changed.

    Can be removed when AllenNLP compares only the parts of a configuration that affect the result.
    """

    @replaces(module)
    def create_serialization_dir(
        original: Any, params: Any, serialization_dir: Any, recover: bool, force: bool
    ) -> None:
        config = os.path.join(serialization_dir, "config.json")
        if recover and not force and os.path.isfile(config):
            begun, params = module.Params.from_file(config).params, params.duplicate()
            params.params = as_before(params.params, begun)
            now, before = params.params.get("distributed"), begun.get("distributed")
            if now and before and _processes(now) == _processes(before):
                params.params["distributed"] = before
            trainer, before = params.params.get("trainer"), begun.get("trainer")
            if trainer and before and _trains_the_same(trainer) and _trains_the_same(before):
                own = {key: trainer[key] for key in trainer.keys() - _OF_TRAINERS}
                own |= {key: before[key] for key in before.keys() & _OF_TRAINERS}
                params.params["trainer"] = own
            now = module.Params(params.params).as_flat_dict()
            if apart := differences(now, module.Params(begun).as_flat_dict()):
                raise module.ConfigurationError(
                    "Training configuration does not match the configuration we're recovering "
                    f"from: {shown(apart)}. A run whose recipe was changed since, by a release of "
                    "this package or by hand, goes on as it was begun by its own configuration: "
                    f"train {config} -s {serialization_dir} --recover"
                )
        original(params, serialization_dir, recover, force)


_ABSENT = object()
_SHOWN = 5  # of all differences from an earlier run


def differences(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """Return a text for each key in which two flat configurations differ."""

    def told(values: Mapping[str, Any], key: str) -> str:
        return json.dumps(values[key]) if key in values else "not given"

    return [
        f"{key} is {told(now, key)}, and was {told(before, key)}"
        for key in dict.fromkeys([*now, *before])
        if now.get(key, _ABSENT) != before.get(key, _ABSENT)
    ]


def shown(apart: list[str]) -> str:
    """Return the first differences in one text, and how many more there are."""
    more = f" (and {len(apart) - _SHOWN} more)" if len(apart) > _SHOWN else ""
    return "; ".join(apart[:_SHOWN]) + more


def rates_of_the_same_trainer(module: ModuleType) -> None:
    """Let `find-lr` accept configurations with the trainer "declutr", whose loop it does not use.

    AllenNLP accepts only its own trainer, by name, whose `grad_norm` must not be null.

    Can be removed when it checks the class.
    """

    @replaces(module)
    def find_learning_rate_model(original: Any, params: Any, *args: Any, **kwargs: Any) -> None:
        trainer = params.params.get("trainer", {})
        if _is_own(trainer):
            given = {key: value for key, value in trainer.items() if value is not None}
            params.params["trainer"] = {k: given[k] for k in given if k not in _OF_TRAINERS}
        original(params, *args, **kwargs)


def _is_own(trainer: Any) -> bool:
    return own_name("Trainer", trainer.get("type")) == "declutr"


def _trains_the_same(trainer: Any) -> bool:
    return _is_own(trainer) or trainer.get("type", "gradient_descent") == "gradient_descent"


def _processes(distributed: Any) -> int:
    return len(distributed.get("cuda_devices") or ()) * distributed.get("num_nodes", 1)
