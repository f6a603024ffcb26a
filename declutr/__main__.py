"""Entry point of `declutr` and `python -m declutr`: the `allennlp` command with this package."""

import gc
import importlib
import importlib.metadata
import importlib.util
import sys

_NEEDS_ALLENNLP = (
    "declutr needs AllenNLP, which is not installed. Its pins cannot be resolved beside current "
    "releases, so install it without them:\n\n    pip install --no-deps allennlp==2.10.1\n"
)


def main() -> None:
    """Run the AllenNLP command line with the components and commands of this package registered."""
    from declutr._version import __version__
    from declutr.bridge.deferral import garbage

    if importlib.util.find_spec("allennlp") is None:
        sys.exit(_NEEDS_ALLENNLP)
    if sys.argv[1:] == ["--version"]:
        print(f"declutr {__version__} (allennlp {importlib.metadata.version('allennlp')})")
        return
    with garbage():
        # Importing this module sets up logging as the command `allennlp` does, by the environment
        # variables ALLENNLP_DEBUG and ALLENNLP_LOG_LEVEL.
        import allennlp.__main__  # noqa: F401
        from allennlp.commands import main as run_command
        from allennlp.common.util import install_sigterm_handler

        importlib.import_module("declutr.plugin")
    gc.freeze()  # modules are never freed, so no garbage collection needs to scan them
    install_sigterm_handler()
    run_command(prog="declutr")


if __name__ == "__main__":
    main()
