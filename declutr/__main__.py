"""Entry point of `declutr` and `python -m declutr`: the `allennlp` command with this package."""

import importlib
import importlib.util
import os
import sys

from declutr.bridge import PLUGIN_SWITCH
from declutr.bridge.component_names import SUBCOMMANDS, short

# Commands of `declutr` alone, which run before AllenNLP is imported: the function of each, which
# takes the arguments after the name and returns an exit status, and its line in the list of
# commands. They are not registered with AllenNLP, so no plugin of another package can clash.
COMMANDS = {
    "cache": ("declutr.commands.cache:main", "list and prune what is kept on disk"),
    "check": ("declutr.commands.check:main", "check a recipe before training"),
    "doctor": ("declutr.commands.doctor:main", "tell what works here, and what to do otherwise"),
    "recipes": ("declutr.commands.recipes:main", "list, show and copy recipes"),
    "setup": ("declutr.commands.setup:main", "put AllenNLP into this environment"),
}
# Commands that read a recipe, in which a name of this package means its own class, also where a
# plugin of another package has taken the name. `allennlp` gives it to the other one.
OF_RECIPES = ("build-vocab", "count-instances", "find-lr", "sample-spans", "train")
NEEDS_ALLENNLP = (
    "declutr: AllenNLP is not installed. Its pins cannot be resolved beside current releases, so "
    "`declutr setup` installs it without them (pip install --no-deps allennlp==2.10.1)."
)
LEFT_OUT = (
    f"declutr: {PLUGIN_SWITCH}=0 is set in the environment, so that AllenNLP does not know this "
    f"package. Unset {PLUGIN_SWITCH}, or use the command `allennlp`."
)


def main() -> None:
    """Run a command of this package, or the AllenNLP command line with this package registered."""
    from declutr.commands.output import escape_other_characters, print_whole

    escape_other_characters()
    arguments = sys.argv[1:]
    if arguments[:1] and arguments[0] in COMMANDS:
        module, _, function = COMMANDS[arguments[0]][0].partition(":")
        sys.exit(getattr(importlib.import_module(module), function)(arguments[1:]))
    if arguments in ([], ["-h"], ["--help"]):
        from declutr.commands.overview import overview

        print_whole(f"{overview(COMMANDS)}\n")
    elif arguments == ["--version"]:
        _print_versions()
    elif os.environ.get(PLUGIN_SWITCH) != "0" and _run_alone(arguments):
        return
    elif told := _unknown(arguments[0]):
        print(told, file=sys.stderr)
        sys.exit(2)
    elif importlib.util.find_spec("allennlp") is None:
        sys.exit(NEEDS_ALLENNLP)
    elif os.environ.get(PLUGIN_SWITCH) == "0":
        sys.exit(LEFT_OUT)
    else:
        _run_allennlp(() if arguments[0] in OF_RECIPES else ("allennlp.commands.",))


def _unknown(name: str) -> str | None:
    """Return what to say of a word that is no command; `None` for one that may be a command."""
    from declutr.commands.overview import OF_ALLENNLP, OF_MODELS, other_plugins
    from declutr.system.nearest import did_you_mean

    known = [*COMMANDS, *OF_MODELS, *OF_ALLENNLP]
    if name.startswith("-") or short(name) in known or other_plugins():
        return None  # AllenNLP knows the commands of plugins
    meant = did_you_mean(name, known)
    return f"declutr: There is no command {name!r}.{meant} `declutr --help` lists them."


def _print_versions() -> None:
    from importlib.metadata import PackageNotFoundError, version

    from declutr._version import __version__
    from declutr.commands.output import print_whole

    try:
        beside = f"allennlp {version('allennlp')}"
    except PackageNotFoundError:
        beside = "AllenNLP is not installed: declutr setup"
    print_whole(f"declutr {__version__} ({beside})\n")


def _run_alone(arguments: list[str]) -> bool:
    """Run a command of this package that needs no AllenNLP, and return whether it was one."""
    if short(arguments[0]) not in SUBCOMMANDS:
        return False
    from declutr.commands.alone import run_alone

    return run_alone(arguments)


def _run_allennlp(own_first_in: tuple[str, ...]) -> None:
    """Run AllenNLP's command line, in which names of this package win over those of others.

    # Parameters

    own_first_in : what the places of the base classes begin with for which they win; all if empty.
    """
    import gc

    from declutr.bridge.deferral import garbage
    from declutr.bridge.names import own_first
    from declutr.bridge.untrusted import SAFE
    from declutr.system import variable_set

    try:
        with garbage():
            # Importing this module sets up logging as the command `allennlp` does, by the
            # environment variables ALLENNLP_DEBUG and ALLENNLP_LOG_LEVEL.
            import allennlp.__main__  # noqa: F401
            from allennlp.commands import main as run_command
            from allennlp.common.util import install_sigterm_handler

            importlib.import_module("declutr.plugin")
    except ModuleNotFoundError as error:  # of a library; its traceback would say no more
        sys.exit(f"declutr: AllenNLP cannot be imported: {error}. `declutr doctor` says more.")
    gc.freeze()  # modules are never freed, so no garbage collection needs to scan them
    install_sigterm_handler()
    with own_first(*own_first_in), variable_set(SAFE, os.environ.get(SAFE) or "1"):
        run_command(prog="declutr")


if __name__ == "__main__":
    main()
