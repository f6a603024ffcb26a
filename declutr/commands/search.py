"""The command `search`, which prints the lines of an index that are nearest to a query."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from declutr.commands.command import Command, require_at_least_1, require_use, told_to_user
from declutr.commands.output import prints_unicode
from declutr.inference import is_archive

if TYPE_CHECKING:  # importing these takes time, and every `allennlp` command loads this module
    from declutr.search import Hit, SearchIndex

_PROMPT = "search: "
# Escapes of characters that JSON allows unescaped, but some tools treat as line ends.
_OTHER_LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
# Control characters that change the writing direction.
_DIRECTIONS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


class Search(Command):
    """A command that searches an index of lines by meaning."""

    name = "search"
    description = (
        "Print the lines of an index (`declutr index`) that are nearest in meaning to a query: "
        "rank, cosine, line number and line."
    )
    epilog = """\
Without QUERY a prompt asks for one after the other; an empty line is passed over, and the end of
the input (Ctrl-D) or Ctrl-C ends it. `declutr search INDEX < queries.txt` reads a query a line.
Line numbers count from 1, blank lines included.

Queries are embedded as the index says, after the model's prompt for queries if it names one;
--prompt-name and --prompt put another before them."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("index", metavar="INDEX", help="the folder that `declutr index` wrote")
        add("query", metavar="QUERY", nargs="?", help="without one, queries come from stdin")
        add("-k", type=int, default=10, metavar="K", help="lines to print (10)")
        add("--json", action="store_true", help="a JSON object a query, with whole lines")
        add("--exact", action="store_true", help="compare with all lines, however many")
        add("--width", type=int, metavar="N", help="columns of the output (the terminal's)")
        add("--prompt-name", metavar="NAME", help="of the model's prompt for queries")
        add("--prompt", metavar="TEXT", help="the prompt for queries itself; '' is none")
        add("--model", help="where the model of the index is, if it was moved")
        add("--device", help="cpu or cuda:0; by default a GPU if there is one")
        add("--trust", action="store_true", help="the model is yours: it may name code to run")

    def needs_allennlp(self, args: argparse.Namespace) -> bool:
        return is_of_archive(args.index, args.model)

    def run(self, args: argparse.Namespace) -> None:
        from declutr.search import SearchIndex

        require_at_least_1(args, "-k", "--width")
        if args.json:
            require_use(args, "with --json, which prints whole lines", "--width")
        try:
            with told_to_user(ValueError, ImportError):
                names = ("exact", "model", "device", "trust", "prompt_name", "prompt")
                index = SearchIndex(args.index, **{name: getattr(args, name) for name in names})
                for query in _queries() if args.query is None else [args.query]:
                    _answer(index, query, args)
        except KeyboardInterrupt:
            if args.query is not None or not sys.stdin.isatty():
                raise
            print()  # at the prompt, Ctrl-C ends the command as the end of the input does


def is_of_archive(index: str, model: str | None) -> bool:
    """Return whether the model of an index, or the one given instead, is a trained archive."""
    from declutr.archives import NoModel
    from declutr.search.index_files import IndexDescription, SearchError

    if model is not None:
        return is_archive(model)
    try:
        return is_archive(IndexDescription.load(Path(index)).model)
    except (SearchError, NoModel):  # told when it is opened, and what to do
        return False


def _queries() -> Iterator[str]:
    """Yield the lines of standard input that are not blank; a terminal shows a prompt for each."""
    if not sys.stdin.isatty():
        from declutr.corpus.documents import read_stream

        lines = read_stream(sys.stdin.buffer, "standard input")
        yield from (line for line in lines if line.strip())
        return
    while True:
        try:
            line = input(_PROMPT)
        except EOFError:
            print()
            return
        if line.strip():
            yield line


def _answer(index: SearchIndex, query: str, args: argparse.Namespace) -> None:
    hits = index.search(query, args.k)
    if args.json:
        found = {"query": query, "hits": _as_json(hits)}
        answer = json.dumps(found, ensure_ascii=not prints_unicode())
        print(answer.translate(_OTHER_LINE_ENDS), flush=True)
        return
    width = args.width or shutil.get_terminal_size((100, 24)).columns
    if args.query is None and not sys.stdin.isatty():
        print(clipped(f"{_PROMPT}{query}", width))
    answer = "\n".join(table(hits, width)) or "No line of the index can be found."
    print(answer, end="\n\n" if args.query is None else "\n", flush=True)


def _as_json(hits: list[Hit]) -> list[dict]:
    return [
        {"rank": rank, "score": hit.score, "line": hit.row + 1, "text": hit.text}
        for rank, hit in enumerate(hits, start=1)
    ]


def table(hits: list[Hit], width: int) -> Iterator[str]:
    """Yield a line per hit with rank, cosine, line number and text, clipped to `width` columns."""
    numbers = len(f"{max((hit.row + 1 for hit in hits), default=0):,}")
    ranks = len(str(len(hits)))
    for rank, hit in enumerate(hits, start=1):
        head = f"{rank:>{ranks}}  {hit.score:6.3f}  {hit.row + 1:>{numbers},}  "
        yield clipped(head + hit.text, width)


def clipped(text: str, width: int) -> str:
    """Return a text as one line of at most `width` columns, in which wide characters count as two.

    Control characters, which a terminal could execute, are replaced by U+FFFD. An ellipsis marks
    where the text was cut.

    >>> clipped("a line of text", 9)
    'a line o…'
    """
    # A line may be as long as a book, so only its beginning is processed. Eight characters per
    # column are more than fit, unless many of them have no width.
    shown = "".join(map(_harmless, text[: 8 * width]))
    if len(text) <= 8 * width and _columns(shown) <= width:
        return shown
    columns = 1  # for the ellipsis
    for place, character in enumerate(shown):
        columns += _columns(character)
        if columns > width:
            return shown[:place].rstrip() + "…"
    return shown + "…"


def _harmless(character: str) -> str:
    if character.isspace():
        return " "
    commands = unicodedata.category(character) in ("Cc", "Cs") or character in _DIRECTIONS
    return "\ufffd" if commands else character


def _columns(text: str) -> int:
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )
