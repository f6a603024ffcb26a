"""Additions to AllenNLP for recipes: names, a default transformer, errors of `train` in one line.

They do not work around a change of a library, but are applied in the same way and switched off
together with the bridge. Each function takes a module of AllenNLP right after its body ran.
"""

import contextlib
import errno
import functools
import importlib
import logging
import os
import shutil
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

from declutr.bridge.component_names import short
from declutr.bridge.own_names import spelt
from declutr.bridge.repairs import replaces

logger = logging.getLogger(__name__)

# Modules of a package that builds on the bridge, imported only when AllenNLP needs them.
EVALUATION = "declutr.recipes.evaluation"
ERRORS = "declutr.commands.errors"
FRONT_DOOR = "declutr.runs.front_door"
FIRST_TABLES = "declutr.runs.first_tables"

TRANSFORMER = "TRANSFORMER_MODEL"
"""The environment variable that chooses the transformer a recipe starts from."""

RECIPES = "training_config"
"""The name of the folder of recipes, which other packages have, too."""

STATIC_TABLES = "static-tables"
"""What the names have in common of tables that recipes of static encoders start from."""

_PACKAGE = Path(__file__).resolve().parents[1]
_FOLDERS = (_PACKAGE / "recipes" / RECIPES, _PACKAGE.parent / RECIPES)  # installed, in a clone

TRACEBACK = "DECLUTR_TRACEBACK"
TOLD = f"Errors end with status 2 and a message; {TRACEBACK}=1 shows where they were raised, too."
"""What the help of a command says of errors."""

_OF_PROCESSES = ("cuda_devices", "num_nodes", "primary_address", "primary_port", "ddp_accelerator")
_LEAVING = 10  # seconds that data workers of a killed run hold its lock, until they notice
_made: set[Path] = set()  # folders that this process has made for runs


def named_recipes(module: ModuleType) -> None:
    """Let `Params.from_file` take the name of a recipe, and tell the nearest of an unknown one.

    Files come first, folders last: in a clone of this package, `declutr` is its code.
    Can be removed when AllenNLP finds the recipes of plugins.
    """

    @replaces(module)
    def cached_path(original: Any, place: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            found = original(place, *args, **kwargs)
            if not os.path.isdir(found):
                return found
            missing: OSError = IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), place)
        except FileNotFoundError as error:
            missing = error
        return importlib.import_module(EVALUATION).named_recipe(place, missing)


def default_transformers(module: ModuleType) -> None:
    """Let a recipe start from its own `default_transformer` where TRANSFORMER_MODEL is not set.

    For Jsonnet a variable that is not set is an error, which a recipe cannot catch. Recipes also
    import those of this package as `training_config/...`, wherever they are installed. Errors of
    recipes and overrides name what they are of.

    A `~` at the begin of the variable is the home folder, where shells left it (`'~/m'`).

    Can be removed when Jsonnet can tell whether a variable is set.
    """

    @replaces(module)
    def _environment_variables(original: Any) -> dict[str, str]:
        return with_home(original())

    @replaces(module)
    def evaluate_file(original: Any, filename: str, ext_vars: Any = (), **others: Any) -> str:
        evaluate = functools.partial(original, **others)
        if not _is_of_recipes(filename):
            with contextlib.suppress(RuntimeError):
                return evaluate(filename, ext_vars=dict(ext_vars))
        return importlib.import_module(EVALUATION).evaluated(evaluate, filename, dict(ext_vars))

    @replaces(module)
    def evaluate_snippet(original: Any, name: str, text: str, **others: Any) -> str:
        try:
            return original(name, text, **others)
        except RuntimeError as error:
            evaluation = importlib.import_module(EVALUATION)
            raise evaluation.error_of_overrides(text, error) from error


def with_home(variables: dict[str, str]) -> dict[str, str]:
    """Return environment variables, `TRANSFORMER_MODEL` with the home folder in place of `~`."""
    found = variables.get(TRANSFORMER)
    return variables if found is None else {**variables, TRANSFORMER: os.path.expanduser(found)}


def told_errors(module: ModuleType) -> None:
    """Let `train` take data as arguments, and report errors in one line, not in a traceback.

    See `declutr.runs.front_door` for the arguments. Errors are of arguments, files and recipe.

    A run that such an error stops before its first checkpoint leaves no folder behind, which the
    next run would refuse. See `declutr.commands.errors`. Can be removed when AllenNLP tells such
    errors from those of code.
    """
    commands: list[Any] = []  # the parser of the command, which other callers have none of

    @replaces(module.Train)
    def add_subparser(original: Any, self: Any, parser: Any) -> Any:
        subparser = original(self, parser)
        _add_arguments(subparser)
        subparser.epilog = TOLD
        commands[:] = [subparser]
        return subparser

    @replaces(module)
    def train_model_from_args(original: Any, args: Any) -> None:
        folder = Path(args.serialization_dir)
        _made.discard(folder.absolute())  # by an earlier run of this process
        own = getattr(args, "data", None) or getattr(args, "transformer", None)
        try:
            with (
                importlib.import_module(FRONT_DOOR).arguments_of_allennlp(args)
                if own
                else contextlib.nullcontext()
            ):
                original(args)
        except (Exception, KeyboardInterrupt) as error:
            errors = importlib.import_module(ERRORS)
            made = folder.absolute() in _made
            if made and errors.is_of_user(error) and not any(folder.glob("*.th")):
                shutil.rmtree(folder, ignore_errors=True)
            if commands:
                errors.tell(commands[0], error)
            raise


def noted_folders(module: ModuleType) -> None:
    """Note the folders that this process makes for runs: `told_errors` removes no others.

    Of two commands that begin a run in the same folder at once, one makes it, and the other one
    ends with an error, for the folder is there. Can be removed with `told_errors`.
    """

    @replaces(module)
    def create_serialization_dir(
        original: Any, params: Any, serialization_dir: Any, recover: bool, force: bool
    ) -> None:
        folder, made = Path(serialization_dir), False
        if not recover and not folder.exists():
            with contextlib.suppress(FileExistsError):  # another process has been quicker
                folder.mkdir(parents=True)
                made = True
        original(params, serialization_dir, recover, force)
        if made:
            _made.add(folder.absolute())


def alone_in_folder(module: ModuleType) -> None:
    """Keep other processes from training in the folder of a run.

    A run that was begun twice, at the same moment or with `--recover` or `--force` beside itself,
    as by a job scheduler, wrote its checkpoints among those of the other one. The lock is a file
    beside the folder for as long as the run lasts. Nodes of one run share its folder.

    Can be removed when AllenNLP locks the folder of a run.
    """
    import filelock

    @replaces(module)
    def train_model(
        original: Any, params: Any, serialization_dir: Any, *args: Any, **kwargs: Any
    ) -> Any:
        nodes = (params.params.get("distributed") or {}).get("num_nodes") or 1
        with _alone(Path(serialization_dir)) if int(nodes) == 1 else contextlib.nullcontext():
            return original(params, serialization_dir, *args, **kwargs)

    @contextlib.contextmanager
    def _alone(folder: Path) -> Iterator[None]:
        folder = folder.resolve()
        lock = filelock.FileLock(folder.with_name(f".{folder.name}.lock"))
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=_LEAVING)
        except filelock.Timeout:
            raise module.ConfigurationError(
                f"Another process trains in '{folder}' (it holds the lock '{lock.lock_file}'). "
                "Wait for it, or choose another folder."
            ) from None
        except (OSError, NotImplementedError) as error:
            logger.warning("Nothing keeps others from training in %s: %s", folder, error)
        try:
            yield
        finally:
            if lock.is_locked:
                with contextlib.suppress(OSError):  # Windows keeps open files, and the folder
                    os.unlink(lock.lock_file)  # may be gone, or read-only, by now.
            lock.release()


def _add_arguments(parser: Any) -> None:
    """Add data and transformer to the parser of `train`. Data may also stand after options."""
    for action in parser._actions:
        if action.dest == "param_path":
            action.metavar = "RECIPE"
            action.help = "the name of a recipe (`declutr recipes` lists them), or a file"
        if action.dest == "serialization_dir":  # shells leave `~` within quotes and after `=`
            action.type = os.path.expanduser
        if action.dest == "overrides":  # AllenNLP's example is of a key that is gone
            action.help = """changes of the recipe, JSON or Jsonnet: '{"trainer.num_epochs": 3}'"""
    about = "training texts, in place of the recipe's train_data_path: files, folders or globs"
    parser.add_argument("data", metavar="DATA", nargs="*", help=about)
    parser.add_argument(
        "--transformer",
        metavar="NAME",
        help="the transformer to start from: a folder, or a name on the hub ($TRANSFORMER_MODEL)",
    )
    known = parser.parse_known_args

    def parse_known_args(args: Any = None, namespace: Any = None) -> Any:
        # argparse takes all positional arguments from before the first option.
        found, others = known(args, namespace)
        found.data = [*found.data, *(one for one in others if not one.startswith("-"))]
        return found, [one for one in others if one.startswith("-")]

    parser.parse_known_args = parse_known_args


def known_nodes(module: ModuleType) -> None:
    """Refuse a `--node-rank` that the configuration does not have, and unknown keys of processes.

    Without `distributed.num_nodes`, each of several nodes trained alone, on all data, and nothing
    said so. Keys of `distributed` that are misspelt, or of AllenNLP 1, were left out. Nodes that
    were given no port chose one each, and waited for each other until torch's timeout.
    Can be removed when `train_model` compares the nodes, and refuses keys that it does not know.
    """

    @replaces(module)
    def train_model(original: Any, params: Any, *args: Any, **kwargs: Any) -> Any:
        rank = signature(original).bind(params, *args, **kwargs).arguments.get("node_rank") or 0
        distributed = params.params.get("distributed") or {}
        nodes = int(distributed.get("num_nodes") or 1)
        if unknown := sorted(set(distributed) - set(_OF_PROCESSES)):
            raise module.ConfigurationError(
                f"distributed has no key '{unknown[0]}'. Expected {', '.join(_OF_PROCESSES)} "
                "(master_address and master_port of AllenNLP 1 are primary_... now)."
            )
        if rank >= nodes:
            raise module.ConfigurationError(
                f"Got --node-rank {rank}, and distributed.num_nodes is {nodes}: this node would "
                "have no part in the run. Set distributed.num_nodes to the number of nodes; ranks "
                "count from 0."
            )
        if told := without_port(distributed):
            raise module.ConfigurationError(told)
        return original(params, *args, **kwargs)


def without_port(distributed: dict[str, Any]) -> str | None:
    """Return what is wrong with `distributed` if several nodes are without a port, or `None`."""
    nodes = int(distributed.get("num_nodes") or 1)
    if nodes == 1 or distributed.get("primary_port") is not None:
        return None
    return (
        f"distributed.num_nodes is {nodes}, and there is no primary_port, by which nodes find each "
        "other. Set distributed.primary_address to the host of the node of rank 0, and "
        "primary_port to a port that is free there, on all nodes."
    )


def told_seeds(module: ModuleType) -> None:
    """Warn of seeds that change next to nothing; see `idle_seeds`.

    Can be removed when the seeds at the top of a configuration are those of a run.
    """

    @replaces(module)
    def train_model(original: Any, params: Any, *args: Any, **kwargs: Any) -> Any:
        if told := idle_seeds(params.params):
            logger.warning(told)
        return original(params, *args, **kwargs)


_SEEDS = {"random_seed": 13370, "numpy_seed": 1337, "pytorch_seed": 133}  # AllenNLP's defaults
_SEED = 13370  # the default of all that has a seed in this package, and of the recipes


def idle_seeds(config: dict[str, Any]) -> str | None:
    """Return what to do about seeds at the top of a configuration that its run does not draw by.

    Dropout and masks follow the seed of the callback "exact_resume", and order and spans those of
    the loader "declutr" and its reader. Who changed the seeds at the top alone, as other recipes of
    AllenNLP want it, got the same run again. Of other loaders, the order follows them.
    """
    trainer = config.get("trainer")
    given = trainer.get("callbacks") if isinstance(trainer, dict) else None
    callbacks = [one if isinstance(one, dict) else {"type": one} for one in given or ()]
    kinds = [short(one.get("type")) for one in callbacks]
    if "exact_resume" not in kinds:
        return None
    number = kinds.index("exact_resume")
    parts: dict[str, Any] = {part: config.get(part) for part in ("data_loader", "dataset_reader")}
    parts[f"trainer.callbacks.{number}"] = {"seed": _SEED, **callbacks[number]}
    objects = {path: part for path, part in parts.items() if isinstance(part, dict)}
    drawn = {f"{path}.seed": part["seed"] for path, part in objects.items() if "seed" in part}
    usual = {str(seed) for seed in (None, _SEED, *drawn.values())}  # "7" of a variable is 7
    top = {key: config.get(key) for key in _SEEDS}
    idle = {key: seed for key, seed in top.items() if str(seed) not in usual | {str(_SEEDS[key])}}
    if not idle or "data_loader.seed" not in drawn:
        return None
    told, own = (", ".join(f"{key} {seed}" for key, seed in one.items()) for one in (idle, drawn))
    return (
        f"{told}: layers without pretrained weights begin by these seeds, and nothing else of "
        f"declutr. Order, spans, dropout and masks are drawn by {own}: for another run, set these, "
        "too. In a recipe of your own, `seed::` is all of them."
    )


def first_tables(module: ModuleType) -> None:
    """Let a run of a static encoder begin with a table of its own texts.

    See `declutr.runs.first_tables`. Can be removed when AllenNLP has a step before a run begins.
    """
    run = "train_model" if hasattr(module, "train_model") else "find_learning_rate_model"

    @replaces(module, run)
    def of_own_texts(
        original: Any, params: Any, serialization_dir: Any, *args: Any, **kw: Any
    ) -> Any:
        if STATIC_TABLES in str(params.params):
            params, run = params.duplicate(), Path(serialization_dir)
            importlib.import_module(FIRST_TABLES).use_first_table(params.params, run=run)
        return original(params, serialization_dir, *args, **kw)


def spelt_names(module: ModuleType) -> None:
    """Write the names of this package with their prefix into the configuration of a run.

    No other package's class is then built from them, wherever the archive of the run is opened
    (`declutr.bridge.own_names`). Can be removed when AllenNLP records the class of each name.
    """

    @replaces(module)
    def train_model(original: Any, params: Any, *args: Any, **kwargs: Any) -> Any:
        return original(module.Params(spelt(params.params)), *args, **kwargs)


def _is_of_recipes(file: Any) -> bool:
    """Return whether a file is a recipe of this package, or may import one.

    All others are evaluated as AllenNLP does, and as recipes only if that fails.
    """
    if str(file).endswith(".json"):  # of a trained model: it takes nothing from recipes
        return False
    path = Path(file).resolve()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return True
    return RECIPES in text or any(path.is_relative_to(folder) for folder in _FOLDERS)
