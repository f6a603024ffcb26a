"""What training gains, in one grid of runs that anyone can repeat, and the page made of it.

    python -m benchmarks study --corpus FOLDER --data FOLDER --part static
    python -m benchmarks study --page

Each finished run is a line of `benchmarks/study/runs/PART.jsonl`. A command that was killed goes on
where it was, on this machine or on another. Several at once on one machine share the runs; those on
several machines take `--share`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tqdm import tqdm

from benchmarks.memory import ROOT
from benchmarks.study import lines
from benchmarks.study.grid import GRID, Entry, chosen_parts, entries, read_grid


def add_arguments(parser: argparse.ArgumentParser) -> None:
    needed = parser.add_argument_group("needed (without them nothing is run)")
    needed.add_argument(
        "--corpus", type=Path, help="a folder of texts: NAME.txt, a document a line"
    )
    needed.add_argument("--data", type=Path, help="SentEval's data")
    parser.add_argument("--part", action="append", metavar="NAME", help="of the grid (all)")
    parser.add_argument("--corpora", nargs="+", metavar="NAME", help="some of the texts only")
    parser.add_argument("--starts", nargs="+", metavar="NAME", help="some of the starts only")
    parser.add_argument("--rows", nargs="+", metavar="NAME", help="some of the rows only")
    parser.add_argument("--seeds", nargs="+", type=int, metavar="N", help="some of the seeds only")
    parser.add_argument("--grid", type=Path, default=GRID, help="a file like the study's own")
    parser.add_argument("--runs", type=Path, default=lines.FOLDER, help="folder of finished runs")
    parser.add_argument("--work", type=Path, help="keeps starts and unfinished runs (cache folder)")
    parser.add_argument(
        "--encoder", action="append", default=[], metavar="NAME=FOLDER", help="one of the grid's"
    )
    parser.add_argument(
        "--share", metavar="I/N", help="run each Nth only, from the Ith on: one for each machine"
    )
    parser.add_argument("--threads", type=int, default=1, help="of torch (default 1)")
    parser.add_argument("--list", action="store_true", help="say what is missing, and end")
    parser.add_argument("--page", action="store_true", help="write docs/RESULTS.md, and end")
    parser.add_argument("--output", type=Path, default=ROOT / "docs", help="folder of the page")
    parser.add_argument("--no-plots", action="store_true", help="no pictures (no matplotlib)")


def run(args: argparse.Namespace) -> None:
    grid = read_grid(args.grid)
    parts = chosen_parts(grid, args.part)
    finished = lines.read_lines(args.runs)
    missing = [e for part in parts for e in _missing(entries(grid, part), finished, args)]
    if args.list:
        _list(missing)
    elif args.page:
        _write_page(grid, args)
    elif args.corpus is None or args.data is None:
        print("study left out: it needs --corpus and --data.")
    else:
        _run(missing, args)


def _missing(
    of_part: list[Entry], finished: list[lines.Line], args: argparse.Namespace
) -> list[Entry]:
    """Return the runs of a part that are not finished, of the share that was asked for."""
    first, every = map(int, args.share.split("/")) if args.share else (1, 1)
    return [
        entry
        for entry in of_part[first - 1 :: every]
        if (args.corpora is None or entry["corpus"] in args.corpora)
        and (args.starts is None or entry["start"] in args.starts)
        and (args.rows is None or entry["row"] in args.rows)
        and (args.seeds is None or entry["seed"] in args.seeds)
        and lines.line_of(entry, finished) is None
    ]


def _list(missing: list[Entry]) -> None:
    for entry in missing:
        about = (entry[name] for name in ("part", "corpus", "start", "row"))
        print(" | ".join([*about, f"seed {entry['seed']}"]))
    print(f"{len(missing)} runs are missing.")


def _run(missing: list[Entry], args: argparse.Namespace) -> None:
    import torch

    from benchmarks.study.running import Places, claimed, outcome
    from benchmarks.study.starts import Missing
    from declutr.system.cache_folder import default_cache_dir

    torch.set_num_threads(args.threads)
    work = (args.work or default_cache_dir() / "study").absolute()
    encoders = dict(given.split("=", 1) for given in args.encoder)
    finished = lines.read_lines(args.runs)
    agreed = lines.texts_of_corpora(finished), lines.weights_of_starts(finished)
    places = Places(args.corpus.absolute(), args.data.absolute(), work, encoders, *agreed)
    left_out: dict[str, int] = {}
    for entry in tqdm(missing[:1] if args.quick else missing, unit="run"):
        with claimed(entry, work) as free:
            # Another process may be at it, or have finished it a moment ago, as another row even.
            if not free or lines.line_of(entry, lines.read_lines(args.runs)):
                continue
            try:
                lines.append(args.runs, outcome(entry, places))
            except Missing as error:
                left_out[str(error)] = left_out.get(str(error), 0) + 1
    for needed, count in left_out.items():
        print(f"{count} runs left out, which need {needed}.")


def _write_page(grid: dict, args: argparse.Namespace) -> None:
    from benchmarks.study.page import write_page

    print(f"Wrote {write_page(grid, args.runs, args.output, pictures=not args.no_plots)}")
