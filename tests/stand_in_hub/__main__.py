"""Make the stand-in hub: `python -m tests.stand_in_hub FOLDER [--texts FOLDER ...]`."""

import argparse
from pathlib import Path

import transformers

from tests.stand_in_hub import NAMES, make_hub, words_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("folder", type=Path, help="the folder to make; give it as HF_HOME")
    add("--texts", type=Path, nargs="*", default=[], help="folders whose words become tokens")
    add("--names", nargs="*", default=sorted(NAMES), help="the checkpoints (default: all)")
    args = parser.parse_args()
    unknown = sorted(set(args.names) - set(NAMES))
    if unknown:
        parser.error(f"no stand-in for {', '.join(unknown)}; there are: {', '.join(sorted(NAMES))}")
    transformers.logging.disable_progress_bar()
    for path in make_hub(args.folder, words_of(args.texts), args.names):
        print(path)


if __name__ == "__main__":
    main()
