"""`python -m benchmarks NAME`: run one benchmark, or `all`; `report` makes tables and plots."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence

BENCHMARKS = {
    "releases": "what runs pay, and how fast steps and embedding are, against an earlier release",
    "plugin": "what the plugin adds to the start of other pipelines",
    "startup": "how long commands take to start, and what they import",
    "step": "a training step against the original recipe: time, agreement, memory",
    "host_time": "a training step's host time, kernels stubbed, against the padded reference",
    "end_to_end": "`allennlp train` against the bare step",
    "caching": "large contrastive batches in fixed memory",
    "scaling": "cost against documents a step, span length and processes",
    "objectives": "what each objective costs by itself: time, memory, batch size",
    "reclaim": "RECLAIM beside a task: time, memory, size of its banks",
    "reclaim_tasks": "accuracy with and without RECLAIM on real tasks (needs data)",
    "study": "what training gains over its start: the grid of docs/RESULTS.md (needs data)",
    "reader": "documents a second, from text to batches, against the original reader",
    "embedding": "embedding texts against sentence-transformers: speed and agreement",
    "rivals": "embedding against sentence-transformers, ONNX Runtime, OpenVINO and fastembed",
    "static": "static encoders against StaticEmbedding and model2vec: speed, start, memory, size",
    "bulk": "a million lines through `declutr embed`: memory, and runs killed twice",
    "corpus": "time and memory against the size of the corpus, 50 MB to 5 GB",
    "gpu": "all that needs a GPU: right and fast there, in ten minutes (--dry rehearses)",
}
"""Modules of this package, each with `add_arguments(parser)` and `run(args)`."""

ALONE = ("gpu",)
"""Those that `all` leaves out, for they need a machine that others do not."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run what it names."""
    for name, args in parse(arguments):
        importlib.import_module(f"benchmarks.{name}").run(args)


def parse(arguments: Sequence[str] | None = None) -> list[tuple[str, argparse.Namespace]]:
    """The modules to run, in order, each with its options. Only those modules are imported."""
    listed = "\n".join(f"  {name:14}{text}" for name, text in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"{__doc__}\n\n{listed}\n  {'all':14}each of them but {', '.join(ALONE)} in "
        "turn; options go to those that know them\n"
        f"  {'report':14}Markdown and pictures from benchmarks/results",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="`python -m benchmarks NAME --help` lists the options of one.",
    )
    parser.add_argument("name", choices=[*BENCHMARKS, "all", "report"], metavar="NAME")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="of that benchmark")
    chosen = parser.parse_args(arguments)
    if chosen.name != "all":
        return [(chosen.name, _parser(chosen.name).parse_args(chosen.options))]
    names = [name for name in BENCHMARKS if name not in ALONE]
    parsed = [(name, *_parser(name).parse_known_args(chosen.options)) for name in names]
    known_to_none = set.intersection(*(set(unknown) for _, _, unknown in parsed))
    if known_to_none:
        parser.error(f"no benchmark knows {' '.join(sorted(known_to_none))}")
    return [(name, args) for name, args, _ in parsed]


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {name}")
    if name != "report":
        parser.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    importlib.import_module(f"benchmarks.{name}").add_arguments(parser)
    return parser


if __name__ == "__main__":
    main()
