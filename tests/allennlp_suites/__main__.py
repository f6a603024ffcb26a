"""Run the two suites: `python -m tests.allennlp_suites ALLENNLP MODELS [--rooms allennlp/data]`.

Rooms that ran before are not run again, so a run can be stopped, and taken up by the same command.
Ends with status 1 if a test fails that is not in the list of expected failures, if one that is
there passes, or if an entry of the list matches no test.
"""

import argparse
import shlex
import shutil
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from declutr._version import __version__
from tests.allennlp_suites import report, rooms
from tests.allennlp_suites.expectations import Comparison, compare, read_expectations

HERE = Path(__file__).parent
SHOWN = ("torch", "transformers", "numpy", "spacy", "nltk")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argument_parser()
    args = parser.parse_args(arguments)
    out: Path = (args.out / f"transformers-{version('transformers')}").resolve()
    clones = {"allennlp": args.allennlp, "models": args.models}
    if args.fresh:
        shutil.rmtree(out, ignore_errors=True)
    try:
        copies = {suite: rooms.copied(suite, clone, out / suite) for suite, clone in clones.items()}
    except FileNotFoundError as error:
        parser.error(str(error))
    known = {
        room.name: room for suite, copy in copies.items() for room in rooms.rooms_of(suite, copy)
    }
    wanted = args.rooms.split(",") if args.rooms else list(known)
    if missing := [name for name in wanted if name not in known]:
        parser.error(f"no room {', '.join(missing)}; there are: {', '.join(known)}")
    run_missing([known[name] for name in wanted], copies, out, args)
    comparison = show(wanted, out, args)
    sys.exit(0 if comparison.as_expected else 1)


def run_missing(
    wanted: Sequence[rooms.Room], copies: dict[str, Path], out: Path, args: argparse.Namespace
) -> None:
    """Run the rooms that have no results yet, beside a hub that is made where it is not there."""
    left = [room for room in wanted if not results_of(room.name, out).exists()]
    if not left:
        return
    make_home(out / "hub", copies)
    environment = rooms.environment_of(copies.values(), out / "hub")
    options = [f"--timeout={args.timeout}", "--tb=short", "-q"]
    options += shlex.split(args.pytest)
    for number, room in enumerate(left, 1):
        print(f"\n== {room.name} ({number} of {len(left)})", flush=True)
        rooms.run(room, results_of(room.name, out), environment, options)


def make_home(home: Path, copies: dict[str, Path]) -> None:
    """Make the stand-in hub, whose vocabularies have the words of the tests, and a spaCy model."""
    if (made := home / "made").exists():
        return
    import transformers

    from tests.stand_in_hub import make_hub, make_spacy_model, words_of

    transformers.logging.disable_progress_bar()
    texts = [copy / name for copy in copies.values() for name in ("tests", "test_fixtures")]
    make_hub(home, words_of(texts))
    make_spacy_model(home / "packages")
    made.touch()


def show(names: Sequence[str], out: Path, args: argparse.Namespace) -> Comparison:
    """Print the table of rooms and what is not as expected; write it beside the results too."""
    found = {name: rooms.read(results_of(name, out), name) for name in names}
    results = [result for part, _ in found.values() for result in part]
    major = version("transformers").partition(".")[0]
    expectations = read_expectations(args.expected)
    comparison = compare(results, expectations, transformers=int(major), rooms=names)
    python = f"Python {sys.version.partition(' ')[0]}"
    own = f"declutr {__version__}"  # of this clone, which may have been installed as an earlier one
    versions = ", ".join([python, own, *(f"{name} {version(name)}" for name in SHOWN)])
    text = f"{versions}:\n\n{report.table(found, comparison)}\n"
    (out / "table.md").write_text(text, encoding="utf-8")
    if args.page:
        report.write_part(args.page, f"transformers {major}", text)
        report.write_part(args.page, "causes", report.causes(expectations))
    print(f"\n{text}\n{report.findings(comparison) or 'Everything is as expected.'}")
    return comparison


def results_of(room: str, out: Path) -> Path:
    return out / "results" / f"{room.replace('/', '-')}.jsonl"


def argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.allennlp_suites",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("allennlp", type=Path, help="a clone of https://github.com/allenai/allennlp at v2.10.1")
    add("models", type=Path, help="a clone of https://github.com/allenai/allennlp-models")
    add("--rooms", help="rooms to run, separated by commas, as allennlp/data (default: all)")
    add("--fresh", action="store_true", help="run rooms again that have results")
    add("--out", type=Path, default=Path("build/allennlp-suites"), help="(default: %(default)s)")
    add("--expected", type=Path, default=HERE / "expected.toml", help="expected failures")
    add("--page", type=Path, help="write the tables into this page, as docs/COMPATIBILITY.md")
    add("--timeout", type=int, default=300, help="seconds a test may take (default: %(default)s)")
    add(
        "--pytest", default="", help="more options of pytest, as '-n 2' or '-k \"not distributed\"'"
    )
    return parser


if __name__ == "__main__":
    main()
