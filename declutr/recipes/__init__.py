"""The recipes of this package: Jsonnet files that `allennlp train` takes, by name or by path.

They lie in the folder `training_config` at the top of a clone, and beside this file in a wheel.
A recipe's name is its path in that folder without `.jsonnet`: `declutr`, `sentences/simcse`.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from declutr.system import local_path

__all__ = ["earlier_names", "moved_to", "recipe_names", "recipe_path", "recipes_folder"]

FOLDER = "training_config"
SUFFIX = ".jsonnet"
MOVED = "// Moved to "
"""How a file begins that only imports a recipe from its new path, given in the rest of the line."""


class UnknownRecipe(FileNotFoundError, ValueError):
    """Error of a path that is no file, and a name that no recipe has, or that several share."""


def recipes_folder() -> Path:
    """Return the folder of the recipes: that of the clone, or the one installed with the wheel."""
    installed = Path(__file__).parent / FOLDER
    return installed if installed.is_dir() else Path(__file__).parents[2] / FOLDER


def moved_to(file: Path) -> str | None:
    """Return where a file of an earlier path lies today, within the folder; `None` for others.

    # Raises

    `OSError` : the file cannot be read.
    """
    with file.open(encoding="utf-8", errors="replace") as lines:
        first = lines.readline()
    return first.removeprefix(MOVED).split(";")[0] if first.startswith(MOVED) else None


def recipe_names() -> list[str]:
    """Return the names of all recipes, those at the top first, without those of earlier paths."""
    return _names()[0]


def earlier_names() -> dict[str, str]:
    """Return the names that recipes had in release 1.9, each with the name of today."""
    return _names()[1]


def _names() -> tuple[list[str], dict[str, str]]:
    """Return what `recipe_names` and `earlier_names` do, of one look at each file."""
    folder, names, earlier = recipes_folder(), [], {}
    for file in folder.rglob(f"*{SUFFIX}"):
        name = file.relative_to(folder).as_posix().removesuffix(SUFFIX)
        if new := moved_to(file):
            earlier[name] = new.removesuffix(SUFFIX)
        else:
            names.append(name)
    return sorted(names, key=lambda n: (n.count("/"), n)), dict(sorted(earlier.items()))


def recipe_path(name: str | os.PathLike[str], of_package: bool = False) -> Path:
    """Return the path of a recipe.

    # Parameters

    name : the path of a file, which is returned as it is; or the name of a recipe of this package,
        with or without its folder and `.jsonnet`: `simcse`, `sentences/simcse.jsonnet`. The paths
        of release 1.9 give those of today.
    of_package : whether only names are taken, and no paths.

    # Raises

    `UnknownRecipe` : there is no such file, and no recipe has this name, or more
        than one.
    """
    if not of_package and (file := local_path(name)).is_file():
        return file
    folder = recipes_folder()
    wanted = Path(name).as_posix().removeprefix(f"{FOLDER}/").removesuffix(SUFFIX)
    names, earlier = _names()
    wanted = earlier.get(wanted, wanted)
    found = [known for known in names if wanted in (known, known.rpartition("/")[2])]
    if wanted in found or len(found) == 1:
        return folder / f"{wanted if wanted in found else found[0]}{SUFFIX}"
    if found:
        raise UnknownRecipe(f"{str(name)!r} is the name of several recipes: {', '.join(found)}.")
    places = (
        "a name that `declutr recipes` lists"
        if of_package
        else ("the path of a file, or a name that `declutr recipes` lists")
    )
    raise UnknownRecipe(
        f"There is no recipe {str(name)!r}. Expected {places}{_nearest(wanted, names)}."
    )


def _nearest(wanted: str, names: list[str]) -> str:
    """Return `"; the nearest: ..."` with up to three names, or nothing when none is near."""
    by_last = {name.rpartition("/")[2]: name for name in names}
    last = wanted.rpartition("/")[2].lower()
    close = difflib.get_close_matches(last, by_last, n=3)
    return f"; the nearest: {', '.join(by_last[found] for found in close)}" if close else ""
