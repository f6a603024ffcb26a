#!/usr/bin/env python
"""Train and use DeCLUTR once on text that every machine has: see `declutr.quickstart.whole_way`."""

import argparse
import json
import shutil
import sys
from pathlib import Path

RECIPES = Path(__file__).resolve().parent.parent / "training_config"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path("quickstart"), help="where everything goes (quickstart)"
    )
    parser.add_argument(
        "--force", action="store_true", help="begin anew, deleting the folder of an earlier run"
    )
    parser.add_argument(
        "-o", "--overrides", type=json.loads, default={}, help="keys of the recipe, as JSON"
    )
    parser.add_argument(
        "--packages", nargs="+", help="whose docstrings to read (default: what is installed)"
    )
    args = parser.parse_args()
    from declutr.quickstart import is_own, require_own

    if args.force and args.folder.exists():
        if not is_own(args.folder):
            sys.exit(f"{args.folder} does not look like a quickstart: not deleting it.")
        shutil.rmtree(args.folder)
    try:
        require_own(args.folder)
    except FileExistsError as error:
        sys.exit(str(error))

    from declutr.quickstart.whole_way import DEFAULT_PACKAGES, Quickstart

    packages = tuple(args.packages) if args.packages else DEFAULT_PACKAGES
    Quickstart(args.folder.resolve(), RECIPES, args.overrides, packages).run()


if __name__ == "__main__":
    main()
