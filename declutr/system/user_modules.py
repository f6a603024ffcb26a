"""Python modules of the user's, by name, also from the folder a command runs in."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType


class NoSuchModule(ValueError):
    """There is no module of that name."""


def module_from_here(module: str, purpose: str) -> ModuleType:
    """The module, imported.

    # Parameters

    module : its dotted name; installed, or below the current folder.
    purpose : what it is for, for the message.

    # Raises

    `NoSuchModule` : there is none. What the module itself cannot import is raised as it is.
    """
    here = os.getcwd()
    if not {"", here} & set(sys.path):
        sys.path.append(here)  # last: nothing that is installed is hidden by it
    importlib.invalidate_caches()
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # something that the module itself imports
        raise NoSuchModule(
            f"No module '{module}' for {purpose}: expected a file {module.replace('.', '/')}.py in "
            f"{here}, or a module that is installed."
        ) from error
