"""The list of commands in `allennlp --help`, with those of this package under a heading."""

import argparse
from collections.abc import Iterator

HEADING = "\n  Sentence embeddings (declutr):"


class _Grouped(list[argparse.Action]):
    """The lines of commands, in the order of help: those of others, a heading, and our own.

    # Parameters

    lines : those up to now. Others may be added at any time.
    """

    def __init__(self, lines: list[argparse.Action]) -> None:
        super().__init__(lines)
        self.own: set[str] = set()

    def __iter__(self) -> Iterator[argparse.Action]:
        lines = list(super().__iter__())
        yield from (line for line in lines if line.dest not in self.own)
        yield argparse.Action([], dest="", metavar=HEADING)
        yield from (line for line in lines if line.dest in self.own)


def group(commands: argparse._SubParsersAction, name: str) -> None:
    """Put the line of a command of this package under the heading."""
    if not isinstance(commands._choices_actions, _Grouped):
        commands._choices_actions = _Grouped(commands._choices_actions)  # type: ignore[arg-type]
    commands._choices_actions.own.add(name)
